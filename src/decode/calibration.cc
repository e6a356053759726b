// SPDX-License-Identifier: Apache-2.0
#include "decode/calibration.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/counter_rng.h"
#include "base/median.h"
#include "base/status_macros.h"

namespace longspec {
namespace {

constexpr std::array<int, 10> kRows = {1, 2, 3, 4, 5, 6, 8, 12, 16, 32};
// In this order, so that whatever the budget leaves out lies between or beyond what is known.
constexpr std::array<int, 10> kOrder = {1, 8, 4, 16, 2, 12, 6, 5, 3, 32};
constexpr size_t kAlways = 2;  // of the order, whatever the budget
// Pieces of prompts; the last is as wide as the default batch, and prompts have no logits.
constexpr std::array<int, 2> kPromptRows = {128, 512};
constexpr int kMostWithLogits = 128;
constexpr size_t kDepthsOfWide = 2;  // at which they are measured
// A row count costs what it does in the median of several rounds, in steps of the row beside it: neighbours
// on the same cores slow computing and reading down by different amounts, and the shortest passes are those
// without neighbours, which decoding will not be.
constexpr int kRounds = 8;
constexpr int kWarmUps = 6;            // passes before the first that counts: pages are mapped, clocks rise
constexpr double kWarmUpMs = 300;      // that they may take; one is run even if it takes longer
constexpr double kRepeatBelowMs = 80;  // longer passes are measured once,
constexpr int kMostRepeated = 16;      // and so are steps of more rows
// Once 16 rows cost nearly twice as much as 8, more rows cost in proportion and need no measuring.
constexpr int kHalfWide = 8, kWide = 16;
constexpr double kInProportion = 1.8;
constexpr int kShallow = 256;
// The machine had nothing else to do if the two shortest passes of most points agree.
constexpr double kSteady = 1.25;
constexpr double kMostUnsteady = 0.2;  // of the points
// Another program on the same cores stops ours every few milliseconds; passes of equal length hide it where
// every one of them is stopped.
constexpr double kMostPreemptions = 40;  // a second
constexpr double kFewPreemptions = 10;   // of any time

// Costs at one depth, by row count.
using Curve = std::map<int, double>;

class Calibrator {
 public:
  Calibrator(Target& target, const CalibrationOptions& options) : target_(target), options_(options) {}

  Result<Calibration> Run(const ScratchCache& make_cache) {
    const int widest = std::min(kRows.back(), options_.capacity - 1);
    const int shallow = std::clamp(options_.capacity - widest, 1, kShallow);
    const int deep = std::clamp(options_.capacity - widest, shallow, options_.deep);
    std::vector<int> depths = {shallow};
    if (deep > shallow) depths.push_back(deep);
    if (options_.deepest >= 2 * deep && options_.deepest <= options_.capacity - widest)
      depths.push_back(options_.deepest);
    std::vector<Scratch> scratch;
    for (const int depth : depths) {
      const int room = std::clamp(options_.capacity - depth, widest, kPromptRows.back());
      LS_ASSIGN(std::unique_ptr<KvCache> cache, make_cache(depth, room));
      scratch.push_back({.depth = depth, .cache = std::move(cache), .passes = {}});
      LS_TRY(WarmUp(*scratch.back().cache));
    }
    const double start = NowMs();
    const int64_t stopped = options_.preemptions();
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < kOrder.size(); ++i) {
        const bool always = round == 0 && i < kAlways;
        if (kOrder[i] > widest || (!always && NowMs() - start > options_.budget_ms)) continue;
        if (round > 0 && kOrder[i] > kMostRepeated) continue;
        if (kOrder[i] > kWide && std::all_of(scratch.begin(), scratch.end(), InProportion)) continue;
        for (Scratch& s : scratch) LS_TRY(Measure(kOrder[i], s));
      }
    }
    double left_ms = options_.wide_ms;
    const auto for_wide = std::span(scratch).first(std::min(scratch.size(), kDepthsOfWide));
    for (const int rows : kPromptRows) {
      if (rows > std::min(options_.most_rows, options_.capacity - for_wide.back().depth)) break;
      for (const Scratch& s : for_wide) {
        const auto& [narrower, passes] = *s.passes.rbegin();
        left_ms -= passes.ms.back() * rows / narrower;
      }
      if (left_ms < 0) break;
      for (Scratch& s : for_wide) LS_TRY(Measure(rows, s));
      wide_.push_back(rows);
    }
    const double seconds = (NowMs() - start) / 1000;
    const bool undisturbed =
        static_cast<double>(options_.preemptions() - stopped) <= kMostPreemptions * seconds + kFewPreemptions;
    return Calibration{.table = Fill(scratch), .steady = undisturbed && Steady(scratch)};
  }

 private:
  struct Passes {
    std::vector<double> ms, times_one_row;  // by round
  };
  struct Scratch {
    int depth;
    std::unique_ptr<KvCache> cache;
    std::map<int, Passes> passes;  // by row count
  };

  Status WarmUp(KvCache& cache) {
    const double start = NowMs();
    for (int i = 0; i < kWarmUps; ++i) {
      LS_TRY(Pass(cache, 1).status());
      if (NowMs() - start > kWarmUpMs) break;
    }
    return {};
  }

