// SPDX-License-Identifier: Apache-2.0
//
// Rotary positions of drafts with a block of their own: those of the target where the file says that it was
// trained with those, of that scaling and no other.
#include "draft_model/draft_block.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "draft_model/registry.h"
#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/eagle_files.h"

namespace longspec::testing {
namespace {

using ::testing::HasSubstr;

constexpr char kOfTarget[] = R"(, "longspec_rope_of_target": true, "rope_scaling": )";
constexpr char kYarnOfTarget[] = R"({"rope_type": "yarn", "factor": 4})";

RopeOptions YarnBy4() {
  RopeOptions rope;
  rope.scaling = RopeOptions::Scaling::kYarn;
  rope.scale = 4.0F;
  rope.yarn_orig_ctx = 256;
  rope.yarn_beta_fast = 16.0F;
  rope.yarn_beta_slow = 2.0F;
  return rope;
}

class DraftBlockRope : public ::testing::TestWithParam<const char*> {
 protected:
  std::string Write(const TinyTarget& target, const std::string& more) const {
    const std::string kind = GetParam();
    const ModelSizes& c = target.spec;
    if (kind == "exit") {
      return WriteBlockDraft(folder_, kind, c, RandomExit(c, {}, 9), {}, {},
                             ", \"longspec_exit_layer\": 1" + more);
    }
    if (kind == "beagle") return WriteBlockDraft(folder_, kind, c, RandomBeagle(c, {}, 9), {}, {}, more);
    const EagleShape shape = {.eagle3 = kind == "eagle3"};
    return WriteEagle(folder_, kind, c, shape, RandomEagle(c, shape, 9), {},
                      R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]})" + more);
  }

  // Of a draft with this in its configuration: why it is no drafter for the target.
  std::string Refusal(TinyTarget& target, const std::string& more) {
    SpeculationOptions options;
    options.type = GetParam();
    options.draft_model = Write(target, more);
    const auto cache = target.NewCache(100);
    const auto made = MakeDrafter(options, {.target = &target.target(), .cache = cache.get()});
    return made.ok() ? "" : made.status().message();
  }

  // And how it rotates.
  RopeConfig RopeOf(const TinyTarget& target, const std::string& more) {
    const auto checkpoint = OpenDraftCheckpoint(Write(target, more));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const std::string kind = GetParam();
    const char* layer = kind == "eagle3" ? "midlayer" : kind == "beagle" ? "layer" : "layers.0";
    const auto block = ReadDraftBlock(*checkpoint, target.spec, std::string(layer) + ".mlp.up_proj.weight");
    EXPECT_TRUE(block.ok()) << block.status().message();
    return block.ok() ? block->rope : RopeConfig();
  }

  Folder folder_;
  TinyTarget plain_{{.n_layers = 4}};
  TinyTarget scaled_{{.n_layers = 4}, YarnBy4()};
};

INSTANTIATE_TEST_SUITE_P(Kinds, DraftBlockRope, ::testing::Values("eagle", "eagle3", "exit", "beagle"),
                         [](const auto& kind) { return std::string(kind.param); });

TEST_P(DraftBlockRope, IsTheTargetsIfItWasTrainedWithThat) {
  const std::string all = R"({"rope_type": "yarn", "factor": 4, "beta_fast": 16, "beta_slow": 2,
                              "original_max_position_embeddings": 256})";
  for (const std::string& scaling : {std::string(kYarnOfTarget), all}) {
    EXPECT_EQ(Refusal(scaled_, kOfTarget + scaling), "");
    const RopeConfig rope = RopeOf(scaled_, kOfTarget + scaling);
    EXPECT_EQ(rope.Describe(), "yarn x4 (original 256, beta 16 to 2)");
    // The draft's heads are twice as wide, and rotated as far as the target's are.
    EXPECT_EQ(RopeTable(rope).frequencies(), RopeTable(scaled_.spec.rope).frequencies());
  }
  EXPECT_EQ(Refusal(plain_, std::string(kOfTarget) + "null"), "");
  EXPECT_EQ(RopeOf(plain_, std::string(kOfTarget) + "null").Describe(), "none");
}

TEST_P(DraftBlockRope, AnotherScalingOfTheTargetIsRefused) {
  const struct {
    const char* scaling;
    const char* refusal;
  } cases[] = {
      {R"({"rope_type": "linear", "factor": 4})", "RoPE scaling linear, the target has yarn"},
      {R"({"rope_type": "llama3", "factor": 4})", "RoPE scaling llama3, the target has yarn"},
      {R"({"rope_type": "yarn", "factor": 8})", "RoPE scaling factor 8, the target has 4"},
      {R"({"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 512})",
       "original positions of YaRN 512, the target has 256"},
      {R"({"rope_type": "yarn", "factor": 4, "beta_fast": 32})", "beta_fast of YaRN 32, the target has 16"},
      {R"({"rope_type": "yarn", "factor": 4, "beta_slow": 1})", "beta_slow of YaRN 1, the target has 2"},
  };
  for (const auto& one : cases) {
    const std::string refusal = Refusal(scaled_, std::string(kOfTarget) + one.scaling);
    EXPECT_THAT(refusal, HasSubstr(one.refusal)) << one.scaling;
    EXPECT_THAT(refusal, HasSubstr(folder_.path())) << one.scaling;
  }
  EXPECT_THAT(Refusal(scaled_, std::string(kOfTarget) + kYarnOfTarget + ", \"rope_theta\": 500000"),
              HasSubstr("RoPE base 500000, the target has 10000"));
  EXPECT_THAT(Refusal(plain_, std::string(kOfTarget) + kYarnOfTarget),
              HasSubstr("RoPE scaling yarn, the target has none"));
}

// Trained without any scaling, it goes on as it was trained. So does one that has positions of its own.
TEST_P(DraftBlockRope, OrItsOwn) {
  const std::string unscaled = std::string(kOfTarget) + "null";
  EXPECT_EQ(Refusal(scaled_, unscaled), "");
  EXPECT_EQ(RopeOf(scaled_, unscaled).Describe(), "none");
  EXPECT_EQ(RopeOf(scaled_, unscaled).n_rot, 32);
  EXPECT_EQ(RopeOf(scaled_, unscaled + ", \"rope_theta\": 500000").freq_base, 500000.0);
  const std::string own = R"(, "rope_scaling": {"rope_type": "linear", "factor": 8})";
  for (TinyTarget* target : {&plain_, &scaled_}) {
    EXPECT_EQ(Refusal(*target, own), "");
    EXPECT_EQ(RopeOf(*target, own).Describe(), "linear x8");
  }
}

}  // namespace
}  // namespace longspec::testing
