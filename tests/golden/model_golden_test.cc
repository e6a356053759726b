// SPDX-License-Identifier: Apache-2.0
//
// The default model against facts from a float32 implementation (weights dequantised exactly, f32 cache).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/testing/source_path.h"
#include "golden_model.h"

namespace longspec {
namespace {

std::vector<nlohmann::json> Lines(const std::string& name) {
  std::ifstream in(testing::SourcePath("tests/golden/" + name));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

class ModelGolden : public GoldenModel {
 protected:
  // Of the rows that the line has facts about.
  std::vector<float> LogitsOf(const nlohmann::json& line, CacheType k, CacheType v) {
    const auto ids = line["ids"].get<std::vector<int32_t>>();
    const auto first = line["rows"][0]["pos"].get<size_t>();
    const auto cache = NewCache(k, v);
    Prefill(*cache, ids, first);
    const std::vector<float> logits = Feed(*cache, ids, first, ids.size(), LogitsFor::kAllRows);
    std::vector<float> rows;
    for (const auto& row : line["rows"]) {
      const auto vocab = static_cast<ptrdiff_t>(config_.n_vocab);
      const auto begin =
          logits.begin() + (row["pos"].get<ptrdiff_t>() - static_cast<ptrdiff_t>(first)) * vocab;
      rows.insert(rows.end(), begin, begin + vocab);
    }
    return rows;
  }
};

// Sums over rows of the divergence from a better distribution.
struct Distance {
  double kl = 0;
  int rows = 0, same_top = 0;

  double mean_kl() const { return kl / rows; }

  // From a file's row: the log probabilities of its likeliest tokens.
  void Add(const nlohmann::json& top, std::span<const float> logits) {
    const double log_z = LogZ(logits);
    for (const auto& entry : top) {
      const double log_p = entry[1].get<double>();
      kl += std::exp(log_p) * (log_p - (static_cast<double>(logits[entry[0].get<size_t>()]) - log_z));
    }
    same_top += Best(logits) == top[0][0].get<int64_t>() ? 1 : 0;
    ++rows;
  }

  void Add(std::span<const float> better, std::span<const float> logits) {
    const double better_z = LogZ(better), log_z = LogZ(logits);
    for (size_t i = 0; i < logits.size(); ++i) {
      const double log_p = static_cast<double>(better[i]) - better_z;
      kl += std::exp(log_p) * (log_p - (static_cast<double>(logits[i]) - log_z));
    }
    same_top += Best(logits) == Best(better) ? 1 : 0;
    ++rows;
  }
};

// llama.cpp's own distance to these logits is a mean KL of 0.0026 and 241 of 250 equal top-1 tokens.
TEST_F(ModelGolden, LogitsAreNoFartherFromFloatThanThePeers) {
  const auto vocab = static_cast<size_t>(config_.n_vocab);
  Distance distance;
  for (const auto& line : Lines("logits.jsonl")) {
    const std::vector<float> logits = LogitsOf(line, CacheType::kF16, CacheType::kF16);
    size_t at = 0;
    for (const auto& row : line["rows"])
      distance.Add(row["top"], std::span(logits).subspan(vocab * at++, vocab));
  }
  std::printf("mean KL %.5f, equal top-1 %d of %d\n", distance.mean_kl(), distance.same_top, distance.rows);
  EXPECT_EQ(distance.rows, 250);
  EXPECT_LE(distance.mean_kl(), 0.0026);
  EXPECT_GE(distance.same_top, 241);
}

TEST_F(ModelGolden, GreedyTextIsEqualUpToTheFirstCloseCall) {
  int compared = 0;
  for (const auto& line : Lines("greedy.jsonl")) {
    auto tokens = line["ids"].get<std::vector<int32_t>>();
    const auto out = line["out"].get<std::vector<int32_t>>();
    const auto margin = line["margin"].get<std::vector<double>>();
    const auto cache = NewCache();
    Prefill(*cache, tokens, tokens.size() - 1);
    for (size_t i = 0; i < out.size() && margin[i] >= 0.05; ++i, ++compared) {
      const std::vector<float> logits =
          Feed(*cache, tokens, tokens.size() - 1, tokens.size(), LogitsFor::kAllRows);
      const auto token =
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      ASSERT_EQ(token, out[i]) << "step " << i << " of a prompt of " << line["ids"].size()
                               << " tokens, margin " << margin[i];
      tokens.push_back(token);
    }
  }
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
                  {kQ4_0, kQ4_0, 0.5, 0.6},    {kBF16Amx, kBF16Amx, 0.004, 0.93}};
  const auto vocab = static_cast<size_t>(config_.n_vocab);
  for (const auto& line : Lines("logits.jsonl")) {
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
