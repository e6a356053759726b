// SPDX-License-Identifier: Apache-2.0
//
// A target for tests: a random language over a small vocabulary. A row's logits are a pure function of the
// tokens that row sees, so a wrong mask, a wrong commit or a stale slot changes the text.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "base/counter_rng.h"
#include "decode/testing/toy_cache.h"
#include "model/target.h"

namespace longspec::testing {

class ToyLanguage {
 public:
  ToyLanguage(int vocab, uint64_t seed) : vocab_(vocab), rng_{.seed = seed, .purpose = RngPurpose::kTest} {}

  int vocab() const { return vocab_; }

  // Mostly decided by the last two tokens, so that text repeats itself; a little by all that went before.
  void Logits(std::span<const int32_t> seen, float* logits) const {
    uint64_t all = 1;
    for (const int32_t token : seen) all = (all ^ static_cast<uint64_t>(token + 1)) * 0x9E3779B97F4A7C15 + 1;
    uint64_t last = 2;
    for (size_t i = seen.size() < 2 ? 0 : seen.size() - 2; i < seen.size(); ++i) {
      last = last * 1000 + static_cast<uint64_t>(seen[i] + 1);
    }
    for (int v = 0; v < vocab_; ++v) {
      const auto draw = static_cast<uint32_t>(v);
      logits[v] = static_cast<float>(6.0 * rng_.Uniform(last, draw) + 0.8 * rng_.Uniform(all, draw));
    }
  }

 private:
  int vocab_;
  RngStream rng_;
};

class ToyTarget final : public Target {
 public:
  explicit ToyTarget(const ToyLanguage* language) : language_(language) {}

  int vocab_size() const override { return language_->vocab(); }
  int context_length() const override { return 1 << 20; }

  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    if (calls_before_failure >= 0 && calls_before_failure-- == 0) return IoError("the toy target failed");
    TargetOutput output;
    output.vocab = vocab_size();
    buffers_.clear();
    buffers_.reserve(segments.size());
    for (const ForwardSegment& segment : segments) {
      if (Status status = Run(segment, output); !status.ok()) return status;
    }
    return output;
  }

  int calls_before_failure = -1;  // negative: never fails
  size_t nan_from = SIZE_MAX;     // a row that sees so many tokens or more has a NaN among its logits
  int n_chains = 0, n_trees = 0;  // forward passes with all logits, by shape
  std::vector<int> prefill_rows;  // rows of each pass without logits
  Taps last_taps;                 // of the last segment that had any

 private:
  static Status Bad(const char* what) { return InvalidArgument(what); }

  Status Run(const ForwardSegment& segment, TargetOutput& output) {
    const auto n = static_cast<int>(segment.tokens.size());
    auto* cache = dynamic_cast<ToyCache*>(&segment.kv->cache());
    if (cache == nullptr) return Bad("not a toy cache");
    if (!cache->open() || segment.kv->base() != cache->length())
      return Bad("no transaction at the cache's end");
    if (segment.kv->n_rows() != n) return Bad("rows and tokens differ");
    if (segment.taps != nullptr) last_taps = *segment.taps;
    if (!segment.parents.empty() && static_cast<int>(segment.parents.size()) != n) return Bad("parents");
    const auto vocab = static_cast<size_t>(vocab_size());
    std::vector<float> logits(static_cast<size_t>(n) * vocab);
    for (int row = 0; row < n; ++row) {
      const int32_t token = segment.tokens[static_cast<size_t>(row)];
      if (token < 0 || token >= vocab_size()) return Bad("a token outside the vocabulary");
      cache->Write(row, token);
      std::vector<int32_t> seen;
      if (Status status = SeenBy(row, segment, *cache, seen); !status.ok()) return status;
      language_->Logits(seen, logits.data() + static_cast<size_t>(row) * vocab);
      if (seen.size() >= nan_from)
        logits[static_cast<size_t>(row) * vocab + seen.size() % vocab] = std::nanf("");
    }
    TargetOutput::Segment result;
    if (segment.logits == LogitsFor::kAllRows) {
      (segment.parents.empty() ? n_chains : n_trees) += 1;
      buffers_.push_back(std::move(logits));
      result.logits = {buffers_.back().data() + static_cast<size_t>(segment.first_logits) * vocab,
                       n - segment.first_logits, vocab_size()};
    } else {
      prefill_rows.push_back(n);
    }
    output.segments.push_back(result);
    return {};
  }

  static Status SeenBy(int row, const ForwardSegment& segment, const ToyCache& cache,
                       std::vector<int32_t>& seen) {
    std::vector<int32_t> path;
    for (int node = row; node >= 0;) {
      path.push_back(segment.tokens[static_cast<size_t>(node)]);
      const int parent = segment.parents.empty() ? node - 1 : segment.parents[static_cast<size_t>(node)];
      if (parent >= node || parent < -1 || (parent == -1) != (node == 0)) return Bad("parents must precede");
      node = parent;
    }
    seen = cache.tokens();
    seen.insert(seen.end(), path.rbegin(), path.rend());
    return {};
  }

  const ToyLanguage* language_;
  std::vector<std::vector<float>> buffers_;
};

}  // namespace longspec::testing
