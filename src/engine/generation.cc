// SPDX-License-Identifier: Apache-2.0
#include "engine/generation.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "decode/decoder.h"
#include "decode/policy.h"
#include "draft/drafter.h"
#include "engine/stop_matcher.h"
#include "sampling/sampler.h"

namespace longspec {
namespace {

// Tokens to final text: whole characters, and nothing that may yet be part of a stop string.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, const GenerationRequest& request)
      : decoder_(tokenizer), matcher_(request.stop), on_text_(request.on_text) {}

  // False when the text has ended: a stop string, or the caller's wish.
  bool Push(int32_t token) {
    Emit(matcher_.Push(decoder_.Push(token)));
    return !stopped() && !cancelled_;
  }

  // The end of text that was not cut short: what was held back follows.
  void Finish() {
    if (stopped() || cancelled_) return;
    Emit(matcher_.Push(decoder_.Finish()));
    if (!stopped() && !cancelled_) Emit(matcher_.Finish());
  }

  bool stopped() const { return matcher_.stopped(); }
  bool cancelled() const { return cancelled_; }
  const std::string& text() const { return text_; }

 private:
  void Emit(const std::string& piece) {
    if (piece.empty()) return;
    text_ += piece;
    if (on_text_ && !on_text_(piece)) cancelled_ = true;
  }

  StreamDecoder decoder_;
  StopMatcher matcher_;
  const std::function<bool(std::string_view)>& on_text_;
  std::string text_;
  bool cancelled_ = false;
};

Status CheckRequest(const GenerationParts& parts, const std::vector<int32_t>& prompt,
                    const GenerationRequest& request, int capacity) {
  if (prompt.empty()) return InvalidArgument("the prompt is empty: there is nothing to continue");
  const int vocab = parts.target->vocab_size();
  for (const int32_t token : prompt) {
    if (token >= 0 && token < vocab) continue;
    return InvalidArgument("prompt token " + std::to_string(token) + " is not in the vocabulary of " +
                           std::to_string(vocab) + " tokens");
  }
  if (prompt.size() >= static_cast<size_t>(capacity)) {
    return ResourceExhausted("the prompt has " + std::to_string(prompt.size()) +
                             " tokens but the context holds " + std::to_string(capacity) +
                             ", one of them for the answer: shorten the prompt or load with a "
                             "context size (-c) of at least " +
                             std::to_string(prompt.size() + 1) + " (the model was trained for " +
                             std::to_string(parts.n_ctx_train) + ")");
  }
  if (request.n_predict < -1) {
    return InvalidArgument("n_predict " + std::to_string(request.n_predict) +
                           ": must be -1 (no limit) or more");
  }
  if (std::any_of(request.stop.begin(), request.stop.end(), [](const auto& stop) { return stop.empty(); })) {
    return InvalidArgument("a stop string is empty: it would end every text before it begins");
  }
  return CheckSpeculation(request.speculation);
}

uint64_t FreshSeed() {
  std::random_device device;
  return device();  // 32 bits: short enough to be typed again
}

SamplingOptions ResolveSampling(const GenerationParts& parts, const GenerationRequest& request) {
  SamplingOptions sampling = request.sampling;
  if (!sampling.seed) sampling.seed = FreshSeed();
  if (request.ignore_eos) {
    constexpr float kNever = -std::numeric_limits<float>::infinity();
    const int n_token = std::min(parts.tokenizer->vocab_size(), parts.target->vocab_size());
    for (int32_t id = 0; id < n_token; ++id) {
      if (parts.tokenizer->IsEndOfGeneration(id)) sampling.logit_bias.emplace_back(id, kNever);
    }
  }
  return sampling;
}

// Makes `prompt` the session's tokens, keeping the cache of the longest common prefix. Returns that prefix's
// length.
size_t Reuse(SessionState& session, const std::vector<int32_t>& prompt) {
  const size_t limit =
      std::min({static_cast<size_t>(session.cache->length()), session.tokens.size(), prompt.size() - 1});
  size_t n = 0;
  while (n < limit && session.tokens[n] == prompt[n]) ++n;
  session.cache->Truncate(static_cast<int>(n));
  session.tokens = prompt;
  return n;
}

// Until it is dismissed, leaving the scope cuts the session's tokens to those its cache holds.
class SessionGuard {
 public:
  explicit SessionGuard(SessionState& session) : session_(session) {}
  SessionGuard(const SessionGuard&) = delete;
  SessionGuard& operator=(const SessionGuard&) = delete;
  ~SessionGuard() {
    if (dismissed_) return;
    const auto held = static_cast<size_t>(session_.cache->length());
    if (held <= session_.tokens.size()) {
      session_.tokens.resize(held);
    } else {
      session_.cache->Truncate(static_cast<int>(session_.tokens.size()));
    }
  }
  void Dismiss() { dismissed_ = true; }

