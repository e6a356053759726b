// SPDX-License-Identifier: Apache-2.0
//
// A draft sees a layer's keys as they are, wherever they lie.
#include "kv/layer_view.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "attention/testing/store_row.h"
#include "base/size.h"
#include "base/testing/guarded_pages.h"
#include "kv/full_cache.h"
#include "kv/kv_mover.h"
#include "kv/testing/guarded_chunks.h"

namespace longspec {
namespace {

using testing::GuardedMover;
using testing::GuardedPages;

constexpr int kViewLayers = 3, kViewed = 2, kViewHeads = 2, kViewDim = 32;

KvLayout ViewLayout(CacheType type) {
  return {.k_type = type, .v_type = type, .n_kv_head = kViewHeads, .head_dim = kViewDim};
}

// Tokens first, first + 1, ..., in all layers, other keys and values in each.
void AppendTokens(GuardedPages& pages, KvCache& cache, int first, int n) {
  auto rows = cache.Begin(n);
  ASSERT_TRUE(rows.ok());
  {
    const GuardedPages::Opening open(pages);
    for (int i = 0; i < n * kViewLayers * kViewHeads; ++i) {
      const int row = i / (kViewLayers * kViewHeads), layer = i / kViewHeads % kViewLayers;
      float k[kViewDim], v[kViewDim];
      for (int d = 0; d < kViewDim; ++d) {
        k[d] = static_cast<float>(((first + row) * 7 + layer * 31 + i % kViewHeads * 17 + d) % 128);
        v[d] = -k[d];
      }
      testing::StoreRow(rows->Writer(layer), rows->slot() + row, i % kViewHeads, k, v);
    }
  }
  rows->CommitAll();
}

// By bytes of values and by all that attention would read of keys.
void ExpectSame(const KvSpan& a, const KvSpan& b) {
  ASSERT_EQ(a.n_committed, b.n_committed);
  for (int head = 0; head < kViewHeads; ++head) {
    for (int slot = 0; slot < a.n_committed; ++slot) {
      ASSERT_EQ(std::memcmp(a.value_row(slot, head), b.value_row(slot, head), a.layout.v_row_bytes()), 0);
      for (int d = 0; d < kViewDim; ++d) ASSERT_EQ(a.KeyAt(slot, head, d), b.KeyAt(slot, head, d)) << slot;
    }
  }
}

class LayerViewTest : public ::testing::TestWithParam<CacheType> {
 protected:
  LayerViewTest()
      : far_(MakeFullCache(mover_.NewPool(layout_, kViewLayers), 2000)),
        near_(MakeFullCache(layout_, kViewLayers, 2000)) {}

  void Append(int first, int n) {
    AppendTokens(*pages_, *far_, first, n);
    AppendTokens(*pages_, *near_, first, n);
  }
  void ExpectSeen(const LayerView& view) { ExpectSame(view.span(), near_->Span(kViewed)); }

  const KvLayout layout_ = ViewLayout(GetParam());
  const std::shared_ptr<GuardedPages> pages_ = std::make_shared<GuardedPages>();
  const GuardedMover mover_{pages_};
  const std::unique_ptr<KvCache> far_, near_;
};

TEST_P(LayerViewTest, SeesKeysWhereverTheyLie) {
  const auto far = far_->mover().NewLayerView(layout_, kViewed);
  const auto near = near_->mover().NewLayerView(layout_, kViewed);
  for (const int n : {3, 13, 1, 239, 1, 300, 17}) {
    Append(far_->length(), n);
    for (const auto& [view, cache] : {std::pair(far.get(), far_.get()), std::pair(near.get(), near_.get())}) {
      ASSERT_TRUE(view->Follow(*cache).ok());
      ExpectSeen(*view);
    }
  }
  EXPECT_EQ(near->bytes(), 0U);
  EXPECT_EQ(near->span().chunks, near_->Span(kViewed).chunks);  // no copy
  EXPECT_EQ(far->bytes(), 3 * layout_.layer_bytes());           // of one layer
}

TEST_P(LayerViewTest, ReadsWhatIsNew) {
  const auto view = far_->mover().NewLayerView(layout_, kViewed);
  Append(0, 500);
  ASSERT_TRUE(view->Follow(*far_).ok());
  for (const int n : {1, 1, 1}) {  // position 500 is in the middle of a block
    Append(far_->length(), n);
    mover_.n_read = 0;
    ASSERT_TRUE(view->Follow(*far_).ok());
    EXPECT_EQ(mover_.n_read,
              kViewHeads * (kKeyBlock * layout_.k_format().bytes() + Z(n) * layout_.v_row_bytes()));
    ExpectSeen(*view);
  }
  mover_.n_read = 0;
  ASSERT_TRUE(view->Follow(*far_).ok());
  EXPECT_EQ(mover_.n_read, 0U);
}

TEST_P(LayerViewTest, ReadsAgainWhatIsAnother) {
  const auto view = far_->mover().NewLayerView(layout_, kViewed);
  Append(0, 300);
  ASSERT_TRUE(view->Follow(*far_).ok());
  for (const int length : {290, 256, 40, 0}) {
    far_->Truncate(length);
    near_->Truncate(length);
    view->Truncate(length);
    Append(1000 + length, 300 - length);
    ASSERT_TRUE(view->Follow(*far_).ok());
    ExpectSeen(*view);
  }
  // One that became shorter and is the same so far.
  far_->Truncate(100);
  near_->Truncate(100);
  ASSERT_TRUE(view->Follow(*far_).ok());
  ExpectSeen(*view);
}

INSTANTIATE_TEST_SUITE_P(Types, LayerViewTest,
                         ::testing::Values(CacheType::kF32, CacheType::kF16, CacheType::kQ8_0,
                                           CacheType::kI8));

}  // namespace
}  // namespace longspec
