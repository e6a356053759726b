// SPDX-License-Identifier: Apache-2.0
#include "server/generation_job.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "api/llama.h"
#include "base/clock.h"
#include "base/utf8.h"

namespace longspec::server {
namespace {

using api::AnswerForm;
using api::Error;
using api::FinishedAnswer;
using api::TokenReport;

using Prompts = std::vector<std::vector<int32_t>>;  // in tokens

// All but Cancel and Submitted runs on the loop's thread.
class Job : public std::enable_shared_from_this<Job> {
 public:
  Job(const JobParts& parts, GenerationWish wish, std::unique_ptr<AnswerForm> form,
      std::shared_ptr<Call> call)
      : parts_(parts),
        held_(std::move(wish.request)),
        grammar_(std::move(wish.grammar)),
        form_(std::move(form)),
        call_(std::move(call)) {
    if (api::TellsOfPrompts(request_)) SplitPrompts(wish.prompts);
    prompts_ = std::make_shared<const Prompts>(std::move(wish.prompts));
    answers_.resize(prompts_->size() * static_cast<size_t>(request_.n));
    const bool llama_stream = api::IsLlamas(request_.endpoint) && request_.wishes.stream;
    wants_tokens_ = request_.generation.n_logprobs >= 0 || request_.wishes.return_tokens ||
                    request_.wishes.return_token_source || llama_stream;
  }

  Submission MakeSubmission() {
    Submission submission{
        .request = {held_, &request_.generation}, .n = request_.n, .prompts = prompts_, .grammar = grammar_};
    submission.for_answer = [job = shared_from_this()](int index, OneAnswer& of) {
      if (!job->begins_.empty()) of.begin = job->begins_[static_cast<size_t>(index / job->request_.n)];
      of.on_start = [job, index](int n_prompt, int n_cached) { job->Start(index, n_prompt, n_cached); };
      of.on_prefill = [job, index](int done, int total) { return job->TakeProgress(index, done, total); };
      of.on_token = [job, index](const GeneratedToken& token) { job->TakeToken(index, token); };
      of.on_text = [job, index](std::string_view text) { return job->TakeText(index, text); };
    };
    submission.on_end = [job = shared_from_this()](int index, Result<GenerationResult> result) {
      job->TakeEnd(index, std::move(result));
    };
    return submission;
  }

  // Now its number is known. Events begin, so that pings keep the connection alive in the queue.
  void Submitted(int64_t id) {
    {
      const std::lock_guard lock(mutex_);
      id_ = id;
    }
    if (request_.wishes.stream) BeginEvents();
    call_->OnGone([job = weak_from_this()] {
      const auto alive = job.lock();
      if (alive == nullptr) return;
      alive->call_->SetGone();
      alive->Cancel();
    });
  }

  void Cancel() {
    int64_t id = 0;
    {
      const std::lock_guard lock(mutex_);
      id = id_;
    }
    parts_.loop->Cancel(id);
  }

 private:
  struct State {
    FinishedAnswer answer;
    std::vector<TokenReport> pending;            // whose text has not been sent
    std::string sent;                            // the text
    size_t counted = 0, counted_characters = 0;  // of its bytes; how many characters these are
    Timings timings;
    double started_ms = 0, last_token_ms = 0;
    std::string first;  // text of the prompt's first token, if the answer tells of its prompt
    int n_prompt = 0, n_cached = 0, n_processed = -1, n_tokens = 0;
    bool time_is_up = false, ended = false;
  };
  // The model's chances of a prompt's tokens are those of an answer that begins with them; of the first token
  // there are none.
  void SplitPrompts(Prompts& prompts) {
    for (std::vector<int32_t>& prompt : prompts) {
      const auto rest = prompt.begin() + std::min<std::ptrdiff_t>(1, std::ssize(prompt));
      begins_.emplace_back(rest, prompt.end());
      prompt.erase(rest, prompt.end());
    }
  }

  // That token; what is generated stands behind it.
  void SayFirst(int index) {
    if (begins_.empty()) return;
    State& state = At(index);
    const std::vector<int32_t>& prompt = PromptOf(index);
    state.first = parts_.engine->Detokenize(prompt, false);
    state.pending.push_back(
        {.token = TextOf({.token = prompt[0]}), .text_end = state.first.size(), .has_chance = false});
    TakeText(index, state.first);
  }

  State& At(int index) { return answers_[static_cast<size_t>(index)]; }
  const std::vector<int32_t>& PromptOf(int index) const {
    return (*prompts_)[static_cast<size_t>(index / request_.n)];
  }

