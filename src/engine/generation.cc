// SPDX-License-Identifier: Apache-2.0
#include "engine/generation.h"

#include <new>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "engine/answer.h"
#include "engine/scheduler.h"

namespace longspec {
namespace {

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

// An answer that is alone in its rounds.
class LoneGeneration final : public Generation {
 public:
  LoneGeneration(const GenerationParts& parts, SessionState& session)
      : parts_(parts),
        session_(session),
        guard_(session),
        rounds_(MakeSchedulerOfOne(parts, session.cache->capacity())) {}

  Status Begin(const std::vector<int32_t>& prompt, std::shared_ptr<const GenerationRequest> request) {
    auto answer = Answered(prompt, std::move(request));
    if (!answer.ok()) {
      guard_.Dismiss();  // nothing has been touched
      return answer.status();
    }
    answer_ = std::move(*answer);
    rounds_->Join(session_, *answer_, [this](const Status& status) { failure_ = status; });
    while (!answer_->ended() && answer_->n_missing() > 1) LS_TRY(Round());
    return {};
  }

  Result<bool> Step() override {
    if (answer_->ended()) return false;
    LS_TRY(Round());
    return !answer_->ended();
  }

  const std::vector<int32_t>& tokens() const override { return answer_->tokens(); }

  GenerationResult Finish() override {
    GenerationResult result = answer_->Finish();
    rounds_->Leave(*answer_);
    guard_.Dismiss();
    return result;
  }

 private:
  Result<std::unique_ptr<AnswerInProgress>> Answered(const std::vector<int32_t>& prompt,
                                                     std::shared_ptr<const GenerationRequest> request) {
    LS_TRY(AnswerInProgress::Check(parts_, prompt, *request, session_.cache->capacity()));
    LS_ASSIGN(AskedRequest asked, AskedRequest::Of(parts_, std::move(request)));
    OneAnswer own(*asked.request);
    return AnswerInProgress::Start(parts_, session_, prompt, std::move(asked), std::move(own));
  }
  Status Round() {
    LS_TRY(rounds_->RunRound().status());
    if (answer_->ended()) guard_.Dismiss();
    return failure_;
  }

  const GenerationParts parts_;
  SessionState& session_;
  SessionGuard guard_;
  const std::unique_ptr<HostScheduler> rounds_;
  std::unique_ptr<AnswerInProgress> answer_;
  Status failure_;
};

}  // namespace

Status OutOfMemory(const SessionState& session) {
  return ResourceExhausted("out of memory while generating, with " + std::to_string(session.cache->length()) +
                           " positions in the cache: load with a smaller context size (-c)");
}

Result<std::unique_ptr<Generation>> StartGeneration(const GenerationParts& parts, SessionState& session,
                                                    const std::vector<int32_t>& prompt,
                                                    std::shared_ptr<const GenerationRequest> request) {
  try {
    auto generation = std::make_unique<LoneGeneration>(parts, session);
    LS_TRY(generation->Begin(prompt, std::move(request)));
    return std::unique_ptr<Generation>(std::move(generation));
  } catch (const std::bad_alloc&) {
    return OutOfMemory(session);
  }
}

Result<GenerationResult> RunGeneration(const GenerationParts& parts, SessionState& session,
                                       const std::vector<int32_t>& prompt, const GenerationRequest& request) {
  // The caller's outlives the generation.
  const std::shared_ptr<const GenerationRequest> borrowed(std::shared_ptr<void>(), &request);
  LS_ASSIGN(const std::unique_ptr<Generation> generation, StartGeneration(parts, session, prompt, borrowed));
  for (bool more = true; more;) {
    LS_ASSIGN(more, generation->Step());
  }
  return generation->Finish();
}

}  // namespace longspec
