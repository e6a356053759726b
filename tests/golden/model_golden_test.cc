// SPDX-License-Identifier: Apache-2.0
//
// The small model against facts from a float32 implementation (weights dequantised exactly, f32 cache).
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "golden_model.h"

namespace longspec {
namespace {

class ModelGolden : public GoldenModel {};

// llama.cpp's own distance to these logits is a mean KL of 0.0026 and 241 of 250 equal top-1 tokens.
TEST_F(ModelGolden, LogitsAreNoFartherFromFloatThanThePeers) {
  Distance distance;
  for (const auto& line : GoldenLines("logits.jsonl")) Measure(line, &distance);
  std::printf("mean KL %.5f, equal top-1 %d of %d\n", distance.mean_kl(), distance.same_top, distance.rows);
  EXPECT_EQ(distance.rows, 250);
  EXPECT_LE(distance.mean_kl(), 0.0026);
  EXPECT_GE(distance.same_top, 241);
}

TEST_F(ModelGolden, GreedyTextIsEqualUpToTheFirstCloseCall) {
  int compared = 0;
  for (const auto& line : GoldenLines("greedy.jsonl")) compared += CompareGreedy(line, 0.05);
  std::printf("%d tokens compared\n", compared);
  EXPECT_GT(compared, 100);
}

// Prints a table of docs/measurements/archive/2026-11-22-cache-types.md: over all prompts with
// LONGSPEC_GOLDEN_ALL, else over the short ones.
TEST_F(ModelGolden, CacheTypesByTheirDistance) {
  constexpr size_t kShort = 300;
  const bool all = All();
  struct Case {
    CacheType k, v;
    double most_kl;  // against f16
    double least_same_top;
    Distance from_float = {}, from_f16 = {};
  };
  using enum CacheType;
  // Any change of a last bit grows to a KL of about 0.002 through the 8-bit activations: f32 is as far from
  // f16 as bf16.
  Case cases[] = {{kF32, kF32, 0.004, 0.93},   {kF16, kF16, 0, 1},
                  {kBF16, kBF16, 0.004, 0.93}, {kQ8_0, kQ8_0, 0.006, 0.92},
                  {kQ8_0, kF16, 0.006, 0.92},  {kQ8_0, kQ4_0, 0.05, 0.8},
                  {kQ4_0, kQ4_0, 0.5, 0.6},    {kBF16Amx, kBF16Amx, 0.004, 0.93},
                  {kI8, kI8, 0.008, 0.9},      {kI8, kF16, 0.008, 0.9},
                  {kF16, kI8, 0.008, 0.9}};
  const auto vocab = static_cast<size_t>(config_.n_vocab);
  for (const auto& line : GoldenLines("logits.jsonl")) {
    if (!all && line["ids"].size() > kShort) continue;
    const std::vector<float> f16 = LogitsOf(line, kF16, kF16);
    for (Case& c : cases) {
      const std::vector<float> logits = LogitsOf(line, c.k, c.v);
      size_t at = 0;
      for (const auto& row : line["rows"]) {
        const auto own = std::span(logits).subspan(vocab * at, vocab);
        c.from_float.Add(row["top"], own);
        c.from_f16.Add(std::span(f16).subspan(vocab * at++, vocab), own);
      }
    }
  }
  std::printf("%d rows\nkeys     values    KL to f16  equal top-1  KL to float  equal top-1\n",
              cases[0].from_f16.rows);
  for (const Case& c : cases) {
    std::printf("%-8s %-8s %10.6f %12d %12.5f %12d\n", std::string(CacheTypeName(c.k)).c_str(),
                std::string(CacheTypeName(c.v)).c_str(), c.from_f16.mean_kl(), c.from_f16.same_top,
                c.from_float.mean_kl(), c.from_float.same_top);
    EXPECT_GE(c.from_f16.rows, all ? 250 : 180);
    EXPECT_LE(c.from_f16.mean_kl(), c.most_kl);
    EXPECT_GE(c.from_f16.same_top, c.least_same_top * c.from_f16.rows);
  }
  // What is stored more coarsely is farther away.
  EXPECT_LT(cases[3].from_f16.mean_kl(), cases[5].from_f16.mean_kl());
  EXPECT_LT(cases[5].from_f16.mean_kl(), cases[6].from_f16.mean_kl());
  EXPECT_GT(cases[3].from_f16.mean_kl(), 0.0);
}

}  // namespace
}  // namespace longspec
