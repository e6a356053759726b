// SPDX-License-Identifier: Apache-2.0
//
// The plan against a naive loop over each row's visible keys in position order, with memcmp: for every row
// count, tree shape, chunk boundary, thread count and KV type, on every kernel table this CPU has.
#include "attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "attention/testing/store_row.h"
#include "attention/tree_rows.h"
#include "base/size.h"
#include "kernels/dispatch.h"
#include "kernels/tables.h"
#include "lab/eager_attention.h"

namespace longspec {
namespace {

using kernels::kChunk;
using kernels::KernelTable;
using kernels::kStateHeader;

// A cache of one layer with room for `slots`, keys and values given as floats.
class ToyCache {
 public:
  ToyCache(const KvLayout& layout, int slots) : layout_(layout) {
    for (int c = 0; c * kKvChunk < slots; ++c) {
      storage_.emplace_back(layout.layer_bytes());
      bases_.push_back(storage_.back().data());
    }
  }

  void Store(int slot, int head, const float* k, const float* v) {
    testing::StoreRow({.layout = layout_, .chunks = bases_.data()}, slot, head, k, v);
  }

  ToyCache(const ToyCache& other) : layout_(other.layout_), storage_(other.storage_) {
    for (std::vector<std::byte>& chunk : storage_) bases_.push_back(chunk.data());
  }
  ToyCache& operator=(const ToyCache&) = delete;

  // Has the first n chunks of another one.
  void Share(const ToyCache& other, int n) { std::copy_n(other.bases_.begin(), n, bases_.begin()); }

  KvSpan Span(int committed, int speculated) const {
    return {.layout = layout_,
            .chunks = bases_.data(),
            .layer_offset = 0,
            .n_committed = committed,
            .n_speculated = speculated};
  }

