// SPDX-License-Identifier: Apache-2.0
//
// A sequence with what is its own: its tokens, the sampler that chooses them, and the policy that says how
// much is guessed. Cache and drafter are borrowed, as the one is made for the other before there is a
// sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "decode/batch_decoder.h"
#include "policy/policy.h"
#include "sampling/sampler.h"

namespace longspec {

struct OwnedSequence {
  // The cache holds keys of a prefix of the text. The drafter is not told of it yet (Sequence::Follow).
  OwnedSequence(std::vector<int32_t> text, KvCache* cache, Drafter* drafter,
                std::unique_ptr<Policy> its_policy, Sampler its_sampler)
      : tokens(std::move(text)),
        sampler(std::move(its_sampler)),
        policy(std::move(its_policy)),
        sequence{.tokens = &tokens,
                 .cache = cache,
                 .drafter = drafter,
                 .policy = policy.get(),
                 .sampler = &sampler,
                 .stats = {},
                 .draft_failure = {}} {}
  OwnedSequence(const OwnedSequence&) = delete;
  OwnedSequence& operator=(const OwnedSequence&) = delete;

  std::vector<int32_t> tokens;
  const Sampler sampler;
  const std::unique_ptr<Policy> policy;
  Sequence sequence;  // of these
};

}  // namespace longspec
