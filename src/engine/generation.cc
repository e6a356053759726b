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
#include "model/shared_parts.h"
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

// The target's, so that a forced table is forced for sampling too; null if it does not say.
const kernels::KernelTable* KernelsOf(const Target& target) {
  const SharedParts* parts = target.shared_parts();
  return parts == nullptr ? nullptr : parts->kernels;
}

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
  out.drafted_at = stats.drafted_at;
  out.accepted_at = stats.accepted_at;
  out.accepted_at.resize(out.drafted_at.size());
  out.draft_ms = stats.draft_ms;
  out.target_ms = stats.target_ms;
  out.verify_ms = stats.verify_ms;
  out.commit_ms = stats.commit_ms;
  out.proposed = stats.proposed;
  out.draft_bytes = drafter.bytes();
  out.policy = std::move(report.policy);
  out.last_decision = std::move(report.last_decision);
  out.decisions = std::move(report.decisions);
  CountByDrafter(stats, drafter.sources(), out);
  CountByContext(stats, out);
  out.lossless = lossless;
  return out;
}

// Everything that lives as long as one answer, in the order in which it is made.
class RunningGeneration final : public Generation {
 public:
  static Result<std::unique_ptr<Generation>> Start(const GenerationParts& parts, SessionState& session,
                                                   const std::vector<int32_t>& prompt,
                                                   const GenerationRequest& request) {
    LS_TRY(CheckRequest(parts, prompt, request, session.cache->capacity()));
    const SamplingOptions sampling = ResolveSampling(parts, request);
    LS_ASSIGN(Sampler sampler,
              Sampler::Create(sampling, parts.target->vocab_size(), 0, KernelsOf(*parts.target)));
    LS_ASSIGN(
        std::unique_ptr<Drafter> drafter,
        MakeDrafter(request.speculation,
                    {.target = parts.target, .cache = session.cache.get(), .models = parts.draft_models}));
    std::unique_ptr<RunningGeneration> generation(
        new RunningGeneration(parts, session, request, std::move(sampler), std::move(drafter)));
    generation->result_.seed = *sampling.seed;
    LS_TRY(generation->Prefill(prompt));
    return std::unique_ptr<Generation>(std::move(generation));
  }

  Result<bool> Step() override {
    try {
      const double start = NowMs();
      LS_ASSIGN(const bool more, Round());
      result_.timings.predicted_ms += NowMs() - start;
      return more;
    } catch (const std::bad_alloc&) {
      return OutOfMemory(session_);
    }
  }

  const std::vector<int32_t>& tokens() const override { return result_.tokens; }

  GenerationResult Finish() override {
    End();
    const DecodeStats& stats = decoder_->stats();
    result_.timings.predicted_n = static_cast<int64_t>(result_.tokens.size());
    result_.timings.draft_n = stats.drafted;
    result_.timings.draft_n_accepted = stats.accepted;
    result_.text = text_.text();
    result_.finish_reason = reason_;
    result_.distinct_4gram = DistinctNgramShare(result_.tokens);
    result_.speculative = MakeSpeculativeStats(stats, *drafter_, policy_->report(),
                                               session_.cache->exactness() == Exactness::kLossless);
    result_.speculative.costs = learned_.origin;
    result_.speculative.notice = drafter_->notice();
    result_.speculative.uses = drafter_->uses();
    result_.speculative.dice = HasDice();
    return std::move(result_);
  }

  static Status OutOfMemory(const SessionState& session) {
    return ResourceExhausted("out of memory while generating, with " +
                             std::to_string(session.cache->length()) +
                             " positions in the cache: load with a smaller context size (-c)");
  }

 private:
  RunningGeneration(const GenerationParts& parts, SessionState& session, const GenerationRequest& request,
                    Sampler sampler, std::unique_ptr<Drafter> drafter)
      : tokenizer_(parts.tokenizer),
        session_(session),
        request_(request),
        sampler_(std::move(sampler)),
        drafter_(std::move(drafter)),
        guard_(session),
        text_(*parts.tokenizer, request_) {
    if (WantsAdaptivePolicy(request.speculation)) {
      learned_ = parts.learned ? parts.learned() : LearnedCosts{&fresh_, "learned in this generation"};
      policy_ = MakeAdaptivePolicy(request.speculation, AcceptanceKey(*drafter_, HasDice()), learned_.memory);
    } else {
      policy_ = MakeFixedPolicy(request.speculation);
    }
    decoder_ = std::make_unique<Decoder>(DecoderParts{.target = parts.target,
                                                      .cache = session.cache.get(),
                                                      .drafter = drafter_.get(),
                                                      .policy = policy_.get(),
                                                      .sampler = &sampler_,
                                                      .prefill_chunk = parts.prefill_chunk,
                                                      .dice = request.speculation.dice},
                                         &session.tokens);
  }

