// SPDX-License-Identifier: Apache-2.0
//
// What a target keeps and what its passes hand out may lie where the host cannot read it: every drafter
// proposes then what it proposes with a target in host memory, node by node and bit by bit, and the text is
// the same.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/eagle_files.h"
#include "draft_model/testing/longspec_files.h"
#include "draft_model/testing/written_text.h"
#include "model/testing/far_target.h"

namespace longspec::testing {
namespace {

class StatesElsewhere : public ::testing::Test {
 protected:
  static WrittenText Write(Target* target, std::unique_ptr<KvCache> cache,
                           const SpeculationOptions& options) {
    return WriteText(target, std::move(cache), options, {.temperature = 0, .seed = 1}, 150, 200);
  }

  struct Copies {
    int64_t states = 0;
    size_t key_bytes = 0;
  };
  Copies ExpectTheSame(const SpeculationOptions& options) {
    SCOPED_TRACE(options.type + " " + options.draft_model);
    const WrittenText expected = Write(&tiny_.target(), tiny_.NewCache(600), options);
    FarTarget far(&tiny_.target());
    const WrittenText text =
        Write(&far, far.NewCache(tiny_.spec.kv_layout(CacheType::kF32, CacheType::kF32), 600), options);
    EXPECT_EQ(text.tokens, expected.tokens);
    EXPECT_TRUE(text.proposed == expected.proposed);
    EXPECT_GT(text.proposed.size(), 20U);
    EXPECT_GT(far.n_logit_copies(), 0);
    return {.states = far.n_state_copies(), .key_bytes = far.n_key_bytes()};
  }
  // Of a drafter that reads states.
  void ExpectTheSameOfStates(const SpeculationOptions& options) {
    EXPECT_GT(ExpectTheSame(options).states, 0) << options.type;  // else nothing was read
  }

  Folder folder_;
  TinyTarget tiny_;
};

TEST_F(StatesElsewhere, DraftsOfBlocksReadCopies) {
  const ModelSizes& c = tiny_.spec;
  const OwnHeads heads;
  const auto in_folder = [&](const std::string& kind, const DraftTensors& tensors, const char* more = "") {
    ExpectTheSameOfStates(FewGuesses(kind, WriteBlockDraft(folder_, kind, c, tensors, heads, {}, more)));
  };
  in_folder("beagle", RandomBeagle(c, heads, 3));
  in_folder("medusa", RandomMedusa(c, 4, 3));
  for (const bool feature : {false, true}) {
    in_folder("exit", RandomExit(c, heads, 3, feature), ", \"longspec_exit_layer\": 0");
  }
  const std::string longspec =
      WriteDraftFolder(folder_, c, RandomDraft(c, 64, 2), ", \"longspec_own_keys\": true");
  ExpectTheSameOfStates(FewGuesses("longspec", longspec));
}

TEST_F(StatesElsewhere, EagleReadsCopiesAndIsGivenLooks) {
  for (const EagleShape& shape : {EagleShape{}, EagleShape{.eagle3 = true}}) {
    const std::string type = shape.eagle3 ? "eagle3" : "eagle";
    const std::string draft = WriteEagle(
        folder_, type, tiny_.spec, shape, RandomEagle(tiny_.spec, shape, 4), {},
        shape.eagle3 ? R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 1]})" : "");
    SpeculationOptions options = FewGuesses(type, draft);
    ExpectTheSameOfStates(options);
    options.spec_extend.chunks = 2;
    options.spec_extend.every = 2;
    options.spec_extend.from = 100;
    ExpectTheSameOfStates(options);
    // Of a portfolio's taps each member has its own.
    ExpectTheSameOfStates(FewGuesses("ppm," + type, draft));
  }
}

// The draft attends to the target's last layer, of which it has what is new brought to it.
TEST_F(StatesElsewhere, LongspecReadsTheTargetsKeysInCopies) {
  const std::string draft = WriteDraftFolder(folder_, tiny_.spec, RandomDraft(tiny_.spec, 64, 2));
  for (const char* type : {"longspec", "ppm,longspec"}) {
    const Copies copies = ExpectTheSame(FewGuesses(type, draft));
    EXPECT_EQ(copies.states, 0);
    // Keys and values of 200 positions, of one layer, and again each round those of a block that has new
    // ones.
    const KvLayout layout = tiny_.spec.kv_layout(CacheType::kF32, CacheType::kF32);
    const size_t position = layout.layer_bytes() / kKvChunk;
    EXPECT_GE(copies.key_bytes, 190 * position);
    EXPECT_LE(copies.key_bytes, (200 + 60 * kKeyBlock) * position);
  }
}

TEST_F(StatesElsewhere, DraftsThatReadNoStatesNeedLogitsAlone) {
  ExpectTheSame(FewGuesses("recycling", ""));
  ExpectTheSame(FewGuesses("ppm", ""));
}

TEST_F(StatesElsewhere, PartsAreChosenByQueries) {
  SpeculationOptions options = FewGuesses("partial", "");
  ExpectTheSameOfStates(options);
  options = FewGuesses(
      "tokenswift", WriteBlockDraft(folder_, "tokenswift", tiny_.spec, RandomTokenswift(tiny_.spec, 3, 9)));
  ExpectTheSameOfStates(options);
}

}  // namespace
}  // namespace longspec::testing
