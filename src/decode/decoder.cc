// SPDX-License-Identifier: Apache-2.0
#include "decode/decoder.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"

namespace longspec {

Decoder::Decoder(const DecoderParts& parts, std::vector<int32_t>* committed)
    : prefill_chunk_(parts.prefill_chunk),
      sequence_{.tokens = committed,
                .cache = parts.cache,
                .drafter = parts.drafter,
                .policy = parts.policy,
                .sampler = parts.sampler,
                .dice = parts.dice,
                .constraint = parts.constraint,
                .stats = {},
                .draft_failure = {}},
      rounds_(parts.target) {
  LS_CHECK(parts.target != nullptr && parts.prefill_chunk > 0);
  sequence_.Check();
}

Status Decoder::Prefill(const std::function<bool(int, int)>& on_progress) {
  std::vector<int32_t>& tokens = *sequence_.tokens;
  if (tokens.empty()) return InvalidArgument("the prompt is empty: decoding needs at least one token");
  const auto n_tokens = static_cast<int>(tokens.size());
  KvCache& cache = *sequence_.cache;
  if (n_tokens > cache.capacity()) {
    return ResourceExhausted("the prompt has " + std::to_string(n_tokens) +
                             " tokens, and the context holds " + std::to_string(cache.capacity()) +
                             " (ctx_size sets the limit)");
  }
  // The last token is the root of the first round, even if the cache has seen it.
  if (cache.length() > n_tokens - 1) cache.Truncate(n_tokens - 1);
  const double start = NowMs();
  sequence_.Follow();
  sequence_.stats.draft_ms += NowMs() - start;
  const int first = cache.length();
  while (cache.length() < n_tokens - 1) {
    Turn turn{.sequence = &sequence_, .max_rows = std::min(prefill_chunk_, n_tokens - 1 - cache.length())};
    LS_TRY(rounds_.Run({&turn, 1}));
    LS_TRY(turn.status);
    if (on_progress && !on_progress(cache.length() - first, n_tokens - 1 - first)) {
      return Cancelled("cancelled after " + std::to_string(cache.length()) + " of " +
                       std::to_string(n_tokens - 1) + " prompt tokens");
    }
  }
  return {};
}

Result<StepResult> Decoder::Step(int max_tokens, const std::function<bool(int32_t)>& is_end) {
  LS_CHECK(max_tokens >= 1);
  LS_CHECK(sequence_.n_missing() == 1);
  Turn turn{.sequence = &sequence_, .max_tokens = max_tokens, .is_end = &is_end};
  LS_TRY(rounds_.Run({&turn, 1}));
  LS_TRY(turn.status);
  return StepResult{
      .tokens = turn.tokens, .logits = turn.logits, .path = turn.path, .vocab = rounds_.vocab()};
}

}  // namespace longspec
