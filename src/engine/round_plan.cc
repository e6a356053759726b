// SPDX-License-Identifier: Apache-2.0
#include "engine/round_plan.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <string>

#include "base/check.h"

namespace longspec {
namespace {

int ChunksOf(int64_t positions, int chunk_positions) {
  return static_cast<int>((positions + chunk_positions - 1) / chunk_positions);
}

class Planner {
 public:
  Planner(const RoundState& state, const PassCost& cost, const ScheduleOptions& options)
      : state_(state),
        cost_(cost),
        options_(options),
        active_(state.sequences.size()),
        rows_(state.sequences.size()),
        urgency_(state.sequences.size()) {
    LS_CHECK(options.batch_rows >= options.parallel && options.parallel > 0);
    FindCommonChunks();
    for (size_t i = 0; i < active_.size(); ++i) {
      const SequenceState& s = At(i);
      LS_CHECK(s.missing >= 1 && s.missing <= s.context && s.shared_with < static_cast<int>(i));
      active_[i] = s.running;
    }
    LS_CHECK(std::count(active_.begin(), active_.end(), true) <= options.parallel);
    held_before_ = Held();
  }

  RoundPlan Run() {
    GiveWay();
    if (plan_.preempt.empty()) Admit();
    available_ = Available();
    ShareRows();
    Describe();
    return std::move(plan_);
  }

 private:
  const SequenceState& At(size_t i) const { return state_.sequences[i]; }
  static int Computed(const SequenceState& s) { return s.context - s.missing; }
  bool Decodes(size_t i) const { return active_[i] && At(i).missing == 1; }

  // Milliseconds waited beyond patience.
  double Urgency(size_t i) {
    if (!urgency_[i]) urgency_[i] = At(i).waited_ms - options_.patience * AloneMs(At(i));
    return *urgency_[i];
  }

  // What computing the missing tokens would take were the sequence alone.
  double AloneMs(const SequenceState& s) const {
    const PassPart part = ChainPart(s.missing, Computed(s));
    return cost_.Ms({&part, 1});
  }

  // common_[i][j], j < i: chunks that i and j share; empty if i shares none with any j. Sequences that share
  // chunks are branches of a tree, so what i shares with any earlier one follows from the one with which it
  // shares most.
  void FindCommonChunks() {
    common_.resize(state_.sequences.size());
    for (size_t i = 0; i < common_.size(); ++i) {
      if (At(i).shared_with < 0) continue;
      const auto kin = static_cast<size_t>(At(i).shared_with);
      std::vector<int> common(i);
      for (size_t j = 0; j < i; ++j) {
        const int with_kin = j == kin ? At(kin).chunks : Common(std::max(j, kin), std::min(j, kin));
        common[j] = std::min({At(i).shared_chunks, At(i).chunks, with_kin});
      }
      common_[i] = std::move(common);
    }
  }
  int Common(size_t i, size_t j) const { return common_[i].empty() ? 0 : common_[i][j]; }

  // Chunks that a sequence shares with earlier active ones.
  int Shared(size_t i) const {
    int shared = 0;
    for (size_t j = 0; j < common_[i].size(); ++j) {
      if (active_[j]) shared = std::max(shared, common_[i][j]);
    }
    return shared;
  }

  // Chunks that active sequences hold, each counted once.
  int Held() const {
    int held = 0;
    for (size_t i = 0; i < active_.size(); ++i) {
      if (active_[i]) held += At(i).chunks - Shared(i);
    }
    return held;
  }

  // Chunks that active sequences do not hold and could: free ones, the prefix cache's, and those of sequences
  // that are no longer active. Those that a started sequence shares with the prefix cache are no longer the
  // cache's to give.
  int Available() const { return state_.free_chunks + state_.reclaimable_chunks + held_before_ - Held(); }

  int NewChunks(size_t i, int64_t rows) const {
    return std::max(0, ChunksOf(Computed(At(i)) + rows, options_.chunk_positions) - At(i).chunks);
  }

