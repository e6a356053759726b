// SPDX-License-Identifier: Apache-2.0
//
// EAGLE checkpoints: what fits, what is refused, which layers and tokens an EAGLE-3 draft has, rotary
// positions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "draft/drafter_entry.h"
#include "draft_model/draft_models.h"
#include "draft_model/eagle.h"
#include "draft_model/registry.h"
#include "draft_model/testing/eagle_files.h"
#include "formats/gguf_writer.h"
#include "kv/chunk_pool.h"

namespace longspec::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kOtherLayers[] = R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1, 3]})";

class EagleModelTest : public ::testing::Test {
 protected:
  EagleModelTest() : tiny_({.n_layers = 4}) {}

  std::string Write(const EagleShape& shape, const std::string& more = "",
                    const std::vector<int64_t>& tokens = {}) {
    return WriteEagle(folder_, "draft", tiny_.spec, shape, RandomEagle(tiny_.spec, shape, 3), tokens, more);
  }
  template <typename Model>
  std::string Load(const std::string& path, const std::string& weights = "") {
    const auto checkpoint = OpenDraftCheckpoint(path);
    return checkpoint.ok() ? Model::Load(*checkpoint, weights, tiny_.parts()).status().message()
                           : checkpoint.status().message();
  }
  std::string LoadEagle3(const EagleShape& shape, const std::string& more,
                         const std::vector<int64_t>& tokens = {}) {
    return Load<Eagle3Model>(Write(shape, more, tokens));
  }

  Folder folder_;
  TinyTarget tiny_;
};

TEST_F(EagleModelTest, BothFormsLoadInEveryType) {
  for (const char* weights : {"", "f32", "bf16", "q4_0"}) {
    EXPECT_EQ(Load<Eagle1Model>(Write({}), weights), "");
    EXPECT_EQ(Load<Eagle1Model>(Write({.fc_bias = false, .qkv_bias = true}, "", {5, 9, 300}), weights), "");
    EXPECT_EQ(Load<Eagle3Model>(Write({.eagle3 = true}, kOtherLayers), weights), "");
  }
  const auto checkpoint =
      OpenDraftCheckpoint(Write({.eagle3 = true, .n_tokens = 3}, kOtherLayers, {5, 9, 300}));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto model = Eagle3Model::Load(*checkpoint, "", tiny_.parts());
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_THAT((*model)->head.vocab, ElementsAre(5, 9, 300));
  EXPECT_EQ((*model)->head.matrix.n_out(), 3);
  EXPECT_THAT((*model)->taps.hidden_layers, ElementsAre(0, 1, 3));
  EXPECT_FALSE((*model)->taps.final_hidden);
  EXPECT_EQ((*model)->block.shape.n_head, 2);
  EXPECT_EQ((*model)->block.shape.head_dim, 32);
}

// An explicit head_dim counts, whatever the model's width divided by its heads is.
TEST_F(EagleModelTest, HeadsNeedNotBeAsWideAsTheModel) {
  for (const bool eagle3 : {false, true}) {
    const std::string path =
        Write({.eagle3 = eagle3, .n_head = 4, .n_kv_head = 2, .head_dim = 32}, kOtherLayers);
    const auto checkpoint = OpenDraftCheckpoint(path);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto block = ReadDraftBlock(*checkpoint, tiny_.spec,
                                      eagle3 ? "midlayer.mlp.up_proj.weight" : "layers.0.mlp.up_proj.weight");
    ASSERT_TRUE(block.ok()) << block.status().message();
    EXPECT_EQ(block->shape.n_head, 4);
    EXPECT_EQ(block->shape.head_dim, 32);
    EXPECT_EQ(block->shape.n_rot, 32);
    EXPECT_EQ(checkpoint->Find(std::string(eagle3 ? "midlayer" : "layers.0") + ".self_attn.o_proj.weight")
                  ->shape[0],
              128);
    EXPECT_EQ(eagle3 ? Load<Eagle3Model>(path) : Load<Eagle1Model>(path), "");
  }
  // Without it they divide the width, and tensors of others are refused.
  const EagleShape wide = {.n_head = 4, .n_kv_head = 2, .head_dim = 32};
  Write(wide);
  std::string config = EagleConfigJson(tiny_.spec, wide);
  const std::string stated = ", \"head_dim\": 32";
  config.erase(config.find(stated), stated.size());
  std::ofstream(folder_.File("draft/config.json")) << config;
  EXPECT_THAT(Load<Eagle1Model>(folder_.File("draft")), HasSubstr("self_attn.q_proj.weight has shape"));
}

