// SPDX-License-Identifier: Apache-2.0
// Rows that see a range of positions, such as a window, and a tail kept elsewhere, such as a draft model's
// nodes.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "attention/attention.h"
#include "base/aligned_buffer.h"
#include "base/counter_rng.h"
#include "kernels/dispatch.h"
#include "lab/eager_attention.h"

namespace longspec {
namespace {

constexpr AttentionShape kShape = {.n_head = 6, .n_kv_head = 2, .head_dim = 16, .scale = 0.25F};
constexpr KvLayout kLayout = {
    .k_type = CacheType::kF32, .v_type = CacheType::kF32, .n_kv_head = 2, .head_dim = 16};

// Random keys and values of positions or slots, in chunks.
class Keys {
 public:
  Keys(int n_chunks, uint64_t seed) {
    const RngStream rng{.seed = seed, .purpose = RngPurpose::kTest};
    for (int i = 0; i < n_chunks; ++i) {
      chunks_.emplace_back(kLayout.layer_bytes());
      bases_.push_back(chunks_.back().data());
      auto* values = chunks_.back().as<float>();
      for (size_t j = 0; j < kLayout.layer_bytes() / 4; ++j) {
        values[j] =
            static_cast<float>(rng.Uniform(static_cast<uint64_t>(i), static_cast<uint32_t>(j)) * 4 - 2);
      }
    }
    span.layout = kLayout;
    span.chunks = bases_.data();
  }
  double K(int chunk, int offset, int head, int d) const {
    const auto* keys = reinterpret_cast<const float*>(span.keys(chunk, head));
    return static_cast<double>(keys[(offset / 16 * 16 + d) * 16 + offset % 16]);
  }
  double V(int chunk, int offset, int head, int d) const {
    return static_cast<double>(reinterpret_cast<const float*>(span.values(chunk, head))[offset * 16 + d]);
  }
  KvSpan span;

