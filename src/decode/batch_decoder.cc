// SPDX-License-Identifier: Apache-2.0
#include "decode/batch_decoder.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/float_mode.h"
#include "base/size.h"
#include "base/status_macros.h"

namespace longspec {
namespace {

// Milliseconds since the last lap.
class Stopwatch {
 public:
  double Lap() {
    const double now = NowMs();
    return now - std::exchange(last_, now);
  }

 private:
  double last_ = NowMs();
};

// How many of the drawn tokens are committed: up to the first end token, and no more than asked for.
int CountKept(const std::vector<int32_t>& tokens, int max_tokens,
              const std::function<bool(int32_t)>* is_end) {
  const int limit = std::min(static_cast<int>(tokens.size()), max_tokens);
  for (int i = 0; i < limit; ++i) {
    if (is_end != nullptr && *is_end && (*is_end)(tokens[static_cast<size_t>(i)])) return i + 1;
  }
  return limit;
}

void CountDepths(int n, std::vector<int64_t>& counts) {
  const auto depths = static_cast<size_t>(n);
  if (counts.size() < depths) counts.resize(depths, 0);
  for (size_t i = 0; i < depths; ++i) ++counts[i];
}

void CountSource(int source, std::vector<int64_t>& counts) {
  const auto index = static_cast<size_t>(source);
  if (counts.size() <= index) counts.resize(index + 1, 0);
  ++counts[index];
}

// `accepted`: the nodes that stay, the root first.
void CountRound(const TokenTree& tree, std::span<const int32_t> accepted, int n_committed, int context,
                double target_ms, DecodeStats& stats) {
  const auto n_accepted = static_cast<int>(accepted.size()) - 1;
  ++stats.steps;
  stats.committed += n_committed;
  stats.drafted += tree.size() - 1;
  stats.accepted += n_accepted;
  CountDepths(tree.max_depth(), stats.drafted_at);
  CountDepths(n_accepted, stats.accepted_at);
  for (const TreeNode& node : tree.nodes().subspan(1)) CountSource(node.source, stats.drafted_by);
  for (const int32_t node : accepted.subspan(1)) CountSource(tree.node(node).source, stats.accepted_by);
  const auto bucket = static_cast<size_t>(ContextBucket(context));
  if (stats.contexts.size() <= bucket) stats.contexts.resize(bucket + 1);
  ContextCounts& counts = stats.contexts[bucket];
  ++counts.steps;
  counts.drafted += tree.size() - 1;
  counts.accepted += n_accepted;
  counts.target_ms += target_ms;
}

// What a drafter does. Memory may be too short for it and enough for the answer.
template <typename Step>
Status Tried(const Step& step) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory");
  }
}

// A draft that fails is no draft: the answer goes on without.
void NoMoreDrafts(Sequence& sequence, const Status& status) {
  sequence.draft_failure = "no speculation any more: " + status.message();
}

}  // namespace

void Sequence::Check() const {
  LS_CHECK(tokens != nullptr && cache != nullptr && drafter != nullptr && policy != nullptr &&
           sampler != nullptr);
}

void Sequence::Follow() {
  const Status followed = Tried([&] { return drafter->Follow(*tokens); });
  if (!followed.ok()) draft_failure = "no speculation: " + followed.message();
}