// A GGUF file is the same model.
TEST_F(EagleModelTest, ThroughGguf) {
  for (const bool eagle3 : {false, true}) {
    const EagleShape shape = {.eagle3 = eagle3, .n_tokens = eagle3 ? 4 : 0};
    const auto folder = OpenDraftCheckpoint(Write(shape, kOtherLayers, {1, 5, 9, 300}));
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    const std::string gguf = folder_.File("draft.gguf");
    ASSERT_TRUE(WriteDraftGguf(*folder, DType::kQ8_0, gguf).ok());
    const auto packed = OpenDraftCheckpoint(gguf);
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    const auto bytes = [&](const DraftCheckpoint& checkpoint) -> std::string {
      const auto own = [&]<typename Model>(const Model& model) {
        EXPECT_TRUE(model.ok()) << model.status().message();
        const AlignedBuffer& memory = (*model)->memory;
        return std::string(memory.as<char>(), memory.size());
      };
      return eagle3 ? own(Eagle3Model::Load(checkpoint, "", tiny_.parts()))
                    : own(Eagle1Model::Load(checkpoint, "", tiny_.parts()));
    };
    EXPECT_EQ(bytes(*packed), bytes(*folder));
  }
}

TEST_F(EagleModelTest, WhatDoesNotFitIsRefused) {
  const EagleShape eagle3 = {.eagle3 = true};
  EXPECT_THAT(LoadEagle3(eagle3, R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 4]})"),
              HasSubstr("it reads the output of layer 4, the target has 4 layers"));
  EXPECT_THAT(LoadEagle3(eagle3, R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2]})"),
              HasSubstr("tensor fc.weight has shape (64, 192), the target asks for (64, 128)"));
  EXPECT_THAT(LoadEagle3(eagle3, R"(, "eagle_config": {"eagle_aux_hidden_state_layer_ids": 3})"),
              HasSubstr("must be an array of whole numbers"));
  EXPECT_THAT(LoadEagle3(eagle3, std::string(kOtherLayers) + R"(, "target_hidden_size": 128)"),
              HasSubstr("hidden size of its target 128, the target has 64"));
  EXPECT_THAT(LoadEagle3({.eagle3 = true, .n_tokens = 100}, kOtherLayers),
              HasSubstr("lm_head.weight has shape (100, 64), the target asks for (384, 64)"));
  EXPECT_THAT(LoadEagle3({.eagle3 = true, .n_head = 3, .n_kv_head = 2}, kOtherLayers),
              HasSubstr("3 attention heads over 2 key-value heads"));
  EXPECT_THAT(Load<Eagle1Model>(Write({.head_dim = 24})), HasSubstr("of dimension 24"));
  EXPECT_THAT(Load<Eagle1Model>(Write({.n_ff = 40})), HasSubstr("MLP width 40 is no multiple of 32"));
  EXPECT_THAT(Load<Eagle1Model>(Write({}, R"(, "rope_scaling": {"type": "dynamic", "factor": 2})")),
              HasSubstr("supported are linear, yarn and llama3"));
  const EagleShape shape;
  ModelSizes other = tiny_.spec;
  other.n_embd = 96;
  WriteEagle(folder_, "draft", other, shape, RandomEagle(other, shape, 3));
  EXPECT_THAT(Load<Eagle1Model>(folder_.File("draft")), HasSubstr("hidden size 96, the target has 64"));
}