  // A cancelled prefill is a generation that has ended.
  Status Prefill(const std::vector<int32_t>& prompt) {
    Timings& timings = result_.timings;
    timings.cache_n = static_cast<int64_t>(Reuse(session_, prompt));
    timings.prompt_n = static_cast<int64_t>(prompt.size()) - timings.cache_n;
    const Status prefilled = decoder_->Prefill(request_.on_prefill);
    timings.prompt_ms = decoder_->stats().prefill_ms;
    if (prefilled.code() == StatusCode::kCancelled) {
      reason_ = FinishReason::kCancelled;
      ended_ = true;
      return {};
    }
    n_prompt_ = prompt.size();
    return prefilled;
  }

  Result<bool> Round() {
    if (ended_) return false;
    const int room = Room();
    if (room > 0) {
      LS_ASSIGN(const StepResult step, decoder_->Step(room, [this](int32_t token) { return IsEnd(token); }));
      Take(step.tokens);
    }
    if (room > 0 && !done_ && Room() > 0) return true;
    End();
    return false;
  }

  void End() {
    if (std::exchange(ended_, true)) return;
    text_.Finish();
    if (text_.stopped()) reason_ = FinishReason::kStop;
    if (text_.cancelled()) reason_ = FinishReason::kCancelled;
    // A round may have gone on after the token that ended the text.
    session_.KeepTokens(n_prompt_ + result_.tokens.size());
    guard_.Dismiss();
  }

  bool HasDice() const { return request_.speculation.dice && drafter_->uses_dice() && !sampler_.is_greedy(); }
  bool IsEnd(int32_t token) const { return !request_.ignore_eos && tokenizer_->IsEndOfGeneration(token); }

  // Tokens that may still be generated; sets the reason it will end for.
  int Room() {
    const auto used = static_cast<int>(session_.tokens.size());
    const int in_context = session_.cache->capacity() - used;
    const int wanted = request_.n_predict < 0 ? std::numeric_limits<int>::max()
                                              : request_.n_predict - (used - static_cast<int>(n_prompt_));
    reason_ = wanted <= in_context ? FinishReason::kLength : FinishReason::kContext;
    return std::min(wanted, in_context);
  }

  void Take(std::span<const int32_t> committed) {
    for (const int32_t token : committed) {
      result_.tokens.push_back(token);
      if (IsEnd(token)) {
        reason_ = FinishReason::kStop;
        done_ = true;
      } else if (!text_.Push(token)) {
        done_ = true;
      }
      if (done_) return;
    }
  }

  const Tokenizer* tokenizer_;
  SessionState& session_;
  const GenerationRequest request_;
  const Sampler sampler_;
  const std::unique_ptr<Drafter> drafter_;
  AdaptiveMemory fresh_;  // outlives the policy
  LearnedCosts learned_;
  std::unique_ptr<Policy> policy_;
  SessionGuard guard_;
  std::unique_ptr<Decoder> decoder_;
  TextStream text_;
  size_t n_prompt_ = 0;
  GenerationResult result_;
  FinishReason reason_ = FinishReason::kLength;
  bool done_ = false;   // the text has ended
  bool ended_ = false;  // and so has the generation
};

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

Result<std::unique_ptr<Generation>> StartGeneration(const GenerationParts& parts, SessionState& session,
                                                    const std::vector<int32_t>& prompt,
                                                    const GenerationRequest& request) {
  try {
    return RunningGeneration::Start(parts, session, prompt, request);
  } catch (const std::bad_alloc&) {
    return RunningGeneration::OutOfMemory(session);
  }
}

Result<GenerationResult> RunGeneration(const GenerationParts& parts, SessionState& session,
                                       const std::vector<int32_t>& prompt, const GenerationRequest& request) {
  LS_ASSIGN(const std::unique_ptr<Generation> generation, StartGeneration(parts, session, prompt, request));
  for (bool more = true; more;) {
    LS_ASSIGN(more, generation->Step());
  }
  return generation->Finish();
}

}  // namespace longspec
