// SPDX-License-Identifier: Apache-2.0
//
// Drafts of the shapes that are published, with random weights: they load, and give the logits that their
// specifications' naive forward passes give. In the ordinary run the shapes are small ones of the same
// ratios; with LONGSPEC_PUBLISHED_SHAPES=1 they are the real ones, which take up to 8 GiB and some minutes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <numeric>

#include "base/size.h"
#include "draft_model/beagle.h"
#include "draft_model/eagle.h"
#include "draft_model/longspec.h"
#include "draft_model/registry.h"
#include "draft_model/testing/block_drafts.h"
#include "draft_model/testing/eagle_files.h"
#include "draft_model/testing/longspec_reference.h"
#include "draft_model/testing/tree_search.h"

namespace longspec::testing {
namespace {

constexpr int kPublishedKeys = 24;          // committed positions before the root
constexpr double kMostOfADeviation = 1e-4;  // largest difference of a logit, in deviations of all of them
constexpr int32_t kRootToken = 77, kChildToken = 200;

bool AtRealSize() {
  const char* set = std::getenv("LONGSPEC_PUBLISHED_SHAPES");
  return set != nullptr && std::string(set) == "1";
}

struct Published {
  const char* name;
  const char* kind;
  int n_embd, n_head, n_kv_head, head_dim, n_ff, n_vocab;
  int n_own = 0;  // eagle3: rows of its head; medusa: heads

  // What is run: this, or one of a 32nd of its widths.
  Published Run() const {
    if (AtRealSize()) return *this;
    const auto part = [](int n) { return (n / 32 + 31) / 32 * 32; };
    Published small = *this;
    small.n_embd = part(n_embd);
    small.n_ff = part(n_ff);
    small.n_head = n_head / 8;
    small.n_kv_head = n_kv_head / 8;
    small.head_dim = head_dim / 4;
    small.n_vocab = n_vocab / 32;
    if (n_own > 32) small.n_own = n_own / 32;
    return small;
  }
};

// The shapes of drafts that their authors published, Medusa's with 2 of its 5 heads.
const Published kPublished[] = {
    {"EagleLlama2x7B", "eagle", 4096, 32, 32, 128, 11008, 32000},
    {"Eagle3Llama31x8B", "eagle3", 4096, 32, 8, 128, 14336, 128256, 32000},
    {"Eagle3Qwen3x4B", "eagle3", 2560, 32, 8, 128, 9728, 151936, 32000},  // its heads are wider than it is
    {"LongspecVicuna7B", "longspec", 4096, 32, 32, 128, 11008, 32000},
    {"LongspecLlama3x8B", "longspec", 4096, 32, 8, 128, 14336, 128256},
    {"BeagleLlama2x7B", "beagle", 4096, 32, 32, 128, 11008, 32000},
    {"MedusaVicuna7B", "medusa", 4096, 32, 32, 128, 11008, 32000, 2},
};

// The target lends its embedding and its head, which is the same here, and one small layer, or as many as an
// EAGLE-3 draft reads. A head that is used is in f16, whose products are exact as those of f32 are.
TinyModelOptions LenderOf(const Published& s) {
  TinyModelOptions o;
  const bool own_head = std::string(s.kind) == "eagle3";
  o.n_layers = own_head ? 3 : 1;
  o.n_embd = s.n_embd;
  o.n_heads = s.n_head;
  o.n_kv_heads = s.n_kv_head;
  o.head_dim = s.head_dim;
  o.n_ff = 32;
  o.n_vocab = s.n_vocab;
  o.dtype = DType::kQ8_0;
  o.embedding_dtype = own_head ? DType::kQ8_0 : DType::kF16;
  return o;
}

Vec RandomState(size_t width, uint64_t seed) {
  const RngStream rng{.seed = seed, .purpose = RngPurpose::kTest};
  Vec state;
  for (size_t i = 0; i < width; ++i) {
    state.push_back(static_cast<double>(static_cast<float>(4 * rng.Uniform(i) - 2)));
  }
  return state;
}

std::vector<float> Floats(const Vec& x) { return {x.begin(), x.end()}; }

class PublishedShapes : public ::testing::TestWithParam<Published> {
 protected:
  PublishedShapes()
      : s_(GetParam().Run()),
        tiny_(LenderOf(s_),
              std::string(s_.name) == "LongspecVicuna7B"
                  ? RopeOptions{.scaling = RopeOptions::Scaling::kLinear, .scale = 4.0F}
                  : RopeOptions{},
              AtRealSize() ? 2 : 1) {}

