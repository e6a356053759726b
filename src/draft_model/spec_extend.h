// SPDX-License-Identifier: Apache-2.0
//
// SpecExtend (arXiv 2505.20776) for any draft with a cache that grows: when and by
// what the chunks of the text are chosen that the draft sees (kv/reindexed_set.h). That is the attention of
// the target's last layer from the last accepted token, every few verified rounds. What is an entry of the
// draft's cache, and when in a round the set may change, is the drafter's to say. Texts that are short enough
// (a gate) the draft sees as without SpecExtend.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "draft/drafter.h"
#include "draft/drafter_entry.h"
#include "draft_model/registry.h"
#include "kv/reindexed_set.h"
#include "model/target.h"

namespace longspec {

// What a draft sees and when that is chosen anew, with nothing left to default.
struct SpecExtendSettings {
  int n_chunks = 0;  // 0: without SpecExtend
  int every = 0;     // verified rounds
  int from = 0;      // tokens; of a shorter text it sees all

  bool on() const { return n_chunks > 0; }
};

// The paper's numbers for small language models and for EAGLE.
inline constexpr SpecExtendSettings kSpecExtendOfLm = {.n_chunks = 32, .every = 4};
inline constexpr SpecExtendSettings kSpecExtendOfEagle = {.n_chunks = 64, .every = 8};

inline bool AsksForSpecExtend(const SpeculationOptions& options) {
  return options.spec_extend.enabled || options.spec_extend.chunks > 0;
}

// What the options say, and else the paper. `trained_positions` of the draft, 0 if unknown: the paper's
// chunks take no more than seven eighths of them, so that what is drafted has a place as well, and SpecExtend
// begins where they end at the latest.
SpecExtendSettings SpecExtendOf(const SpeculationOptions& options, const SpecExtendSettings& paper,
                                int trained_positions);

class SpecExtend {
 public:
  // Of a prompt's rows (the released code).
  static constexpr int kPromptWindow = 512;

  // `settings` are on. `cache`: the target's, as CheckSpecExtend wants it. `set`: what the draft sees. All
  // are borrowed.
  SpecExtend(const SpecExtendSettings& settings, const Target& target, const KvCache& cache,
             ReindexedSet* set);

  // Another text begins, or this one goes on by other means than rounds: the next round's attention chooses,
  // and nothing that was said before.
  void Restart();
  // The text has so many tokens, whatever of it the draft holds. REQUIRES: it holds nothing of another text,
  // and no transaction of its cache is open; and so below.
  Status Follow(size_t n_tokens);
  // Whether the draft sees all of the text, which has not reached the gate.
  bool sees_all() const { return sees_all_; }

  // What a draft asks for, and the queries of the rounds by which is chosen.
  Taps With(Taps taps) const;
  // Takes scores from every n-th round since the gate was reached, the first one included.
  void Read(const CommittedRows& rows);
  // There are scores by which was not chosen yet.
  bool has_scores() const { return has_scores_; }
  // Chooses by them, if there are any. positions[i]: the target's position by which entry i is scored; empty:
  // entry i by position i.
  Status Choose(std::span<const int32_t> positions = {});
  // Before a draft goes on with a piece of a prompt that begins at this entry: its rows see a window before
  // it.
  Status BeginPromptPiece(int entry);
  // After a prompt: makes the set the last chunks, as many as are chosen.
  Status HoldLast() { return set_.HoldLast(settings_.n_chunks); }

  size_t bytes() const { return (mass_.capacity() + scores_.capacity()) * sizeof(float); }

 private:
  const Target& target_;
  const KvCache& target_cache_;
  const SpecExtendSettings settings_;
  ReindexedSet& set_;
  bool sees_all_ = false;
  int64_t n_rounds_ = 0;
  std::vector<float> mass_;    // by position of the target
  std::vector<float> scores_;  // by entry
  bool has_scores_ = false;
};

// The options of the set.
ReindexOptions SetOf(const SpecExtendSettings& settings);

// Whether this cache of a target has what is asked for: all positions.
Status CheckSpecExtend(const SpeculationOptions& options, const KvCache& cache);

// Adds the set, which passes of `max_rows` rows are appended to, and the queries that the target hands over:
// of a draft that was trained for as many positions as need be. REQUIRES: the options ask for SpecExtend.
void AddSpecExtendMemory(const SpeculationOptions& options, const SpecExtendSettings& paper,
                         const ModelSizes& target, const KvLayout& layout, int n_layer, int max_rows,
                         DraftMemory* plan);

// DrafterEntry::settle: the paper's trees are OPT-Tree's of 50 nodes. Who names a
// tree has that one, of as many nodes as ever.
void SettleSpecExtend(SpeculationOptions& options);
inline std::string_view LacksSpecExtend(const SpeculationOptions& options) {
  return AsksForSpecExtend(options) ? "" : "--spec-extend";
}

inline constexpr DrafterOption kSpecExtendOption = {
    .flags = "--spec-extend",
    .member = At<&SpeculationOptions::spec_extend, &SpecExtendOptions::enabled>,
    .help = "SpecExtend: of a long text it sees the chunks of 32 positions that the model looks at"};
inline constexpr DrafterOption kSpecExtendChunksOption = {
    .flags = "--spec-extend-chunks",
    .member = At<&SpeculationOptions::spec_extend, &SpecExtendOptions::chunks>,
    .help = "the same, so many of them; 0: the paper's number, 32 or for EAGLE 64",
    .most = (1 << 24) / 32};
inline constexpr DrafterOption kSpecExtendEveryOption = {
    .flags = "--spec-extend-every",
    .member = At<&SpeculationOptions::spec_extend, &SpecExtendOptions::every>,
    .help = "rounds after which they are chosen anew; 0: the paper's number, 4 or for EAGLE 8",
    .most = 1 << 24,
    .lacks = LacksSpecExtend};
inline constexpr DrafterOption kSpecExtendFromOption = {
    .flags = "--spec-extend-from",
    .member = At<&SpeculationOptions::spec_extend, &SpecExtendOptions::from>,
    .help = "of a text shorter than so many tokens it sees all; 0: than what the chunks hold",
    .most = 1 << 24,
    .lacks = LacksSpecExtend};

}  // namespace longspec
