// SPDX-License-Identifier: Apache-2.0
//
// For tests: a sequence of a batch with all that it borrows.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "decode/batch_decoder.h"
#include "decode/owned_sequence.h"
#include "draft/drafter.h"
#include "draft_model/draft_models.h"
#include "draft_model/option_use.h"
#include "policy/policy.h"
#include "sampling/sampler.h"

namespace longspec::testing {

struct CacheAndDrafter {
  CacheAndDrafter(Target* target, std::unique_ptr<KvCache> own_cache, const SpeculationOptions& options,
                  DraftModels* models)
      : cache(std::move(own_cache)) {
    auto made = MakeDrafter(OnlyRead(options, options.type),
                            {.target = target, .cache = cache.get(), .models = models});
    EXPECT_TRUE(made.ok()) << made.status().message();
    drafter = std::move(*made);
  }

  const std::unique_ptr<KvCache> cache;
  std::unique_ptr<Drafter> drafter;
};

struct BatchSequence : CacheAndDrafter, OwnedSequence {
  // Drafts as `options` say, and verifies all that is drafted. `models` may be null.
  BatchSequence(Target* target, std::unique_ptr<KvCache> own_cache, const SpeculationOptions& options,
                DraftModels* models, Sampler own_sampler, std::vector<int32_t> text)
      : CacheAndDrafter(target, std::move(own_cache), options, models),
        OwnedSequence(std::move(text), cache.get(), drafter.get(), MakeFixedPolicy(options),
                      std::move(own_sampler)) {
    sequence.Follow();
  }
};

}  // namespace longspec::testing