// Behaviour 6.
TEST_F(EagleModelTest, TheLayersOfPublishedDrafts) {
  const auto layers = [&](int n_layer, const std::string& more = "") {
    const auto checkpoint = OpenDraftCheckpoint(Write({.eagle3 = true}, more));
    ModelSizes target = tiny_.spec;
    target.n_layer = n_layer;
    return *Eagle3Layers(*checkpoint, target);
  };
  EXPECT_THAT(layers(8), ElementsAre(1, 3, 4));
  EXPECT_THAT(layers(32), ElementsAre(1, 15, 28));
  EXPECT_THAT(layers(36), ElementsAre(1, 17, 32));
  EXPECT_THAT(layers(40), ElementsAre(1, 19, 36));
  ModelSizes shallow = tiny_.spec;
  shallow.n_layer = 3;
  EXPECT_THAT(Eagle3Layers(*OpenDraftCheckpoint(folder_.File("draft")), shallow).status().message(),
              HasSubstr("it reads the output of layer -1, the target has 3 layers"));
  // Within eagle_config they are numbered by what layers write, beside it by what they read.
  const std::string key = R"("eagle_aux_hidden_state_layer_ids": )";
  EXPECT_THAT(layers(40, R"(, "eagle_config": {)" + key + "[1, 19, 36]}"), ElementsAre(1, 19, 36));
  EXPECT_THAT(layers(40, ", " + key + "[2, 20, 37]"), ElementsAre(1, 19, 36));
  EXPECT_THAT(layers(40, ", " + key + "[2, 40]"), ElementsAre(1, 39));
  EXPECT_THAT(layers(40, ", " + key + R"([2, 20, 37], "eagle_config": {)" + key + "[5]}"), ElementsAre(5));
  ModelSizes deep = tiny_.spec;
  deep.n_layer = 40;
  EXPECT_THAT(Eagle3Layers(*OpenDraftCheckpoint(Write({.eagle3 = true}, ", " + key + "[0, 20, 37]")), deep)
                  .status()
                  .message(),
              HasSubstr("0 is the embedding"));
  EXPECT_THAT(Eagle3Layers(*OpenDraftCheckpoint(Write({.eagle3 = true}, ", " + key + "[41]")), deep)
                  .status()
                  .message(),
              HasSubstr("it reads the output of layer 40, the target has 40 layers"));
}

// The norms of later EAGLE-3 drafts: what is said and what is there must agree.
TEST_F(EagleModelTest, NormsThatAreSaid) {
  const EagleShape eagle3 = {.eagle3 = true};
  const std::string layers = kOtherLayers;
  EXPECT_THAT(LoadEagle3(eagle3, layers + R"(, "norm_before_fc": true)"),
              HasSubstr("\"norm_before_fc\" is true, but tensor input_norm.weight is missing"));
  EXPECT_THAT(LoadEagle3(eagle3, layers + R"(, "norm_output": true)"), HasSubstr("\"norm_output\""));
  EXPECT_EQ(LoadEagle3(eagle3, layers + R"(, "norm_before_fc": false, "fc_norm": false)"), "");
  const auto with_norm = [&](const std::string& more) {
    return LoadEagle3({.eagle3 = true, .norm_before_fc = true}, layers + more);
  };
  EXPECT_EQ(with_norm(""), "");
  EXPECT_EQ(with_norm(R"(, "norm_before_fc": true)"), "");
  EXPECT_THAT(with_norm(R"(, "norm_before_fc": false)"), HasSubstr("is false, but tensor"));
}