 private:
  SessionState& session_;
  bool dismissed_ = false;
};

// The loop from the first round to the end of the answer.
class Generation {
 public:
  Generation(const GenerationParts& parts, SessionState& session, const GenerationRequest& request)
      : parts_(parts), session_(session), request_(request), text_(*parts.tokenizer, request) {}

  Status Run(Decoder& decoder) {
    const size_t n_prompt = session_.tokens.size();
    while (!done_) {
      const int room = Room(n_prompt);
      if (room <= 0) break;
      LS_ASSIGN(const StepResult step, decoder.Step(room, [this](int32_t token) { return IsEnd(token); }));
      Take(step.tokens);
    }
    text_.Finish();
    if (text_.stopped()) reason_ = FinishReason::kStop;
    if (text_.cancelled()) reason_ = FinishReason::kCancelled;
    // A round may have gone on after the token that ended the text.
    session_.KeepTokens(n_prompt + tokens_.size());
    return {};
  }

  std::vector<int32_t>& tokens() { return tokens_; }
  const std::string& text() const { return text_.text(); }
  FinishReason reason() const { return reason_; }

 private:
  bool IsEnd(int32_t token) const {
    return !request_.ignore_eos && parts_.tokenizer->IsEndOfGeneration(token);
  }

  // Tokens that may still be generated; sets the reason it will end for.
  int Room(size_t n_prompt) {
    const auto used = static_cast<int>(session_.tokens.size());
    const int in_context = session_.cache->capacity() - used;
    const int wanted = request_.n_predict < 0 ? std::numeric_limits<int>::max()
                                              : request_.n_predict - (used - static_cast<int>(n_prompt));
    reason_ = wanted <= in_context ? FinishReason::kLength : FinishReason::kContext;
    return std::min(wanted, in_context);
  }

  void Take(std::span<const int32_t> committed) {
    for (const int32_t token : committed) {
      tokens_.push_back(token);
      if (IsEnd(token)) {
        reason_ = FinishReason::kStop;
        done_ = true;
      } else if (!text_.Push(token)) {
        done_ = true;
      }
      if (done_) return;
    }
  }

