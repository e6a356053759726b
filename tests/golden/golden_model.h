// SPDX-License-Identifier: Apache-2.0
//
// The default model under test: rows of tokens in, rows of logits out, with caches of any type. Tests skip
// themselves where its file is absent.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/source_path.h"
#include "formats/gguf.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "model/llama.h"

namespace longspec {

class GoldenModel : public ::testing::Test {
 protected:
  static constexpr int kMostRows = 512;

  void SetUp() override {
    const std::string path = testing::SourcePath("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if (std::getenv("LONGSPEC_SKIP_SLOW") != nullptr) GTEST_SKIP() << "slow";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there (make model)";
    auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = *file;
    auto config = ReadLlamaConfig(*file_, {});
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = *config;
    auto table = kernels::Choose("");
    ASSERT_TRUE(table.ok()) << table.status().message();
    team_ = std::make_unique<ThreadTeam>(ThreadTeam::UsableCores());
    auto target = LoadLlama(
        file_, config_, {.kernels = *table, .team = team_.get(), .max_rows = kMostRows, .on_progress = {}});
    ASSERT_TRUE(target.ok()) << target.status().message();
    target_ = std::move(*target);
  }

  // LONGSPEC_GOLDEN_ALL asks for the tables of the page on cache types in full.
  static bool All() { return std::getenv("LONGSPEC_GOLDEN_ALL") != nullptr; }

  std::unique_ptr<KvCache> NewCache(CacheType k = CacheType::kF16, CacheType v = CacheType::kF16) const {
    return MakeFullCache(config_.kv_layout(k, v), config_.n_layer, 8192);
  }

  // Feeds tokens[from, to) and returns the logits of every row.
  std::vector<float> Feed(KvCache& cache, const std::vector<int32_t>& tokens, size_t from, size_t to,
                          LogitsFor logits) {
    auto transaction = cache.Begin(static_cast<int>(to - from));
    EXPECT_TRUE(transaction.ok()) << transaction.status().message();
    const ForwardSegment segment{.tokens = std::span(tokens).subspan(from, to - from),
                                 .parents = {},
                                 .kv = &*transaction,
                                 .logits = logits};
    const auto output = target_->Forward({&segment, 1});
    EXPECT_TRUE(output.ok()) << output.status().message();
    transaction->CommitAll();
    const auto& out = output->segments[0];
    return {out.logits, out.logits + static_cast<size_t>(out.n_logits) * static_cast<size_t>(output->vocab)};
  }

  // Feeds what the cache does not hold yet of tokens[0, to).
  void Prefill(KvCache& cache, const std::vector<int32_t>& tokens, size_t to) {
    for (auto at = static_cast<size_t>(cache.length()); at < to;) {
      const size_t next = std::min(to, at + kMostRows);
      Feed(cache, tokens, at, next, LogitsFor::kNone);
      at = next;
    }
  }

  std::shared_ptr<const GgufFile> file_;
  LlamaConfig config_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Target> target_;
};

// log of the sum of exp of the logits.
inline double LogZ(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float l : logits) sum += std::exp(static_cast<double>(l - top));
  return top + std::log(sum);
}

inline int64_t Best(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

}  // namespace longspec
