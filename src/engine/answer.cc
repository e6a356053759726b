// SPDX-License-Identifier: Apache-2.0
#include "engine/answer.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <new>
#include <random>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "decode/partial_verifier.h"
#include "draft/drafter.h"
#include "draft_model/registry.h"
#include "engine/drafter_memories.h"
#include "engine/drafter_snapshots.h"
#include "engine/indent_limit.h"
#include "engine/partial_retrieval.h"
#include "engine/stop_matcher.h"
#include "grammar/grammar.h"
#include "grammar/token_rules.h"
#include "model/shared_parts.h"
#include "policy/policy.h"
#include "sampling/log_softmax.h"
#include "sampling/sampler.h"

namespace longspec {
namespace {

// The stop strings that name a control token, or those that do not.
std::vector<std::string> StopsNamingControl(const Tokenizer& tokenizer, const std::vector<std::string>& stops,
                                            bool naming) {
  const auto names_one = [&tokenizer](const std::string& stop) {
    const std::vector<int32_t> ids = tokenizer.Encode(stop);
    return std::ranges::any_of(ids, [&](int32_t id) { return tokenizer.IsControl(id); });
  };
  std::vector<std::string> found;
  std::ranges::copy_if(stops, std::back_inserter(found),
                       [&](const std::string& stop) { return names_one(stop) == naming; });
  return found;
}

// Tokens to final text: whole characters, and nothing that may yet be part of a stop string.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, const GenerationRequest& request, const OneAnswer& own)
      : tokenizer_(tokenizer),
        decoder_(tokenizer),
        control_stops_(StopsNamingControl(tokenizer, request.stop, true)),
        text_stops_(StopsNamingControl(tokenizer, request.stop, false)),
        on_text_(own.on_text),
        indent_(request.n_indent),
        n_before_stops_(request.min_tokens + static_cast<int>(own.begin.size())),
        include_stop_(request.include_stop) {}

  // False when the text has ended: a stop string, a line's indent, or the caller's wish. `before_text` is
  // called with the place of the token's characters in the text.
  template <typename F>
  bool Push(int32_t token, const F& before_text) {
    const std::string piece = decoder_.Push(token);
    before_text(n_decoded_, n_decoded_ + piece.size());
    n_decoded_ += piece.size();
    if (n_before_stops_ > 0) {
      --n_before_stops_;
      Emit(piece);
    } else {
      Take(tokenizer_.IsControl(token) ? control_stops_.PushControl(tokenizer_.TokenBytes(token))
                                       : control_stops_.Push(piece));
    }
    if (stopped() && include_stop_) Emit(stop_string());
    return !has_ended();
  }
  size_t n_decoded() const { return n_decoded_; }

  // The end of text that was not cut short: what was held back follows.
  void Finish() {
    if (has_ended()) return;
    Take(control_stops_.Push(decoder_.Finish()));
    if (!has_ended()) Take(control_stops_.Finish());
    if (!has_ended()) Emit(text_stops_.Finish());
  }

  bool stopped() const { return text_stops_.stopped() || control_stops_.stopped(); }
  const std::string& stop_string() const {
    return text_stops_.stopped() ? text_stops_.matched() : control_stops_.matched();
  }
  bool cancelled() const { return cancelled_; }
  bool limited() const { return indent_.reached(); }
  const std::string& text() const { return text_; }

 private:
  bool has_ended() const { return stopped() || cancelled_ || limited(); }

  // What has passed the stops that name control tokens.
  void Take(const std::string& piece) {
    Emit(text_stops_.Push(piece));
    if (control_stops_.stopped() && !text_stops_.stopped() && !cancelled_) Emit(text_stops_.Finish());
  }

  void Emit(std::string_view piece) {
    if (limited()) return;
    piece = indent_.Push(piece);
    if (piece.empty()) return;
    text_ += piece;
    if (on_text_ && !on_text_(piece)) cancelled_ = true;
  }

