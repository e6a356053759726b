// SPDX-License-Identifier: Apache-2.0
//
// A drafter guesses what comes next. It grows trees and keeps books; it never judges, and never touches the
// target's cache. One drafter serves one sequence. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "draft/foresight.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "model/target.h"
#include "tree/token_tree.h"

namespace longspec {

struct DraftBudget {
  int max_nodes = 0;  // proposed nodes, the root not counted; 0: propose nothing
  int max_depth = 0;
  double most_ms = 0;        // if not 0: a portfolio leaves out members that lately took longer than this
  Foresight foresight = {};  // what is known of how the target will choose
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;
  // Who TreeNode::source 0, 1, ... of its trees are.
  virtual std::vector<std::string_view> sources() const { return {name()}; }

  // What it needs of the target's forward passes.
  virtual Taps taps() const { return {}; }

  // The sequence so far became `committed` by other means than Accept (a prompt, a restored session).
  virtual Status Prefill(std::span<const int32_t> committed) = 0;

  // Grows `tree`, whose root is committed.back(), within the budget. Proposing nothing is always right.
  virtual Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) = 0;

  // Before each Accept, also where nothing was proposed: the tree that is really verified. It may be a part
  // of the proposal or, in a portfolio, hold what others proposed; row i of Accept's output is its node i.
  // Only drafters that read those rows need it.
  virtual void Verifying(const TokenTree&) {}

  // The target's verdict: `committed` now ends with the newly accepted tokens, `n_new` of them.
  virtual Status Accept(std::span<const int32_t> committed, int n_new, const TargetOutput& output) = 0;

  virtual size_t bytes() const { return 0; }  // memory held now

  // Whether it makes use of dice, if there are any (draft/foresight.h).
  virtual bool uses_dice() const { return false; }

  // What it drafts with, as name and value for statistics: ("prior", "models/priors/x.ngrams, 2.0M pairs").
  virtual std::vector<std::pair<std::string, std::string>> uses() const { return {}; }

  // Something the user should know, such as why nothing is proposed any more; empty: nothing. One line.
  virtual std::string notice() const { return {}; }
};

class DraftModels;

// What a drafter may use of the sequence it serves. All borrowed, and outlive the drafter. Between rounds a
// drafter may run the target on a cache of its own, and read the sequence's cache; it writes neither.
struct DraftContext {
  Target* target = nullptr;
  const KvCache* cache = nullptr;  // holds the committed tokens but the last
  // Where loaded draft models and priors are kept; null: each drafter loads its own, and there is no prior.
  DraftModels* models = nullptr;
};

// Whether MakeDrafter would take these options, as far as they tell without a model. Unknown types are an
// error that lists the known ones.
Status CheckDrafter(const SpeculationOptions& options);
Result<std::unique_ptr<Drafter>> MakeDrafter(const SpeculationOptions& options,
                                             const DraftContext& context = {});
// Whether a type names a portfolio: "auto", or several drafters separated by commas.
bool IsPortfolio(std::string_view type);
// Names MakeDrafter knows, in the order the help shows them (draft/registry.h has the rest of the table).
std::vector<std::string> DrafterNames();

}  // namespace longspec
