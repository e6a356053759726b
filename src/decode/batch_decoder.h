// SPDX-License-Identifier: Apache-2.0
//
// The round, for any number of sequences in one forward pass: propose, forward, verify, commit. The rows of a
// sequence are its missing tokens (committed, but with no keys yet) as a chain, and then the tree under the
// last of them; plain decoding is a tree of nothing but its root, which is the last missing token. Prompts in
// chunks, prefixes that were computed before and restored sessions are all this one case. What a sequence
// gets does not depend on who else is in the pass. Tokens only, no text. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decode/row_reader.h"
#include "decode/stats.h"
#include "draft/drafter.h"
#include "draft/pass_meeting.h"
#include "grammar/constraint.h"
#include "kv/kv_cache.h"
#include "model/target.h"
#include "policy/pass_cost.h"
#include "policy/pass_policy.h"
#include "policy/policy.h"
#include "sampling/sampler.h"
#include "verify/verify.h"

namespace longspec {

// One sequence, all of it borrowed but what it did. The cache holds keys of a prefix of the tokens.
struct Sequence {
  std::vector<int32_t>* tokens = nullptr;  // committed; rounds append to it
  KvCache* cache = nullptr;
  Drafter* drafter = nullptr;
  Policy* policy = nullptr;
  const Sampler* sampler = nullptr;
  bool dice = true;                  // the drafter may use the sampler's random numbers
  RowReader* reader = nullptr;       // sees the committed rows, too; null: nobody else does
  Constraint* constraint = nullptr;  // what the answer may be, behind its last token; null: any text

  DecodeStats stats;
  std::string draft_failure;  // why the drafter is not asked any more; empty: it is
  std::function<void(const TokenTree&)> on_proposal = {};  // sees what is proposed; null: nobody does

  int n_missing() const { return static_cast<int>(tokens->size()) - cache->length(); }
  // Rows of its next turn where prompts are read in steps of so many, before the round that decodes.
  int NextRows(int step) const { return std::max(1, std::min(step, n_missing() - 1)); }
  void Check() const;  // that everything is there
  void Follow();       // tells the drafter what the tokens are; one that fails is not asked
};

// What a sequence does in a round, and what came of it.
struct Turn {
  Sequence* sequence = nullptr;
  int max_rows = 1;    // of its missing tokens; if more are missing, only their keys are computed
  int max_tokens = 1;  // that may be committed, at least 1
  const std::function<bool(int32_t)>* is_end = nullptr;  // a token after which nothing more is; null: none
  int max_nodes = 1 << 20;                               // that may be verified besides

  // Views are valid until the next round.
  Status status;                     // the sequence's own; nothing has changed for it if this is an error
  std::span<const int32_t> tokens;   // newly committed, in order; none while tokens are missing
  LogitRows logits;                  // row path[i] is what tokens[i] was drawn from
  std::span<const int32_t> path;     // (tokens.size())
  std::span<const int32_t> sources;  // (tokens.size()): of Drafter::sources(), who had guessed it; -1: nobody
};

class BatchDecoder {
 public:
  // `costs` (borrowed) decide how the nodes of several sequences share a pass. Null: each policy decides as
  // if its sequence were alone, as it does when there is only one.
  explicit BatchDecoder(Target* target, CostModel* costs = nullptr) : target_(target), policy_(costs) {}

  // One round of all. An error is the pass's: no sequence has changed then.
  Status Run(std::span<Turn> turns);

  // The last round's forward pass.
  struct Pass {
    int rows = 0;
    double predicted_ms = 0, target_ms = 0;  // predicted: 0 without costs
  };
  const Pass& last_pass() const { return last_pass_; }

 private:
  // What a turn needs while it lasts.
  struct Work {
    Turn* turn;
    int n_missing;  // rows of missing tokens in this pass
    bool decodes;   // the last missing token is among them
    TokenTree tree{0};
    bool asked = false;
    DraftBudget budget;  // of what is asked
    double draft_ms = 0;
    Taps taps;
    const LayerPrefix* prefix = nullptr;  // the drafter's
    std::vector<int32_t> tokens, parents, rows, sources;
    std::optional<KvTransaction> speculated;
    Accepted accepted;
  };

  void Prepare(Work& work, bool may_guess);
  void Draft();
  void TakeProposal(Work& work, const Status& proposed);
  void Choose();
  std::vector<PassPart> Parts(bool with_guesses) const;
  void Begin(Work& work);
  void Commit(Work& work, const TargetOutput::Segment& output, double target_ms, bool alone);
  void CommitChunk(Work& work, const TargetOutput::Segment& output, double target_ms);
  static void Read(Work& work, const CommittedRows& rows);

  Target* const target_;
  PassPolicy policy_;
  Pass last_pass_;
  std::vector<Work> works_;
  std::vector<Work*> running_;
  PassMeeting meeting_;
  std::vector<Work*> drafting_;
  std::vector<ForwardSegment> segments_;
  Sampler::Scratch scratch_;
};

}  // namespace longspec