  const Tokenizer& tokenizer_;
  StreamDecoder decoder_;
  StopMatcher control_stops_, text_stops_;
  const std::function<bool(std::string_view)>& on_text_;
  IndentLimit indent_;
  std::string text_;
  size_t n_decoded_ = 0;  // bytes of text, those held back included
  int n_before_stops_;    // tokens to come that no stop string looks at
  const bool include_stop_;
  bool cancelled_ = false;
};

Status CheckPartialVerification(const GenerationParts& parts, const PartialVerificationOptions& options) {
  if (!options.enabled) return {};
  if (parts.target->shared_parts() == nullptr) {
    return Unsupported("--partial-verification: needs a target of known shape");
  }
  return PartialRetrieval(options).status();
}

Status CheckTokens(const std::string& name, const std::vector<int32_t>& tokens, int vocab) {
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab) continue;
    return InvalidArgument(name + ": token " + std::to_string(token) + " is not in the vocabulary of " +
                           std::to_string(vocab) + " tokens");
  }
  return {};
}

Status CheckRequest(const GenerationParts& parts, const std::vector<int32_t>& prompt,
                    const GenerationRequest& request, const std::vector<int32_t>& begin, int capacity) {
  if (prompt.empty()) return InvalidArgument("the prompt is empty: there is nothing to continue");
  const int vocab = parts.target->vocab_size();
  for (const int32_t token : prompt) {
    if (token >= 0 && token < vocab) continue;
    return InvalidArgument("prompt token " + std::to_string(token) + " is not in the vocabulary of " +
                           std::to_string(vocab) + " tokens");
  }
  const size_t n_prompt = prompt.size() + begin.size();
  if (n_prompt >= static_cast<size_t>(capacity)) {
    return ResourceExhausted("the prompt has " + std::to_string(n_prompt) + " tokens but the context holds " +
                             std::to_string(capacity) +
                             ", one of them for the answer: shorten the prompt or load with a "
                             "context size (-c) of at least " +
                             std::to_string(n_prompt + 1) + " (the model was trained for " +
                             std::to_string(parts.n_ctx_train) + ")");
  }
  if (request.n_predict < -1) {
    return InvalidArgument("n_predict " + std::to_string(request.n_predict) +
                           ": must be -1 (no limit) or more");
  }
  if (std::any_of(request.stop.begin(), request.stop.end(), [](const auto& stop) { return stop.empty(); })) {
    return InvalidArgument("a stop string is empty: it would end every text before it begins");
  }
  LS_TRY(CheckTokens("begin", begin, vocab));
  LS_TRY(CheckTokens("stop_tokens", request.stop_tokens, vocab));
  LS_TRY(CheckTokens("allowed_tokens", request.allowed_tokens, vocab));
  if (request.min_tokens < 0 || (request.n_predict >= 0 && request.min_tokens > request.n_predict)) {
    return InvalidArgument("min_tokens " + std::to_string(request.min_tokens) +
                           ": must be from 0 to the most tokens of the answer");
  }
  LS_TRY(CheckPartialVerification(parts, request.partial_verification));
  if (request.ignore_eos && request.grammar.kind != GrammarText::Kind::kNone)
    return InvalidArgument("ignore_eos: an answer with a grammar or a schema ends where that lets it end");
  return CheckSpeculation(request.speculation);
}

// The word's tokens where it begins a text and where it begins a word, as vLLM has it: the latter only if
// they are others.
void ForbidWord(const Tokenizer& tokenizer, const std::string& word,
                std::vector<std::vector<int32_t>>* forbidden) {
  const std::string text = word.substr(std::min(word.find_first_not_of(' '), word.size()));
  const EncodeOptions plain = {.add_special = false, .parse_special = false};
  const std::vector<int32_t> begins_text = tokenizer.Encode(text, plain);
  const std::vector<int32_t> begins_word = tokenizer.Encode(" " + text, plain);
  if (!begins_text.empty()) forbidden->push_back(begins_text);
  const bool other = !begins_word.empty() && !begins_text.empty() && begins_word[0] != begins_text[0] &&
                     begins_word.size() == begins_text.size();
  if (other) forbidden->push_back(begins_word);
}