// Behaviour 5.
TEST_F(EagleModelTest, TokensAreOffsetsAndAMask) {
  const EagleShape shape = {.eagle3 = true, .n_tokens = 4};
  const DraftTensors draft = RandomEagle(tiny_.spec, shape, 3);
  const auto tokens = [&](std::vector<int64_t> d2t, const std::vector<int>& kept, size_t n_mask = 384) {
    const std::string path = WriteEagle(folder_, "draft", tiny_.spec, shape, draft, {}, kOtherLayers);
    std::vector<int8_t> t2d(n_mask, 0);
    for (const int token : kept) t2d[static_cast<size_t>(token)] = 1;
    SafetensorsWriter maps;
    maps.AddTensor("d2t", DType::kI64, {std::ssize(d2t)}, std::as_bytes(std::span(d2t)));
    maps.AddTensor("t2d", DType::kI8, {std::ssize(t2d)}, std::as_bytes(std::span(t2d)));
    EXPECT_TRUE(maps.Write(path + "/maps.safetensors").ok());
    const auto checkpoint = OpenDraftCheckpoint(path);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const auto read = Eagle3Tokens(*checkpoint, 384);
    if (!read.ok()) return read.status().message();
    EXPECT_THAT(*read, ElementsAre(0, 4, 5, 383));
    return std::string();
  };
  EXPECT_EQ(tokens({0, 3, 3, 380}, {0, 4, 5, 383}), "");
  EXPECT_THAT(tokens({0, 3, 2, 380}, {0, 4, 383}), HasSubstr("row 2 stands for token 4"));
  EXPECT_THAT(tokens({0, 3, 3, 381}, {0, 4, 5}), HasSubstr("row 3 stands for token 384"));
  EXPECT_THAT(tokens({-1, 3, 3, 380}, {0, 4, 5}), HasSubstr("row 0 stands for token -1"));
  EXPECT_THAT(tokens({0, 3, 3, 380}, {0, 4, 6, 383}), HasSubstr("d2t and t2d disagree about token 5"));
  EXPECT_THAT(tokens({0, 3, 3, 380}, {0, 4, 5, 7, 383}), HasSubstr("d2t and t2d disagree about token 7"));
  EXPECT_THAT(tokens({0, 3, 3, 380}, {0, 4, 5}, 300), HasSubstr("t2d ends before token 383"));
}

TEST_F(EagleModelTest, WhatItTakesIsPlanned) {
  ASSERT_TRUE(WriteTinyModel({.n_layers = 4}, folder_.File("target.gguf")).ok());
  const auto file = *GgufFile::Open(folder_.File("target.gguf"));
  const KvLayout layout = tiny_.spec.kv_layout(CacheType::kF16, CacheType::kF16);
  for (const bool eagle3 : {false, true}) {
    for (const char* weights : {"", "f32"}) {
      DraftFiles files;
      const std::string path = Write({.eagle3 = eagle3, .n_tokens = eagle3 ? 3 : 0}, kOtherLayers, {3, 5, 8});
      const auto plan = PlanDraftMemory({.draft_model = path, .draft_weights = weights},
                                        {.file = *file, .sizes = tiny_.spec, .cache = layout}, files);
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      DraftModels models;
      size_t bytes = 0;
      if (eagle3) {
        bytes = (*models.Learned<Eagle3Model>(path, weights, tiny_.parts()))->bytes();
      } else {
        bytes = (*models.Learned<Eagle1Model>(path, weights, tiny_.parts()))->bytes();
      }
      EXPECT_GT(plan->fixed, bytes);
      EXPECT_LT(plan->fixed, bytes + (4U << 20));
      EXPECT_EQ(
          plan->kv_chunk,
          KvChunkBytes({.k_type = CacheType::kF16, .v_type = CacheType::kF16, .n_kv_head = 1, .head_dim = 32},
                       1));
    }
  }
}

// --- Rotary positions of its own. ---

class DraftRope : public ::testing::Test {
 protected:
  static Result<RopeConfig> Read(const std::string& json, int head_dim = 128) {
    DraftCheckpoint checkpoint;
    checkpoint.path = "draft";
    const auto keys = ConfigKeys::Parse("{" + json + "}", "config.json");
    EXPECT_TRUE(keys.ok()) << keys.status().message();
    checkpoint.keys = *keys;
    checkpoint.config = *ReadDraftConfig(*keys);
    return ReadDraftRope(checkpoint, head_dim);
  }
  static std::vector<double> Frequencies(const std::string& json, int head_dim = 128) {
    const auto rope = Read(json, head_dim);
    EXPECT_TRUE(rope.ok()) << rope.status().message();
    return RopeTable(*rope).frequencies();
  }
  static std::string Yarn(int factor) {
    return R"("max_position_embeddings": 2048, "rope_scaling": {"rope_type": "yarn", "factor": )" +
           std::to_string(factor) + "}";
  }
};