  const GenerationParts& parts_;
  SessionState& session_;
  const GenerationRequest& request_;
  TextStream text_;
  std::vector<int32_t> tokens_;
  FinishReason reason_ = FinishReason::kLength;
  bool done_ = false;
};

// "4K"; lengths below 1024 as they are.
std::string ContextName(int length) {
  return length < 1024 ? std::to_string(length) : std::to_string(length / 1024) + "K";
}

void CountByDrafter(const DecodeStats& stats, const std::vector<std::string_view>& names,
                    SpeculativeStats& out) {
  for (size_t i = 0; i < names.size(); ++i) {
    AcceptanceCounts counts{.name = std::string(names[i])};
    if (i < stats.drafted_by.size()) counts.drafted = stats.drafted_by[i];
    if (i < stats.accepted_by.size()) counts.accepted = stats.accepted_by[i];
    out.by_drafter.push_back(std::move(counts));
  }
}

void CountByContext(const DecodeStats& stats, SpeculativeStats& out) {
  for (size_t i = 0; i < stats.contexts.size(); ++i) {
    const ContextCounts& counts = stats.contexts[i];
    if (counts.steps == 0) continue;
    const auto bucket = static_cast<int>(i);
    out.by_context.push_back(
        {.name = ContextName(ContextBucketFrom(bucket)) + "-" + ContextName(ContextBucketFrom(bucket + 1)),
         .steps = counts.steps,
         .drafted = counts.drafted,
         .accepted = counts.accepted,
         .target_ms = counts.target_ms});
  }
}

SpeculativeStats MakeSpeculativeStats(const DecodeStats& stats, const Drafter& drafter, PolicyReport report,
                                      bool lossless) {
  SpeculativeStats out;
  out.type = drafter.name();
  out.steps = stats.steps;
  out.mean_acceptance_length = stats.mean_acceptance_length();
  for (size_t i = 0; i < stats.drafted_at.size(); ++i) {
    const auto drafted = static_cast<double>(stats.drafted_at[i]);
    const auto accepted = i < stats.accepted_at.size() ? static_cast<double>(stats.accepted_at[i]) : 0.0;
    out.acceptance_per_position.push_back(drafted == 0 ? 0.0 : accepted / drafted);
  }
  out.draft_ms = stats.draft_ms;
  out.target_ms = stats.target_ms;
  out.verify_ms = stats.verify_ms;
  out.commit_ms = stats.commit_ms;
  out.proposed = stats.proposed;
  out.policy = std::move(report.policy);
  out.last_decision = std::move(report.last_decision);
  out.decisions = std::move(report.decisions);
  CountByDrafter(stats, drafter.sources(), out);
  CountByContext(stats, out);
  out.lossless = lossless;
  return out;
}

Result<GenerationResult> Generate(const GenerationParts& parts, SessionState& session,
                                  const std::vector<int32_t>& prompt, const GenerationRequest& request) {
  LS_TRY(CheckRequest(parts, prompt, request, session.cache->capacity()));
  const SamplingOptions sampling = ResolveSampling(parts, request);
  LS_ASSIGN(const Sampler sampler, Sampler::Create(sampling, parts.target->vocab_size()));
  LS_ASSIGN(const std::unique_ptr<Drafter> drafter,
            MakeDrafter(request.speculation, {.target = parts.target,
                                              .cache = session.cache.get(),
                                              .models = parts.draft_models}));
  AdaptiveMemory fresh;  // outlives the policy
  LearnedCosts learned;
  std::unique_ptr<Policy> policy;
  if (WantsAdaptivePolicy(request.speculation)) {
    learned = parts.learned ? parts.learned() : LearnedCosts{&fresh, "learned in this generation"};
    policy = MakeAdaptivePolicy(request.speculation, drafter->name(), learned.memory);
  } else {
    policy = MakeFixedPolicy(request.speculation);
  }

  SessionGuard guard(session);
  GenerationResult result;
  result.seed = *sampling.seed;
  result.timings.cache_n = static_cast<int64_t>(Reuse(session, prompt));
  result.timings.prompt_n = static_cast<int64_t>(prompt.size()) - result.timings.cache_n;
  Decoder decoder({.target = parts.target,
                   .cache = session.cache.get(),
                   .drafter = drafter.get(),
                   .policy = policy.get(),
                   .sampler = &sampler,
                   .prefill_chunk = parts.prefill_chunk},
                  &session.tokens);
  const Status prefilled = decoder.Prefill(request.on_prefill);
  result.timings.prompt_ms = decoder.stats().prefill_ms;
  if (prefilled.code() == StatusCode::kCancelled) {
    result.finish_reason = FinishReason::kCancelled;
    result.speculative = MakeSpeculativeStats(decoder.stats(), *drafter, policy->report(), true);
    return result;
  }
  LS_TRY(prefilled);

  const double start = NowMs();
  Generation generation(parts, session, request);
  LS_TRY(generation.Run(decoder));
  guard.Dismiss();
  const DecodeStats& stats = decoder.stats();
  result.timings.predicted_ms = NowMs() - start;
  result.timings.predicted_n = static_cast<int64_t>(generation.tokens().size());
  result.timings.draft_n = stats.drafted;
  result.timings.draft_n_accepted = stats.accepted;
  result.text = generation.text();
  result.tokens = std::move(generation.tokens());
  result.finish_reason = generation.reason();
  result.distinct_4gram = DistinctNgramShare(result.tokens);
  result.speculative = MakeSpeculativeStats(stats, *drafter, policy->report(),
                                             session.cache->exactness() == Exactness::kLossless);
  result.speculative.costs = learned.origin;
  result.speculative.notice = drafter->notice();
  return result;
}

}  // namespace

void SessionState::Clear() {
  cache->Truncate(0);
  tokens.clear();
}

void SessionState::KeepTokens(size_t n) {
  tokens.resize(std::min(n, tokens.size()));
  const int cached = tokens.empty() ? 0 : static_cast<int>(tokens.size()) - 1;
  if (cache->length() > cached) cache->Truncate(cached);
}

Result<GenerationResult> RunGeneration(const GenerationParts& parts, SessionState& session,
                                       const std::vector<int32_t>& prompt, const GenerationRequest& request) {
  try {
    return Generate(parts, session, prompt, request);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory while generating, with " +
                             std::to_string(session.cache->length()) +
                             " positions in the cache: load with a smaller context size (-c)");
  }
}

}  // namespace longspec