Status BatchDecoder::Run(std::span<Turn> turns) try {
  const DefaultFloatMode mode;  // of what is computed beside the team, too
  works_.clear();
  works_.reserve(turns.size());
  running_.clear();
  last_pass_ = {};
  Stopwatch round;
  for (const Turn& turn : turns) turn.sequence->Check();
  const bool only_decode =
      std::ranges::all_of(turns, [](const Turn& t) { return t.sequence->n_missing() == 1; });
  const bool may_guess = policy_.Begin(static_cast<int>(turns.size()), only_decode);
  for (Turn& turn : turns) {
    turn.status = {};
    turn.tokens = turn.path = turn.sources = {};
    const int missing = turn.sequence->n_missing();
    LS_CHECK(missing >= 1 && turn.max_rows >= 1 && turn.max_tokens >= 1);
    Work& work = works_.emplace_back(Work{
        .turn = &turn, .n_missing = std::min(missing, turn.max_rows), .decodes = missing <= turn.max_rows});
    Prepare(work, may_guess);
  }
  Draft();
  Choose();
  for (Work& work : works_) {
    Begin(work);
    if (work.turn->status.ok()) running_.push_back(&work);
  }
  if (running_.empty()) return {};

  Stopwatch watch;
  segments_.clear();
  for (Work* work : running_) {
    segments_.push_back(
        {.tokens = work->tokens,
         .parents = work->parents,
         .kv = &*work->speculated,
         .logits = work->decodes || work->taps.logits ? LogitsFor::kAllRows : LogitsFor::kNone,
         .first_logits = work->taps.logits ? 0 : work->n_missing - 1,
         .taps = work->taps.empty() ? nullptr : &work->taps,
         .prefix = work->prefix});
  }
  for (const Work* work : running_) last_pass_.rows += static_cast<int>(work->tokens.size());
  const std::vector<PassPart> pass = Parts(/*with_guesses=*/true);
  last_pass_.predicted_ms = policy_.PredictedMs(pass);
  watch.Lap();
  auto output = target_->Forward(segments_);
  if (!output.ok()) {
    works_.clear();  // rolls back
    return output.status();
  }
  const double target_ms = watch.Lap();
  last_pass_.target_ms = target_ms;
  LS_CHECK(output->segments.size() == running_.size());
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->decodes) {
      Commit(*running_[i], output->segments[i], target_ms, running_.size() == 1);
    } else {
      CommitChunk(*running_[i], output->segments[i], target_ms);
    }
  }
  PassResult result = {.pass = pass, .target_ms = target_ms, .round_ms = round.Lap()};
  for (const Work* work : running_) {
    result.draft_ms += work->draft_ms;
    result.tokens += static_cast<int>(work->turn->tokens.size());
    result.nodes += work->tree.size() - 1;
  }
  policy_.Observe(result);
  return {};
} catch (...) {
  works_.clear();  // rolls back, while the sequences are there
  throw;
}

// The tree of a turn: its root alone as long as nothing is proposed.
void BatchDecoder::Prepare(Work& work, bool may_guess) {
  Sequence& s = *work.turn->sequence;
  work.taps = s.draft_failure.empty() ? s.drafter->taps() : Taps();
  if (s.reader != nullptr) {
    const Taps wanted = s.reader->taps();
    work.taps.query_rows = std::max(work.taps.query_rows, wanted.query_rows);
    work.taps.logits = work.taps.logits || wanted.logits;
  }
  if (!work.decodes) return;
  work.tree = TokenTree(s.tokens->back());
  const int room = s.cache->capacity() - static_cast<int>(s.tokens->size()) + 1;
  const PolicyInput input = {.context = static_cast<int>(s.tokens->size()),
                             .room = std::min(room, work.turn->max_nodes + 1),
                             .max_tokens = work.turn->max_tokens,
                             .token_ms = policy_.token_ms()};
  if (!may_guess || !s.draft_failure.empty()) return s.policy->SitOut(input);
  work.budget = s.policy->Budget(input);
  work.asked = work.budget.max_nodes > 0 && work.budget.max_depth > 0;
  if (!work.asked) return;
  work.budget.foresight = Foresight(s.sampler, s.dice, s.constraint);
}

// Proposals of all that are asked, whose draft models' passes are run together.
void BatchDecoder::Draft() {
  drafting_.clear();
  for (Work& work : works_) {
    if (work.asked) drafting_.push_back(&work);
  }
  const auto begin = [&](int i) {
    Work& work = *drafting_[Z(i)];
    const Sequence& s = *work.turn->sequence;
    DraftTask task;
    const Status begun = Tried([&] {
      task = s.policy->Draft(*s.drafter, work.budget, *s.tokens, work.tree, meeting_);
      return Status();
    });
    return begun.ok() ? std::move(task) : DraftTask(begun);
  };
  const auto end = [&](int i, DraftTask& task, double ms) {
    Work& work = *drafting_[Z(i)];
    Stopwatch watch;
    TakeProposal(work, Tried([&] { return task.Result(); }));
    work.draft_ms = ms + watch.Lap();
    work.turn->sequence->stats.draft_ms += work.draft_ms;
  };
  meeting_.Run(static_cast<int>(drafting_.size()), begin, end);
}