  // Whoever comes first: the loop may be quicker than the thread that submits. Under the lock, for whoever
  // comes second writes at once, and the head goes before.
  void BeginEvents() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(begun_, true)) return;
    if (!form_->has_events()) return call_->BeginLines();
    const int wished = request_.wishes.sse_ping_interval;
    call_->BeginEvents(wished >= 0 ? wished : parts_.ping_seconds);
  }

  // What `make` makes of the form, which is not asked for events of an answer that is sent as a whole.
  // Whether the client is still there.
  template <typename Make>
  bool SendEvents(const Make& make) {
    if (!request_.wishes.stream) return true;
    std::string events = make(*form_);
    if (events.empty()) return true;
    BeginEvents();
    return call_->Write(std::move(events));
  }

  void Start(int index, int n_prompt, int n_cached) {
    State& state = At(index);
    const double now = NowMs();
    state.started_ms = now;
    state.n_prompt = n_prompt;
    state.n_cached = n_cached;
    // The slot that was asked for is the first answer's.
    state.answer.slot =
        parts_.slots->Take(index == 0 ? request_.wishes.id_slot : -1, PromptOf(index), call_->id(),
                           api::PublicSettingsJson(request_.generation, parts_.engine->info().n_ctx));
    parts_.slots->SetProgress(state.answer.slot, n_cached, 0);
    if (index == 0) {
      parts_.metrics->Observe("longspec:request_queue_time_seconds", (now - call_->arrived_ms()) / 1000);
      call_->Note("queue_ms", now - call_->arrived_ms());
    }
    if (index % request_.n == 0) {
      parts_.metrics->Observe("longspec:request_prompt_tokens", n_prompt);
      call_->Note("prompt_tokens", n_prompt_ += n_prompt);
      call_->Note("cached_tokens", n_cached_ += n_cached);
    }
    parts_.metrics->Add("longspec:prompt_tokens_total", n_prompt);
    parts_.metrics->Add("longspec:prefix_cache_queries_total", n_prompt);
    parts_.metrics->Add("longspec:prefix_cache_hits_total", n_cached);
    SendEvents([&](AnswerForm& form) {
      const api::Start start{
          .index = index, .n_prompt = n_prompt, .n_cached = n_cached, .slot = state.answer.slot};
      return form.OnStart(start) + form.OnProgress(index, ProgressOf(state, n_cached));
    });
    SayFirst(index);
  }

  static api::Progress ProgressOf(const State& state, int processed) {
    return {.total = state.n_prompt,
            .cached = state.n_cached,
            .processed = processed,
            .ms = NowMs() - state.started_ms};
  }

  // The prompt's last token is part of the first round that generates.
  bool TakeProgress(int index, int done, int total) {
    return SendProgress(index, done == total ? At(index).n_prompt : At(index).n_cached + done);
  }

  bool SendProgress(int index, int processed) {
    State& state = At(index);
    if (state.n_processed == processed) return true;
    state.n_processed = processed;
    parts_.slots->SetProgress(state.answer.slot, processed, 0);
    return SendEvents([&](AnswerForm& form) { return form.OnProgress(index, ProgressOf(state, processed)); });
  }

  void TakeToken(int index, const GeneratedToken& token) {
    State& state = At(index);
    const double now = NowMs();
    if (state.n_tokens == 0) {
      SendProgress(index, state.n_prompt);  // where the whole prompt was one pass
      parts_.metrics->Observe("longspec:time_to_first_token_seconds", (now - call_->arrived_ms()) / 1000);
      if (index == 0) call_->Note("first_token_ms", now - call_->arrived_ms());
    } else {
      parts_.metrics->Observe("longspec:inter_token_latency_seconds", (now - state.last_token_ms) / 1000);
    }
    state.last_token_ms = now;
    ++state.n_tokens;
    state.timings = token.timings;
    state.timings.predicted_n = state.n_tokens;
    parts_.slots->SetProgress(state.answer.slot, state.n_prompt, state.n_tokens);
    if (token.is_end || !wants_tokens_) return;
    TokenReport report{.token = TextOf({.token = token.id, .logprob = token.own.logprob}),
                       .source = std::string(token.source),
                       .text_begin = state.first.size() + token.text_begin,
                       .text_end = state.first.size() + token.text_end};
    for (const TokenLogprob& other : token.likeliest) report.likeliest.push_back(TextOf(other));
    state.pending.push_back(std::move(report));
  }

  api::TokenText TextOf(const TokenLogprob& token) const {
    return {.id = token.token, .bytes = parts_.engine->Detokenize({token.token}), .logprob = token.logprob};
  }

