// SPDX-License-Identifier: Apache-2.0
//
// Requests that arrive over time, run by PlanRound on a machine that is a table of costs and in a pool of
// counted chunks: what a scheduler does, without a model. Every plan is checked against the pool.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/counter_rng.h"
#include "engine/round_plan.h"

namespace longspec::testing {

struct SimulatedRequest {
  double arrival_ms = 0;
  int prompt = 0, answer = 0;  // tokens
  int document = -1;           // whose text the prompt begins with
  int document_tokens = 0;
};

struct SimulatedAnswer {
  double first_token_ms = 0, end_ms = 0;  // since arrival; end_ms 0: it did not end
  std::vector<double> gaps;               // ms between tokens
  int preemptions = 0;
};

struct SimulationResult {
  std::vector<SimulatedAnswer> answers;  // by request
  double ms = 0;
  int rounds = 0, preemptions = 0;
  int64_t tokens = 0, rows = 0, reused = 0;  // generated; computed; found in chunks of others
};

// Chunks by number. Sequences and the prefix cache hold them; the cache gives up its oldest when asked.
class SimulatedPool {
 public:
  explicit SimulatedPool(int chunks) : chunks_(static_cast<size_t>(chunks)) {
    for (int i = chunks - 1; i >= 0; --i) free_.push_back(i);
  }

  // What the prefix cache remembers of a document.
  struct Entry {
    int document;
    std::vector<int> chunks;
  };
  const std::deque<Entry>& cache() const { return cache_; }

  int free() const { return static_cast<int>(free_.size()); }
  int reclaimable() const { return n_reclaimable_; }

  void Hold(int chunk) { Count(chunk, 1, 0); }
  void Release(int chunk) { Count(chunk, -1, 0); }
  void Remember(Entry entry) {
    for (const int chunk : entry.chunks) Count(chunk, 0, 1);
    cache_.push_back(std::move(entry));
  }
  // A new chunk; -1 if there is none.
  int Take() {
    while (free_.empty()) {
      if (cache_.empty()) return -1;
      Count(cache_.front().chunks.back(), 0, -1);
      cache_.front().chunks.pop_back();
      if (cache_.front().chunks.empty()) cache_.pop_front();
    }
    const int chunk = free_.back();
    free_.pop_back();
    ++chunks_[static_cast<size_t>(chunk)].sequences;
    return chunk;
  }

 private:
  struct Holders {
    int sequences = 0, entries = 0;
    bool reclaimable() const { return sequences == 0 && entries > 0; }
  };

  void Count(int chunk, int sequences, int entries) {
    Holders& holders = chunks_[static_cast<size_t>(chunk)];
    n_reclaimable_ -= holders.reclaimable() ? 1 : 0;
    holders.sequences += sequences;
    holders.entries += entries;
    n_reclaimable_ += holders.reclaimable() ? 1 : 0;
    if (holders.sequences == 0 && holders.entries == 0) free_.push_back(chunk);
  }

  std::vector<Holders> chunks_;
  std::vector<int> free_;
  int n_reclaimable_ = 0;
  std::deque<Entry> cache_;  // oldest first
};

class ScheduleSimulator {
 public:
  using OnRound = std::function<void(const RoundState&, const RoundPlan&)>;

  // `costs` is borrowed. prefix_cache: chunks of those that end or give way are kept while there is room.
  ScheduleSimulator(const CostModel& costs, ScheduleOptions options, int pool_chunks,
                    bool prefix_cache = false)
      : costs_(costs),
        options_(options),
        pool_chunks_(pool_chunks),
        pool_(pool_chunks),
        prefix_cache_(prefix_cache) {}

  // `trace` in order of arrival. Stops with a test failure where nobody can run, or after `most_rounds`.
  SimulationResult Run(const std::vector<SimulatedRequest>& trace, const OnRound& on_round = {},
                       int most_rounds = 1000000) {
    result_.answers.resize(trace.size());
    size_t next = 0;
    while (next < trace.size() || !sequences_.empty()) {
      if (sequences_.empty()) now_ = std::max(now_, trace[next].arrival_ms);
      for (; next < trace.size() && trace[next].arrival_ms <= now_; ++next) {
        EXPECT_TRUE(CheckFits(trace[next].prompt, trace[next].answer, 1 << 20, pool_chunks_).ok());
        sequences_.push_back({.request = next, .of = trace[next], .last_ms = trace[next].arrival_ms});
      }
      const RoundState state = State();
      const PassCost cost(costs_);
      const RoundPlan plan = PlanRound(state, cost, options_);
      if (on_round) on_round(state, plan);
      Apply(plan);
      if (plan.parts.empty() || ++result_.rounds > most_rounds || ::testing::Test::HasFatalFailure()) {
        ADD_FAILURE() << "stuck in round " << result_.rounds << " with " << sequences_.size() << " sequences";
        break;
      }
    }
    result_.ms = now_;
    return result_;
  }