  // Chunks an active sequence will want soon: for all that is missing, for the token after it, and one more.
  int WantedSoon(size_t i) const {
    const SequenceState& s = At(i);
    const int soon = ChunksOf(int64_t{s.context} + 1, options_.chunk_positions) + 1;
    return std::max(0, std::min(soon, std::max(s.most_chunks, s.chunks)) - s.chunks);
  }

  int Oldest() const {
    return static_cast<int>(std::find(active_.begin(), active_.end(), true) - active_.begin());
  }

  // The latest arrivals go until roots of all that decode, and a row of the oldest, have their chunks.
  void GiveWay() {
    while (std::count(active_.begin(), active_.end(), true) > 1) {
      int needed = 0;
      for (size_t i = 0; i < active_.size(); ++i) {
        if (Decodes(i) || (active_[i] && static_cast<int>(i) == Oldest())) needed += NewChunks(i, 1);
      }
      if (needed <= Available()) return;
      const auto latest = std::find(active_.rbegin(), active_.rend(), true);
      *latest = false;
      plan_.preempt.push_back(static_cast<int>(active_.rend() - latest) - 1);
    }
  }

  // Places of sequences for which `in` holds, most urgent first.
  template <typename In>
  std::vector<size_t> ByUrgency(In in) {
    std::vector<size_t> order;
    for (size_t i = 0; i < active_.size(); ++i) {
      if (in(i)) order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [this](size_t a, size_t b) { return Urgency(a) > Urgency(b); });
    return order;
  }

  void Admit() {
    auto running = std::count(active_.begin(), active_.end(), true);
    int promised = 0;
    for (size_t i = 0; i < active_.size(); ++i) promised += active_[i] ? WantedSoon(i) : 0;
    int available = Available();
    for (const size_t i : ByUrgency([this](size_t s) { return !active_[s]; })) {
      if (running >= options_.parallel) return;
      active_[i] = true;
      const int left = At(i).chunks > 0 ? Available() : available;
      if (NewChunks(i, int64_t{At(i).missing} + 1) + promised <= left) {
        plan_.admit.push_back(static_cast<int>(i));
        promised += WantedSoon(i);
        available = left;
        ++running;
        continue;
      }
      active_[i] = false;
      if (Urgency(i) >= 0) return;  // smaller ones have passed it for long enough
    }
  }

  std::vector<PassPart> Pass() const {
    std::vector<PassPart> pass;
    std::vector<int> place(active_.size(), -1);
    for (size_t i = 0; i < active_.size(); ++i) {
      if (rows_[i] == 0) continue;
      PassPart part = ChainPart(rows_[i], Computed(At(i)));
      for (size_t j = 0; j < common_[i].size(); ++j) {
        const int keys = common_[i][j] * options_.chunk_positions;
        if (place[j] < 0 || keys <= part.shared_keys) continue;
        part.shared_with = place[j];
        part.shared_keys = keys;
      }
      place[i] = static_cast<int>(pass.size());
      pass.push_back(part);
    }
    return pass;
  }

  int SpareChunks() const {
    int spare = available_;
    for (size_t i = 0; i < active_.size(); ++i) spare -= rows_[i] > 0 ? NewChunks(i, rows_[i]) : 0;
    return spare;
  }

  void GiveRowIfItFits(size_t i) {
    if (rows_[i] == 0 && NewChunks(i, 1) <= SpareChunks()) rows_[i] = 1;
  }

  // Roots first, then a row of the oldest, then prompts by urgency while the time lasts, the first of them at
  // least one row.
  void ShareRows() {
    bool somebody_decodes = false;
    for (size_t i = 0; i < active_.size(); ++i) {
      if (!Decodes(i)) continue;
      GiveRowIfItFits(i);
      somebody_decodes = true;
    }
    const std::vector<size_t> prompts =
        ByUrgency([this](size_t i) { return active_[i] && At(i).missing > 1; });
    if (prompts.empty()) return;
    double limit_ms = options_.idle_ms > 0 ? options_.idle_ms : std::numeric_limits<double>::infinity();
    if (somebody_decodes) {
      const double roots_ms = cost_.Ms(Pass());
      limit_ms = roots_ms + std::max(options_.prefill_ms, options_.prefill_share * roots_ms);
    }
    const auto oldest = static_cast<size_t>(Oldest());
    GiveRowIfItFits(oldest);
    GiveRowIfItFits(prompts.front());
    for (const size_t i : prompts) {
      if (!Grow(i, limit_ms)) return;
    }
  }