  bool TakeText(int index, std::string_view text) {
    State& state = At(index);
    state.sent += text;
    // As llama.cpp has it: what has begun of a line is not left half written.
    const int limit = request_.wishes.t_max_predict_ms;
    if (limit > 0 && state.timings.predicted_ms > limit && text.find('\n') != std::string_view::npos)
      state.time_is_up = true;
    const auto whole = std::ranges::find_if(
        state.pending, [&](const TokenReport& report) { return report.text_end > state.sent.size(); });
    return SendPiece(index, text, whole) && !state.time_is_up;
  }

  // Sends the text and the pending tokens before `end`, which become the answer's.
  bool SendPiece(int index, std::string_view text, std::vector<TokenReport>::iterator end) {
    State& state = At(index);
    auto& tokens = state.answer.tokens;
    for (auto token = state.pending.begin(); token != end; ++token) {
      const size_t until = std::min(token->text_begin, state.sent.size());
      state.counted_characters +=
          CountCharacters(std::string_view(state.sent).substr(state.counted, until - state.counted));
      state.counted = until;
      token->text_offset = state.counted_characters;
    }
    const auto first = static_cast<std::ptrdiff_t>(tokens.size());
    std::move(state.pending.begin(), end, std::back_inserter(tokens));
    state.pending.erase(state.pending.begin(), end);
    const auto sent = std::span(tokens).subspan(static_cast<size_t>(first));
    if (text.empty() && sent.empty()) return true;
    return SendEvents([&](AnswerForm& form) {
      return form.OnPiece({.index = index, .text = text, .tokens = sent, .timings = state.timings});
    });
  }

  void TakeEnd(int index, Result<GenerationResult> result) {
    State& state = At(index);
    state.ended = true;
    ++n_ended_;
    if (result.ok()) {
      Finish(index, std::move(*result));
    } else {
      parts_.slots->Leave(state.answer.slot, {});
      Fail(api::FailureOf(result.status()));
    }
    if (n_ended_ < answers_.size() || failed_) return;
    std::vector<FinishedAnswer> answers;
    for (State& ended : answers_) answers.push_back(std::move(ended.answer));
    Count(answers);
    if (request_.wishes.stream) {
      SendEvents([&](AnswerForm& form) { return form.OnEnd(answers); });
      call_->End();
    } else {
      call_->Send({.body = form_->Whole(answers)});
    }
  }

  void Finish(int index, GenerationResult result) {
    State& state = At(index);
    if (state.time_is_up && result.finish_reason == FinishReason::kCancelled)
      result.finish_reason = FinishReason::kLength;
    std::vector<int32_t> tokens = PromptOf(index);
    tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
    parts_.slots->Leave(state.answer.slot, std::move(tokens));
    if (request_.infill) {
      const bool ended = !result.tokens.empty() && parts_.engine->EndsAnswer(result.tokens.back());
      const std::string middle = parts_.engine->Detokenize(result.tokens, false);
      parts_.suggestions->Keep(*request_.infill, middle, result.tokens, ended);
    }
    result.text.insert(0, state.first);
    // Tokens that a stop string cut belong to the text if any of their characters do.
    const auto cut = std::ranges::find_if(
        state.pending, [&](const TokenReport& report) { return report.text_begin >= result.text.size(); });
    result.speculative.notice = call_->Shown(std::move(result.speculative.notice));
    state.answer.result = std::move(result);
    SendPiece(index, "", cut);
    SendEvents([&](AnswerForm& form) { return form.OnAnswerEnd(index, state.answer); });
  }

  // One error is the whole request's.
  void Fail(const Error& error) {
    if (std::exchange(failed_, true)) return;
    if (answers_.size() > 1) Cancel();
    bool begun = false;
    {
      const std::lock_guard lock(mutex_);
      begun = std::exchange(begun_, true);
    }
    if (begun) {
      Error shown = error;
      shown.message = call_->Shown(std::move(shown.message));
      call_->Note("error", error.message);
      call_->Write(form_->OnError(shown));
      call_->End();
    } else {
      call_->SendError(error);
    }
  }

