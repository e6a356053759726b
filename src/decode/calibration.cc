// SPDX-License-Identifier: Apache-2.0
#include "decode/calibration.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/clock.h"
#include "base/counter_rng.h"
#include "base/status_macros.h"

namespace longspec {
namespace {

constexpr std::array<int, 11> kRows = {1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32};
// In this order, so that whatever the budget leaves out lies between or beyond what is known.
constexpr std::array<int, 11> kOrder = {1, 8, 4, 16, 2, 32, 6, 12, 3, 24, 5};
constexpr size_t kAlways = 2;  // of the order, whatever the budget
// The shortest of several passes counts, some time apart: what else the machine does only adds to them.
constexpr int kRounds = 6;
constexpr int kWarmUps = 6;            // passes before the first that counts: pages are mapped, clocks rise
constexpr double kRepeatBelowMs = 40;  // longer passes are measured once,
constexpr int kMostRepeated = 8;       // and so are steps of more rows
constexpr int kShallow = 256;
// The machine had nothing else to do if the two shortest passes of most points agree.
constexpr double kSteady = 1.25;
constexpr double kMostUnsteady = 0.2;  // of the points

// Costs at one depth, by row count.
using Curve = std::map<int, double>;

class Calibrator {
 public:
  Calibrator(Target& target, const CalibrationOptions& options) : target_(target), options_(options) {}

  Result<Calibration> Run(const ScratchCache& make_cache) {
    const int widest = std::min(kRows.back(), options_.capacity - 1);
    const int shallow = std::clamp(options_.capacity - widest, 1, kShallow);
    const int deep = std::clamp(options_.capacity - widest, shallow, options_.deep);
    std::vector<Scratch> scratch;
    for (const int depth : deep > shallow ? std::vector{shallow, deep} : std::vector{shallow}) {
      LS_ASSIGN(std::unique_ptr<KvCache> cache, make_cache(depth, widest));
      scratch.push_back({.depth = depth, .cache = std::move(cache), .curve = {}, .second = {}});
      for (int i = 0; i < kWarmUps; ++i) LS_TRY(Pass(*scratch.back().cache, 1).status());
    }
    const double start = NowMs();
    for (int round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < kOrder.size(); ++i) {
        const bool always = round == 0 && i < kAlways;
        if (kOrder[i] > widest || (!always && NowMs() - start > options_.budget_ms)) continue;
        if (round > 0 && kOrder[i] > kMostRepeated) continue;
        for (Scratch& s : scratch) LS_TRY(Measure(kOrder[i], s));
      }
    }
    return Calibration{.table = Fill(scratch), .steady = Steady(scratch)};
  }

 private:
  struct Scratch {
    int depth;
    std::unique_ptr<KvCache> cache;
    Curve curve;
    Curve second;  // the second shortest pass
  };

  Result<double> Pass(KvCache& cache, int rows) {
    // Any tokens do: time does not depend on which.
    std::vector<int32_t> tokens;
    for (int i = 0; i < rows; ++i) {
      tokens.push_back(static_cast<int32_t>(rng_.Uniform(draws_++) * target_.vocab_size()));
    }
    const double start = NowMs();
    LS_ASSIGN(KvTransaction transaction, cache.Begin(rows));
    const ForwardSegment segment{
        .tokens = tokens, .parents = {}, .kv = &transaction, .logits = LogitsFor::kAllRows};
    LS_TRY(target_.Forward({&segment, 1}, {}).status());
    return std::max(NowMs() - start, 1e-6);
  }

  Status Measure(int rows, Scratch& scratch) {
    const auto known = scratch.curve.find(rows);
    if (known != scratch.curve.end() && known->second > kRepeatBelowMs) return {};
    LS_ASSIGN(const double ms, Pass(*scratch.cache, rows));
    if (known == scratch.curve.end()) {
      scratch.curve[rows] = ms;
      return {};
    }
    const auto [second, first_repeat] = scratch.second.try_emplace(rows, std::max(known->second, ms));
    if (!first_repeat) second->second = std::min(second->second, std::max(known->second, ms));
    known->second = std::min(known->second, ms);
    return {};
  }

  // Points measured once say nothing.
  static bool Steady(const std::vector<Scratch>& scratch) {
    int n = 0, unsteady = 0;
    for (const Scratch& s : scratch) {
      for (const auto& [rows, second] : s.second) {
        ++n;
        unsteady += second > kSteady * s.curve.at(rows) ? 1 : 0;
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
    for (int keys = kShallow; keys < options_.capacity; keys *= 4) table.keys.push_back(keys);
    table.keys.push_back(options_.capacity);
    table.ms.resize(table.rows.size() * table.keys.size());
    for (size_t r = 0; r < table.rows.size(); ++r) {
      const double shallow = At(scratch.front().curve, table.rows[r]);
      double slope = 0;
      if (scratch.size() > 1) {
        const double rise = At(scratch.back().curve, table.rows[r]) - shallow;
        slope = std::max(0.0, rise / (scratch.back().depth - scratch.front().depth));
      }
      for (size_t k = 0; k < table.keys.size(); ++k) {
        const double ms = shallow + slope * (table.keys[k] - scratch.front().depth);
        table.at(r, k) = std::max(ms, 0.1 * shallow);
      }
    }
    return table;
  }

  Target& target_;
  const CalibrationOptions& options_;
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