  // Gives a prompt as many rows as there are places, chunks and time; false: time is up.
  bool Grow(size_t i, double limit_ms) {
    const SequenceState& s = At(i);
    const int places = options_.batch_rows - std::accumulate(rows_.begin(), rows_.end(), 0);
    const int64_t chunks = s.chunks + (rows_[i] > 0 ? NewChunks(i, rows_[i]) : 0) + SpareChunks();
    const int64_t fit = chunks * options_.chunk_positions - Computed(s);
    const auto most =
        static_cast<int>(std::clamp<int64_t>(fit, rows_[i], std::min<int64_t>(s.missing, rows_[i] + places)));
    const auto fits = [&](int rows) {
      rows_[i] = rows;
      return cost_.Ms(Pass()) <= limit_ms;
    };
    int low = rows_[i], high = most + 1;  // low is given, high is not
    if (most > low && fits(most)) return true;
    while (high - low > 1) {
      const int middle = low + (high - low) / 2;
      (fits(middle) ? low : high) = middle;
    }
    rows_[i] = low;
    return low == most;
  }

  void Describe() {
    plan_.pass = Pass();
    plan_.most_nodes =
        std::max(options_.batch_rows, options_.most_rows) - std::accumulate(rows_.begin(), rows_.end(), 0);
    int spare = SpareChunks();
    for (size_t i = 0; i < active_.size(); ++i) {
      if (rows_[i] == 0) continue;
      const SequenceState& s = At(i);
      RoundPlan::Part part{.sequence = static_cast<int>(i),
                           .rows = rows_[i],
                           .completes = rows_[i] == s.missing,
                           .new_chunks = NewChunks(i, rows_[i])};
      if (part.completes) {
        int chunks = s.chunks + part.new_chunks;
        if (spare > 0 && chunks < s.most_chunks) {
          part.node_chunks = 1;
          --spare;
        }
        const int room = (chunks + part.node_chunks) * options_.chunk_positions - s.context;
        part.most_nodes = std::clamp(room, 0, plan_.most_nodes);
      }
      plan_.new_chunks += part.new_chunks + part.node_chunks;
      plan_.parts.push_back(part);
    }
  }

  const RoundState& state_;
  const PassCost& cost_;
  const ScheduleOptions& options_;
  std::vector<bool> active_;  // runs, or starts this round
  std::vector<int> rows_;
  std::vector<std::optional<double>> urgency_;  // of those that were compared
  std::vector<std::vector<int>> common_;
  int held_before_ = 0, available_ = 0;
  RoundPlan plan_;
};

}  // namespace

RoundPlan PlanRound(const RoundState& state, const PassCost& cost, const ScheduleOptions& options) {
  return Planner(state, cost, options).Run();
}

int MostChunks(int prompt_tokens, int n_predict, int ctx_size, int chunk_positions) {
  const int64_t wanted = n_predict < 0 ? ctx_size : int64_t{prompt_tokens} + n_predict;
  return ChunksOf(std::min<int64_t>(wanted, ctx_size), chunk_positions);
}

Status CheckFits(int prompt_tokens, int n_predict, int ctx_size, int pool_chunks, int chunk_positions) {
  const int needed = MostChunks(prompt_tokens, n_predict, ctx_size, chunk_positions);
  if (needed <= pool_chunks) return {};
  const std::string answer = n_predict < 0
                                 ? "an answer that may fill the context of " + std::to_string(ctx_size)
                                 : "up to " + std::to_string(n_predict) + " to generate";
  return ResourceExhausted("a prompt of " + std::to_string(prompt_tokens) + " tokens and " + answer +
                           " need " + std::to_string(needed) + " chunks of " +
                           std::to_string(chunk_positions) + " positions, and the cache has " +
                           std::to_string(pool_chunks) + ": ask for less, or give the cache more memory");
}

}  // namespace longspec