 private:
  std::vector<AlignedBuffer> chunks_;
  std::vector<std::byte*> bases_;
};

// out (n_rows, 6 * 16), by the definition.
std::vector<double> Expected(const Keys& stored, int n_ring, const Keys& tail,
                             const std::vector<RowView>& rows, const std::vector<float>& q) {
  std::vector<double> out;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (int h = 0; h < 6; ++h) {
      struct Seen {
        const Keys* keys;
        int chunk, offset;
      };
      std::vector<Seen> seen;
      for (int p = rows[r].begin; p < rows[r].end; ++p) {
        seen.push_back({&stored, n_ring > 0 ? p / 256 % n_ring : p / 256, p % 256});
      }
      for (const int slot : rows[r].tail) seen.push_back({&tail, slot / 256, slot % 256});
      const size_t at =
          ((static_cast<size_t>(h / 3) * rows.size() + r) * 3 + static_cast<size_t>(h % 3)) * 16;
      std::vector<double> w;
      double sum = 0;
      for (const Seen& s : seen) {
        double dot = 0;
        for (int d = 0; d < 16; ++d) {
          dot += static_cast<double>(q[at + static_cast<size_t>(d)]) * s.keys->K(s.chunk, s.offset, h / 3, d);
        }
        w.push_back(std::exp(dot * 0.25));
        sum += w.back();
      }
      for (int d = 0; d < 16; ++d) {
        double o = 0;
        for (size_t i = 0; i < seen.size(); ++i)
          o += w[i] / sum * seen[i].keys->V(seen[i].chunk, seen[i].offset, h / 3, d);
        out.push_back(o);
      }
    }
  }
  return out;
}

std::vector<float> Queries(size_t n_rows) {
  const RngStream rng{.seed = 77, .purpose = RngPurpose::kTest};
  std::vector<float> q(n_rows * 6 * 16);
  for (size_t i = 0; i < q.size(); ++i) q[i] = static_cast<float>(rng.Uniform(i) * 4 - 2);
  return q;
}

struct Stored {
  KvSpan span;
  int n_ring = 0;
};

std::vector<float> Attend(Attention& attention, ThreadTeam& team, const Stored& stored, const Keys& tail,
                          int n_tail, const std::vector<RowView>& rows, const std::vector<float>& q) {
  std::vector<float> out(rows.size() * 6 * 16, -1.0F);
  const AttentionSegment segment = {.stored = stored.span,
                                    .n_ring_chunks = stored.n_ring,
                                    .tail = tail.span,
                                    .tail_begin = 0,
                                    .tail_end = n_tail,
                                    .rows = rows};
  attention.Plan({&segment, 1});
  team.Run([&](ThreadTeam::Worker& worker) { attention.Run(worker, 0, q.data(), out.data()); });
  return out;
}

struct Case {
  std::vector<RowView> rows;
  int n_ring = 0;
};

std::vector<Case> Cases(const std::vector<int32_t>& slots) {
  const std::span<const int32_t> s(slots);
  std::vector<Case> cases = {
      {{{0, 1, {}}}},
      {{{0, 0, {}}}},
      {{{0, 0, s.first(1)}}},
      {{{5, 9, {}}, {9, 9, s.first(3)}}},
      {{{0, 256, {}}, {0, 257, {}}, {255, 256, {}}, {256, 257, s.subspan(2, 5)}}},
      {{{0, 3000, {}}, {100, 2900, s.first(256)}, {2999, 3000, {}}, {0, 1, {}}, {700, 700, {}}}},
      // Windows that go round a ring of three chunks.
      {{{1000, 1513, s.first(4)}, {1100, 1513, s.subspan(7, 2)}}, 3},
      {{{2047, 2560, {}}}, 3},
  };
  Case many;  // more rows than a tile
  for (int i = 0; i < 40; ++i)
    many.rows.push_back({i * 20, 900 + i * 3, s.subspan(static_cast<size_t>(i), 5)});
  cases.push_back(many);
  return cases;
}

TEST(RangesAndTails, IsSoftmaxAttentionOverRangeAndPath) {
  const Keys stored(12, 1), tail(2, 2);
  std::vector<int32_t> slots(300);  // scattered over 300 slots
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i * 7 % 300);
  for (const kernels::KernelTable* table : kernels::Available()) {
    for (const int threads : {1, 3}) {
      ThreadTeam team(threads);
      AttentionPlan attention(table, kShape, threads);
      for (const Case& c : Cases(slots)) {
        const std::vector<float> q = Queries(c.rows.size());
        const std::vector<float> out = Attend(attention, team, {stored.span, c.n_ring}, tail, 300, c.rows, q);
        const std::vector<double> expected = Expected(stored, c.n_ring, tail, c.rows, q);
        for (size_t i = 0; i < out.size(); ++i)
          ASSERT_NEAR(out[i], expected[i], 2e-6) << table->name << " " << i;
      }
    }
  }
}

