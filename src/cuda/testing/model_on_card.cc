// SPDX-License-Identifier: Apache-2.0
//
// SmolLM2 on a card and on the CPU: logits of chains in pieces, trees, sequences that share keys, and texts
// that go from one to the other, bit for bit.
#include <cstdlib>
#include <filesystem>
#include <string>

#include "gpu/testing/two_targets.h"
#include "gtest/gtest.h"

namespace longspec::testing {
namespace {

TEST(ModelOnCard, LogitsAreTheCpus) {
  const char* const named = std::getenv("LONGSPEC_CHECK_MODEL");
  const std::string path = named != nullptr ? named : "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  TwoTargets both{ModelFile(path)};
  for (const CacheType type : {CacheType::kF16, CacheType::kQ8_0}) {
    SCOPED_TRACE(std::string(CacheTypeName(type)));
    OnBoth on(both, type);
    const auto first = on.New();
    const Tokens tokens = RandomTokens(1000);
    for (int at = 0; at < 600; at += 60)
      on.Pass({&first}, {{.tokens = Part(tokens, at, at + 60), .logits = LogitsFor::kLastRow}});
    for (int at = 600; at < 610; ++at) on.Pass({&first}, {{.tokens = Part(tokens, at, at + 1)}});
    on.Pass({&first}, {{.tokens = Part(tokens, 610, 617), .parents = kTree, .kept = {0, 2, 4, 6}}});
    on.Pass({&first}, {{.tokens = Part(tokens, 617, 633)}});
    const auto second = first.Fork(), third = first.Fork(), fourth = on.New();
    third.Truncate(512);
    on.Pass({&first, &second, &third, &fourth},
            {{.tokens = Part(tokens, 640, 641)},
             {.tokens = Part(tokens, 650, 657), .parents = kTree, .kept = {0, 1}},
             {.tokens = Part(tokens, 660, 690)},
             {.tokens = Part(tokens, 0, 20), .logits = LogitsFor::kLastRow}});
    OnBoth::Sequence crossed = {Moved(*first.on_gpu, on.cpu_pool()), Moved(*first.on_cpu, on.gpu_pool())};
    on.Pass({&crossed}, {{.tokens = Part(tokens, 700, 707), .parents = kTree, .kept = {0, 1, 3}}});
    on.Pass({&crossed, &second}, {{.tokens = Part(tokens, 707, 709)}, {.tokens = Part(tokens, 720, 721)}});
  }
}

}  // namespace
}  // namespace longspec::testing