 private:
  KvLayout layout_;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<std::byte*> bases_;
};

constexpr CacheType kTypes[] = {CacheType::kF32,  CacheType::kF16,     CacheType::kBF16, CacheType::kQ8_0,
                                CacheType::kQ4_0, CacheType::kBF16Amx, CacheType::kI8};

struct Problem {
  AttentionShape shape;
  KvLayout layout;
  int base = 0;
  std::vector<int32_t> parents;  // empty: a chain
  int n_rows = 0;
  std::vector<float> q;     // (n_kv_head, n_rows, group, head_dim)
  std::vector<float> k, v;  // (base + n_rows slots, n_kv_head, head_dim)
};

Problem MakeProblem(int base, int n_rows, std::vector<int32_t> parents, CacheType type, int head_dim = 32,
                    int group = 3, CacheType v_type = CacheType::kF16) {
  Problem p;
  p.shape = {.n_head = 2 * group, .n_kv_head = 2, .head_dim = head_dim, .scale = 0.25F};
  p.layout = {.k_type = type, .v_type = v_type, .n_kv_head = 2, .head_dim = head_dim};
  p.base = base;
  p.n_rows = n_rows;
  p.parents = std::move(parents);
  std::mt19937 rng(static_cast<unsigned>(base * 131 + n_rows));
  std::normal_distribution<float> normal;
  p.q.resize(Z(n_rows) * Z(p.shape.n_head) * Z(head_dim));
  p.k.resize(Z(base + n_rows) * 2 * Z(head_dim));
  p.v.resize(p.k.size());
  for (auto* values : {&p.q, &p.k, &p.v}) {
    for (float& f : *values) f = normal(rng);
  }
  return p;
}

// Slots the row sees, in position order.
std::vector<int> Visible(const Problem& p, int row) {
  std::vector<int> slots(Z(p.base));
  for (int i = 0; i < p.base; ++i) slots[Z(i)] = i;
  std::vector<int> path;
  for (int r = row; r >= 0; r = p.parents.empty() ? r - 1 : p.parents[Z(r)]) path.push_back(p.base + r);
  slots.insert(slots.end(), path.rbegin(), path.rend());
  return slots;
}

// The cache's positions from `begin` on hold these slots of the problem.
void StoreSlots(const Problem& p, const std::vector<int>& slots, int begin, ToyCache* cache) {
  for (auto i = Z(begin); i < slots.size(); ++i) {
    for (int h = 0; h < 2; ++h) {
      const size_t at = (Z(slots[i]) * 2 + Z(h)) * Z(p.shape.head_dim);
      cache->Store(static_cast<int>(i), h, p.k.data() + at, p.v.data() + at);
    }
  }
}

// The problem's first n slots where a sequence has them; the committed ones are what every row sees.
ToyCache FirstSlots(const Problem& p, int n) {
  std::vector<int> slots(Z(n));
  std::iota(slots.begin(), slots.end(), 0);
  ToyCache cache(p.layout, p.base + p.n_rows);
  StoreSlots(p, slots, 0, &cache);
  return cache;
}
ToyCache Committed(const Problem& p) { return FirstSlots(p, p.base); }
ToyCache AllSlots(const Problem& p) { return FirstSlots(p, p.base + p.n_rows); }

// One row as plain decoding defines it: the visible keys copied, in order, to a contiguous cache of its own,
// then chunk by chunk with the reference kernels and one row per call.
std::vector<float> NaiveRow(const Problem& p, const ToyCache& committed, int row) {
  const KernelTable& ref = kernels::kReferenceTable;
  const int head_dim = p.shape.head_dim, group = p.shape.group();
  const std::vector<int> slots = Visible(p, row);
  const auto n = static_cast<int>(slots.size());
  ToyCache cache = committed;
  StoreSlots(p, slots, p.base, &cache);
  const KvSpan span = cache.Span(n, 0);
  std::vector<float> out(Z(p.shape.n_head) * Z(head_dim));
  for (int head = 0; head < p.shape.n_head; ++head) {
    const int kv = head / group;
    const float* q = p.q.data() + ((Z(kv) * Z(p.n_rows) + Z(row)) * Z(group) + Z(head % group)) * Z(head_dim);
    // Of the stretches before, of the one that chunk c is in, and of c.
    std::vector<float> state(Z(kStateHeader + head_dim)), stretch(state.size()), s(state.size());
    const auto add = [&](bool is_first, std::vector<float>& to, const std::vector<float>& from) {
      if (is_first) {
        to = from;
      } else {
        ref.merge_state(to.data(), from.data(), head_dim);
      }
    };
    for (int c = 0; c * kChunk < n; ++c) {
      const int count = std::min(kChunk, n - c * kChunk);
      float scores[kChunk];
      ref.scores({.keys = span.keys(c, kv),
                  .q = q,
                  .out = scores,
                  .out_stride = kChunk,
                  .scale = p.shape.scale,
                  .n_rows = 1,
                  .head_dim = head_dim,
                  .block_begin = 0,
                  .block_end = (count + 15) / 16,
                  .type = static_cast<kernels::KvType>(p.layout.k_type)});
      std::fill(s.begin(), s.end(), 0.0F);
      ref.softmax_chunk(scores, count, s.data());
      ref.values({.values = span.values(c, kv),
                  .p = scores,
                  .p_stride = kChunk,
                  .o = s.data() + kStateHeader,
                  .o_stride = 0,
                  .n_keys = &count,
                  .n_rows = 1,
                  .head_dim = head_dim,
                  .type = static_cast<kernels::KvType>(p.layout.v_type)});
      add(c % 16 == 0, stretch, s);
      if ((c + 1) * kChunk >= n || (c + 1) % 16 == 0) add(c < 16, state, stretch);
    }
    ref.finish_state(state.data(), head_dim, out.data() + Z(head) * Z(head_dim));
  }
  return out;
}

template <typename Plan = AttentionPlan>
std::vector<float> RunPlan(const Problem& p, const ToyCache& cache, const KernelTable* table, int threads) {
  ThreadTeam team(threads);
  Plan plan(table, p.shape, threads);
  TreeRows rows;
  rows.Add(cache.Span(p.base, p.n_rows), p.base, p.n_rows, p.parents);
  plan.Plan(rows.Segments());
  std::vector<float> out(Z(p.n_rows) * Z(p.shape.n_head) * Z(p.shape.head_dim), -1.0F);
  team.Run([&](ThreadTeam::Worker& w) { plan.Run(w, 0, p.q.data(), out.data()); });
  return out;
}

std::vector<float> RunPlan(const Problem& p, const KernelTable* table, int threads) {
  return RunPlan(p, AllSlots(p), table, threads);
}

void ExpectCanonical(const Problem& p) {
  std::vector<std::vector<float>> naive;
  const ToyCache committed = Committed(p), all = AllSlots(p);
  for (int row = 0; row < p.n_rows; ++row) naive.push_back(NaiveRow(p, committed, row));
  const auto expect_naive = [&](const std::vector<float>& out, const std::string& who) {
    for (int row = 0; row < p.n_rows; ++row) {
      const std::vector<float>& want = naive[Z(row)];
      EXPECT_EQ(std::memcmp(out.data() + Z(row) * want.size(), want.data(), want.size() * sizeof(float)), 0)
          << who << ", base " << p.base << ", row " << row << " of " << p.n_rows;
    }
  };
  for (const KernelTable* table : kernels::Available()) {
    for (const int threads : {1, 2}) {
      expect_naive(RunPlan(p, all, table, threads),
                   std::string(table->name) + ", " + std::to_string(threads) + " threads");
    }
  }
  expect_naive(RunPlan<EagerAttention>(p, all, kernels::Available().front(), 2), "eager");
}

std::vector<int32_t> RandomTree(int n, unsigned seed) {
  std::mt19937 rng(seed);
  std::vector<int32_t> parents = {-1};
  for (int i = 1; i < n; ++i) parents.push_back(std::uniform_int_distribution<int32_t>(0, i - 1)(rng));
  return parents;
}

TEST(Attention, ChainsOfEveryRowCountAroundChunkBorders) {
  for (const int base : {0, 1, 15, 200, 255, 256, 300, 511}) {
    for (const int rows : {1, 2, 5, 8, 24, 25, 40, 70})
      ExpectCanonical(MakeProblem(base, rows, {}, CacheType::kF16));
  }
}

TEST(Attention, TreesOfRandomShapeAroundChunkBorders) {
  for (const int base : {0, 1, 15, 200, 250, 255, 256, 300, 511}) {
    for (const int rows : {1, 2, 9, 24, 33}) {
      ExpectCanonical(
          MakeProblem(base, rows, RandomTree(rows, static_cast<unsigned>(base + rows)), CacheType::kF16));
    }
  }
}

TEST(Attention, ATreeDeeperThanAChunk) {
  std::vector<int32_t> parents(300);
  for (int i = 0; i < 300; ++i) parents[Z(i)] = i - 1;
  parents[299] = 5;
  const Problem p = MakeProblem(250, 300, parents, CacheType::kF16, 16, 1);
  const ToyCache committed = Committed(p);
  const std::vector<float> out = RunPlan(p, kernels::Available().front(), 2);
  for (const int row : {0, 5, 6, 255, 262, 298, 299}) {
    const std::vector<float> want = NaiveRow(p, committed, row);
    EXPECT_EQ(std::memcmp(out.data() + Z(row) * want.size(), want.data(), want.size() * sizeof(float)), 0)
        << row;
  }
}

// States of chunks within 4,096 positions are merged before those of others.
TEST(Attention, RowsAroundTheEndsOfStretches) {
  for (const int base : {4090, 4096, 4097, 8190}) {
    for (const int rows : {1, 9, 40}) ExpectCanonical(MakeProblem(base, rows, {}, CacheType::kF16, 16, 1));
    ExpectCanonical(MakeProblem(base, 9, RandomTree(9, 3), CacheType::kF16, 16, 2));
  }
}

TEST(Attention, EveryCacheTypeAndHeadShape) {
  for (const CacheType type : kTypes) {
    for (const int head_dim : {16, 48, 64, 128}) {
      if (!CheckLayout({.k_type = type, .v_type = type, .n_kv_head = 1, .head_dim = head_dim}).ok()) continue;
      for (const int group : {1, 4, 7}) {
        if (group == 4 && std::getenv("LONGSPEC_SKIP_SLOW") != nullptr) continue;
        ExpectCanonical(MakeProblem(270, 6, {}, type, head_dim, group, type));
        ExpectCanonical(MakeProblem(270, 6, {-1, 0, 0, 1, 1, 3}, type, head_dim, group, type));
      }
    }
  }
}

// Arithmetics bf16 and i8 sum keys in pairs and in blocks of positions: some may be committed and others
// speculated.
TEST(Attention, KeysSummedTogetherCutAnywhere) {
  for (const CacheType type : {CacheType::kBF16, CacheType::kBF16Amx, CacheType::kI8}) {
    for (const int base : {0, 1, 2, 15, 31, 32, 33, 251, 254, 255, 256, 257, 511}) {
      for (const int rows : {1, 2, 3, 9, 25}) {
        ExpectCanonical(MakeProblem(base, rows, {}, type, 32, 3, type));
        const auto seed = static_cast<unsigned>(base + rows);
        ExpectCanonical(MakeProblem(base, rows, RandomTree(rows, seed), type, 32, 3, type));
      }
    }
  }
}

TEST(Attention, QuantisedKeysAndValuesOfAnyRowCount) {
  for (const CacheType type : {CacheType::kQ8_0, CacheType::kQ4_0, CacheType::kI8}) {
    for (const int rows : {1, 2, 9, 24, 33}) {
      ExpectCanonical(MakeProblem(250, rows, {}, type, 32, 3, type));
      ExpectCanonical(
          MakeProblem(250, rows, RandomTree(rows, static_cast<unsigned>(rows)), type, 32, 3, type));
    }
  }
}

TEST(Attention, KeysAndValuesOfDifferentTypes) {
  for (const CacheType k : kTypes) {
    for (const CacheType v : kTypes) {
      ExpectCanonical(MakeProblem(270, 5, {}, k, 32, 3, v));
      ExpectCanonical(MakeProblem(270, 5, {-1, 0, 0, 1, 1}, k, 32, 3, v));
    }
  }
}

TEST(KvLayout, BytesOfEveryType) {
  const auto bytes = [](CacheType type) {
    const KvLayout layout{.k_type = type, .v_type = type, .n_kv_head = 3, .head_dim = 64};
    EXPECT_EQ(layout.k_head_bytes(), layout.v_head_bytes());
    EXPECT_EQ(layout.layer_bytes(), 6 * layout.k_head_bytes());
    return layout.v_row_bytes();
  };
  EXPECT_EQ(bytes(CacheType::kF32), 256U);
  EXPECT_EQ(bytes(CacheType::kF16), 128U);
  EXPECT_EQ(bytes(CacheType::kBF16), 128U);
  EXPECT_EQ(bytes(CacheType::kQ8_0), 68U);
  EXPECT_EQ(bytes(CacheType::kQ4_0), 36U);
  EXPECT_EQ(bytes(CacheType::kI8), 68U);
}

TEST(KvLayout, QuantisedTypesNeedWholeBlocks) {
  KvLayout layout{.k_type = CacheType::kQ8_0, .v_type = CacheType::kF16, .n_kv_head = 1, .head_dim = 80};
  const Status keys = CheckLayout(layout);
  EXPECT_EQ(keys.code(), StatusCode::kUnsupported);
  EXPECT_EQ(
      keys.message(),
      "--cache-type-k q8_0 needs a head dimension that is a multiple of 32, which 80 is not; f16, bf16 and "
      "f32 do not");
  layout = {.k_type = CacheType::kF16, .v_type = CacheType::kQ4_0, .n_kv_head = 1, .head_dim = 80};
  EXPECT_NE(CheckLayout(layout).message().find("--cache-type-v q4_0"), std::string::npos);
  layout.head_dim = 96;
  EXPECT_TRUE(CheckLayout(layout).ok());
}

TEST(KvSpan, ElementsAreFoundWhereTheyWereStored) {
  for (const CacheType type : kTypes) {
    const KvLayout layout{.k_type = type, .v_type = type, .n_kv_head = 2, .head_dim = 32};
    ToyCache cache(layout, 300);
    for (int slot = 0; slot < 300; ++slot) {
      for (int head = 0; head < 2; ++head) {
        std::vector<float> k(32), v(32);
        k[Z(slot % 32)] =
            static_cast<float>(head + 1);  // alone in its block, so that every type holds it exactly
        v[Z((slot + 5) % 32)] = -4.0F;
        cache.Store(slot, head, k.data(), v.data());
      }
    }
    const KvSpan span = cache.Span(300, 0);
    for (int slot = 0; slot < 300; ++slot) {
      for (int head = 0; head < 2; ++head) {
        for (int d = 0; d < 32; ++d) {
          const bool in_127s = type == CacheType::kQ8_0 || type == CacheType::kI8;
          const float tolerance = in_127s ? 0.001F : 0.0F;  // 1 / 127 in f16
          ASSERT_NEAR(span.KeyAt(slot, head, d), d == slot % 32 ? static_cast<float>(head + 1) : 0.0F,
                      tolerance);
          ASSERT_NEAR(span.ValueAt(slot, head, d), d == (slot + 5) % 32 ? -4.0F : 0.0F, 4 * tolerance);
        }
      }
    }
  }
}

// The definition, in double precision: one softmax over all the row sees. (n_head, head_dim)
std::vector<double> MaskedSoftmax(const Problem& p, int row) {
  const int head_dim = p.shape.head_dim, group = p.shape.group();
  std::vector<double> out;
  for (int head = 0; head < p.shape.n_head; ++head) {
    const int kv = head / group;
    const float* q = p.q.data() + ((Z(kv) * Z(p.n_rows) + Z(row)) * Z(group) + Z(head % group)) * Z(head_dim);
    std::vector<double> sums(Z(head_dim));
    double total = 0;
    for (const int slot : Visible(p, row)) {
      const size_t at = (Z(slot) * 2 + Z(kv)) * Z(head_dim);
      double dot = 0;
      for (size_t d = 0; d < Z(head_dim); ++d)
        dot += static_cast<double>(q[d]) * static_cast<double>(p.k[at + d]);
      const double w =
          std::exp(dot * static_cast<double>(p.shape.scale));  // of small numbers: needs no maximum
      total += w;
      for (size_t d = 0; d < Z(head_dim); ++d) sums[d] += w * static_cast<double>(p.v[at + d]);
    }
    for (const double sum : sums) out.push_back(sum / total);
  }
  return out;
}

void ExpectDefinition(int base, int n_rows, int group) {
  const Problem p = MakeProblem(base, n_rows, RandomTree(n_rows, static_cast<unsigned>(base + n_rows)),
                                CacheType::kF32, 16, group, CacheType::kF32);
  const std::vector<float> out = RunPlan(p, kernels::Available().front(), 2);
  for (const int row : {0, n_rows / 2, n_rows - 1}) {
    const std::vector<double> want = MaskedSoftmax(p, row);
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_NEAR(out[Z(row) * want.size() + i], want[i], 1e-5)
          << base << " committed, row " << row << " of " << n_rows << ", group " << group;
    }
  }
}

TEST(Attention, IsOneSoftmaxOverAllARowSees) {
  for (const int base : {0, 1, 511, 512, 513}) {
    for (const int n_rows : {1, 4, 16, 74}) {
      for (const int group : {1, 4, 5}) ExpectDefinition(base, n_rows, group);
    }
  }
  ExpectDefinition(16384, 4, 5);
  ExpectDefinition(16384, 74, 1);
}

// Parts whose largest scores are far apart may be merged in any order; a part's maximum and sum are the
// logarithm of its sum of exponentials.
TEST(Attention, PartsMergeInAnyOrder) {
  constexpr int kDim = 16, kKeys = 40;
  for (const KernelTable* table : kernels::Available()) {
    for (const float apart : {0.0F, 1.0F, 80.0F, -80.0F}) {
      std::mt19937 rng(5);
      std::normal_distribution<float> normal;
      std::vector<std::vector<float>> states;
      std::vector<double> sums(kDim);
      double total = 0;
      for (int part = 0; part < 3; ++part) {
        std::vector<float> scores(kKeys), state(kStateHeader + kDim);
        for (float& score : scores) score = normal(rng) + apart * static_cast<float>(part);
        double part_sum = 0;
        std::vector<double> exponentials;
        for (const float score : scores) exponentials.push_back(std::exp(static_cast<double>(score)));
        table->softmax_chunk(scores.data(), kKeys, state.data());
        for (size_t i = 0; i < kKeys; ++i) {
          part_sum += exponentials[i];
          for (size_t d = 0; d < kDim; ++d) {
            const float v = normal(rng);
            state[kStateHeader + d] += scores[i] * v;
            sums[d] += exponentials[i] * static_cast<double>(v);
          }
        }
        total += part_sum;
        EXPECT_NEAR(state[0] + std::log(state[1]), std::log(part_sum), 1e-3) << table->name;
        states.push_back(state);
      }
      std::vector<int> order = {0, 1, 2};
      do {
        std::vector<float> merged = states[Z(order[0])], out(kDim);
        for (const size_t i : {1, 2}) table->merge_state(merged.data(), states[Z(order[i])].data(), kDim);
        EXPECT_NEAR(merged[0] + std::log(merged[1]), std::log(total), 1e-3) << table->name;
        table->finish_state(merged.data(), kDim, out.data());
        for (size_t d = 0; d < kDim; ++d)
          EXPECT_NEAR(out[d], sums[d] / total, 1e-5) << table->name << " " << apart;
      } while (std::next_permutation(order.begin(), order.end()));
    }
  }
}

// Parts of equal weight count a half each, whatever their largest scores are; a part without keys counts
// nothing.
TEST(Attention, PartsCountByTheirSumsOfExponentials) {
  constexpr size_t kDim = 16;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto part = [&](float most, float sum, float value) {
    std::vector<float> state(kStateHeader + kDim, sum * value);
    state[0] = most;
    state[1] = sum;
    return state;
  };
  for (const KernelTable* table : kernels::Available()) {
    const auto merge = [&](std::vector<float> state, const std::vector<float>& other) {
      std::vector<float> out(kDim);
      table->merge_state(state.data(), other.data(), kDim);
      table->finish_state(state.data(), kDim, out.data());
      return out;
    };
    // e^2 * 4 = e^(2 + ln 4) * 1
    const std::vector<float> here = part(2, 4, 5), there = part(2 + std::log(4.0F), 1, -3);
    for (const float x : merge(here, there)) EXPECT_NEAR(x, (5.0 - 3.0) / 2, 1e-6) << table->name;
    for (const float x : merge(there, here)) EXPECT_NEAR(x, (5.0 - 3.0) / 2, 1e-6) << table->name;
    const std::vector<float> nothing = part(-kInfinity, 0, 0);
    EXPECT_EQ(merge(nothing, here), std::vector<float>(kDim, 5)) << table->name;
    EXPECT_EQ(merge(here, nothing), std::vector<float>(kDim, 5)) << table->name;
  }
}

TEST(Attention, AChainGivenAsATreeHasTheSameBits) {
  std::vector<int32_t> parents(12);
  for (int i = 0; i < 12; ++i) parents[Z(i)] = i - 1;
  for (const CacheType type : {CacheType::kF16, CacheType::kBF16, CacheType::kBF16Amx, CacheType::kI8}) {
    const Problem chain = MakeProblem(250, 12, {}, type, 32, 3, type);
    Problem tree = chain;
    tree.parents = parents;
    EXPECT_EQ(RunPlan(chain, kernels::Available().front(), 2),
              RunPlan(tree, kernels::Available().front(), 2));
  }
}

// A prompt's missing rows and the tree under the last of them.
TEST(Attention, AChainAndTheTreeUnderItsEnd) {
  for (const int chain : {1, 2, 60, 300}) {
    for (const int base : {0, 200, 256}) {
      std::vector<int32_t> parents;
      for (int i = 0; i < chain; ++i) parents.push_back(i - 1);
      for (const int32_t parent : {-1, -1, 0, 1, 0, 4}) parents.push_back(parent + chain);
      for (const CacheType type : {CacheType::kF16, CacheType::kBF16}) {
        const auto n = static_cast<int>(parents.size());
        const Problem p = MakeProblem(base, n, parents, type, 16, 2, type);
        const std::vector<float> out = RunPlan(p, kernels::Available().front(), 2);
        const ToyCache committed = Committed(p);
        for (const int row : {0, chain / 2, chain - 1, n - 6, n - 3, n - 1}) {
          const std::vector<float> want = NaiveRow(p, committed, row);
          EXPECT_EQ(std::memcmp(out.data() + Z(row) * want.size(), want.data(), want.size() * sizeof(float)),
                    0)
              << chain << " " << base << " " << row;
        }
      }
    }
  }
}

// Several sequences in one pass, of which some hold the same chunks.
class Pass {
 public:
  // Sequence i holds what problem i says; chunks before n_shared[i] are those of sequence 0.
  Pass(const std::vector<Problem>& problems, const std::vector<int>& n_shared) : problems_(problems) {
    for (size_t i = 0; i < problems.size(); ++i) {
      const Problem& p = problems[i];
      caches_.push_back(AllSlots(p));
      if (i > 0) caches_.back().Share(caches_.front(), n_shared[i]);
      rows_.Add(caches_.back().Span(p.base, p.n_rows), p.base, p.n_rows, p.parents);
    }
  }