  Result<double> Pass(KvCache& cache, int rows) {
    if (options_.keep_going && !options_.keep_going()) return Cancelled("measuring was stopped");
    // Any tokens do: time does not depend on which.
    std::vector<int32_t> tokens;
    for (int i = 0; i < rows; ++i) {
      tokens.push_back(static_cast<int32_t>(rng_.Uniform(draws_++) * target_.vocab_size()));
    }
    const double start = NowMs();
    LS_ASSIGN(KvTransaction transaction, cache.Begin(rows));
    const ForwardSegment segment{.tokens = tokens,
                                 .parents = {},
                                 .kv = &transaction,
                                 .logits = rows <= kMostWithLogits ? LogitsFor::kAllRows : LogitsFor::kNone};
    LS_TRY(target_.Forward({&segment, 1}).status());
    return std::max(NowMs() - start, 1e-6);
  }

  Status Measure(int rows, Scratch& scratch) {
    Passes& passes = scratch.passes[rows];
    if (!passes.ms.empty() && passes.ms.front() > kRepeatBelowMs) return {};
    LS_ASSIGN(const double ms, Pass(*scratch.cache, rows));
    passes.ms.push_back(ms);
    passes.times_one_row.push_back(ms / scratch.passes.at(1).ms.back());
    return {};
  }

  static Curve CurveOf(const Scratch& scratch) {
    Curve curve;
    const double one_row = Median(scratch.passes.at(1).ms);
    for (const auto& [rows, passes] : scratch.passes) curve[rows] = one_row * Median(passes.times_one_row);
    return curve;
  }

  static bool InProportion(const Scratch& scratch) {
    const auto half = scratch.passes.find(kHalfWide), wide = scratch.passes.find(kWide);
    if (half == scratch.passes.end() || wide == scratch.passes.end()) return false;
    return wide->second.ms.front() >= kInProportion * half->second.ms.front();
  }

  // The two shortest passes agree. Points measured once say nothing.
  static bool Steady(const std::vector<Scratch>& scratch) {
    int n = 0, unsteady = 0;
    for (const Scratch& s : scratch) {
      for (const auto& [rows, passes] : s.passes) {
        if (passes.ms.size() < 2) continue;
        std::vector<double> ms = passes.ms;
        std::partial_sort(ms.begin(), ms.begin() + 2, ms.end());
        ++n;
        unsteady += ms[1] > kSteady * ms[0] ? 1 : 0;
      }
    }
    return unsteady <= kMostUnsteady * n;
  }

  // Linear between the measured row counts; beyond them, on with the last slope.
  static double At(const Curve& curve, int rows) {
    if (curve.size() == 1) return curve.begin()->second * rows / curve.begin()->first;
    auto high = curve.lower_bound(rows);
    if (high == curve.begin()) ++high;
    if (high == curve.end()) --high;
    const auto low = std::prev(high);
    const double slope = std::max(0.0, (high->second - low->second) / (high->first - low->first));
    return low->second + slope * (rows - low->first);
  }

  CostTable Fill(const std::vector<Scratch>& scratch) const {
    CostTable table;
    table.rows.assign(kRows.begin(), kRows.end());
    table.rows.insert(table.rows.end(), wide_.begin(), wide_.end());
    for (int keys = kShallow; keys < options_.capacity; keys *= 4) table.keys.push_back(keys);
    table.keys.push_back(options_.capacity);
    table.ms.resize(table.rows.size() * table.keys.size());
    std::vector<Curve> curves;
    for (const Scratch& s : scratch) curves.push_back(CurveOf(s));
    for (size_t r = 0; r < table.rows.size(); ++r) {
      std::vector<double> ms;
      for (const Curve& curve : curves) ms.push_back(At(curve, table.rows[r]));
      for (size_t k = 0; k < table.keys.size(); ++k) {
        // The rows of a chain see those before them, too.
        const double keys = table.keys[k] - 0.5 * (table.rows[r] - 1);
        table.at(r, k) = std::max(AtDepth(scratch, ms, keys), 0.1 * ms.front());
      }
    }
    return table;
  }

  // Linear between the depths, and on with the nearest slope outside them. `ms`: at each of them.
  static double AtDepth(const std::vector<Scratch>& scratch, const std::vector<double>& ms, double keys) {
    if (scratch.size() == 1) return ms.front();
    size_t high = 1;
    while (high + 1 < scratch.size() && keys > scratch[high].depth) ++high;
    const double slope = (ms[high] - ms[high - 1]) / (scratch[high].depth - scratch[high - 1].depth);
    return ms[high - 1] + std::max(0.0, slope) * (keys - scratch[high - 1].depth);
  }

  Target& target_;
  const CalibrationOptions& options_;
  std::vector<int> wide_;  // of kPromptRows, those measured
  RngStream rng_{.seed = 1, .purpose = RngPurpose::kPolicy};
  uint64_t draws_ = 0;
};

}  // namespace

Result<Calibration> Calibrate(Target& target, const ScratchCache& make_cache,
                              const CalibrationOptions& options) {
  if (options.capacity < 2) return InvalidArgument("calibration needs a context of at least 2 positions");
  return Calibrator(target, options).Run(make_cache);
}

}  // namespace longspec