 private:
  struct Sequence {
    size_t request;
    SimulatedRequest of;
    double last_ms;  // of its last token, or its arrival
    bool running = false;
    int generated = 0, computed = 0;
    std::vector<int> chunks{};  // held, or those it would share if it were to start

    int context() const { return of.prompt + generated; }
  };

  static int CommonChunks(const std::vector<int>& a, const std::vector<int>& b) {
    return static_cast<int>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
  }

  // The most whole chunks of its document that somebody holds.
  std::vector<int> Find(const Sequence& waiting) const {
    std::vector<int> found;
    if (waiting.of.document < 0) return found;
    const auto look = [&](int document, const std::vector<int>& chunks, int computed) {
      if (document != waiting.of.document) return;
      const int tokens = std::min({computed, waiting.of.document_tokens, waiting.of.prompt - 1});
      const auto n = static_cast<size_t>(tokens / options_.chunk_positions);
      if (n > found.size()) found.assign(chunks.begin(), chunks.begin() + static_cast<std::ptrdiff_t>(n));
    };
    for (const Sequence& s : sequences_) {
      if (s.running) look(s.of.document, s.chunks, std::min(s.computed, s.of.document_tokens));
    }
    for (const SimulatedPool::Entry& entry : pool_.cache()) {
      look(entry.document, entry.chunks, static_cast<int>(entry.chunks.size()) * options_.chunk_positions);
    }
    return found;
  }

  RoundState State() {
    RoundState state{.sequences = {}, .free_chunks = pool_.free(), .reclaimable_chunks = pool_.reclaimable()};
    for (size_t i = 0; i < sequences_.size(); ++i) {
      Sequence& s = sequences_[i];
      if (!s.running) {
        s.chunks = Find(s);
        s.computed = static_cast<int>(s.chunks.size()) * options_.chunk_positions;
      }
      SequenceState entry{.id = static_cast<int64_t>(s.request),
                          .running = s.running,
                          .context = s.context(),
                          .missing = s.context() - s.computed,
                          .chunks = static_cast<int>(s.chunks.size()),
                          .most_chunks = MostChunks(s.of.prompt, s.of.answer, 1 << 20),
                          .waited_ms = now_ - s.of.arrival_ms};
      for (size_t j = 0; j < i && s.of.document >= 0; ++j) {
        const int common = CommonChunks(s.chunks, sequences_[j].chunks);
        if (common <= entry.shared_chunks) continue;
        entry.shared_chunks = common;
        entry.shared_with = static_cast<int>(j);
      }
      state.sequences.push_back(entry);
    }
    return state;
  }

  Sequence& At(int i) { return sequences_[static_cast<size_t>(i)]; }

  void Drop(Sequence& s) {
    if (prefix_cache_ && s.of.document >= 0) {
      const int whole = std::min(s.computed, s.of.document_tokens) / options_.chunk_positions;
      if (whole > 0) pool_.Remember({s.of.document, {s.chunks.begin(), s.chunks.begin() + whole}});
    }
    for (const int chunk : s.chunks) pool_.Release(chunk);
    s.chunks.clear();
    s.running = false;
    s.computed = 0;
  }

  void Apply(const RoundPlan& plan) {
    for (const int i : plan.preempt) {
      ASSERT_TRUE(At(i).running);
      ++result_.answers[At(i).request].preemptions;
      ++result_.preemptions;
      Drop(At(i));
    }
    for (const int i : plan.admit) {
      ASSERT_FALSE(At(i).running);
      At(i).running = true;
      result_.reused += At(i).computed;
      for (const int chunk : At(i).chunks) pool_.Hold(chunk);
    }
    ASSERT_LE(plan.new_chunks, pool_.free() + pool_.reclaimable());
    int rows = 0;
    for (const RoundPlan::Part& part : plan.parts) {
      Sequence& s = At(part.sequence);
      ASSERT_TRUE(s.running);
      ASSERT_GE(part.rows, 1);
      ASSERT_LE(part.rows, s.context() - s.computed);
      for (int n = 0; n < part.new_chunks; ++n) s.chunks.push_back(pool_.Take());
      ASSERT_EQ(std::count(s.chunks.begin(), s.chunks.end(), -1), 0);
      s.computed += part.rows;
      rows += part.rows;
      ASSERT_LE(s.computed, static_cast<int>(s.chunks.size()) * options_.chunk_positions);
      ASSERT_EQ(part.completes, s.computed == s.context());
    }
    ASSERT_LE(rows, options_.batch_rows);
    result_.rows += rows;
    now_ += PassCost(costs_).Ms(plan.pass);
    for (const RoundPlan::Part& part : plan.parts) {
      if (part.completes) Answer(At(part.sequence));
    }
    std::erase_if(sequences_, [](const Sequence& s) { return s.generated == s.of.answer; });
  }

