// SPDX-License-Identifier: Apache-2.0
#include "engine/generation.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "decode/batch_decoder.h"
#include "engine/answer.h"

namespace longspec {
namespace {

Status OutOfMemory(const SessionState& session) {
  return ResourceExhausted("out of memory while generating, with " + std::to_string(session.cache->length()) +
                           " positions in the cache: load with a smaller context size (-c)");
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

// An answer that is alone in its rounds.
class RunningGeneration final : public Generation {
 public:
  RunningGeneration(const GenerationParts& parts, SessionState& session)
      : parts_(parts), session_(session), guard_(session), rounds_(parts.target) {}

  Status Begin(const std::vector<int32_t>& prompt, const GenerationRequest& request) {
    auto answer = Answer::Start(parts_, session_, prompt, request);
    if (!answer.ok()) {
      guard_.Dismiss();  // nothing has been touched
      return answer.status();
    }
    answer_ = std::move(*answer);
    while (!answer_->ended() && answer_->n_missing() > 1) {
      LS_TRY(Round(std::min(parts_.prefill_chunk, answer_->n_missing() - 1)));
      if (!answer_->ReportPrefill()) break;
    }
    // What the prompt's evaluation cost others need not pay again.
    Remember();
    EndedOrNot();
    return {};
  }

  Result<bool> Step() override {
    try {
      if (answer_->ended()) return false;
      Turn turn = answer_->NextTurn(parts_.prefill_chunk);
      if (turn.max_rows == 0) {  // nothing may be generated
        answer_->End(FinishReason::kLength);
      } else {
        LS_TRY(Run(turn));
      }
      EndedOrNot();
      return !answer_->ended();
    } catch (const std::bad_alloc&) {
      return OutOfMemory(session_);
    }
  }

  const std::vector<int32_t>& tokens() const override { return answer_->tokens(); }

  GenerationResult Finish() override {
    GenerationResult result = answer_->Finish();
    EndedOrNot();
    return result;
  }

 private:
  Status Round(int max_rows) {
    Turn turn = answer_->NextTurn(max_rows);
    return Run(turn);
  }
  Status Run(Turn& turn) {
    turn.max_nodes = std::max(0, parts_.max_rows - std::min(turn.max_rows, answer_->n_missing()));
    const double start = NowMs();
    LS_TRY(rounds_.Run({&turn, 1}));
    return answer_->Take(turn, NowMs() - start);
  }
  void Remember() {
    if (parts_.prompts == nullptr) return;
    parts_.prompts->Remember(session_.tokens, *session_.cache, static_cast<size_t>(session_.cache->length()));
    parts_.prompts->Trim();
  }
  void EndedOrNot() {
    if (!answer_->ended() || std::exchange(remembered_, true)) return;
    guard_.Dismiss();
    Remember();
  }

  const GenerationParts parts_;
  SessionState& session_;
  SessionGuard guard_;
  BatchDecoder rounds_;
  std::unique_ptr<Answer> answer_;
  bool remembered_ = false;
};

}  // namespace

Result<std::unique_ptr<Generation>> StartGeneration(const GenerationParts& parts, SessionState& session,
                                                    const std::vector<int32_t>& prompt,
                                                    const GenerationRequest& request) {
  try {
    auto generation = std::make_unique<RunningGeneration>(parts, session);
    LS_TRY(generation->Begin(prompt, request));
    return std::unique_ptr<Generation>(std::move(generation));
  } catch (const std::bad_alloc&) {
    return OutOfMemory(session);
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
