// SPDX-License-Identifier: Apache-2.0
//
// The default model against facts from a float32 implementation (weights dequantised exactly, f32 cache).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "model/llama.h"

namespace longspec {
namespace {

const std::string kModel = std::string(LONGSPEC_SOURCE_DIR) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";

std::vector<nlohmann::json> Lines(const std::string& name) {
  std::ifstream in(std::string(LONGSPEC_SOURCE_DIR) + "/tests/golden/" + name);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

class ModelGolden : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("LONGSPEC_SKIP_SLOW") != nullptr) GTEST_SKIP() << "slow";
    if (!std::filesystem::exists(kModel)) GTEST_SKIP() << kModel << " is not there (make model)";
    auto file = GgufFile::Open(kModel);
    ASSERT_TRUE(file.ok()) << file.status().message();
    auto config = ReadLlamaConfig(**file, {});
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = *config;
    auto table = kernels::Choose("");
    ASSERT_TRUE(table.ok()) << table.status().message();
    team_ = std::make_unique<ThreadTeam>(ThreadTeam::PhysicalCores());
    auto target = LoadLlama(*file, config_, {.kernels = *table, .team = team_.get(), .max_rows = 512, .on_progress = {}});
    ASSERT_TRUE(target.ok()) << target.status().message();
    target_ = std::move(*target);
  }

  std::unique_ptr<KvCache> NewCache() const {
    return MakeFullCache(config_.kv_layout(CacheType::kF16, CacheType::kF16), config_.n_layer, 8192);
  }

  // Feeds tokens[from, to) and returns the logits of every row.
  std::vector<float> Feed(KvCache& cache, const std::vector<int32_t>& tokens, size_t from, size_t to, LogitsFor logits) {
    auto transaction = cache.Begin(static_cast<int>(to - from));
    EXPECT_TRUE(transaction.ok()) << transaction.status().message();
    const ForwardSegment segment{.tokens = std::span(tokens).subspan(from, to - from), .parents = {},
                                 .kv = &*transaction, .logits = logits};
    const auto output = target_->Forward({&segment, 1}, {});
    EXPECT_TRUE(output.ok()) << output.status().message();
    transaction->CommitAll();
    const auto& out = output->segments[0];
    return {out.logits, out.logits + static_cast<size_t>(out.n_logits) * static_cast<size_t>(output->vocab)};
  }

  void Prefill(KvCache& cache, const std::vector<int32_t>& tokens, size_t to) {
    for (size_t at = 0; at < to; at += 512) Feed(cache, tokens, at, std::min(to, at + 512), LogitsFor::kNone);
  }

  LlamaConfig config_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Target> target_;
};

// llama.cpp's own distance to these logits is a mean KL of 0.0026 and 241 of 250 equal top-1 tokens.
TEST_F(ModelGolden, LogitsAreNoFartherFromFloatThanThePeers) {
  double kl_sum = 0;
  int n = 0, same_top = 0;
  for (const auto& line : Lines("logits.jsonl")) {
    const auto ids = line["ids"].get<std::vector<int32_t>>();
    const auto& rows = line["rows"];
    const auto first = rows[0]["pos"].get<size_t>();
    const auto cache = NewCache();
    Prefill(*cache, ids, first);
    const std::vector<float> logits = Feed(*cache, ids, first, ids.size(), LogitsFor::kAllRows);
    const auto vocab = static_cast<size_t>(config_.n_vocab);
    for (const auto& row : rows) {
      const float* l = logits.data() + (row["pos"].get<size_t>() - first) * vocab;
      const float top = *std::max_element(l, l + vocab);
      double sum = 0;
      for (size_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(l[i] - top));
      const double log_z = top + std::log(sum);
      double kl = 0;
      for (const auto& entry : row["top"]) {
        const double log_p = entry[1].get<double>();
        kl += std::exp(log_p) * (log_p - (l[entry[0].get<size_t>()] - log_z));
      }
      kl_sum += kl;
      same_top += std::max_element(l, l + vocab) - l == row["top"][0][0].get<int64_t>() ? 1 : 0;
      ++n;
    }
  }
  RecordProperty("rows", n);
  RecordProperty("same_top1", same_top);
  RecordProperty("mean_kl_1e6", static_cast<int>(1e6 * kl_sum / n));
  std::printf("mean KL %.5f, equal top-1 %d of %d\n", kl_sum / n, same_top, n);
  EXPECT_EQ(n, 250);
  EXPECT_LE(kl_sum / n, 0.0026);
  EXPECT_GE(same_top, 241);
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
      const std::vector<float> logits = Feed(*cache, tokens, tokens.size() - 1, tokens.size(), LogitsFor::kAllRows);
      const auto token = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      ASSERT_EQ(token, out[i]) << "step " << i << " of a prompt of " << line["ids"].size() << " tokens, margin " << margin[i];
      tokens.push_back(token);
    }
  }
  std::printf("%d tokens compared\n", compared);
  EXPECT_GT(compared, 100);
}

}  // namespace
}  // namespace longspec