  // Logits against log-probabilities or logits of the reference.
  void Compare(const float* logits, size_t n, const Vec& expected, const char* row) {
    ASSERT_EQ(expected.size(), n);
    const Vec a = LogSoftmax({logits, logits + n}), b = LogSoftmax(expected);
    double sum = 0, squares = 0, most = 0;
    for (size_t i = 0; i < n; ++i) {
      sum += b[i];
      squares += b[i] * b[i];
      most = std::max(most, std::abs(a[i] - b[i]));
    }
    const double mean = sum / static_cast<double>(n);
    const double deviation = std::sqrt(squares / static_cast<double>(n) - mean * mean);
    EXPECT_GT(deviation, 0.3) << row;  // else nothing was tested
    EXPECT_LT(most, kMostOfADeviation * deviation) << row;
    if (AtRealSize()) {
      std::cout << s_.name << ", " << row << ": largest difference of " << n << " logits " << most
                << ", deviation " << deviation << std::endl;
    }
  }

  void RunEagle();
  void RunLongspec();
  void RunBeagle();
  void RunMedusa();

  OwnHeads Heads() const {
    return {.n_head = s_.n_head, .n_kv_head = s_.n_kv_head, .head_dim = s_.head_dim, .n_ff = s_.n_ff};
  }

  const Published s_;
  Folder folder_;
  TinyTarget tiny_;
};

void PublishedShapes::RunEagle() {
  const EagleShape shape = {.eagle3 = std::string(s_.kind) == "eagle3",
                            .n_head = s_.n_head,
                            .n_kv_head = s_.n_kv_head,
                            .head_dim = s_.head_dim,
                            .n_ff = s_.n_ff,
                            .n_tokens = s_.n_own};
  const DraftTensors draft = RandomEagle(tiny_.spec, shape, 9);
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < s_.n_own; ++i) tokens.push_back(i * s_.n_vocab / s_.n_own);
  const std::string path = WriteEagle(folder_, "draft", tiny_.spec, shape, draft, tokens,
                                      R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]})");
  std::shared_ptr<const EagleModel> model;
  {
    const auto checkpoint = OpenDraftCheckpoint(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto take = [&](auto loaded) {
      ASSERT_TRUE(loaded.ok()) << loaded.status().message();
      model = *loaded;
    };
    if (shape.eagle3) {
      take(Eagle3Model::Load(*checkpoint, "f32", tiny_.parts()));
    } else {
      take(Eagle1Model::Load(*checkpoint, "f32", tiny_.parts()));
    }
    ASSERT_NE(model, nullptr);
  }
  const auto cache = MakeFullCache({.k_type = CacheType::kF32,
                                    .v_type = CacheType::kF32,
                                    .n_kv_head = s_.n_kv_head,
                                    .head_dim = s_.head_dim},
                                   1, 100);
  EagleForward forward(model, cache.get(), 0, EagleForward::MakeLane(*model, tiny_.parts()));
  const auto d = Z(s_.n_embd);
  const size_t n_taps = shape.eagle3 ? 3 : 1;
  std::vector<EagleSlot> slots;
  std::vector<std::vector<float>> features;
  std::vector<EagleRow> rows;
  for (int i = 0; i <= kPublishedKeys; ++i) {
    const int32_t token = i == kPublishedKeys ? kRootToken : 3 * i + 1;
    slots.push_back({token, RandomState(n_taps * d, Z(i) + 1), i});
    features.push_back(Floats(slots.back().feature));
  }
  for (int i = 0; i <= kPublishedKeys; ++i) {
    EagleRow row = {.token = slots[Z(i)].token, .position = i};
    for (size_t tap = 0; tap < n_taps; ++tap) row.feature[tap] = features[Z(i)].data() + tap * d;
    rows.push_back(row);
  }
  ASSERT_TRUE(forward.Append(std::span(rows).first(kPublishedKeys)).ok());
  const std::vector<int32_t> root_path = {0}, child_path = {0, 1};
  std::vector<std::vector<TokenScore>> next;
  std::vector<float> root_output(d), child_output(d);
  rows.back().path = root_path;
  const RopeConfig rope = {
      .pairing = kernels::RopePairing::kHalfSplit, .n_rot = s_.head_dim, .freq_factors = {}};
  const EagleReference reference(draft, shape, tiny_.parts(), rope);

  ASSERT_TRUE(forward.Run(std::span(rows).last(1), false, 4, next, root_output.data()).ok());
  const Vec root = reference.Output(slots);
  Compare(forward.logits(), Z(forward.n_logits()), reference.LogProbs(root), "root");
  const EagleRow child = {.token = kChildToken,
                          .position = kPublishedKeys + 1,
                          .feature = {root_output.data()},
                          .path = child_path};
  ASSERT_TRUE(forward.Run({&child, 1}, true, 4, next, child_output.data()).ok());
  slots.push_back({kChildToken, root, kPublishedKeys + 1});
  Compare(forward.logits(), Z(forward.n_logits()), reference.LogProbs(reference.Output(slots)), "child");
}

