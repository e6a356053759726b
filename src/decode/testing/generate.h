// SPDX-License-Identifier: Apache-2.0
//
// Whole generations for tests: plain decoding as a few lines that share nothing with the rounds, and
// rounds.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "decode/testing/one_sequence.h"
#include "decode/testing/toy_target.h"

namespace longspec::testing {

struct Job {
  std::vector<int32_t> prompt = {1, 2, 0, 3, 1, 2};
  int n_predict = 40;
  int32_t end_token = -1;  // -1: none
  int capacity = 1000;
  int prefill_chunk = 512;
  SamplingOptions sampling;
};

inline SamplingOptions Temperature(float t, uint64_t seed = 7) {
  SamplingOptions options;
  options.temperature = t;
  options.seed = seed;
  return options;
}

inline SamplingOptions AllPenalties(float t, uint64_t seed = 7) {
  SamplingOptions options = Temperature(t, seed);
  options.top_k = 5;
  options.repeat_last_n = 12;
  options.repeat_penalty = 1.3F;
  options.presence_penalty = 0.3F;
  options.frequency_penalty = 0.2F;
  options.logit_bias = {{0, 0.5F}};
  return options;
}

inline Sampler MakeSampler(const SamplingOptions& options, int vocab) {
  auto sampler = Sampler::Create(options, vocab);
  EXPECT_TRUE(sampler.ok()) << sampler.status().message();
  return *sampler;
}

// One token at a time, from the law of the language and nothing else. Returns the generated tokens.
inline std::vector<int32_t> DecodePlainly(const ToyLanguage& language, const Job& job) {
  const Sampler sampler = MakeSampler(job.sampling, language.vocab());
  Sampler::Scratch scratch;
  std::vector<int32_t> sequence = job.prompt;
  std::vector<float> logits(static_cast<size_t>(language.vocab()));
  for (int i = 0; i < job.n_predict; ++i) {
    language.Logits(sequence, logits.data());
    sequence.push_back(sampler.Sample(logits, {sequence, {}}, sequence.size(), scratch));
    if (sequence.back() == job.end_token) break;
  }
  return {sequence.begin() + static_cast<std::ptrdiff_t>(job.prompt.size()), sequence.end()};
}

// Everything a sequence needs, and its rounds.
class Rig {
 public:
  Rig(const ToyLanguage& language, const Job& job, Drafter* drafter, const SpeculationOptions& speculation)
      : Rig(language, job, drafter, MakeFixedPolicy(speculation), speculation.dice) {}
  Rig(const ToyLanguage& language, const Job& job, Drafter* drafter, std::unique_ptr<Policy> policy,
      bool dice = true)
      : job_(job),
        target(&language),
        cache(job.capacity),
        decoder(&target, job.prompt, &cache, drafter, std::move(policy),
                MakeSampler(job.sampling, language.vocab()), job.prefill_chunk) {
    if (!dice) decoder.ForbidDice();
  }

  int n_generated() const { return static_cast<int>(committed.size() - job_.prompt.size()); }
  std::vector<int32_t> generated() const {
    return {committed.begin() + static_cast<std::ptrdiff_t>(job_.prompt.size()), committed.end()};
  }
  bool done() const {
    return n_generated() >= job_.n_predict || (n_generated() > 0 && committed.back() == job_.end_token);
  }

  Result<OneSequence::Round> Step() {
    return decoder.Step(job_.n_predict - n_generated(), [this](int32_t t) { return t == job_.end_token; });
  }

  // The cache holds the committed tokens but the last, and nothing is left open.
  void ExpectInvariant() const {
    EXPECT_FALSE(cache.open());
    EXPECT_EQ(cache.tokens(), std::vector<int32_t>(committed.begin(), committed.end() - 1));
  }

  // Prefill and rounds until done. On an error the test fails.
  void Run() {
    const Status status = decoder.Prefill();
    ASSERT_TRUE(status.ok()) << status.message();
    ExpectInvariant();
    while (!done()) {
      const size_t before = committed.size();
      const auto step = Step();
      ASSERT_TRUE(step.ok()) << step.status().message();
      ASSERT_GE(step->tokens.size(), 1U);
      ASSERT_EQ(
          std::vector<int32_t>(step->tokens.begin(), step->tokens.end()),
          std::vector<int32_t>(committed.begin() + static_cast<std::ptrdiff_t>(before), committed.end()));
      ASSERT_NO_FATAL_FAILURE(ExpectInvariant());
    }
  }

 private:
  Job job_;

 public:
  ToyTarget target;
  ToyCache cache;
  OneSequence decoder;
  const std::vector<int32_t>& committed = decoder.tokens();
};

}  // namespace longspec::testing
