// SPDX-License-Identifier: Apache-2.0
//
// One answer in the making: what is asked, what was drawn so far, and its text. It says what its sequence
// does in the next round and takes what the round brought; who else is in the round, and when it comes, is
// not its business. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "decode/batch_decoder.h"
#include "engine/generation.h"

namespace longspec {

// A request as its answers share it, from whoever asks down to the sampler.
struct AskedRequest {
  // `grammar`: the request's, compiled; null: it is looked up or compiled here.
  static Result<AskedRequest> Of(const GenerationParts& parts,
                                 std::shared_ptr<const GenerationRequest> request,
                                 std::shared_ptr<const Grammar> grammar = nullptr);

  std::shared_ptr<const GenerationRequest> request;
  std::shared_ptr<const SpeculationOptions> speculation;  // the request's, settled
  std::shared_ptr<const Grammar> grammar;                 // null: any text
};

class AnswerInProgress {
 public:
  // `session` (borrowed) gets `prompt` for its tokens, and keeps what its cache holds of it. `index`: of the
  // answers that one request asked for; each has random numbers of its own.
  static Result<std::unique_ptr<AnswerInProgress>> Start(const GenerationParts& parts, SessionState& session,
                                                         const std::vector<int32_t>& prompt,
                                                         AskedRequest asked, OneAnswer own,
                                                         uint64_t index = 0);
  virtual ~AnswerInProgress() = default;

  // Whether Start would take these, as far as they tell by themselves; the grammar is not looked at.
  // `capacity`: positions of a sequence.
  static Status Check(const GenerationParts& parts, const std::vector<int32_t>& prompt,
                      const GenerationRequest& request, int capacity);

  // Tokens whose keys are not there yet; 1 while it decodes.
  virtual int n_missing() const = 0;
  virtual bool ended() const = 0;
  virtual const std::vector<int32_t>& tokens() const = 0;  // generated so far

  // At most max_rows missing tokens. REQUIRES: it has not ended.
  virtual Turn NextTurn(int max_rows) = 0;
  // What came of it, and what the round took. An error of the turn is the answer's: it has not ended then,
  // and can be tried again or finished.
  virtual Status Take(const Turn& turn, double round_ms) = 0;

  // Tells the request how far its prompt is; false if it wishes to end, which ends it.
  virtual bool ReportPrefill() = 0;
  // Ends it here, if it has not ended.
  virtual void End(FinishReason reason) = 0;
  // Called once, after which there is nothing left of it.
  virtual GenerationResult Finish() = 0;
};

}  // namespace longspec