void PublishedShapes::RunLongspec() {
  const DraftTensors draft = RandomDraft(tiny_.spec, s_.n_ff, 9);
  const bool scaled = tiny_.spec.rope.scaling == RopeOptions::Scaling::kLinear;
  const std::string path =
      WriteDraftFolder(folder_, tiny_.spec, draft,
                       ", \"head_dim\": " + std::to_string(s_.head_dim) +
                           (scaled ? R"(, "rope_scaling": {"type": "linear", "factor": 4})" : ""));
  const auto model = OpenAndLoad(path, "f32", tiny_.parts());
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::vector<int32_t> text = RandomTokens(kPublishedKeys, 4, s_.n_vocab);
  const auto cache = tiny_.NewCache(100);
  tiny_.Evaluate(text, *cache);
  text.push_back(kRootToken);
  LongspecForward forward(*model, tiny_.spec.kv_layout(CacheType::kF32, CacheType::kF32),
                          LongspecForward::MakeLane(**model, tiny_.parts()));
  ASSERT_TRUE(forward.Extend(text).ok());
  const LongspecReference reference(draft, tiny_.parts());
  const auto seen = reference.ReadTarget(cache->Span(0), kPublishedKeys);
  const auto expected = [&] { return reference.Head(reference.HiddenOfLast(text, 512, seen)); };
  std::vector<std::vector<TokenScore>> next;
  const LongspecRow root = {.token = kRootToken, .position = kPublishedKeys};
  ASSERT_TRUE(forward.Run({&root, 1}, cache->Span(0), 4, next).ok());
  Compare(forward.logits(), Z(forward.n_logits()), expected(), "root");
  const std::vector<int32_t> slots = {0};
  const LongspecRow child = {.token = kChildToken, .position = kPublishedKeys + 1, .slot = 0, .path = slots};
  ASSERT_TRUE(forward.Run({&child, 1}, cache->Span(0), 4, next).ok());
  text.push_back(kChildToken);
  Compare(forward.logits(), Z(forward.n_logits()), expected(), "child");
}

// States of positions [0, n) became committed, for a draft that reads final hidden states.
CommittedRows AllCommitted(const std::vector<int32_t>& text, const std::vector<int32_t>& rows,
                           const TargetOutput::Segment& output) {
  return {.sequence = text,
          .n_new = 1,
          .first = 0,
          .rows = rows,
          .output = &output,
          .n_output_rows = static_cast<int>(rows.size())};
}

