// SPDX-License-Identifier: Apache-2.0
//
// What a target keeps and what its passes hand out may lie where the host cannot read it: every drafter
// proposes then what it proposes with a target in host memory, node by node and bit by bit, and the text is
// the same.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "decode/batch_decoder.h"
#include "draft_model/testing/batch_sequence.h"
#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/eagle_files.h"
#include "draft_model/testing/longspec_files.h"
#include "model/testing/far_target.h"

namespace longspec::testing {
namespace {

void SeeLittle(SpeculationOptions& o) {
  o.partial.sink = 16;
  o.partial.budget = 32;
  o.partial.window = 16;
  o.partial.refresh = 8;
}

class StatesElsewhere : public ::testing::Test {
 protected:
  struct Node {
    int32_t token, parent;
    float score;
    bool operator==(const Node&) const = default;
  };
  struct Text {
    std::vector<int32_t> tokens;
    std::vector<Node> proposed;
  };

  SpeculationOptions Options(const std::string& type, const std::string& draft) const {
    SpeculationOptions options;
    options.type = type;
    options.draft_model = draft;
    options.draft_n_max = 6;
    options.ppm.prior = "none";
    return options;
  }

  Text Write(Target* target, std::unique_ptr<KvCache> cache, const SpeculationOptions& options) const {
    BatchSequence text(target, std::move(cache), options, nullptr,
                       *Sampler::Create({.temperature = 0, .seed = 1}, tiny_.spec.n_vocab),
                       RandomTokens(150, 4));
    Text written;
    text.sequence.on_proposal = [&](const TokenTree& tree) {
      for (const TreeNode& node : tree.nodes().subspan(1)) {
        written.proposed.push_back({node.token, node.parent, node.score});
      }
    };
    BatchDecoder rounds(target);
    while (text.tokens.size() < 200) {
      Turn turn{.sequence = &text.sequence, .max_rows = text.sequence.NextRows(40), .max_tokens = 8};
      EXPECT_TRUE(rounds.Run({&turn, 1}).ok());
      EXPECT_TRUE(turn.status.ok()) << turn.status.message();
      if (!turn.status.ok()) break;
    }
    EXPECT_EQ(text.sequence.draft_failure, "");
    written.tokens = text.tokens;
    return written;
  }

  struct Copies {
    int64_t states = 0;
    size_t key_bytes = 0;
  };
  Copies ExpectTheSame(const SpeculationOptions& options) {
    SCOPED_TRACE(options.type + " " + options.draft_model);
    const Text expected = Write(&tiny_.target(), tiny_.NewCache(600), options);
    FarTarget far(&tiny_.target());
    const Text text =
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
    ExpectTheSameOfStates(Options(kind, WriteBlockDraft(folder_, kind, c, tensors, heads, {}, more)));
  };
  in_folder("beagle", RandomBeagle(c, heads, 3));
  in_folder("medusa", RandomMedusa(c, 4, 3));
  for (const bool feature : {false, true}) {
    in_folder("exit", RandomExit(c, heads, 3, feature), ", \"longspec_exit_layer\": 0");
  }
  const std::string longspec =
      WriteDraftFolder(folder_, c, RandomDraft(c, 64, 2), ", \"longspec_own_keys\": true");
  ExpectTheSameOfStates(Options("longspec", longspec));
}

TEST_F(StatesElsewhere, EagleReadsCopiesAndIsGivenLooks) {
  for (const EagleShape& shape : {EagleShape{}, EagleShape{.eagle3 = true}}) {
    const std::string type = shape.eagle3 ? "eagle3" : "eagle";
    const std::string draft = WriteEagle(
        folder_, type, tiny_.spec, shape, RandomEagle(tiny_.spec, shape, 4), {},
        shape.eagle3 ? R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 1]})" : "");
    SpeculationOptions options = Options(type, draft);
    ExpectTheSameOfStates(options);
    options.spec_extend.chunks = 2;
    options.spec_extend.every = 2;
    options.spec_extend.from = 100;
    ExpectTheSameOfStates(options);
    // Of a portfolio's taps each member has its own.
    ExpectTheSameOfStates(Options("ppm," + type, draft));
  }
}

// The draft attends to the target's last layer, of which it has what is new brought to it.
TEST_F(StatesElsewhere, LongspecReadsTheTargetsKeysInCopies) {
  const std::string draft = WriteDraftFolder(folder_, tiny_.spec, RandomDraft(tiny_.spec, 64, 2));
  for (const char* type : {"longspec", "ppm,longspec"}) {
    const Copies copies = ExpectTheSame(Options(type, draft));
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
  ExpectTheSame(Options("recycling", ""));
  ExpectTheSame(Options("ppm", ""));
}

TEST_F(StatesElsewhere, PartsAreChosenByQueries) {
  SpeculationOptions options = Options("partial", "");
  SeeLittle(options);
  ExpectTheSameOfStates(options);
  options = Options("tokenswift",
                    WriteBlockDraft(folder_, "tokenswift", tiny_.spec, RandomTokenswift(tiny_.spec, 3, 9)));
  SeeLittle(options);
  ExpectTheSameOfStates(options);
}

}  // namespace
}  // namespace longspec::testing