// Behaviour 14.
TEST_F(DraftRope, YarnsGoldenFrequencies) {
  const struct {
    int factor;
    size_t i;
    double frequency;
  } golden[] = {{32, 0, 1.0},
                {32, 1, 0.8659643234},
                {32, 16, 0.1},
                {32, 17, 0.0832408206},
                {32, 28, 0.0095137948},
                {32, 40, 2.2135943621e-4},
                {32, 41, 8.557561357e-5},
                {32, 63, 3.608693702e-6},
                {16, 17, 0.0833490661},
                {16, 28, 0.0097805368},
                {16, 40, 3.16227766e-4},
                {16, 41, 1.711512271e-4},
                {16, 63, 7.217387404e-6}};
  for (const auto& g : golden) {
    EXPECT_NEAR(Frequencies(Yarn(g.factor))[g.i] / g.frequency, 1, 1e-8) << g.factor << " " << g.i;
  }
  EXPECT_NEAR(RopeTable(*Read(Yarn(16))).magnitude(), 1.277259, 1e-6);
  EXPECT_NEAR(RopeTable(*Read(Yarn(32))).magnitude(), 1.346574, 1e-6);
  EXPECT_EQ(Frequencies(Yarn(1)), Frequencies(""));
  EXPECT_EQ(RopeTable(*Read(Yarn(1))).magnitude(), 1);
  // Of heads of 64: the ramp is from 8 to 21.
  const std::vector<double> plain = Frequencies("", 64), yarn = Frequencies(Yarn(16), 64);
  EXPECT_EQ(yarn[8], plain[8]);
  EXPECT_LT(yarn[9], plain[9]);
  EXPECT_GT(yarn[20], plain[20] / 16);
  EXPECT_NEAR(yarn[21], plain[21] / 16, 1e-15);
}

TEST_F(DraftRope, TheBaseIs10000UnlessItIsNamed) {
  EXPECT_NEAR(Frequencies("")[32], std::pow(10000.0, -0.5), 1e-12);
  EXPECT_NEAR(Frequencies(R"("rope_theta": 1000000)")[32], 1e-3, 1e-12);
  EXPECT_NEAR(Frequencies(R"("rope_parameters": {"rope_theta": 500000, "rope_type": "default"})")[32],
              std::pow(500000.0, -0.5), 1e-12);
}

// Scalings of rotation that a draft's config.json may ask for, against their formulas.
TEST_F(DraftRope, OtherScalings) {
  const std::vector<double> plain = Frequencies("");
  EXPECT_NEAR(Frequencies(R"("rope_scaling": {"type": "linear", "factor": 4})")[5], plain[5] / 4, 1e-12);
  const RopeConfig told = *Read(R"("rope_scaling": {"type": "yarn", "factor": 8, "attention_factor": 1.5,
                                    "original_max_position_embeddings": 4096, "beta_fast": 16})");
  EXPECT_NEAR(RopeTable(told).magnitude(), 1.5, 1e-9);
  EXPECT_EQ(told.orig_ctx, 4096);
  EXPECT_EQ(told.beta_fast, 16);
  // Llama 3.1: waves of less than 8192 / 4 positions stay, those of more than 8192 / 1 are eight times as
  // long.
  const std::vector<double> llama = Frequencies(
      R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4,
                          "original_max_position_embeddings": 8192})");
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wave = 2 * std::numbers::pi / plain[i];
    double expected = plain[i];
    if (wave > 8192) expected /= 8;
    if (wave > 2048 && wave < 8192) {
      const double smooth = (8192 / wave - 1) / 3;
      expected *= (1 - smooth) / 8 + smooth;
    }
    EXPECT_NEAR(llama[i] / expected, 1, 1e-6) << i;
  }
  EXPECT_THAT(Read(R"("rope_scaling": {"type": "llama3", "factor": 8})").status().message(),
              HasSubstr("needs factor, low_freq_factor"));
  EXPECT_THAT(Read(R"("rope_scaling": {"type": "yarn"})").status().message(), HasSubstr("needs a factor"));
  EXPECT_THAT(Read(R"("rope_scaling": {"type": "yarn", "factor": 2})").status().message(),
              HasSubstr("needs original_max_position_embeddings"));
}

}  // namespace
}  // namespace longspec::testing
