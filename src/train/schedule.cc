// SPDX-License-Identifier: Apache-2.0
#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <span>
#include <utility>

#include "base/counter_rng.h"

namespace longspec::train {
namespace {

enum Draw : uint64_t { kAnchors, kOffset, kLag, kOrder, kSeed, kGaps };

// An integer of 0 .. n - 1.
int64_t Draw(uint64_t seed, enum Draw what, int64_t counter, uint32_t index, int64_t n) {
  const RngStream rng{.seed = seed, .sequence = what, .purpose = RngPurpose::kDraft};
  const double u = rng.Uniform(static_cast<uint64_t>(counter), index);
  return std::min(n - 1, static_cast<int64_t>(u * static_cast<double>(n)));
}

}  // namespace

double LearningRate(int64_t step, int64_t total, double peak, double warmup_share) {
  const double share = std::min(warmup_share, 1.0) * static_cast<double>(total);
  const int64_t warmup = share > 2.0 ? static_cast<int64_t>(share) : 2;
  if (step < warmup) return peak * static_cast<double>(step) / static_cast<double>(warmup);
  const double done =
      static_cast<double>(step - warmup + 1) / static_cast<double>(std::max<int64_t>(1, total - warmup));
  const double cosine = (1.0 + std::cos(std::numbers::pi * std::min(1.0, done))) / 2.0;
  return peak * (0.0001 + 0.9999 * cosine);
}

int64_t DecayBegin(int64_t total, const StableDecay& schedule) {
  return total - static_cast<int64_t>(schedule.decay_share * static_cast<double>(total));
}

double StableDecayRate(int64_t step, int64_t total, double peak, const StableDecay& schedule) {
  const auto share = [](int64_t part, int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  if (step < schedule.warmup) return peak * share(step, schedule.warmup);
  const int64_t begin = DecayBegin(total, schedule);
  return step < begin ? peak : peak * share(total - step, total - begin + 1);
}

PositionDraw DrawPositions(Positions positions, uint64_t seed, int64_t pass, int64_t length, int64_t n_ctx) {
  if (length > kAnchorOffsetLength || positions == Positions::kPlain) return {};
  const int64_t most = std::max<int64_t>(n_ctx - length, 0);
  if (positions == Positions::kAnchorOffset) {
    return {.anchors = static_cast<int>(Draw(seed, kAnchors, pass, 0, kMaxAnchors + 1)),
            .offset = Draw(seed, kOffset, pass, 0, most + 1)};
  }
  // One to four gaps. Their whole size is spread evenly, and each one's share of it, as offsets are.
  PositionDraw draw;
  const auto n = static_cast<uint32_t>(1 + Draw(seed, kGaps, pass, 0, kMostGaps));
  const int64_t all = Draw(seed, kOffset, pass, 0, most + 1);
  std::vector<int64_t> cuts = {0, all};
  for (uint32_t i = 1; i < n; ++i) cuts.push_back(Draw(seed, kGaps, pass, i, all + 1));
  std::ranges::sort(cuts);
  for (uint32_t i = 0; i < n; ++i) {
    const int64_t before = 1 + Draw(seed, kGaps, pass, kMostGaps + i, std::max<int64_t>(length - 1, 1));
    draw.gaps.push_back({.before = before, .size = cuts[i + 1] - cuts[i]});
  }
  return draw;
}

int64_t PositionOf(const PositionDraw& draw, int64_t index) {
  int64_t position = index < draw.anchors ? index : index + draw.offset;
  for (const PositionDraw::Gap& gap : draw.gaps) position += index >= gap.before ? gap.size : 0;
  return position;
}

int DrawLag(uint64_t seed, int64_t pass, int most) {
  return 1 + static_cast<int>(Draw(seed, kLag, pass, 0, most));
}

uint64_t DrawSeed(uint64_t seed, int64_t pass) {
  return static_cast<uint64_t>(Draw(seed, kSeed, pass, 0, int64_t{1} << 52));
}

std::vector<int32_t> SequenceOrder(uint64_t seed, int64_t epoch, int n) {
  std::vector<int32_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (int i = n - 1; i > 0; --i) {
    const int64_t j = Draw(seed, kOrder, epoch, static_cast<uint32_t>(i), i + 1);
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]);
  }
  return order;
}

void SortBatchesByLength(int batch, const std::vector<int64_t>& lengths, std::vector<int32_t>* order) {
  const auto length = [&](int32_t i) { return lengths[static_cast<size_t>(i)]; };
  for (size_t begin = 0; begin < order->size(); begin += static_cast<size_t>(batch)) {
    const size_t n = std::min(static_cast<size_t>(batch), order->size() - begin);
    std::ranges::stable_sort(std::span(*order).subspan(begin, n), std::ranges::greater(), length);
  }
}

}  // namespace longspec::train
