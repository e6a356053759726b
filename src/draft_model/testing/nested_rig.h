// SPDX-License-Identifier: Apache-2.0
//
// For tests of drafters that run the target on a part of its cache: a sequence that they read along with as
// in the real loop, and what their passes over the part cost.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "draft_model/draft_models.h"
#include "draft_model/nested_drafter.h"
#include "draft_model/option_use.h"
#include "draft_model/registry.h"
#include "draft_model/testing/longspec_files.h"
#include "kv/retrieval_cache.h"

namespace longspec::testing {

// Counts what is asked of a target.
class CountingTarget final : public Target {
 public:
  explicit CountingTarget(Target* real) : real_(real) {}

  int vocab_size() const override { return real_->vocab_size(); }
  int context_length() const override { return real_->context_length(); }
  const SharedParts* shared_parts() const override { return real_->shared_parts(); }
  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    for (const ForwardSegment& segment : segments) {
      n_rows += segment.kv->n_rows();
      n_keys += segment.kv->slot() + segment.kv->n_rows();
    }
    return real_->Forward(segments);
  }

  int64_t n_rows = 0;
  int64_t n_keys = 0;  // that passes could see, of each pass once

 private:
  Target* const real_;
};

class NestedRig {
 public:
  explicit NestedRig(TinyTarget* tiny, const SpeculationOptions& options, int capacity = 2000,
                     DraftModels* models = nullptr)
      : passes(&tiny->target()), cache(tiny->NewCache(capacity)), tiny_(tiny) {
    auto made = MakeDrafter(OnlyRead(options, options.type),
                            {.target = &passes, .cache = cache.get(), .models = models});
    EXPECT_TRUE(made.ok()) << made.status().message();
    drafter = std::move(*made);
  }

  // The text is `tokens` from now on, by other means than going on: the cache keeps what both begin with.
  void Follow(const std::vector<int32_t>& tokens) {
    const auto same = std::ranges::mismatch(tokens, text).in1 - tokens.begin();
    const auto kept = std::min<std::ptrdiff_t>(same, std::ssize(tokens) - 1);
    cache->Truncate(std::min(cache->length(), static_cast<int>(kept)));
    EXPECT_TRUE(drafter->Follow(tokens).ok());
    text = tokens;
  }

  // Computes what the cache lacks of a text that begins as the one before, in chunks. The drafter reads it;
  // what is new of the text was decided by the last chunk.
  void GoOnTo(const std::vector<int32_t>& tokens, size_t chunk = 64) {
    const size_t n_old = text.size();
    text = tokens;
    const Taps taps = drafter->taps();
    while (cache->length() + 1 < std::ssize(text)) {
      const auto begin = static_cast<size_t>(cache->length());
      const size_t n = std::min(chunk, text.size() - 1 - begin);
      auto rows = cache->Begin(static_cast<int>(n));
      ASSERT_TRUE(rows.ok());
      const ForwardSegment segment = {.tokens = std::span(text).subspan(begin, n),
                                      .kv = &*rows,
                                      .logits = LogitsFor::kNone,
                                      .taps = taps.empty() ? nullptr : &taps};
      const auto output = tiny_->target().Forward({&segment, 1});
      ASSERT_TRUE(output.ok()) << output.status().message();
      rows->CommitAll();
      std::vector<int32_t> places(n);
      for (size_t i = 0; i < n; ++i) places[i] = static_cast<int32_t>(i);
      const bool last = begin + n + 1 == text.size();
      const Status read = drafter->Read({.sequence = text,
                                         .n_new = last ? static_cast<int>(text.size() - n_old) : 0,
                                         .first = static_cast<int>(begin),
                                         .rows = places,
                                         .output = &output->segments[0],
                                         .n_output_rows = static_cast<int>(n)});
      ASSERT_TRUE(read.ok()) << read.message();
    }
  }

  TokenTree Propose(const DraftBudget& budget) {
    TokenTree tree(text.back());
    const Status status = drafter->Propose(budget, text, tree);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_LE(tree.size() - 1, budget.max_nodes);
    EXPECT_LE(tree.max_depth(), budget.max_depth);
    return tree;
  }

  // Of the drafter, if it is one of these.
  const WorkingSet& part() const { return dynamic_cast<const NestedDrafter&>(*drafter).part(); }
  RetrievalWork work() const { return dynamic_cast<const RetrievalCache&>(part()).work(); }

  CountingTarget passes;  // what drafts run
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<Drafter> drafter;
  std::vector<int32_t> text;

 private:
  TinyTarget* const tiny_;
};

}  // namespace longspec::testing
