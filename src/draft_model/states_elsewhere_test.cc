// SPDX-License-Identifier: Apache-2.0
//
// What a target's passes hand out may lie where the host cannot read it: every drafter that reads states
// proposes then what it proposes with a target in host memory, node by node and bit by bit.
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "decode/batch_decoder.h"
#include "draft_model/testing/batch_sequence.h"
#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/eagle_files.h"
#include "draft_model/testing/longspec_files.h"
#include "tensor/testing/guarded_states.h"
#include "tensor/testing/values_of.h"

namespace longspec::testing {
namespace {

// Computes on the host, and gives states away only in a memory like that of a device.
class FarTarget final : public Target {
 public:
  explicit FarTarget(Target* near) : near_(*near) {}

  int vocab_size() const override { return near_.vocab_size(); }
  int context_length() const override { return near_.context_length(); }
  const SharedParts* shared_parts() const override { return near_.shared_parts(); }
  Status RunPrefix(std::span<const PrefixSegment> segments) override { return near_.RunPrefix(segments); }

  Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) override {
    LS_ASSIGN(TargetOutput output, near_.Forward(segments));
    far_.clear();  // what the pass before gave is gone
    for (TargetOutput::Segment& segment : output.segments) {
      for (StateRows& rows : segment.hidden) rows = Moved(rows);
      segment.final_hidden = Moved(segment.final_hidden);
      for (StateRows& rows : segment.queries) rows = Moved(rows);
    }
    return output;
  }

  int64_t n_copies() const { return memory_.n_copies; }

 private:
  StateRows Moved(const StateRows& rows) {
    if (rows.empty()) return {};
    StateBuffer& to = far_.emplace_back(rows.width(), memory_);
    const std::vector<float> values = ValuesOf(rows);
    memory_.Write(values.data(), values.size(), to.Grow(rows.size()));
    return to.rows();
  }

  Target& near_;
  const GuardedStates memory_;
  std::deque<StateBuffer> far_;
};

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

  Text Write(Target* target, const SpeculationOptions& options) const {
    BatchSequence text(target, tiny_.NewCache(600), options, nullptr,
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

  void ExpectTheSame(const SpeculationOptions& options) {
    SCOPED_TRACE(options.type + " " + options.draft_model);
    const Text expected = Write(&tiny_.target(), options);
    FarTarget far(&tiny_.target());
    const Text text = Write(&far, options);
    EXPECT_EQ(text.tokens, expected.tokens);
    EXPECT_TRUE(text.proposed == expected.proposed);
    EXPECT_GT(text.proposed.size(), 20U);
    EXPECT_GT(far.n_copies(), 0);  // else nothing was read
  }

  Folder folder_;
  TinyTarget tiny_;
};

TEST_F(StatesElsewhere, DraftsOfBlocksReadCopies) {
  const ModelSizes& c = tiny_.spec;
  const OwnHeads heads;
  const auto in_folder = [&](const std::string& kind, const DraftTensors& tensors, const char* more = "") {
    ExpectTheSame(Options(kind, WriteBlockDraft(folder_, kind, c, tensors, heads, {}, more)));
  };
  in_folder("beagle", RandomBeagle(c, heads, 3));
  in_folder("medusa", RandomMedusa(c, 4, 3));
  for (const bool feature : {false, true}) {
    in_folder("exit", RandomExit(c, heads, 3, feature), ", \"longspec_exit_layer\": 0");
  }
  const std::string longspec =
      WriteDraftFolder(folder_, c, RandomDraft(c, 64, 2), ", \"longspec_own_keys\": true");
  ExpectTheSame(Options("longspec", longspec));
}

TEST_F(StatesElsewhere, EagleReadsCopiesAndIsGivenLooks) {
  for (const EagleShape& shape : {EagleShape{}, EagleShape{.eagle3 = true}}) {
    const std::string type = shape.eagle3 ? "eagle3" : "eagle";
    const std::string draft = WriteEagle(
        folder_, type, tiny_.spec, shape, RandomEagle(tiny_.spec, shape, 4), {},
        shape.eagle3 ? R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 1]})" : "");
    SpeculationOptions options = Options(type, draft);
    ExpectTheSame(options);
    options.spec_extend.chunks = 2;
    options.spec_extend.every = 2;
    options.spec_extend.from = 100;
    ExpectTheSame(options);
    // Of a portfolio's taps each member has its own.
    ExpectTheSame(Options("ppm," + type, draft));
  }
}

TEST_F(StatesElsewhere, PartsAreChosenByQueries) {
  SpeculationOptions options = Options("partial", "");
  SeeLittle(options);
  ExpectTheSame(options);
  options = Options("tokenswift",
                    WriteBlockDraft(folder_, "tokenswift", tiny_.spec, RandomTokenswift(tiny_.spec, 3, 9)));
  SeeLittle(options);
  ExpectTheSame(options);
}

}  // namespace
}  // namespace longspec::testing