TokenRules RulesOf(const GenerationParts& parts, const GenerationRequest& request,
                   const std::vector<int32_t>& begin) {
  TokenRules rules = {.begin = begin,
                      .allowed = request.allowed_tokens,
                      .ends = request.stop_tokens,
                      .min_tokens = request.min_tokens};
  for (const std::string& word : request.bad_words) ForbidWord(*parts.tokenizer, word, &rules.forbidden);
  if (request.ignore_eos) return rules;
  const int n_token = std::min(parts.tokenizer->vocab_size(), parts.target->vocab_size());
  for (int32_t id = 0; id < n_token; ++id) {
    if (parts.tokenizer->IsEndOfGeneration(id)) rules.ends.push_back(id);
  }
  return rules;
}

// Null if any text will do.
Result<std::unique_ptr<Constraint>> ConstraintOf(const GenerationParts& parts, const AskedRequest& asked,
                                                 const std::vector<int32_t>& begin) {
  std::unique_ptr<Constraint> of_text;
  if (asked.grammar != nullptr) {
    LS_ASSIGN(of_text, asked.grammar->NewConstraint());
  }
  TokenRules rules = RulesOf(parts, *asked.request, begin);
  if (!rules.any()) return of_text;
  return MakeTokenConstraint(std::make_shared<const TokenRules>(std::move(rules)), parts.target->vocab_size(),
                             std::move(of_text));
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

// Makes `prompt` the session's tokens, keeping the cache of the longest beginning that the session or any
// other sequence has evaluated, but for what the drafter wants computed again; nothing if it is not to be
// kept. Returns its length.
size_t Reuse(const GenerationParts& parts, SessionState& session, const std::vector<int32_t>& prompt,
             const Drafter& drafter, bool keep) {
  if (!keep) {
    session.cache->Truncate(0);
    session.tokens = prompt;
    return 0;
  }
  const size_t limit =
      std::min({static_cast<size_t>(session.cache->length()), session.tokens.size(), prompt.size() - 1});
  const auto common = std::ranges::mismatch(std::span(session.tokens).first(limit), prompt).in1;
  const int own = static_cast<int>(common - std::span(session.tokens).begin());
  const auto kept_of = [&](int length) { return length - std::min(length, drafter.overlap(prompt, length)); };
  session.cache->Truncate(own);
  session.tokens = prompt;
  const auto all_but_last = std::span(prompt).first(prompt.size() - 1);
  if (parts.prompts != nullptr && parts.prompts->LengthKnown(all_but_last) > own) {
    PrefixIndex::Match match = parts.prompts->Find(all_but_last);
    match.KeepOnly(kept_of(match.length));
    if (parts.on_match) parts.on_match(match);
    if (match.length > kept_of(own)) {
      session.cache->Adopt(match.chunks, match.length);
      return static_cast<size_t>(match.length);
    }
  }
  session.cache->Truncate(kept_of(own));
  return static_cast<size_t>(session.cache->length());
}

HoleTokens HoleOf(const Tokenizer& tokenizer) {
  const TokenizerSpec& spec = tokenizer.spec();
  return {.prefix = spec.fim_prefix, .suffix = spec.fim_suffix, .middle = spec.fim_middle};
}

// The session's own, if it was made with these options: what it learned of the text so far is kept. `cache`:
// what it may know; one that it was not made with makes another drafter.
Result<Drafter*> DrafterOf(const GenerationParts& parts, SessionState& session,
                           const std::shared_ptr<const SpeculationOptions>& options, const KvCache& cache) {
  if (session.drafter == nullptr || *session.drafter_options != *options || session.drafter_cache != &cache) {
    session.drafter.reset();
    session.drafter_cache = &cache;
    LS_ASSIGN(session.drafter, MakeDrafter(*options, {.target = parts.target,
                                                      .cache = &cache,
                                                      .models = parts.draft_models,
                                                      .hole = HoleOf(*parts.tokenizer)}));
    session.drafter_options = options;
    RestoreSnapshots(session.tokens, std::exchange(session.snapshots, {}), *session.drafter,
                     &session.draft_notice);
  }
  return session.drafter.get();
}

// The target's, so that a forced table is forced for sampling too; null if it does not say.
const kernels::KernelTable* KernelsOf(const Target& target) {
  const SharedParts* parts = target.shared_parts();
  return parts == nullptr ? nullptr : parts->lane.kernels;
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
  out.acceptance_per_position = AcceptancePerPosition(stats.drafted_at, stats.accepted_at);
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

// In the order in which it is made.
class AnswerImpl final : public AnswerInProgress {
 public:
  AnswerImpl(const GenerationParts& parts, SessionState& session, const std::vector<int32_t>& prompt,
             AskedRequest asked, OneAnswer own, Sampler sampler, std::unique_ptr<Constraint> constraint,
             uint64_t seed)
      : parts_(parts),
        session_(session),
        asked_(std::move(asked)),
        own_(std::move(own)),
        n_prompt_(prompt.size()),
        sampler_(std::move(sampler)),
        constraint_(std::move(constraint)),
        text_(*parts.tokenizer, request_, own_) {
    result_.seed = seed;
  }
  // A drafter that was told of the part does not outlive it.
  ~AnswerImpl() override {
    if (verifier_ != nullptr) session_.drafter.reset();
  }
  AnswerImpl(const AnswerImpl&) = delete;
  AnswerImpl& operator=(const AnswerImpl&) = delete;

  Status Prepare(const std::vector<int32_t>& prompt) {
    if (request_.partial_verification.enabled) {
      LS_ASSIGN(const RetrievalOptions retrieval, PartialRetrieval(request_.partial_verification));
      verifier_ = MakePartialVerifier(retrieval, session_.cache.get(), *parts_.target, &sampler_,
                                      static_cast<int>(n_prompt_));
    }
    const KvCache& known = verifier_ == nullptr ? *session_.cache : verifier_->part();
    LS_ASSIGN(Drafter* const drafter, DrafterOf(parts_, session_, asked_.speculation, known));
    if (WantsAdaptivePolicy(speculation_)) {
      known_costs_ =
          parts_.known_costs ? parts_.known_costs() : KnownCosts{&fresh_, "learned in this generation"};
      policy_ = MakeAdaptivePolicy(speculation_, DrafterMemoryKey(*drafter, speculation_, HasDice(*drafter)),
                                   known_costs_.memory);
    } else {
      policy_ = MakeFixedPolicy(speculation_);
    }
    sequence_ = {.tokens = &session_.tokens,
                 .cache = session_.cache.get(),
                 .drafter = drafter,
                 .policy = policy_.get(),
                 .sampler = &sampler_,
                 .dice = speculation_.dice,
                 .reader = verifier_.get(),
                 .constraint = constraint_.get(),
                 .stats = {},
                 .draft_failure = {},
                 .on_proposal = OnProposal()};
    result_.timings.cache_n =
        static_cast<int64_t>(Reuse(parts_, session_, prompt, *drafter, request_.cache_prompt));
    const size_t n_given = prompt.size() + own_.begin.size();
    result_.timings.prompt_n = static_cast<int64_t>(n_given) - result_.timings.cache_n;
    n_computed_ = session_.cache->length();
    sources_ = drafter->sources();
    if (own_.on_start) {
      own_.on_start(static_cast<int>(n_given), static_cast<int>(result_.timings.cache_n));
    }
    const double start = NowMs();
    sequence_.Follow();
    sequence_.stats.draft_ms += NowMs() - start;
    result_.timings.prompt_ms = result_.timings.prompt_draft_ms = sequence_.stats.draft_ms;
    return GiveCache();
  }

  int n_missing() const override { return sequence_.n_missing(); }
  bool ended() const override { return ended_; }
  const std::vector<int32_t>& tokens() const override { return result_.tokens; }

  Turn NextTurn(int max_rows) override {
    LS_CHECK(!ended_);
    const int room = Room();
    of_prompt_ = n_missing() > 1 && !prompt_is_whole();
    // Where nothing may be generated, only the prompt's keys are computed.
    if (room <= 0) max_rows = std::min(max_rows, n_missing() - 1);
    n_asked_ = result_.tokens.size();
    Turn turn = {
        .sequence = &sequence_, .max_rows = max_rows, .max_tokens = std::max(room, 1), .is_end = &is_end_};
    if (verifier_ != nullptr) verifier_->Limit(turn);
    return turn;
  }

  Status Take(const Turn& turn, double round_ms) override {
    LS_TRY(turn.status);
    if (parts_.on_turn) parts_.on_turn(turn);
    (of_prompt_ ? result_.timings.prompt_ms : result_.timings.predicted_ms) += round_ms;
    if (of_prompt_) result_.timings.prompt_draft_ms = sequence_.stats.draft_ms;
    for (size_t i = 0; i < turn.tokens.size(); ++i) {
      const int32_t token = turn.tokens[i];
      const bool is_end = IsEnd(token, result_.tokens.size());
      const bool is_text = !is_end || (request_.include_stop && !parts_.tokenizer->IsEndOfGeneration(token));
      result_.tokens.push_back(token);
      const auto report = [&](size_t begin, size_t end) { Report(turn, i, !is_text, begin, end); };
      if (!is_text) report(text_.n_decoded(), text_.n_decoded());
      const bool goes_on = !is_text || text_.Push(token, report);
      if (is_end || !goes_on) {
        End(FinishReason::kStop);
        return {};
      }
    }
    if (n_missing() == 1 && Room() <= 0) End(limit_);
    return GiveCache();
  }

  bool ReportPrefill() override {
    const int done = session_.cache->length() - n_computed_;
    const int total = static_cast<int>(n_prompt_) - 1 - n_computed_;
    if (!own_.on_prefill || done <= 0 || done > total || own_.on_prefill(done, total)) return true;
    End(FinishReason::kCancelled);
    return false;
  }

  void End(FinishReason reason) override {
    if (std::exchange(ended_, true)) return;
    text_.Finish();
    reason_ = text_.cancelled() ? FinishReason::kCancelled
              : text_.limited() ? FinishReason::kLength
              : text_.stopped() ? FinishReason::kStop
                                : reason;
    // A round may have gone on after the token that ended the text, and a prompt may not be whole.
    if (prompt_is_whole()) {
      session_.KeepTokens(n_prompt_ + result_.tokens.size());
    } else {
      session_.tokens.resize(static_cast<size_t>(session_.cache->length()));
    }
  }

  GenerationResult Finish() override {
    End(FinishReason::kLength);
    const DecodeStats& stats = sequence_.stats;
    const Drafter& drafter = *sequence_.drafter;
    result_.timings.predicted_n = n_predicted();
    result_.timings.draft_n = stats.drafted;
    result_.timings.draft_n_accepted = stats.accepted;
    result_.text = text_.text();
    result_.finish_reason = reason_;
    if (reason_ == FinishReason::kStop) result_.stop_string = text_.stop_string();
    result_.distinct_4gram = DistinctNgramShare(result_.tokens);
    result_.speculative = MakeSpeculativeStats(stats, drafter, policy_->report(),
                                               session_.cache->exactness() == Exactness::kLossless);
    result_.speculative.draft_ms -= result_.timings.prompt_draft_ms;
    result_.speculative.costs = known_costs_.origin;
    for (const std::string& notice : {PartNotice(), drafter.notice(), sequence_.draft_failure,
                                      std::exchange(session_.draft_notice, {})}) {
      AddNotice(notice, &result_.speculative.notice);
    }
    result_.speculative.uses = drafter.uses();
    result_.speculative.dice = HasDice(drafter);
    if (verifier_ != nullptr) ReportPart();
    return std::move(result_);
  }

 private:
  std::function<void(const TokenTree&)> OnProposal() {
    if (!own_.on_proposal) return {};
    return [this](const TokenTree& tree) {
      std::vector<ProposedToken> proposed;
      for (const TreeNode& node : tree.nodes().subspan(1))
        proposed.push_back({.parent = node.parent - 1, .token = node.token, .score = node.score});
      own_.on_proposal(session_.tokens.size(), proposed);
    };
  }

  // The cache that the next turn is of.
  Status GiveCache() {
    if (verifier_ == nullptr || ended_) return {};
    return verifier_->Prepare(sequence_);
  }

  void ReportPart() {
    const PartialStats stats = verifier_->stats();
    result_.partial_verification = {.enabled = true,
                                    .checked = stats.tokens,
                                    .differing = stats.differing,
                                    .refreshes = stats.refreshes,
                                    .bytes = stats.bytes};
    result_.speculative.lossless = result_.speculative.lossless && stats.refreshes == 0;
  }

  std::string PartNotice() const {
    const PartialVerificationOptions& o = request_.partial_verification;
    if (!o.enabled || o.refresh != 0) return {};
    return "partial verification (approximate) in SpecPV's modes: the text depends on the drafts";
  }

  // Behind what the answer begins with.
  int64_t n_predicted() const {
    return static_cast<int64_t>(result_.tokens.size() - std::min(result_.tokens.size(), own_.begin.size()));
  }
  bool prompt_is_whole() const { return session_.cache->length() + 1 >= static_cast<int>(n_prompt_); }
  bool HasDice(const Drafter& drafter) const {
    return speculation_.dice && drafter.uses_dice() && !sampler_.is_greedy();
  }
  // The answer's token `i`.
  bool IsEnd(int32_t token, size_t i) const {
    if (i < own_.begin.size()) return false;
    return (!request_.ignore_eos && parts_.tokenizer->IsEndOfGeneration(token)) ||
           std::ranges::find(request_.stop_tokens, token) != request_.stop_tokens.end();
  }

  void Report(const Turn& turn, size_t i, bool is_end, size_t text_begin, size_t text_end) {
    if (!own_.on_token) return;
    GeneratedToken token = {
        .id = turn.tokens[i], .is_end = is_end, .text_begin = text_begin, .text_end = text_end};
    token.timings = result_.timings;
    token.timings.predicted_n = n_predicted();
    token.timings.draft_n = sequence_.stats.drafted;
    token.timings.draft_n_accepted = sequence_.stats.accepted;
    if (turn.sources[i] >= 0) token.source = sources_[static_cast<size_t>(turn.sources[i])];
    if (request_.n_logprobs >= 0) {
      const LogSoftmax softmax(turn.logits[turn.path[i]].Read(&row_));
      token.own = {.token = token.id, .logprob = softmax.Of(token.id)};
      softmax.Likeliest(request_.n_logprobs, likeliest_);
      token.likeliest = likeliest_;
    }
    own_.on_token(token);
  }

  // Tokens that may still be generated; sets the reason it will end for.
  int Room() {
    const auto used = static_cast<int>(session_.tokens.size());
    const int in_context = session_.cache->capacity() - used;
    const int most = request_.n_predict + static_cast<int>(own_.begin.size());
    const int wanted = request_.n_predict < 0 ? std::numeric_limits<int>::max()
                                              : most - (used - static_cast<int>(n_prompt_));
    limit_ = wanted <= in_context ? FinishReason::kLength : FinishReason::kContext;
    return std::min(wanted, in_context);
  }

  const GenerationParts parts_;
  SessionState& session_;
  const AskedRequest asked_;
  const GenerationRequest& request_ = *asked_.request;
  const SpeculationOptions& speculation_ = *asked_.speculation;
  const OneAnswer own_;
  const size_t n_prompt_;
  const Sampler sampler_;
  const std::unique_ptr<Constraint> constraint_;  // null: any text
  size_t n_asked_ = 0;  // tokens of the answer that a turn was told whether they end it
  // Of the tokens of a turn, in their order.
  const std::function<bool(int32_t)> is_end_ = [this](int32_t token) { return IsEnd(token, n_asked_++); };
  AdaptiveMemory fresh_;  // outlives the policy
  KnownCosts known_costs_;
  std::unique_ptr<Policy> policy_;
  std::unique_ptr<PartialVerifier> verifier_;  // null: the whole cache chooses
  Sequence sequence_;
  TextStream text_;
  std::vector<std::string_view> sources_;  // of the drafter
  std::vector<TokenLogprob> likeliest_;
  std::vector<float> row_;  // of logits, where it does not lie in host memory
  int n_computed_ = 0;      // positions that were there when it began
  GenerationResult result_;
  FinishReason reason_ = FinishReason::kLength, limit_ = FinishReason::kLength;
  bool of_prompt_ = false;  // the last turn computed more than one missing token
  bool ended_ = false;
};

}  // namespace

Result<AskedRequest> AskedRequest::Of(const GenerationParts& parts,
                                      std::shared_ptr<const GenerationRequest> request,
                                      std::shared_ptr<const Grammar> grammar) {
  if (grammar == nullptr && request->grammar.kind != GrammarText::Kind::kNone) {
    if (parts.grammar == nullptr) return Unsupported("grammars are not supported here");
    LS_ASSIGN(grammar, parts.grammar(request->grammar));
  }
  auto speculation = std::make_shared<const SpeculationOptions>(Settled(request->speculation));
  return AskedRequest{std::move(request), std::move(speculation), std::move(grammar)};
}

Status AnswerInProgress::Check(const GenerationParts& parts, const std::vector<int32_t>& prompt,
                               const GenerationRequest& request, int capacity) {
  return CheckRequest(parts, prompt, request, request.begin, capacity);
}

Result<std::unique_ptr<AnswerInProgress>> AnswerInProgress::Start(const GenerationParts& parts,
                                                                  SessionState& session,
                                                                  const std::vector<int32_t>& prompt,
                                                                  AskedRequest asked, OneAnswer own,
                                                                  uint64_t index) {
  LS_TRY(CheckRequest(parts, prompt, *asked.request, own.begin, session.cache->capacity()));
  const SamplingOptions sampling = ResolveSampling(parts, *asked.request);
  LS_ASSIGN(Sampler sampler, Sampler::Create(sampling, parts.target->vocab_size(), index,
                                             KernelsOf(*parts.target), parts.tokenizer));
  LS_ASSIGN(std::unique_ptr<Constraint> constraint, ConstraintOf(parts, asked, own.begin));
  auto answer = std::make_unique<AnswerImpl>(parts, session, prompt, std::move(asked), std::move(own),
                                             std::move(sampler), std::move(constraint), *sampling.seed);
  LS_TRY(answer->Prepare(prompt));
  return std::unique_ptr<AnswerInProgress>(std::move(answer));
}

void SessionState::Clear() {
  cache->Truncate(0);
  tokens.clear();
  snapshots.clear();
}

void SessionState::KeepTokens(size_t n) {
  tokens.resize(std::min(n, tokens.size()));
  const int cached = tokens.empty() ? 0 : static_cast<int>(tokens.size()) - 1;
  if (cache->length() > cached) cache->Truncate(cached);
}

}  // namespace longspec