  // (all rows, n_head * head_dim)
  std::vector<float> Run(const KernelTable* table, int threads, int* n_items = nullptr) {
    const AttentionShape& shape = problems_[0].shape;
    AttentionPlan plan(table, shape, threads);
    plan.Plan(rows_.Segments());
    if (n_items != nullptr) *n_items = plan.n_items();
    const size_t group = Z(shape.group()) * Z(shape.head_dim), n = Z(plan.n_rows());
    std::vector<float> q(n * Z(shape.n_kv_head) * group), out(q.size(), -1.0F);
    int row = 0;
    for (const Problem& p : problems_) {
      for (int i = 0; i < p.n_rows; ++i, ++row) {
        for (size_t h = 0; h < 2; ++h) {
          std::copy_n(p.q.data() + (h * Z(p.n_rows) + Z(i)) * group, group,
                      q.data() + (h * n + Z(plan.Place(row))) * group);
        }
      }
    }
    ThreadTeam team(threads);
    team.Run([&](ThreadTeam::Worker& w) { plan.Run(w, 0, q.data(), out.data()); });
    return out;
  }

 private:
  const std::vector<Problem>& problems_;
  std::deque<ToyCache> caches_;
  TreeRows rows_;
};

TEST(Attention, EachSequenceOfAPassIsWhatItIsAlone) {
  std::vector<Problem> problems;
  problems.push_back(MakeProblem(700, 1, {}, CacheType::kF16));
  problems.push_back(MakeProblem(300, 70, {}, CacheType::kF16));  // a prompt's rows
  problems.push_back(MakeProblem(0, 3, {}, CacheType::kF16));
  problems.push_back(MakeProblem(700, 9, RandomTree(9, 3), CacheType::kF16));
  problems.push_back(MakeProblem(255, 5, {-1, 0, 0, 1, 1}, CacheType::kF16));
  problems.push_back(MakeProblem(600, 33, RandomTree(33, 4), CacheType::kF16));
  problems.push_back(MakeProblem(520, 1, {}, CacheType::kF16));
  // Those that share say the same of the positions they share.
  const std::vector<int> n_shared = {0, 1, 0, 2, 0, 2, 2};
  for (size_t i = 1; i < problems.size(); ++i) {
    const size_t floats = Z(n_shared[i]) * kKvChunk * 2 * 32;
    std::copy_n(problems[0].k.begin(), floats, problems[i].k.begin());
    std::copy_n(problems[0].v.begin(), floats, problems[i].v.begin());
  }
  std::vector<float> alone;
  for (const Problem& p : problems) {
    const std::vector<float> out = RunPlan(p, kernels::Available().front(), 1);
    alone.insert(alone.end(), out.begin(), out.end());
  }
  Pass shared(problems, n_shared), apart(problems, std::vector<int>(problems.size(), 0));
  for (const KernelTable* table : kernels::Available()) {
    for (const int threads : {1, 2, 3}) {
      int n_shared_items = 0, n_items = 0;
      EXPECT_EQ(shared.Run(table, threads, &n_shared_items), alone) << table->name << " " << threads;
      EXPECT_EQ(apart.Run(table, threads, &n_items), alone) << table->name << " " << threads;
      // Sequences 0, 3 and 6 are read together in chunks 0 and 1.
      EXPECT_EQ(n_items - n_shared_items, 2 * 2 * 2);
    }
  }
}

TEST(Attention, PartialStatesThatDoNotFitTogetherAreMergedInWaves) {
  const Problem p = MakeProblem(5000, 32, {}, CacheType::kF16, 128, 16);
  const KernelTable* table = kernels::Available().front();
  const std::vector<float> out = RunPlan(p, table, 2);
  const ToyCache committed = Committed(p);
  for (const int row : {0, 17, 31}) {
    const std::vector<float> want = NaiveRow(p, committed, row);
    EXPECT_EQ(std::memcmp(out.data() + Z(row) * want.size(), want.data(), want.size() * sizeof(float)), 0)
        << row;
  }
  AttentionPlan plan(table, p.shape, 2);
  ToyCache cache(p.layout, p.base + p.n_rows);
  TreeRows rows;
  rows.Add(cache.Span(p.base, p.n_rows), p.base, p.n_rows, {});
  plan.Plan(rows.Segments());
  EXPECT_GT(plan.n_waves(), 1);
  EXPECT_LE(plan.bytes(), AttentionPlan::MostBytes(p.shape, 2, p.n_rows));
}

TEST(Attention, APlanCanBeReplanned) {
  const KernelTable* table = kernels::Available().front();
  const Problem big = MakeProblem(600, 40, {}, CacheType::kF16),
                small = MakeProblem(3, 2, {-1, 0}, CacheType::kF16);
  ThreadTeam team(2);
  AttentionPlan plan(table, big.shape, 2);
  for (const Problem* p : {&big, &small, &big}) {
    const ToyCache cache = AllSlots(*p);
    TreeRows rows;
    rows.Add(cache.Span(p->base, p->n_rows), p->base, p->n_rows, p->parents);
    plan.Plan(rows.Segments());
    std::vector<float> out(Z(p->n_rows) * 6 * 32);
    team.Run([&](ThreadTeam::Worker& w) { plan.Run(w, 0, p->q.data(), out.data()); });
    EXPECT_EQ(out, RunPlan(*p, table, 1));
  }
}

}  // namespace
}  // namespace longspec
