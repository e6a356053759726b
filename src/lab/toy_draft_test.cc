// SPDX-License-Identifier: Apache-2.0
//
// A draft that only this program knows (lab/testing/toy_draft.h): being in the table is all that the others
// want of it.
#include "lab/testing/toy_draft.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "decode/testing/one_sequence.h"
#include "decode/testing/samplings.h"
#include "draft_model/option_use.h"
#include "draft_model/registry.h"
#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/tree_search.h"
#include "formats/tiny_model.h"
#include "longspec/engine.h"
#include "policy/policy.h"
#include "sampling/sampler.h"

namespace longspec::testing {
namespace {

const bool kWithToy = [] {
  AddDrafter(&kToyDrafter, "grammar");
  return true;
}();

DraftTensors RandomToy(const ModelSizes& target) {
  DraftTensors draft;
  TensorMaker(&draft, 3).AddMatrix("linear.weight", int64_t{2} * target.n_embd, target.n_embd);
  return draft;
}

class ToyReference : private ReferenceMath {
 public:
  ToyReference(const DraftTensors& draft, const SharedParts& target)
      : ReferenceMath(draft, target, target.sizes->attention(), target.sizes->rope) {}

  // Log-probabilities after a path below the root, whose last token is the root's if the path is empty.
  // `state`: the target's, before the root.
  Vec After(int32_t root, const Path& path, const Vec& state) const {
    Vec of = StateOf(root, state);
    for (const int32_t token : path) of = StateOf(token, of);
    return LogSoftmax(TargetHead(of));
  }

 private:
  Vec StateOf(int32_t token, const Vec& before) const {
    Vec joined = Embedding(token);
    joined.insert(joined.end(), before.begin(), before.end());
    return Linear(joined, "linear", false);
  }
};

TEST(ToyDraft, ItsTreesAreWhatItsFileSays) {
  TinyTarget tiny;
  const Folder folder;
  const DraftTensors draft = RandomToy(tiny.spec);
  const SpeculationOptions options = {.type = "toy",
                                      .tree = "4,3,2",
                                      .draft_model = WriteBlockDraft(folder, "toy", tiny.spec, draft),
                                      .draft_weights = "f32"};
  const auto cache = tiny.NewCache(100);
  const auto drafter = MakeDrafter(options, {.target = &tiny.target(), .cache = cache.get()});
  ASSERT_TRUE(drafter.ok()) << drafter.status().message();
  const std::vector<int32_t> text = RandomTokens(20, 4);
  OneSequence sequence(&tiny.target(), text, cache.get(), drafter->get(), MakeFixedPolicy(options),
                       *Sampler::Create({.seed = 1}, tiny.spec.n_vocab));
  ASSERT_TRUE(sequence.Prefill().ok());
  TokenTree tree(text.back());
  ASSERT_TRUE((*drafter)->Propose({.max_nodes = 9, .max_depth = 6}, text, tree).ok());

  const Vec state = StatesOf(tiny, {text.begin(), text.end() - 1}, -1).back();
  const ToyReference reference(draft, tiny.parts());
  ExpectTree(tree, BeamSearch([&](const Path& path) { return reference.After(text.back(), path, state); },
                              {4, 3, 2}));
}

// Alone, beside another drafter, and where "auto" finds out what the file is.
TEST(ToyDraft, TheTextIsThatOfPlainDecoding) {
  const TinyTarget tiny;
  const Folder folder;
  const std::string target = folder.File("target.gguf");
  ASSERT_TRUE(WriteTinyModel({}, target).ok());
  const auto engine = Engine::Load({.path = target, .threads = 2, .calibration_cache = false});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  // A random draft is right now and then, if it and the sampler choose among few tokens.
  const std::vector<int64_t> few = {200, 201, 202, 203};
  const std::string draft = WriteBlockDraft(folder, "toy", tiny.spec, RandomToy(tiny.spec), {}, few);
  std::map<std::string, int64_t> accepted;
  for (const SamplingOptions& sampling : EverySampling({7})) {
    SCOPED_TRACE(Describe(sampling));
    const auto generate = [&](const std::string& type) {
      GenerationRequest request;
      request.tokens = {65, 70, 80, 90};
      request.n_predict = 40;
      request.ignore_eos = true;
      request.sampling = sampling;
      for (const int64_t token : few) {
        request.sampling.logit_bias.emplace_back(static_cast<int32_t>(token), 12.0F);
      }
      request.speculation = OnlyRead({.draft_model = draft}, type);
      if (type != "none") request.speculation.policy = "fixed";
      auto result = (*engine)->Generate(**(*engine)->NewSession(), request);
      EXPECT_TRUE(result.ok()) << result.status().message();
      return result.ok() ? std::move(*result) : GenerationResult();
    };
    const GenerationResult plain = generate("none");
    ASSERT_EQ(plain.tokens.size(), 40U);
    for (const char* type : {"toy", "ngram,toy", "auto"}) {
      const GenerationResult drafted = generate(type);
      EXPECT_EQ(drafted.tokens, plain.tokens) << type;
      accepted[type] += drafted.timings.draft_n_accepted;
    }
  }
  for (const auto& [type, n] : accepted) EXPECT_GT(n, 20) << type;
}

// What its list of tensors says is what files are held to.
TEST(ToyDraft, AFileOfAnotherWidthIsRefused) {
  const TinyTarget tiny;
  const Folder folder;
  ModelSizes wide = tiny.spec;
  wide.n_embd *= 2;
  const std::string path = WriteBlockDraft(folder, "toy", tiny.spec, RandomToy(wide));
  const auto checkpoint = OpenDraftCheckpoint(path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const Status refused = ToyModel::CheckFit(*checkpoint, tiny.spec);
  EXPECT_NE(refused.message().find("linear.weight"), std::string::npos) << refused.message();
}

}  // namespace
}  // namespace longspec::testing