TEST(RangesAndTails, EagerAttentionHasTheSameBits) {
  const Keys stored(12, 1), tail(2, 2);
  std::vector<int32_t> slots(300);
  for (size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<int32_t>(i * 7 % 300);
  const std::vector<Case> cases = Cases(slots);
  for (const int threads : {1, 3}) {
    ThreadTeam team(threads);
    const kernels::KernelTable* table = kernels::Available().front();
    AttentionPlan flash(table, kShape, threads);
    EagerAttention eager(table, kShape, threads);
    for (const Case& c : cases) {
      const std::vector<float> q = Queries(c.rows.size());
      EXPECT_EQ(Attend(eager, team, {stored.span, c.n_ring}, tail, 300, c.rows, q),
                Attend(flash, team, {stored.span, c.n_ring}, tail, 300, c.rows, q));
    }
    // Three query heads for each KV head: three times the bytes, whole chunks.
    EXPECT_EQ(EagerAttention::CopyBytes(kShape, kLayout, 257), 2 * 3 * kLayout.layer_bytes());
  }
}

// As a target lays out its rows: guesses stand behind what is stored, in the same chunks.
TEST(RangesAndTails, EagerAttentionCopiesAKeyOnce) {
  const Keys stored(12, 1);
  const std::vector<int32_t> path = {2900, 2905};
  struct Planned {
    std::vector<RowView> rows;
    int tail_begin, tail_end, copied;
  };
  const Planned passes[] = {{{{0, 1000, {}}}, 999, 1000, 1000},
                            {{{0, 2048, {}}, {0, 2049, {}}}, 2047, 2049, 2049},
                            {{{0, 2900, {}}, {0, 2900, path}}, 2900, 2906, 2906}};
  ThreadTeam team(2);
  const kernels::KernelTable* table = kernels::Available().front();
  AttentionPlan flash(table, kShape, 2);
  EagerAttention eager(table, kShape, 2);
  for (const Planned& pass : passes) {
    const AttentionSegment segment = {.stored = stored.span,
                                      .tail = stored.span,
                                      .tail_begin = pass.tail_begin,
                                      .tail_end = pass.tail_end,
                                      .rows = pass.rows};
    const std::vector<float> q = Queries(pass.rows.size());
    const auto attend = [&](Attention& attention) {
      std::vector<float> out(q.size(), -1.0F);
      attention.Plan({&segment, 1});
      team.Run([&](ThreadTeam::Worker& worker) { attention.Run(worker, 0, q.data(), out.data()); });
      return out;
    };
    EXPECT_EQ(attend(eager), attend(flash));
    EXPECT_EQ(eager.copy_bytes(), EagerAttention::CopyBytes(kShape, kLayout, pass.copied));
  }
}

// A draft's first token sees nothing of the target: zero, and no number that is none.
TEST(RangesAndTails, ARowThatSeesNothingIsZero) {
  const Keys stored(2, 1), tail(1, 2);
  ThreadTeam team(2);
  AttentionPlan attention(kernels::Available().front(), kShape, 2);
  const std::vector<std::vector<RowView>> calls = {
      {{0, 0, {}}}, {{300, 300, {}}}, {{0, 300, {}}, {0, 0, {}}}};
  for (const std::vector<RowView>& rows : calls) {
    const std::vector<float> out =
        Attend(attention, team, {stored.span, 0}, tail, 0, rows, Queries(rows.size()));
    EXPECT_EQ(std::vector<float>(out.end() - 96, out.end()), std::vector<float>(96, 0.0F));
    if (rows.size() > 1) {
      EXPECT_NE(out[0], 0.0F);
    }
  }
}

TEST(RangesAndTails, ARowDoesNotDependOnTheRowsBesideIt) {
  const Keys stored(12, 1), tail(2, 2);
  std::vector<int32_t> slots(300);
  std::iota(slots.begin(), slots.end(), 0);
  ThreadTeam team(2), other(1);
  AttentionPlan attention(kernels::Available().front(), kShape, 2);
  AttentionPlan single(kernels::Available().front(), kShape, 1);
  std::vector<RowView> rows;
  for (int i = 0; i < 20; ++i) rows.push_back({i * 9, 2500, std::span<const int32_t>(slots).subspan(0, 3)});
  const std::vector<float> q = Queries(rows.size());
  const std::vector<float> together = Attend(attention, team, {stored.span, 0}, tail, 300, rows, q);
  EXPECT_EQ(Attend(single, other, {stored.span, 0}, tail, 300, rows, q), together);
  for (const size_t r : {size_t{0}, size_t{15}, size_t{16}, size_t{19}}) {
    std::vector<float> own;
    for (size_t head = 0; head < 2; ++head) {
      const float* from = q.data() + (head * rows.size() + r) * 48;
      own.insert(own.end(), from, from + 48);
    }
    const std::vector<float> alone = Attend(attention, team, {stored.span, 0}, tail, 300, {rows[r]}, own);
    EXPECT_EQ(alone, std::vector<float>(together.begin() + static_cast<std::ptrdiff_t>(r * 96),
                                        together.begin() + static_cast<std::ptrdiff_t>(r * 96 + 96)));
  }
}

TEST(RangesAndTails, MemoryHasALimitWhateverTheRange) {
  ThreadTeam team(2);
  AttentionPlan attention(kernels::Available().front(), kShape, 2);
  const std::vector<const std::byte*> chunks(40000, nullptr);  // nothing is read
  const KvSpan span = {.layout = kLayout, .chunks = chunks.data()};
  const std::vector<RowView> rows(32, RowView{.begin = 0, .end = 10'000'000});
  const AttentionSegment segment = {.stored = span, .rows = rows};
  attention.Plan({&segment, 1});
  EXPECT_GT(attention.bytes(), 1U << 20);
  EXPECT_LE(attention.bytes(), AttentionPlan::MostBytes(kShape, 2, 32));
}

}  // namespace
}  // namespace longspec
