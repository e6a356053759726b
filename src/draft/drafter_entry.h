// SPDX-License-Identifier: Apache-2.0
//
// What the table of drafters (draft_model/registry.h) knows of one of them. A drafter's file ends with its
// entry.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attention/kv_span.h"
#include "draft/drafter.h"
#include "formats/gguf.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "network/model_sizes.h"

namespace longspec {

class DraftFiles;
struct DraftKind;

// The memory that drafting will take, known from the headers of files before weights are read. Of the host,
// on which drafts run, where not said otherwise.
struct DraftMemory {
  uint64_t fixed = 0;       // weights, activations and a window's cache, bytes
  uint64_t kv_chunk = 0;    // of each chunk of the context (kKvChunk positions), if the draft sees all of it
  uint64_t kept_chunk = 0;  // of each chunk that is kept of what it made of texts (draft_model/draft_keys.h)
  // Where the target's keys and values lie: what the target computes on for the draft, in bytes, and what it
  // takes besides for each chunk of the context.
  uint64_t with_target = 0, with_target_chunk = 0;

  DraftMemory& operator+=(const DraftMemory& other) {
    fixed += other.fixed;
    kv_chunk += other.kv_chunk;
    kept_chunk += other.kept_chunk;
    with_target += other.with_target;
    with_target_chunk += other.with_target_chunk;
    return *this;
  }
};

// What the header of a target's file says. Borrowed.
struct TargetFacts {
  const GgufFile& file;
  const ModelSizes& sizes;
  KvLayout cache;           // how its keys and values will lie
  bool is_on_card = false;  // they will lie where the host cannot address them
};

using DrafterResult = Result<std::unique_ptr<Drafter>>;

// Where the value of an option is: SpeculationOptions has a struct for each drafter.
template <typename T>
class OptionPlace {
 public:
  using Value = T;
  explicit constexpr OptionPlace(T& (*find)(SpeculationOptions&)) : find_(find) {}
  T& In(SpeculationOptions& options) const { return find_(options); }
  const T& In(const SpeculationOptions& options) const {
    return find_(const_cast<SpeculationOptions&>(options));  // which find_ does not change
  }
  bool operator==(const OptionPlace&) const = default;

 private:
  T& (*find_)(SpeculationOptions&);
};
template <auto... kPath>
auto& FindOption(SpeculationOptions& options) {
  return (options.*....*kPath);
}
// At<&SpeculationOptions::ngram, &NgramDraftOptions::max>: the members that lead there.
template <auto... kPath>
inline constexpr OptionPlace At(FindOption<kPath...>);

// An option of the command line that only some drafters read. Its default is the member's initialiser.
struct DrafterOption {
  using Member =
      std::variant<OptionPlace<int>, OptionPlace<float>, OptionPlace<std::string>, OptionPlace<bool>>;

  std::string_view flags;  // separated by commas, the first one for messages: "--spec-ngram-max,--ngram-max"
  Member member;           // a bool is set by the flag alone
  std::string_view help;   // one line, without the drafter's name and the default
  // What a number may be. No upper bound still means finite.
  double least = 0, most = std::numeric_limits<double>::infinity();
  bool above_least = false;  // `least` itself is refused
  // What is missing for it to have an effect on who reads it: "--spec-extend". Null, or empty: nothing.
  std::string_view (*lacks)(const SpeculationOptions& options) = nullptr;

  std::string_view name() const { return flags.substr(0, flags.find(',')); }
};

// What a paper or another program calls a drafter: that drafter with the settings that it has there.
struct DrafterPreset {
  std::string_view name;
  std::string_view of;                        // whose settings they are
  void (*set)(SpeculationOptions& defaults);  // settings are what it changes
};

// Functions that are null have nothing to do, or nothing to say.
struct DrafterEntry {
  std::string_view name;
  std::array<std::string_view, 3> aliases = {};  // other names that promise no settings
  std::span<const DrafterPreset> presets = {};
  std::string_view summary;                     // what it proposes, one line
  std::span<const DrafterOption> options = {};  // those not all drafters read
  // Which of the shared options (draft_model/option_use.h) it reads itself.
  bool proposes = true;     // a number of nodes, and a policy for it
  bool reads_tree = true;   // --spec-tree
  bool reads_dice = false;  // --spec-dice: Drafter::uses_dice
  // Drafters that it makes: the options of each, which are of what it reads. Null: none.
  std::vector<SpeculationOptions> (*parts)(const SpeculationOptions& options) = nullptr;
  // Fills in what options leave open that others decide. Null: nothing.
  void (*settle)(SpeculationOptions& options) = nullptr;
  // A drafter with a model of its own, of a kind that has files of its own (draft_model/draft_checkpoint.h).
  const DraftKind* kind = nullptr;
  // A drafter with a model of its own: whether it reads one of this architecture (DraftFiles::Architecture).
  bool (*reads)(std::string_view architecture) = nullptr;
  // Whether that reads states of the target as it computes them: of a text that was computed without it, it
  // does not get them again.
  bool reads_states = false;

  // What options must be besides in their ranges. Opens no file.
  Status (*check)(const SpeculationOptions& options) = nullptr;
  // Why its model cannot draft for this target, from headers. REQUIRES: check is content, and so below.
  Status (*fits)(const SpeculationOptions& options, const TargetFacts& target, DraftFiles& files) = nullptr;
  // REQUIRES: it fits.
  Result<DraftMemory> (*memory)(const SpeculationOptions& options, const TargetFacts& target,
                                DraftFiles& files) = nullptr;
  // `context.models` is never null.
  DrafterResult (*make)(const SpeculationOptions& options, const DraftContext& context) = nullptr;

  // Whether "auto" takes it with these options; one with a model also needs one that it reads. Null: never.
  bool (*in_auto)(const SpeculationOptions& options) = nullptr;
  bool alone = false;  // cannot be one of several
  // Makes the options those of one of several.
  void (*as_member)(SpeculationOptions& options) = nullptr;

  bool chain_by_default = false;  // an empty --spec-tree is "chain"
  // For checks: narrows what it sees, so that of a text of so many tokens it leaves something out.
  void (*narrow)(SpeculationOptions& options, int n_tokens) = nullptr;

  // To its name, an alias, or what a preset is called.
  bool Answers(std::string_view wanted) const {
    return wanted == name || (!wanted.empty() && std::ranges::find(aliases, wanted) != aliases.end()) ||
           std::ranges::find(presets, wanted, &DrafterPreset::name) != presets.end();
  }
};

// --- What several entries share. ---

inline constexpr DrafterOption kDraftModelOption = {
    .flags = "--spec-draft-model",
    .member = At<&SpeculationOptions::draft_model>,
    .help = "the draft model: its file or folder (-md)",
};
// Of a preset: so many nodes, whatever the policy.
inline void SetNodes(int n, SpeculationOptions* options) {
  options->draft_n_max = options->adaptive_n_max = n;
}
// Beside an adviser (draft/mixture.h) a tree is as deep as it is worth, so nothing else bounds it.
inline void GrowBestAsMember(SpeculationOptions& options) {
  if (options.tree.empty()) options.tree = "best";
}
inline bool Always(const SpeculationOptions&) { return true; }

}  // namespace longspec
