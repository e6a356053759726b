// SPDX-License-Identifier: Apache-2.0
//
// For tests: a sequence of a batch with all that it borrows.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "decode/batch_decoder.h"
#include "decode/policy.h"
#include "draft/drafter.h"
#include "draft_model/draft_models.h"
#include "draft_model/option_use.h"
#include "sampling/sampler.h"

namespace longspec::testing {

struct BatchSequence {
  // Drafts as `options` say, and verifies all that is drafted. `models` may be null.
  BatchSequence(Target* target, std::unique_ptr<KvCache> own_cache, const SpeculationOptions& options,
                DraftModels* models, Sampler own_sampler, std::vector<int32_t> text)
      : sampler(std::move(own_sampler)),
        tokens(std::move(text)),
        cache(std::move(own_cache)),
        policy(MakeFixedPolicy(options)) {
    auto made = MakeDrafter(OnlyRead(options, options.type),
                            {.target = target, .cache = cache.get(), .models = models});
    EXPECT_TRUE(made.ok()) << made.status().message();
    drafter = std::move(*made);
    sequence.tokens = &tokens;
    sequence.cache = cache.get();
    sequence.drafter = drafter.get();
    sequence.policy = policy.get();
    sequence.sampler = &sampler;
    sequence.Follow();
  }

  const Sampler sampler;
  std::vector<int32_t> tokens;
  const std::unique_ptr<KvCache> cache;
  const std::unique_ptr<Policy> policy;
  std::unique_ptr<Drafter> drafter;
  Sequence sequence;
};

}  // namespace longspec::testing
