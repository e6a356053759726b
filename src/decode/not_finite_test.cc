// SPDX-License-Identifier: Apache-2.0
//
// A target whose logits stop being numbers somewhere: decoding ends there with an error, and what was
// committed before is what it would have been.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "decode/testing/generate.h"
#include "decode/testing/tree_drafter.h"

namespace longspec::testing {
namespace {

using ::testing::HasSubstr;

TEST(NotFinite, LogitsThatAreNoNumbersEndTheGenerationAtTheirPosition) {
  const ToyLanguage language(8, 3);
  for (const float temperature : {0.0F, 1.0F}) {
    const Job job = {.n_predict = 30, .sampling = AllPenalties(temperature)};
    std::vector<int32_t> truth = job.prompt;
    const std::vector<int32_t> text = DecodePlainly(language, job);
    truth.insert(truth.end(), text.begin(), text.end());
    for (const int max_nodes : {0, 1, 9}) {
      for (const size_t nan_from : {size_t{6}, size_t{7}, size_t{20}, size_t{35}}) {
        // A drafter that knows the answer, with decoys beside it: broken rows lie ahead of the path, too.
        TreeDrafter drafter(truth, language.vocab(), 2, 1);
        Rig rig(language, job, &drafter, {.draft_n_max = max_nodes});
        rig.target.nan_from = nan_from;
        ASSERT_TRUE(rig.decoder.Prefill().ok());
        Status status;
        while (status.ok() && !rig.done()) status = rig.Step().status();
        EXPECT_EQ(status.code(), StatusCode::kCorrupt) << status.message();
        EXPECT_THAT(status.message(), HasSubstr("position " + std::to_string(nan_from)));
        // As many tokens as plain decoding has before it, and the round can be tried again.
        EXPECT_EQ(rig.committed.size(), nan_from);
        EXPECT_TRUE(std::equal(rig.committed.begin(), rig.committed.end(), truth.begin()));
        rig.ExpectInvariant();
        rig.target.nan_from = SIZE_MAX;
        while (!rig.done()) ASSERT_TRUE(rig.Step().ok());
        EXPECT_EQ(rig.generated(), text);
      }
    }
  }
}

}  // namespace
}  // namespace longspec::testing
