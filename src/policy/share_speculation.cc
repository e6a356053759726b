// SPDX-License-Identifier: Apache-2.0
#include "policy/share_speculation.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/check.h"

namespace longspec {
namespace {

class Sharing {
 public:
  Sharing(std::span<const PassPart> parts, std::span<const SpeculationCandidates> candidates,
          const PassCost& cost, const ShareOptions& options)
      : candidates_(candidates),
        options_(options),
        pass_(cost, parts),
        nodes_(parts.size()),
        gains_(parts.size()),
        attention_ms_(parts.size()) {}

  SpeculationShares Run() {
    SpeculationShares shares{.nodes = std::vector<int>(nodes_.size()), .best = nodes_, .gain = 1};
    const double plain = Value();
    double best = -1;
    int most = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      Price(i);
      most += static_cast<int>(candidates_[i].reach.size());
    }
    products_ms_ = pass_.ProductsMs(std::min(most, options_.max_nodes));
    for (int n = 0; n < options_.max_nodes; ++n) {
      const int next = Next();
      if (next < 0) break;
      Add(static_cast<size_t>(next));
      if (const double value = Value(); value > best) {
        best = value;
        shares.best = nodes_;
      }
    }
    if (best < 0) return shares;
    shares.gain = best / plain;
    if (!(best > options_.margin * plain)) return shares;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (shares.best[i] >= candidates_[i].min_nodes) shares.nodes[i] = shares.best[i];
    }
    return shares;
  }

 private:
  static constexpr double kLeastMs = 1e-3;  // rows beside a piece of a prompt may cost nothing

  // Of the round as it is: tokens of a sequence, by this or that mean, for each millisecond.
  double Value() const {
    double ms = std::max(kLeastMs, pass_.ms() - options_.prompts_ms) + options_.overhead_ms;
    double sum = 0, sum_of_logs = 0;
    for (size_t i = 0; i < gains_.size(); ++i) {
      const double tokens = 1 + gains_[i];
      ms += candidates_[i].sample_ms * tokens;
      sum += tokens;
      sum_of_logs += std::log(tokens);
    }
    const auto n = static_cast<double>(gains_.size());
    if (gains_.size() == 1 || options_.objective == SpeculationObjective::kThroughput) return sum / n / ms;
    return std::exp(sum_of_logs / n) / ms;
  }

  void Price(size_t i) { attention_ms_[i] = pass_.NextAttentionMs(static_cast<int>(i)); }

  // The sequence whose next node gains most for its price; -1 if there is none.
  int Next() const {
    int best = -1;
    double best_gain = 0, best_ms = 0;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const auto n = static_cast<size_t>(nodes_[i]);
      if (n >= candidates_[i].reach.size()) continue;
      const double reach = candidates_[i].reach[n];
      const double gain = options_.objective == SpeculationObjective::kThroughput
                              ? reach
                              : std::log1p(reach / (1 + gains_[i]));
      const double ms = products_ms_ + attention_ms_[i] + candidates_[i].sample_ms * reach;
      const double mine = gain * best_ms, other = best_gain * ms;  // free nodes come first
      if (best < 0 || mine > other || (mine == other && gain > best_gain)) {
        best = static_cast<int>(i);
        best_gain = gain;
        best_ms = ms;
      }
    }
    return best;
  }

  void Add(size_t i) {
    gains_[i] += candidates_[i].reach[static_cast<size_t>(nodes_[i]++)];
    const auto part = static_cast<int>(i);
    pass_.AddRow(part);
    for (size_t other = 0; other < nodes_.size(); ++other) {
      if (other == i || pass_.Share(part, static_cast<int>(other))) Price(other);
    }
  }

  std::span<const SpeculationCandidates> candidates_;
  const ShareOptions& options_;
  GrowingPass pass_;
  std::vector<int> nodes_;
  std::vector<double> gains_;         // expected tokens beyond the first
  std::vector<double> attention_ms_;  // of the next node
  // Of a row, were there as many as are proposed: one that is free until the next step still takes the place
  // of another.
  double products_ms_ = 0;
};

}  // namespace

SpeculationShares ShareSpeculation(std::span<const PassPart> parts,
                                   std::span<const SpeculationCandidates> candidates, const PassCost& cost,
                                   const ShareOptions& options) {
  LS_CHECK(parts.size() == candidates.size());
  return Sharing(parts, candidates, cost, options).Run();
}

}  // namespace longspec