void PublishedShapes::RunBeagle() {
  const DraftTensors draft = RandomBeagle(tiny_.spec, Heads(), 9);
  const std::string path = WriteBlockDraft(folder_, "beagle", tiny_.spec, draft, Heads());
  std::shared_ptr<const BeagleModel> model;
  {
    const auto checkpoint = OpenDraftCheckpoint(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto loaded = BeagleModel::Load(*checkpoint, "f32", tiny_.parts());
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    model = *loaded;
  }
  const KvLayout layout = {.k_type = CacheType::kF32,
                           .v_type = CacheType::kF32,
                           .n_kv_head = s_.n_kv_head,
                           .head_dim = s_.head_dim};
  BeagleForward forward(model, std::make_shared<DraftKeys>(MakeHostPool(layout, 1), 0), 100,
                        BeagleForward::MakeLane(*model, tiny_.parts()));
  std::vector<Vec> states;
  std::vector<float> all;
  for (int i = 0; i < kPublishedKeys; ++i) {
    states.push_back(RandomState(Z(s_.n_embd), Z(i) + 1));
    all.insert(all.end(), states.back().begin(), states.back().end());
  }
  std::vector<int32_t> rows(kPublishedKeys);
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<int32_t> text(kPublishedKeys + 1, 7);
  const TargetOutput::Segment output = {
      .logits = {}, .hidden = {}, .final_hidden = {all.data(), kPublishedKeys, s_.n_embd}, .queries = {}};
  ASSERT_TRUE(forward.Read(AllCommitted(text, rows, output)).ok());
  ASSERT_TRUE(forward.BeginTree().ok());
  const BlockReference reference(draft, Heads(), tiny_.parts());
  std::vector<std::vector<TokenScore>> next;
  const BeagleRow root = {.node = 0, .parent = -1, .token = kRootToken, .position = kPublishedKeys};
  ASSERT_TRUE(forward.Run({&root, 1}, 4, next).ok());
  const Vec state = reference.BeagleState(kRootToken, kPublishedKeys, states);
  Compare(forward.block().lane().logits(), Z(s_.n_vocab), reference.Head(state), "root");
  const BeagleRow child = {.node = 1, .parent = 0, .token = kChildToken, .position = kPublishedKeys + 1};
  ASSERT_TRUE(forward.Run({&child, 1}, 4, next).ok());
  states.push_back(state);
  Compare(forward.block().lane().logits(), Z(s_.n_vocab),
          reference.Head(reference.BeagleState(kChildToken, kPublishedKeys + 1, states)), "child");
}

// Heads show what they say in the trees of their drafter alone: the best tokens of each.
void PublishedShapes::RunMedusa() {
  const DraftTensors draft = RandomMedusa(tiny_.spec, s_.n_own, 9, {0, 1});
  SpeculationOptions options;
  options.type = "medusa";
  options.draft_model = WriteBlockDraft(folder_, "medusa", tiny_.spec, draft, Heads());
  options.draft_weights = "f32";
  options.tree = "16,32";
  const auto cache = tiny_.NewCache(100);
  const auto drafter = MakeDrafter(options, {.target = &tiny_.target(), .cache = cache.get()});
  ASSERT_TRUE(drafter.ok()) << drafter.status().message();
  const Vec state = RandomState(Z(s_.n_embd), 1);
  const std::vector<float> stored = Floats(state);
  const std::vector<int32_t> text = {7, kRootToken}, rows = {0};
  const TargetOutput::Segment output = {
      .logits = {}, .hidden = {}, .final_hidden = {stored.data(), 1, s_.n_embd}, .queries = {}};
  ASSERT_TRUE((*drafter)->Read(AllCommitted(text, rows, output)).ok());
  TokenTree tree(kRootToken);
  ASSERT_TRUE((*drafter)->Propose({.max_nodes = 48, .max_depth = 2}, text, tree).ok());
  const BlockReference reference(draft, Heads(), tiny_.parts());
  std::vector<Vec> heads;
  for (size_t i = 0; i < 2; ++i) heads.push_back(LogSoftmax(reference.Medusa(state, i)));
  const Scores expected = BeamSearch([&](const Path& path) { return heads[path.size()]; }, {16, 32});
  ExpectTree(tree, expected);
  double most = 0;
  for (const auto& [path, score] : PathsOf(tree)) {
    if (expected.contains(path)) most = std::max(most, std::abs(std::log(score) - expected.at(path)));
  }
  if (AtRealSize()) {
    std::cout << s_.name << ": largest difference of 48 paths' log-probabilities " << most << std::endl;
  }
}

TEST_P(PublishedShapes, GiveTheReferencesLogits) {
  const std::string kind = s_.kind;
  if (kind == "longspec") return RunLongspec();
  if (kind == "beagle") return RunBeagle();
  if (kind == "medusa") return RunMedusa();
  RunEagle();
}

INSTANTIATE_TEST_SUITE_P(Kinds, PublishedShapes, ::testing::ValuesIn(kPublished),
                         [](const auto& shape) { return std::string(shape.param.name); });

}  // namespace
}  // namespace longspec::testing
