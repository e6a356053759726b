// SPDX-License-Identifier: Apache-2.0
#include "decode/decoder.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
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
              const std::function<bool(int32_t)>& is_end) {
  const int limit = std::min(static_cast<int>(tokens.size()), max_tokens);
  for (int i = 0; i < limit; ++i) {
    if (is_end && is_end(tokens[static_cast<size_t>(i)])) return i + 1;
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

}  // namespace

Decoder::Decoder(const DecoderParts& parts, std::vector<int32_t>* committed)
    : parts_(parts), committed_(committed) {
  LS_CHECK(parts.target != nullptr && parts.cache != nullptr && parts.drafter != nullptr);
  LS_CHECK(parts.policy != nullptr && parts.sampler != nullptr && parts.prefill_chunk > 0);
  LS_CHECK(committed != nullptr);
}

Status Decoder::Prefill(const std::function<bool(int, int)>& on_progress) {
  if (committed_->empty()) return InvalidArgument("the prompt is empty: decoding needs at least one token");
  const auto n_tokens = static_cast<int>(committed_->size());
  KvCache& cache = *parts_.cache;
  if (n_tokens > cache.capacity()) {
    return ResourceExhausted("the prompt has " + std::to_string(n_tokens) +
                             " tokens, and the context holds " + std::to_string(cache.capacity()) +
                             " (ctx_size sets the limit)");
  }
  // The last token is the root of the first round, even if the cache has seen it.
  if (cache.length() > n_tokens - 1) cache.Truncate(n_tokens - 1);

  Stopwatch watch;
  const int start = cache.length();
  const int total = n_tokens - 1 - start;
  while (cache.length() < n_tokens - 1) {
    const int n = std::min(parts_.prefill_chunk, n_tokens - 1 - cache.length());
    LS_TRY(PrefillChunk(n));
    stats_.prompt_tokens += n;
    stats_.prefill_ms += watch.Lap();
    if (on_progress && !on_progress(cache.length() - start, total)) {
      return Cancelled("cancelled after " + std::to_string(cache.length()) + " of " +
                       std::to_string(n_tokens - 1) + " prompt tokens");
    }
  }
  LS_TRY(parts_.drafter->Prefill(*committed_));
  stats_.draft_ms += watch.Lap();
  return {};
}

Status Decoder::PrefillChunk(int n) {
  const auto first = static_cast<size_t>(parts_.cache->length());
  LS_ASSIGN(KvTransaction speculated, parts_.cache->Begin(n));
  const ForwardSegment segment = {.tokens = std::span(*committed_).subspan(first, static_cast<size_t>(n)),
                                  .parents = {},
                                  .kv = &speculated,
                                  .logits = LogitsFor::kNone};
  LS_TRY(parts_.target->Forward({&segment, 1}, {}).status());
  speculated.CommitAll();
  return {};
}

Result<StepResult> Decoder::Step(int max_tokens, const std::function<bool(int32_t)>& is_end) {
  LS_CHECK(max_tokens >= 1);
  LS_CHECK(parts_.cache->length() + 1 == static_cast<int>(committed_->size()));
  const auto context = static_cast<int>(committed_->size());
  Stopwatch watch;
  bool asked = false;
  LS_ASSIGN(const TokenTree tree, Draft(max_tokens, asked));
  const double draft_ms = watch.Lap();
  stats_.draft_ms += draft_ms;

  LS_ASSIGN(KvTransaction speculated, parts_.cache->Begin(tree.size()));
  LS_ASSIGN(const TargetOutput output, Forward(tree, speculated));
  const double target_ms = watch.Lap();
  stats_.target_ms += target_ms;

  const LogitsView logits = {output.segments[0].logits, tree.size(), output.vocab};
  LS_ASSIGN(accepted_, SampleAndMatch(tree, logits, *parts_.sampler, *committed_, scratch_));
  const double verify_ms = watch.Lap();
  stats_.verify_ms += verify_ms;

  // Row accepted_.nodes[i] holds the keys and values of the token before tokens[i]: with as many rows as
  // tokens kept, the cache again holds all but the last.
  const int n_kept = CountKept(accepted_.tokens, max_tokens, is_end);
  const auto kept = static_cast<size_t>(n_kept);
  const auto rows = std::span(accepted_.nodes).first(kept);
  const auto tokens = std::span(accepted_.tokens).first(kept);
  speculated.Commit(rows);
  committed_->insert(committed_->end(), tokens.begin(), tokens.end());
  parts_.policy->Observe({.tree = tree,
                          .accepted = accepted_,
                          .context = context,
                          .asked = asked,
                          .draft_ms = draft_ms,
                          .target_ms = target_ms,
                          .verify_ms = verify_ms});
  const auto nodes = std::span(accepted_.nodes).first(std::min(kept + 1, accepted_.nodes.size()));
  CountRound(tree, nodes, n_kept, context, target_ms, stats_);
  stats_.commit_ms += watch.Lap();

  LS_TRY(parts_.drafter->Accept(*committed_, n_kept, output));
  stats_.draft_ms += watch.Lap();
  return StepResult{.tokens = tokens, .logits = logits.data, .path = rows, .vocab = output.vocab};
}

Result<TokenTree> Decoder::Draft(int max_tokens, bool& asked) {
  TokenTree tree(committed_->back());
  const int room = parts_.cache->capacity() - parts_.cache->length();
  DraftBudget budget = parts_.policy->Budget(
      {.context = static_cast<int>(committed_->size()), .room = room, .max_tokens = max_tokens});
  asked = budget.max_nodes > 0 && budget.max_depth > 0;
  if (asked) {
    budget.foresight = Foresight(parts_.sampler, parts_.dice);
    LS_TRY(parts_.drafter->Propose(budget, *committed_, tree));
    LS_CHECK(tree.size() - 1 <= budget.max_nodes && tree.max_depth() <= budget.max_depth);
    stats_.proposed += tree.size() - 1;
    tree = parts_.policy->Choose(std::move(tree));
  }
  parts_.drafter->Verifying(tree);
  return tree;
}

Result<TargetOutput> Decoder::Forward(const TokenTree& tree, KvTransaction& speculated) {
  tokens_.clear();
  parents_.clear();
  for (const TreeNode& node : tree.nodes()) {
    tokens_.push_back(node.token);
    if (!tree.is_chain()) parents_.push_back(node.parent);
  }
  const ForwardSegment segment = {
      .tokens = tokens_, .parents = parents_, .kv = &speculated, .logits = LogitsFor::kAllRows};
  LS_ASSIGN(TargetOutput output, parts_.target->Forward({&segment, 1}, parts_.drafter->taps()));
  LS_CHECK(output.segments.size() == 1 && output.segments[0].n_logits == tree.size());
  return output;
}

}  // namespace longspec