  void Answer(Sequence& s) {
    SimulatedAnswer& answer = result_.answers[s.request];
    if (s.generated++ == 0) {
      answer.first_token_ms = now_ - s.of.arrival_ms;
    } else {
      answer.gaps.push_back(now_ - s.last_ms);
    }
    s.last_ms = now_;
    ++result_.tokens;
    if (s.generated < s.of.answer) return;
    answer.end_ms = now_ - s.of.arrival_ms;
    Drop(s);
  }

  const CostModel& costs_;
  const ScheduleOptions options_;
  const int pool_chunks_;
  SimulatedPool pool_;
  const bool prefix_cache_;
  std::vector<Sequence> sequences_;  // in order of arrival
  double now_ = 0;
  SimulationResult result_;
};

// Independent arrivals (Poisson). Lengths are spread evenly over their logarithms.
struct TraceOptions {
  uint64_t seed = 1;
  int requests = 100;
  double gap_ms = 1000;  // the mean
  int shortest_prompt = 200, longest_prompt = 8000;
  int shortest_answer = 50, longest_answer = 500;
  int documents = 0;  // shared by the requests, each of longest_prompt / 2 tokens; 0: every prompt is its own
};

inline std::vector<SimulatedRequest> PoissonTrace(const TraceOptions& options) {
  const RngStream rng{.seed = options.seed, .purpose = RngPurpose::kTest};
  const auto spread = [&](uint64_t i, uint32_t draw, int low, int high) {
    return static_cast<int>(
        std::lround(low * std::pow(static_cast<double>(high) / low, rng.Uniform(i, draw))));
  };
  std::vector<SimulatedRequest> trace;
  double now = 0;
  for (uint64_t i = 0; i < static_cast<uint64_t>(options.requests); ++i) {
    now -= options.gap_ms * std::log1p(-rng.Uniform(i, 0));
    SimulatedRequest request{.arrival_ms = now,
                             .prompt = spread(i, 1, options.shortest_prompt, options.longest_prompt),
                             .answer = spread(i, 2, options.shortest_answer, options.longest_answer)};
    if (options.documents > 0) {
      request.document = static_cast<int>(rng.Uniform(i, 3) * options.documents);
      request.document_tokens = options.longest_prompt / 2;
      request.prompt = request.document_tokens + request.prompt / 2;
    }
    trace.push_back(request);
  }
  return trace;
}

// Machines that are formulas: ms of products, and of attention to each key.
inline CostModel SimulatedMachine(const std::vector<std::pair<int, double>>& products, double key_ms,
                                  double row_key_ms) {
  CostTable table{.rows = {}, .keys = {256, 8192}, .ms = {}};
  for (const auto& [rows, ms] : products) {
    table.rows.push_back(rows);
    for (const int keys : table.keys) table.ms.push_back(ms + keys * (key_ms + row_key_ms * rows));
  }
  return CostModel(table);
}
// Of the order of a model of 135M parameters on a CPU with AVX-512, and of 8B on one with AVX2.
inline CostModel FastMachine() {
  return SimulatedMachine({{1, 3.3}, {8, 3.6}, {16, 7.2}, {32, 14.5}, {64, 29}}, 9e-4, 2e-4);
}
inline CostModel SlowMachine() {
  return SimulatedMachine({{1, 260}, {2, 270}, {4, 330}, {8, 600}, {16, 1150}, {32, 2250}, {64, 4400}}, 5e-3,
                          5e-3);
}

// The value that `share` of the values do not exceed.
inline double Quantile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const auto i = static_cast<size_t>(std::ceil(share * static_cast<double>(values.size())));
  return values[std::max<size_t>(i, 1) - 1];
}

inline double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

}  // namespace longspec::testing