void BatchDecoder::TakeProposal(Work& work, const Status& proposed) {
  Sequence& s = *work.turn->sequence;
  if (proposed.ok()) {
    work.prefix = s.drafter->prefix();
  } else {
    NoMoreDrafts(s, proposed);
    work.tree = TokenTree(s.tokens->back());
  }
  LS_CHECK(work.tree.size() - 1 <= work.budget.max_nodes && work.tree.max_depth() <= work.budget.max_depth);
  s.stats.proposed += work.tree.size() - 1;
  if (s.on_proposal) s.on_proposal(work.tree);
  if (s.constraint == nullptr) return;
  // What cannot be chosen costs no row. On a copy: what nobody chose cannot be this answer's failure.
  const Status pruned = Tried([&] {
    work.tree = Allowed(work.tree, *s.constraint->Fork());
    return Status();
  });
  if (!pruned.ok()) work.tree = TokenTree(s.tokens->back());
}

// How much of each proposal is verified.
void BatchDecoder::Choose() {
  const std::vector<PassPart> parts = Parts(/*with_guesses=*/false);
  std::vector<Proposal> proposals;
  for (size_t i = 0; i < works_.size(); ++i) {
    Work& work = works_[i];
    proposals.push_back({.rows = parts[i],
                         .decodes = work.decodes,
                         .policy = work.asked ? work.turn->sequence->policy : nullptr,
                         .tree = &work.tree,
                         .draft_ms = work.draft_ms});
  }
  policy_.Choose(proposals);
}

// The rows of the pass. Sequences whose caches begin with the same chunks read them together.
std::vector<PassPart> BatchDecoder::Parts(bool with_guesses) const {
  std::vector<PassPart> parts;
  std::vector<KvSpan> spans;
  for (const Work& work : works_) {
    if (!work.turn->status.ok()) continue;  // it could not begin
    const KvCache& cache = *work.turn->sequence->cache;
    PassPart part = ChainPart(work.n_missing, cache.length());
    part.rows += with_guesses ? work.tree.size() - 1 : 0;
    spans.push_back(cache.Span(0));
    const int n_chunks = spans.back().chunks == nullptr ? 0 : cache.n_slots() / kKvChunk;
    for (size_t i = 0; i < parts.size(); ++i) {
      int shared = 0;
      const int most = std::min(n_chunks, spans[i].n_committed / kKvChunk);
      while (shared < most && spans[i].chunks[shared] == spans.back().chunks[shared]) ++shared;
      if (shared * kKvChunk > part.shared_keys) {
        part.shared_with = static_cast<int>(i);
        part.shared_keys = shared * kKvChunk;
      }
    }
    parts.push_back(part);
  }
  return parts;
}

// Rows: the missing tokens, the last of which is the tree's root, and then its other nodes.
void BatchDecoder::Begin(Work& work) {
  Sequence& s = *work.turn->sequence;
  const auto first = s.tokens->begin() + s.cache->length();
  work.tokens.assign(first, first + work.n_missing);
  if (work.decodes) {
    const int root = work.n_missing - 1;
    for (const TreeNode& node : work.tree.nodes().subspan(1)) work.tokens.push_back(node.token);
    if (!work.tree.is_chain()) {
      for (int i = 0; i <= root; ++i) work.parents.push_back(i - 1);
      for (const TreeNode& node : work.tree.nodes().subspan(1)) work.parents.push_back(root + node.parent);
    }
  }
  auto speculated = s.cache->Begin(static_cast<int>(work.tokens.size()));
  work.turn->status = speculated.status();
  if (speculated.ok()) work.speculated.emplace(std::move(*speculated));
}

