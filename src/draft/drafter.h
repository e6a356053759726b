// SPDX-License-Identifier: Apache-2.0
//
// A drafter guesses what comes next. It grows trees and keeps books; it never judges, and never touches the
// target's cache. One drafter serves one sequence. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "draft/draft_task.h"
#include "draft/foresight.h"
#include "kv/kv_cache.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "model/target.h"
#include "tree/token_tree.h"

namespace longspec {

class Mixture;
class PassMeeting;
class Portfolio;

// A drafter whose opinion on any continuation of the text costs next to nothing, so that others can have it
// mixed into their own (draft/mixture.h). Chances are those of the text alone: how the target will choose is
// for the asker to add (draft/foresight.h).
class Adviser {
 public:
  virtual ~Adviser() = default;
  // Tokens of a chance of at least `least` after the committed text and `path`, in no order; replaces
  // `guesses`.
  virtual void Advise(std::span<const int32_t> path, double least, std::vector<Guess>& guesses) = 0;
};

// What a proposal may be, as a policy decides it (policy/policy.h), and what is known of the target's choice.
struct DraftBudget {
  int max_nodes = 0;  // proposed nodes, the root not counted; 0: propose nothing
  int max_depth = 0;
  // Where an adviser has the word besides, a draft model is asked about nodes that are reached at least so
  // often.
  double least_chance = 0;
  Foresight foresight = {};  // the dice
};

// Rows of a target's pass that became committed: a prompt's chunk, or what a round kept.
struct CommittedRows {
  std::span<const int32_t> sequence;   // all committed tokens
  int n_new = 0;                       // of them, the last ones, which this pass decided
  int first = 0;                       // position of the first of these rows
  std::span<const int32_t> rows = {};  // each one's place among the pass's rows of this sequence, ascending
  // Of this sequence in the pass: what taps() asked for, (n_output_rows, width), and the logits of its last
  // rows. Null: not at hand.
  const TargetOutput::Segment* output = nullptr;
  int n_output_rows = 0;
  const TokenTree* tree =
      nullptr;  // what was verified: node i is row root_row + i, and has logits. Null: nothing
  int root_row = 0;

  // Whether this row of the pass has rotated queries, and those of n rows from it on, per layer, (n, n_head *
  // head_dim).
  bool HasQueries(int row) const {
    return output != nullptr && row >= n_output_rows - output->n_query_rows();
  }
  std::vector<StateRows> QueriesOf(int row, int n = 1) const {
    std::vector<StateRows> by_layer;
    for (const StateRows& all : output->queries) {
      by_layer.push_back(all.From(row - (n_output_rows - all.size()), n));
    }
    return by_layer;
  }

  bool HasLogits(int row) const { return output != nullptr && row >= n_output_rows - output->logits.size(); }
  // Of a row of the pass that has them.
  LogitRow LogitsOf(int row) const { return output->logits[row - (n_output_rows - output->logits.size())]; }
};

// All but the newest token, whose row is yet to come; of an empty text nothing.
inline std::span<const int32_t> BeforeLast(std::span<const int32_t> committed) {
  return committed.first(committed.empty() ? 0 : committed.size() - 1);
}

// Whether the sequence's cache holds all of it but the newest token. Else the end of a prompt is in the pass
// that is to come, and what it computes of these tokens is not there yet.
inline bool HoldsBeforeLast(const KvCache& cache, std::span<const int32_t> committed) {
  return cache.length() + 1 == static_cast<int>(committed.size());
}

// Whether `text`, which somebody has read, is the beginning of this one, of so many tokens.
inline bool IsBeginning(std::span<const int32_t> text, std::span<const int32_t> committed, int n) {
  const auto size = static_cast<size_t>(n);
  return text.size() >= size && std::ranges::equal(text.first(size), committed.first(size));
}

// What a drafter keeps of its sequence that cannot be computed from tokens, as a session file holds it.
struct DrafterSnapshot {
  std::string drafter;   // Drafter::name of whom it is of
  uint32_t version = 1;  // of the format of its bytes
  std::vector<std::byte> bytes;
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual std::string_view name() const = 0;
  // Who TreeNode::source 0, 1, ... of its trees are.
  virtual std::vector<std::string_view> sources() const { return {name()}; }

  // What it needs of the target's forward passes.
  virtual Taps taps() const { return {}; }

