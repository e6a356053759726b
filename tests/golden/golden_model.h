// SPDX-License-Identifier: Apache-2.0
//
// A model under test: rows of tokens in, rows of logits out, with caches of any type; and how far these are
// from those on record. Tests skip themselves where its file is absent.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/source_path.h"
#include "formats/gguf.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "model/transformer.h"
#include "sampling/testing/values_of.h"

namespace longspec {

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

// Sums over rows of the divergence from a better distribution.
struct Distance {
  double kl = 0;
  int rows = 0, same_top = 0;

  double mean_kl() const { return kl / rows; }

  // From a file's row: the log probabilities of its likeliest tokens. All others count as one, so that the
  // sum is a divergence too: at least 0, and at most that of the whole distributions.
  void Add(const nlohmann::json& top, std::span<const float> logits) {
    const double log_z = LogZ(logits);
    double other_p = 1, other_q = 1;
    const auto add = [&](double log_p, double log_q) { kl += std::exp(log_p) * (log_p - log_q); };
    for (const auto& entry : top) {
      const double log_p = entry[1].get<double>();
      const double log_q = static_cast<double>(logits[entry[0].get<size_t>()]) - log_z;
      add(log_p, log_q);
      other_p -= std::exp(log_p);
      other_q -= std::exp(log_q);
    }
    constexpr double kRounding = 1e-6;  // of what the file says
    if (other_p > kRounding && other_q > 0) add(std::log(other_p), std::log(other_q));
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

// The facts of a file beside this one, one a line.
inline std::vector<nlohmann::json> GoldenLines(const std::string& name) {
  std::ifstream in(testing::SourcePath("tests/golden/" + name));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

class GoldenModel : public ::testing::Test {
 protected:
  static constexpr int kMostRows = 512;

  void SetUp() override {
    if (std::getenv("LONGSPEC_SKIP_SLOW") != nullptr) GTEST_SKIP() << "slow";
    Load("SmolLM2-135M-Instruct.Q4_1.gguf");
  }

  void Load(const std::string& name) {
    if (read_of_ != name) read_.clear();
    read_of_ = name;
    const std::string path = testing::SourcePath("models/" + name);
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there (make model MODEL=...)";
    auto file = GgufFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    file_ = *file;
    auto config = ReadModelSpec(*file_, {});
    ASSERT_TRUE(config.ok()) << config.status().message();
    config_ = *config;
    auto table = kernels::Choose("");
    ASSERT_TRUE(table.ok()) << table.status().message();
    team_ = std::make_unique<ThreadTeam>(ThreadTeam::UsableCores());
    auto target =
        LoadModel(file_, config_, {*table, team_.get()}, {.max_rows = kMostRows, .on_progress = {}});
    ASSERT_TRUE(target.ok()) << target.status().message();
    target_ = std::move(*target);
  }

  // LONGSPEC_GOLDEN_ALL asks for the tables of the page on cache types in full.
  static bool All() { return std::getenv("LONGSPEC_GOLDEN_ALL") != nullptr; }

  std::unique_ptr<KvCache> NewCache(CacheType k = CacheType::kF16, CacheType v = CacheType::kF16,
                                    int capacity = 8192) const {
    return MakeFullCache(config_.kv_layout(k, v), config_.n_layer, capacity);
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
    const LogitRows& out = output->segments[0].logits;
    std::vector<float> all;
    for (int i = 0; i < out.size(); ++i) {
      const std::span<const float> row = testing::ValuesOf(out[i]);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }

  // Feeds what the cache does not hold yet of tokens[0, to).
  void Prefill(KvCache& cache, const std::vector<int32_t>& tokens, size_t to) {
    for (auto at = static_cast<size_t>(cache.length()); at < to;) {
      const size_t next = std::min(to, at + kMostRows);
      Feed(cache, tokens, at, next, LogitsFor::kNone);
      at = next;
    }
  }

  // Tests of one model ask about the same prompts: what one of them has read is there for the next.
  KvCache& CacheOf(const std::vector<int32_t>& prompt) const {
    std::unique_ptr<KvCache>& cache = read_[prompt];
    if (cache == nullptr) cache = NewCache();
    return *cache;
  }

  // Leaves the cache with tokens[0, to), of a prompt whose beginning it holds.
  void Read(KvCache& cache, const std::vector<int32_t>& tokens, size_t to) {
    cache.Truncate(std::min(cache.length(), static_cast<int>(to)));
    Prefill(cache, tokens, to);
  }

  // Of the rows that a line has facts about.
  std::vector<float> LogitsOf(const nlohmann::json& line, CacheType k, CacheType v) {
    const auto ids = line["ids"].get<std::vector<int32_t>>();
    const auto first = line["rows"][0]["pos"].get<size_t>();
    const std::unique_ptr<KvCache> own =
        k == CacheType::kF16 && v == CacheType::kF16 ? nullptr : NewCache(k, v);
    KvCache& cache = own != nullptr ? *own : CacheOf(ids);
    Read(cache, ids, first);
    const std::vector<float> logits = Feed(cache, ids, first, ids.size(), LogitsFor::kAllRows);
    std::vector<float> rows;
    for (const auto& row : line["rows"]) {
      const auto vocab = static_cast<ptrdiff_t>(config_.n_vocab);
      const auto begin =
          logits.begin() + (row["pos"].get<ptrdiff_t>() - static_cast<ptrdiff_t>(first)) * vocab;
      rows.insert(rows.end(), begin, begin + vocab);
    }
    return rows;
  }

  // How far a line's rows are from what is computed.
  void Measure(const nlohmann::json& line, Distance* distance) {
    const auto vocab = static_cast<size_t>(config_.n_vocab);
    const std::vector<float> logits = LogitsOf(line, CacheType::kF16, CacheType::kF16);
    size_t at = 0;
    for (const auto& row : line["rows"])
      distance->Add(row["top"], std::span(logits).subspan(vocab * at++, vocab));
  }

  // The likeliest token each time is a line's, up to the first that was a close call there. Returns how many
  // were compared.
  int CompareGreedy(const nlohmann::json& line, double close) {
    auto tokens = line["ids"].get<std::vector<int32_t>>();
    const auto out = line["out"].get<std::vector<int32_t>>();
    const auto margin = line["margin"].get<std::vector<double>>();
    KvCache& cache = CacheOf(tokens);
    Read(cache, tokens, tokens.size() - 1);
    for (size_t i = 0; i < out.size(); ++i) {
      if (margin[i] < close) return static_cast<int>(i);
      const std::vector<float> logits =
          Feed(cache, tokens, tokens.size() - 1, tokens.size(), LogitsFor::kAllRows);
      const auto token = static_cast<int32_t>(Best(logits));
      EXPECT_EQ(token, out[i]) << "step " << i << " of a prompt of " << line["ids"].size()
                               << " tokens, margin " << margin[i];
      if (token != out[i]) return static_cast<int>(i);
      tokens.push_back(token);
    }
    return static_cast<int>(out.size());
  }

  static inline std::map<std::vector<int32_t>, std::unique_ptr<KvCache>> read_;
  static inline std::string read_of_;  // the model's name

  std::shared_ptr<const GgufFile> file_;
  ModelSpec config_;
  std::unique_ptr<ThreadTeam> team_;
  std::unique_ptr<Target> target_;
};

}  // namespace longspec
