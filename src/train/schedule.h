// SPDX-License-Identifier: Apache-2.0
//
// What training draws and follows besides the data, as pure functions of a seed and a step: the learning
// rate, the positions (Anchor-Offset's, or random gaps) and the lag of flash noisy training of LongSpec (Yang
// et al. 2025, 3.2), and the order of the sequences. A resumed run needs no state of a random generator.
#pragma once

#include <cstdint>
#include <vector>

namespace longspec::train {

// Linear warm-up from 0 over `warmup_share` of `total` steps (2 at least), then a cosine down to 0.0001 of
// the peak. `step` counts from 0.
double LearningRate(int64_t step, int64_t total, double peak, double warmup_share);

// Warm-up, stable, decay: linear from 0 over `warmup` steps, the peak, and linear towards 0 over the last
// steps. Up to where it decays nothing depends on `total`, so a run can be continued from there with more
// steps.
struct StableDecay {
  int64_t warmup = 100;
  double decay_share = 0.2;  // of all steps
};
int64_t DecayBegin(int64_t total, const StableDecay& schedule);
double StableDecayRate(int64_t step, int64_t total, double peak, const StableDecay& schedule);

// Sequences longer than this keep plain positions.
inline constexpr int kAnchorOffsetLength = 1200;
inline constexpr int kMaxAnchors = 4;

// Where the tokens of short sequences stand. Rotary attention knows distances only, so an offset behind
// anchors moves no distance but those to the anchors; gaps inside a sequence move those across them, so that
// it has near, middle and far ones.
enum class Positions : uint8_t { kPlain, kAnchorOffset, kGaps };
inline constexpr int kMostGaps = 4;

struct PositionDraw {
  int anchors = 0;     // the first tokens that keep their positions
  int64_t offset = 0;  // of all others
  struct Gap {
    int64_t before, size;  // positions left out before token `before`
  };
  std::vector<Gap> gaps = {};

  bool moves() const { return offset != 0 || !gaps.empty(); }
};
// For forward pass `pass` of a run, shared by all its sequences, padded to `length`. None goes beyond the
// context; LongSpec's code leaves out its last 1,000 positions and those from 30,000 on, where a draft would
// then be silent.
PositionDraw DrawPositions(Positions positions, uint64_t seed, int64_t pass, int64_t length, int64_t n_ctx);
int64_t PositionOf(const PositionDraw& draw, int64_t index);

// The lag of cross-attention, one of 1 .. `most`: the query of token t sees target keys 0 .. t - lag.
int DrawLag(uint64_t seed, int64_t pass, int most);

// For what else a pass draws: noise, beginnings of windows; for a batch of texts, by its first one.
uint64_t DrawSeed(uint64_t seed, int64_t pass);

// A permutation of 0 .. n - 1 for that epoch.
std::vector<int32_t> SequenceOrder(uint64_t seed, int64_t epoch, int n);
// Of each `batch` sequences in `order` the longest first: what an optimiser step has stays the same, and no
// thread begins its longest pass last.
void SortBatchesByLength(int batch, const std::vector<int64_t>& lengths, std::vector<int32_t>* order);

}  // namespace longspec::train