  // The sequence is `committed` now, by other means than Read: a prompt that is about to be computed or was
  // computed before, a session that goes on, a rewind. What it can make of that alone it makes here, as this
  // is no part of a round.
  virtual Status Follow(std::span<const int32_t> committed) = 0;

  // The sequence is about to be `committed`, whose first `n` positions were computed before, by it or by
  // another: how many of the last of them it wants computed again, as it needs states of them for what comes
  // next and has not read those. At most n.
  virtual int overlap(std::span<const int32_t> /*committed*/, int /*n*/) const { return 0; }

  // Grows `tree`, whose root is committed.back(), within the budget. Proposing nothing is always right.
  // Besides the last token, others may have no keys in the target's cache yet: the end of a prompt, in the
  // same pass.
  virtual Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) = 0;

  // The same in a round of several sequences, which draft at the same time: rows of draft models are handed
  // to `meeting`, and the task waits until they are run. All that is passed is borrowed until it ends.
  virtual DraftTask Draft(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree,
                          PassMeeting& /*meeting*/) {
    return Propose(budget, committed, tree);
  }

  // Rows of this text that it did not read and has to run before it can propose anything.
  virtual size_t Unread(std::span<const int32_t> /*committed*/) const { return 0; }
  // Runs them. Propose would, too: this tells their time from a proposal's.
  virtual Status CatchUp(std::span<const int32_t> /*committed*/) { return {}; }

  // Rows of the last proposal that it ran through the target's first layers: verification goes on where they
  // end. Null: none. Valid until the next call.
  virtual const LayerPrefix* prefix() const { return nullptr; }

  // Rows of the sequence became committed, in the order of their positions.
  virtual Status Read(const CommittedRows& rows) = 0;

  // Its opinion on continuations of the sequence, if that costs next to nothing; null: it does not.
  virtual Adviser* adviser() { return nullptr; }

  // Its trees are to be grown from its own opinion and an adviser's (draft/mixture.h), borrowed. Nothing to
  // those that have no opinion on each token.
  virtual void SetMixture(Mixture*) {}

  // Whether what a proposal takes goes by its levels: each is a pass of a model, say.
  virtual bool pays_by_level() const { return false; }

  // Several as one, if it is; null: it is not.
  virtual Portfolio* portfolio() { return nullptr; }

  // Whether Propose may be asked about a text that continues the committed one otherwise than the last time,
  // at a cost that does not grow with the text.
  virtual bool rewinds() const { return false; }

  // For session files: what it would lose if only tokens were kept, such as what it read of the target's
  // passes. Of the sequence that it was last told of. Most need nothing. Whatever else the bytes mean
  // something to (a draft model's weights) they name, so that Restore can refuse them.
  virtual std::vector<DrafterSnapshot> Snapshots() const { return {}; }
  // What Snapshots gave when the sequence was that of the last Follow. The bytes come from a file: nothing of
  // them is to be trusted. After an error it drafts as if there were none. Another drafter's is nothing to
  // it.
  virtual Status Restore(const DrafterSnapshot&) { return {}; }

  virtual size_t bytes() const { return 0; }  // memory held now

  // Whether it makes use of dice, if there are any (draft/foresight.h).
  virtual bool uses_dice() const { return false; }

  // What it drafts with, as name and value for statistics: ("prior", "models/priors/x.ngrams, 2.0M pairs").
  virtual std::vector<std::pair<std::string, std::string>> uses() const { return {}; }

  // Something the user should know, such as why nothing is proposed any more; empty: nothing. One line.
  virtual std::string notice() const { return {}; }
};

class DraftModels;
class Priors;

// What a prompt with a hole is marked by: [prefix] ... [suffix] ... [middle], or the suffix first. -1: there
// is no such token.
struct HoleTokens {
  int32_t prefix = -1, suffix = -1, middle = -1;
};

// What a drafter may use of the sequence it serves, as long as the session lives. All borrowed, and outlive
// the drafter. Between rounds a drafter may run the target on a cache of its own, and read the sequence's
// cache; it writes neither.
struct DraftContext {
  Target* target = nullptr;
  const KvCache* cache = nullptr;  // holds the committed tokens but the last
  // Where loaded draft models and priors are kept; null: each drafter loads its own, and there is no prior.
  DraftModels* models = nullptr;
  Priors* priors = nullptr;     // those of `models`: MakeDrafter says so
  bool one_of_several = false;  // a member of a portfolio, which may never be asked
  HoleTokens hole = {};         // of the vocabulary
};

}  // namespace longspec