  void Count(const std::vector<FinishedAnswer>& answers) const {
    Metrics& metrics = *parts_.metrics;
    int64_t n_tokens = 0, drafted = 0, accepted = 0;
    for (const FinishedAnswer& answer : answers) {
      const GenerationResult& result = answer.result;
      const Timings& t = result.timings;
      n_tokens += t.predicted_n;
      drafted += t.draft_n;
      accepted += t.draft_n_accepted;
      metrics.Add("longspec:request_success_total", 1,
                  {{"finished_reason", std::string(ToString(result.finish_reason))}});
      metrics.Observe("longspec:e2e_request_latency_seconds", (NowMs() - call_->arrived_ms()) / 1000);
      metrics.Observe("longspec:request_generation_tokens", static_cast<double>(t.predicted_n));
      CountSpeculation(result);
    }
    metrics.Add("longspec:generation_tokens_total", static_cast<double>(n_tokens));
    call_->Note("tokens", n_tokens);
    call_->Note("draft_n", drafted);
    call_->Note("draft_n_accepted", accepted);
    call_->Note("finish", std::string(ToString(answers.front().result.finish_reason)));
  }

  void CountSpeculation(const GenerationResult& result) const {
    Metrics& metrics = *parts_.metrics;
    const SpeculativeStats& stats = result.speculative;
    metrics.Add("longspec:spec_decode_num_drafts_total", static_cast<double>(stats.steps));
    metrics.Add("longspec:spec_decode_num_draft_tokens_total", static_cast<double>(result.timings.draft_n));
    metrics.Add("longspec:spec_decode_num_accepted_tokens_total",
                static_cast<double>(result.timings.draft_n_accepted));
    for (size_t i = 0; i < stats.accepted_at.size(); ++i) {
      metrics.Add("longspec:spec_decode_num_accepted_tokens_per_pos_total",
                  static_cast<double>(stats.accepted_at[i]), {{"position", std::to_string(i)}});
    }
    for (const AcceptanceCounts& counts : stats.by_drafter) {
      metrics.Add("longspec:draft_tokens_total", static_cast<double>(counts.drafted),
                  {{"drafter", counts.name}});
      metrics.Add("longspec:accepted_tokens_total", static_cast<double>(counts.accepted),
                  {{"drafter", counts.name}});
    }
    for (const auto& [decision, rounds] : stats.decisions) {
      metrics.Add("longspec:speculation_rounds_total", static_cast<double>(rounds), {{"decision", decision}});
    }
    for (const AcceptanceCounts& counts : stats.by_context) {
      metrics.Add("longspec:context_draft_tokens_total", static_cast<double>(counts.drafted),
                  {{"context", counts.name}});
      metrics.Add("longspec:context_accepted_tokens_total", static_cast<double>(counts.accepted),
                  {{"context", counts.name}});
    }
  }

  const JobParts parts_;
  const std::shared_ptr<const api::Request> held_;
  const api::Request& request_ = *held_;
  const std::shared_ptr<const Grammar> grammar_;  // null: any text
  std::shared_ptr<const Prompts> prompts_;
  Prompts begins_;  // of answers that tell of their prompts; each prompt is one token
  const std::unique_ptr<AnswerForm> form_;
  const std::shared_ptr<Call> call_;
  bool wants_tokens_ = false;
  std::vector<State> answers_;
  size_t n_ended_ = 0;
  int64_t n_prompt_ = 0, n_cached_ = 0;  // tokens of the prompts that have started
  bool failed_ = false;
  std::mutex mutex_;
  int64_t id_ = 0;      // the loop's; 0: not known yet
  bool begun_ = false;  // something is on its way to the client
};

// Why the engine would not take it.
void SendRefusal(const JobParts& parts, size_t n_longest, const Status& status, Call& call) {
  const Error error = api::RefusalOf(status);
  nlohmann::ordered_json more = nlohmann::ordered_json::object();
  if (error.code == "context_length_exceeded")
    more = {{"n_prompt_tokens", n_longest}, {"n_ctx", parts.engine->info().n_ctx}};
  call.SendError(error, more);
}

}  // namespace

void StartGenerationJob(const JobParts& parts, GenerationWish wish, std::unique_ptr<api::AnswerForm> form,
                        std::shared_ptr<Call> call) {
  size_t n_longest = 0;  // tokens
  for (const auto& prompt : wish.prompts) n_longest = std::max(n_longest, prompt.size());
  const auto job = std::make_shared<Job>(parts, std::move(wish), std::move(form), call);
  const EngineLoop::Admission admission = parts.loop->Submit(job->MakeSubmission());
  switch (admission.outcome) {
    case EngineLoop::Outcome::kAccepted:
      job->Submitted(admission.id);
      break;
    case EngineLoop::Outcome::kQueueFull:
      call->SendError({.status_code = 429,
                       .message = "too many requests wait already: try again later",
                       .type = "rate_limit_error"});
      break;
    case EngineLoop::Outcome::kRefused:
      SendRefusal(parts, n_longest, admission.status, *call);
      break;
  }
}

}  // namespace longspec::server
