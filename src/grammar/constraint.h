// SPDX-License-Identifier: Apache-2.0
//
// What one answer may be, token by token. A constraint follows the tokens of an answer as they are accepted
// and says which may come next; it can go back, so a tree of guesses is walked like the answer itself. It
// knows nothing of models or of chance: the sampler sees the tokens that are left. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "longspec/status.h"

namespace longspec {

class Constraint {
 public:
  virtual ~Constraint() = default;

  // Bit t % 32 of word t / 32: whether the answer may go on with token t. End tokens are among them where the
  // answer is complete. Valid until the next call. An error is a fault of the grammar, and the answer's.
  // REQUIRES: !ended()
  virtual Result<std::span<const uint32_t>> Mask() = 0;

  // Goes on with this token; false, and nothing has changed, if it is not allowed.
  virtual bool Accept(int32_t token) = 0;
  // Takes the last n accepted tokens back.
  virtual void Rollback(int n) = 0;
  virtual std::unique_ptr<Constraint> Fork() const = 0;

  // Whether the answer may end here.
  virtual bool complete() const = 0;
  // Whether an end token was accepted.
  virtual bool ended() const = 0;

  // Tokens, at most `most`, that spell what must come next, as the tokenizer would write it. The answer may
  // write the same text in other tokens. Each is allowed after the ones before it. Where looking ahead fails
  // or takes too long, nothing is forced from then on, and the answer goes on.
  virtual std::vector<int32_t> Forced(int most) = 0;
};

inline bool IsAllowed(std::span<const uint32_t> mask, int32_t token) {
  const auto t = static_cast<uint32_t>(token);
  return t / 32 < mask.size() && (mask[t / 32] >> (t % 32) & 1U) != 0;
}

}  // namespace longspec