void BatchDecoder::CommitChunk(Work& work, const TargetOutput::Segment& output, double target_ms) {
  Stopwatch watch;
  Sequence& s = *work.turn->sequence;
  const int first = s.cache->length();
  work.speculated->CommitAll();
  s.stats.prompt_tokens += work.n_missing;
  s.stats.prefill_ms += target_ms + watch.Lap();
  work.rows.resize(static_cast<size_t>(work.n_missing));
  std::iota(work.rows.begin(), work.rows.end(), 0);
  Read(work, {.sequence = *s.tokens,
              .n_new = 0,
              .first = first,
              .rows = work.rows,
              .output = &output,
              .n_output_rows = work.n_missing});
  s.stats.draft_ms += watch.Lap();
}

void BatchDecoder::Commit(Work& work, const TargetOutput::Segment& output, double target_ms, bool alone) {
  Stopwatch watch;
  Turn& turn = *work.turn;
  Sequence& s = *turn.sequence;
  const auto context = static_cast<int>(s.tokens->size());
  const int root = work.n_missing - 1, n_rows = static_cast<int>(work.tokens.size());
  const LogitRows logits = output.logits.From(root - (n_rows - output.logits.size()), work.tree.size());
  auto accepted = SampleAndMatch(work.tree, logits, *s.sampler, *s.tokens, scratch_, s.constraint);
  if (!accepted.ok()) {
    turn.status = accepted.status();
    work.speculated.reset();  // rolls back
    return;
  }
  work.accepted = std::move(*accepted);
  const double verify_ms = watch.Lap();

  // Row accepted.nodes[i] of the tree holds the keys and values of the token before tokens[i]: with as many
  // rows as tokens kept, the cache again holds all but the last.
  const auto kept = static_cast<size_t>(CountKept(work.accepted.tokens, turn.max_tokens, turn.is_end));
  if (s.constraint != nullptr) s.constraint->Rollback(static_cast<int>(work.accepted.tokens.size() - kept));
  const auto path = std::span(work.accepted.nodes).first(kept);
  const auto tokens = std::span(work.accepted.tokens).first(kept);
  const int first = s.cache->length();
  for (int i = 0; i < root; ++i) work.rows.push_back(i);
  for (const int32_t node : path) work.rows.push_back(root + node);
  work.speculated->Commit(work.rows);
  s.tokens->insert(s.tokens->end(), tokens.begin(), tokens.end());
  s.policy->Observe({.tree = work.tree,
                     .accepted = work.accepted,
                     .context = context,
                     .asked = work.asked,
                     .alone = alone && root == 0,
                     .draft_ms = work.draft_ms,
                     .target_ms = target_ms,
                     .verify_ms = verify_ms});
  const auto nodes = std::span(work.accepted.nodes).first(std::min(kept + 1, work.accepted.nodes.size()));
  s.stats.prompt_tokens += root;
  s.stats.target_ms += target_ms;
  s.stats.verify_ms += verify_ms;
  CountRound(work.tree, nodes, static_cast<int>(kept), context, target_ms, s.stats);
  s.stats.commit_ms += watch.Lap();
  Read(work, {.sequence = *s.tokens,
              .n_new = static_cast<int>(kept),
              .first = first,
              .rows = work.rows,
              .output = &output,
              .n_output_rows = n_rows,
              .tree = &work.tree,
              .root_row = root});
  s.stats.draft_ms += watch.Lap();
  turn.tokens = tokens;
  turn.path = path;
  for (size_t i = 1; i <= kept; ++i) {
    const auto& accepted_nodes = work.accepted.nodes;
    work.sources.push_back(i < accepted_nodes.size() ? work.tree.node(accepted_nodes[i]).source : -1);
  }
  turn.sources = work.sources;
  turn.logits = logits;
}

void BatchDecoder::Read(Work& work, const CommittedRows& rows) {
  Sequence& s = *work.turn->sequence;
  if (s.reader != nullptr) s.reader->Read(rows);
  if (!s.draft_failure.empty()) return;
  const Status status = Tried([&] { return s.drafter->Read(rows); });
  if (!status.ok()) NoMoreDrafts(s, status);
}

}  // namespace longspec
