// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints in their three containers, what is refused, and what fits which target.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "draft_model/draft_checkpoint.h"
#include "draft_model/draft_weights.h"
#include "draft_model/longspec.h"
#include "draft_model/testing/longspec_files.h"
#include "formats/gguf_writer.h"
#include "tensor/dequantize.h"
#include "tensor/quantize.h"

namespace longspec::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kModelFf = 64;

class LongspecModelTest : public ::testing::Test {
 protected:
  LongspecModelTest() : draft_(RandomDraft(tiny_.spec, kModelFf, 5)) {}

  std::string Write(const std::string& more = "") {
    return WriteDraftFolder(folder_, tiny_.spec, draft_, more);
  }
  void WriteConfig(const std::string& text) { std::ofstream(folder_.File("draft/config.json")) << text; }

  Status Load(const std::string& path, const std::string& weights = "") {
    return OpenAndLoad(path, weights, tiny_.parts()).status();
  }
  void ExpectMisfit(const std::string& what) {
    const Status status = Load(folder_.File("draft"));
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), AllOf(StartsWith(folder_.path()), HasSubstr(what)));
  }

  Folder folder_;
  TinyTarget tiny_;
  DraftTensors draft_;
};

void ExpectEqual(const DraftCheckpoint& a, const DraftCheckpoint& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const TensorView& tensor : a.tensors) {
    const TensorView* other = b.Find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(tensor.dtype, other->dtype);
    EXPECT_EQ(tensor.n_dims, other->n_dims);
    EXPECT_TRUE(std::equal(tensor.shape, tensor.shape + 4, other->shape));
    ASSERT_EQ(tensor.n_bytes, other->n_bytes);
    EXPECT_EQ(std::memcmp(tensor.data, other->data, tensor.n_bytes), 0) << tensor.name;
  }
  EXPECT_EQ(a.config_json, b.config_json);
}

TEST_F(LongspecModelTest, TheSpecificationsTensorsAndCounts) {
  const std::vector<DraftPart> tensors = FindDraftKind("longspec")->tensors({});
  EXPECT_EQ(tensors.size(), 20U);
  size_t n = 0, n_used = 0;
  for (const DraftPart& tensor : tensors) {
    n += draft_[tensor.tensor].size();
    if (tensor.required) n_used += draft_[tensor.tensor].size();
  }
  const size_t h = 64, kv = 32;
  EXPECT_EQ(n, 2 * (2 * h * h + 2 * h * kv + h + 2 * kv) + 3 * h * kModelFf + 3 * h);
  EXPECT_EQ(n - n_used, 2 * (h * kv + kv));
}

TEST_F(LongspecModelTest, EveryContainerLoads) {
  const std::string folder = Write();
  EXPECT_TRUE(Load(folder).ok()) << Load(folder).message();
  EXPECT_TRUE(Load(folder + "/model.safetensors").ok());
  WriteDraft(draft_, folder_.File("alone.safetensors"), "model.");
  EXPECT_TRUE(Load(folder_.File("alone.safetensors")).ok())
      << Load(folder_.File("alone.safetensors")).message();
  for (const DType type : {DType::kF16, DType::kBF16}) {
    WriteDraft(draft_, folder_.File("half.safetensors"), "", type);
    EXPECT_TRUE(Load(folder_.File("half.safetensors")).ok());
  }
  const auto checkpoint = OpenDraftCheckpoint(folder);
  ASSERT_TRUE(checkpoint.ok());
  ASSERT_TRUE(WriteDraftGguf(*checkpoint, std::nullopt, folder_.File("draft.gguf")).ok());
  EXPECT_TRUE(Load(folder_.File("draft.gguf")).ok()) << Load(folder_.File("draft.gguf")).message();
  for (const char* weights : {"f32", "f16", "bf16", "q8_0", "Q4_0", "q5_1"}) {
    EXPECT_TRUE(Load(folder, weights).ok()) << weights;
  }
}

// Shards of a large checkpoint are one checkpoint.
TEST_F(LongspecModelTest, SeveralFilesInAFolder) {
  const std::string folder = Write();
  DraftTensors parts[2];
  for (const auto& [name, tensor] : draft_.tensors) parts[name >= "mlp"].tensors[name] = tensor;
  WriteDraft(parts[0], folder + "/model.safetensors");
  EXPECT_THAT(Load(folder).message(), HasSubstr("is missing, which every draft model of kind longspec has"));
  WriteDraft(parts[1], folder + "/model-2.safetensors");
  EXPECT_TRUE(Load(folder).ok()) << Load(folder).message();
  WriteDraft(parts[1], folder + "/model-3.safetensors");
  EXPECT_THAT(Load(folder).message(), HasSubstr("appears twice"));
}

TEST_F(LongspecModelTest, RoundTripThroughGguf) {
  const std::string folder = Write(", \"max_position_embeddings\": 99, \"note\": \"h\\u00e9\"");
  WriteDraft(draft_, folder + "/model.safetensors", "", DType::kBF16, {5, 6, 300});
  const auto first = OpenDraftCheckpoint(folder);
  ASSERT_TRUE(first.ok()) << first.status().message();
  ASSERT_TRUE(WriteDraftGguf(*first, std::nullopt, folder_.File("draft.gguf")).ok());
  const auto gguf = OpenDraftCheckpoint(folder_.File("draft.gguf"));
  ASSERT_TRUE(gguf.ok()) << gguf.status().message();
  ExpectEqual(*first, *gguf);
  EXPECT_EQ(gguf->config.trained_positions, 99);
  ASSERT_TRUE(WriteDraftFolder(*gguf, std::nullopt, folder_.File("back")).ok());
  const auto back = OpenDraftCheckpoint(folder_.File("back"));
  ASSERT_TRUE(back.ok()) << back.status().message();
  ExpectEqual(*first, *back);
  EXPECT_EQ(ReadText(folder_.File("back/config.json")), ReadText(folder + "/config.json"));
}

TEST_F(LongspecModelTest, ConversionsToOtherTypes) {
  const auto checkpoint = OpenDraftCheckpoint(Write());
  ASSERT_TRUE(checkpoint.ok());
  ASSERT_TRUE(WriteDraftGguf(*checkpoint, DType::kQ8_0, folder_.File("q8.gguf")).ok());
  const auto q8 = OpenDraftCheckpoint(folder_.File("q8.gguf"));
  ASSERT_TRUE(q8.ok());
  EXPECT_EQ(q8->Find("mlp.up_proj.weight")->dtype, DType::kQ8_0);
  EXPECT_EQ(q8->Find("self_attn.q_proj.bias")->dtype, DType::kF32);
  // Quantised in the file or at load: the same model.
  const auto from_file = OpenAndLoad(folder_.File("q8.gguf"), "", tiny_.parts());
  const auto at_load = OpenAndLoad(folder_.File("draft"), "", tiny_.parts());
  ASSERT_TRUE(from_file.ok() && at_load.ok());
  ASSERT_EQ((*from_file)->bytes(), (*at_load)->bytes());
  EXPECT_EQ(std::memcmp((*from_file)->memory.data(), (*at_load)->memory.data(), (*at_load)->memory.size()),
            0);
  // Block types are no safetensors types.
  ASSERT_TRUE(WriteDraftFolder(*q8, std::nullopt, folder_.File("f32")).ok());
  EXPECT_EQ(OpenDraftCheckpoint(folder_.File("f32"))->Find("mlp.up_proj.weight")->dtype, DType::kF32);
  EXPECT_THAT(WriteDraftFolder(*checkpoint, DType::kQ8_0, folder_.File("x")).message(),
              HasSubstr("a safetensors file cannot hold Q8_0"));
  EXPECT_THAT(WriteDraftGguf(*checkpoint, DType::kQ4_K, folder_.File("x.gguf")).message(),
              HasSubstr("no multiple of 256, the block size of Q4_K"));
  EXPECT_FALSE(WriteDraftFolder(*checkpoint, std::nullopt, "/proc/nowhere").ok());
}

TEST_F(LongspecModelTest, WhatDoesNotFitTheTargetIsRefusedWithTheReason) {
  Write();
  const ModelSizes& c = tiny_.spec;
  const struct {
    const char* key;
    int value;
    const char* message;
  } sizes[] = {{"hidden_size", 96, "hidden size 96, the target has 64"},
               {"num_attention_heads", 8, "attention heads 8, the target has 4"},
               {"num_key_value_heads", 1, "key-value heads 1, the target has 2"},
               {"head_dim", 32, "head dimension 32, the target has 16"},
               {"vocab_size", 32000, "vocabulary 32000, the target has 384"}};
  for (const auto& size : sizes) {
    std::string config = ConfigJson(c);
    const size_t at = config.find("\"" + std::string(size.key) + "\"");
    if (at != std::string::npos) config.replace(at, std::strlen(size.key) + 2, "\"unused\"");
    config.insert(1, "\"" + std::string(size.key) + "\": " + std::to_string(size.value) + ", ");
    WriteConfig(config);
    ExpectMisfit(size.message);
  }
  WriteConfig("{\"rope_theta\": 500000.0}");
  ExpectMisfit("RoPE base 500000, the target has 10000");
  WriteConfig("{\"rope_theta\": 10000, \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}}");
  ExpectMisfit("RoPE scaling yarn, the target has none");
  WriteConfig("{\"longspec_window\": 100000}");
  ExpectMisfit("a window of 100000 tokens");
  WriteConfig("{\"rope_parameters\": {\"rope_theta\": 10000, \"rope_type\": \"default\"}}");
  EXPECT_TRUE(Load(folder_.File("draft")).ok()) << Load(folder_.File("draft")).message();
}

TEST_F(LongspecModelTest, ScaledTargetsWantDraftsOfTheSameScaling) {
  RopeOptions rope;
  rope.scaling = RopeOptions::Scaling::kYarn;
  rope.scale = 4.0F;
  rope.yarn_orig_ctx = 256;
  rope.yarn_beta_fast = 16.0F;
  const TinyTarget scaled({}, rope);
  const auto load = [&](const std::string& config) {
    Write();
    WriteConfig(config);
    return OpenAndLoad(folder_.File("draft"), "", scaled.parts()).status().message();
  };
  const auto yarn = [&](const std::string& more) {
    return load(R"({"rope_scaling": {"type": "yarn", )" + more + "}}");
  };
  EXPECT_THAT(load("{}"), HasSubstr("RoPE scaling none, the target has yarn"));
  EXPECT_THAT(load(R"({"rope_scaling": {"type": "linear", "factor": 4}})"),
              HasSubstr("RoPE scaling linear, the target has yarn"));
  EXPECT_THAT(yarn(R"("factor": 8)"), HasSubstr("RoPE scaling factor 8, the target has 4"));
  EXPECT_THAT(yarn(R"("factor": 4, "original_max_position_embeddings": 512)"),
              HasSubstr("original positions of YaRN 512, the target has 256"));
  EXPECT_THAT(yarn(R"("factor": 4, "beta_fast": 32)"), HasSubstr("beta_fast of YaRN 32, the target has 16"));
  EXPECT_THAT(yarn(R"("factor": 4, "beta_slow": 2)"), HasSubstr("beta_slow of YaRN 2, the target has 1"));
  EXPECT_EQ(yarn(R"("factor": 4.0)"), "");
  EXPECT_EQ(yarn(R"("factor": 4, "original_max_position_embeddings": 256, "beta_fast": 16, "beta_slow": 1)"),
            "");
}

TEST_F(LongspecModelTest, ShapesAreThoseOfTheTarget) {
  for (const char* name : {"self_attn.q_proj.weight", "cross_attn.k_proj.bias", "mlp.down_proj.weight",
                           "post_cross_attention_layernorm.weight"}) {
    const DraftTensors::Tensor kept = draft_.tensors[name];
    draft_.tensors[name].shape[0] -= 1;
    draft_[name].resize(draft_[name].size() / static_cast<size_t>(kept.shape[0]) *
                        static_cast<size_t>(kept.shape[0] - 1));
    Write();
    ExpectMisfit("tensor " + std::string(name) + " has shape (");
    draft_.tensors[name] = kept;
  }
  draft_ = RandomDraft(tiny_.spec, 40, 1);
  Write();
  ExpectMisfit("MLP width 40 is no multiple of 32");
}

TEST_F(LongspecModelTest, NamesAreChecked) {
  draft_.tensors["lm_head.weight"] = draft_.tensors["mlp.up_proj.weight"];
  EXPECT_THAT(Load(Write()).message(),
              HasSubstr("tensor lm_head.weight is none that a draft model of kind longspec has"));
  draft_.tensors.erase("lm_head.weight");
  for (const char* unused : {"cross_attn.k_proj.weight", "cross_attn.k_proj.bias", "cross_attn.v_proj.weight",
                             "cross_attn.v_proj.bias"}) {
    draft_.tensors.erase(unused);
  }
  EXPECT_TRUE(Load(Write()).ok());
  draft_.tensors.erase("cross_attn.q_proj.bias");
  EXPECT_THAT(Load(Write()).message(), HasSubstr("tensor cross_attn.q_proj.bias is missing"));
}

TEST_F(LongspecModelTest, ReducedVocabulariesAreChecked) {
  const std::string path = folder_.File("v.safetensors");
  const auto load = [&](const std::vector<int64_t>& vocab) {
    WriteDraft(draft_, path, "", DType::kF32, vocab);
    return Load(path).message();
  };
  EXPECT_EQ(load({3, 1, 2}), "");
  EXPECT_THAT(load({3, 384}), HasSubstr("names token 384, the target has a vocabulary of 384"));
  EXPECT_THAT(load({-1}), HasSubstr("names token -1"));
  EXPECT_THAT(load({3, 4, 3}), HasSubstr("names token 3 twice"));
  draft_.tensors["draft.vocab"] = {{2}, {1.0F, 2.0F}};
  WriteDraft(draft_, path);
  EXPECT_THAT(Load(path).message(), HasSubstr("draft.vocab must hold I32 or I64 tokens"));
}

TEST_F(LongspecModelTest, RowsOfTheHeadAreInFourBitsBesideMatricesInBlocks) {
  const std::string path = folder_.File("v.safetensors");
  WriteDraft(draft_, path, "", DType::kF32, {40, 7, 21});
  const TensorView& head = tiny_.parts().head;
  const auto kept = OpenAndLoad(path, "f32", tiny_.parts());
  ASSERT_TRUE(kept.ok()) << kept.status().message();
  EXPECT_EQ((*kept)->head.matrix.packed.format, tiny_.parts().output->format);

  const auto rounded = OpenAndLoad(path, "q8_0", tiny_.parts());
  ASSERT_TRUE(rounded.ok()) << rounded.status().message();
  ASSERT_LT(RowBytes(DType::kQ4_1, head.shape[0]), RowBytes(head.dtype, head.shape[0]));
  std::vector<std::byte> bytes(3 * RowBytes(DType::kQ4_1, head.shape[0]));
  std::vector<float> values(static_cast<size_t>(head.shape[0]));
  const int64_t sorted[] = {7, 21, 40};
  for (size_t i = 0; i < 3; ++i) {
    DequantizeRow(head.dtype, head.row(sorted[i]), head.shape[0], values.data());
    QuantizeRow(DType::kQ4_1, values.data(), head.shape[0], bytes.data() + i * bytes.size() / 3);
  }
  TensorView rows{.name = "rows", .dtype = DType::kQ4_1, .n_dims = 2, .shape = {head.shape[0], 3, 1, 1}};
  rows.data = bytes.data();
  rows.n_bytes = bytes.size();
  kernels::PackedWeights expected(rows);
  expected.Pack(rows, 0, expected.n_groups());
  const kernels::PackedMatrix& matrix = (*rounded)->head.matrix.packed;
  EXPECT_EQ(matrix.format, expected.matrix().format);
  EXPECT_EQ(matrix.n_out, 3);
  const auto checkpoint = OpenDraftCheckpoint(path);
  ASSERT_TRUE(checkpoint.ok());
  const uint64_t n_bytes = DraftHeadBytes(*checkpoint, "q8_0", head);
  ASSERT_EQ((*rounded)->head.memory.size(), n_bytes);
  EXPECT_EQ(std::memcmp(matrix.data, expected.matrix().data, n_bytes), 0);
  EXPECT_LT(n_bytes, DraftHeadBytes(*checkpoint, "f32", head));
}

TEST_F(LongspecModelTest, BrokenFilesAreRefused) {
  EXPECT_EQ(Load(folder_.File("nothing")).code(), StatusCode::kNotFound);
  std::filesystem::create_directories(folder_.File("empty"));
  EXPECT_THAT(Load(folder_.File("empty")).message(), HasSubstr("no *.safetensors file in this folder"));
  const std::string folder = Write();
  std::filesystem::remove(folder + "/config.json");
  EXPECT_THAT(Load(folder).message(), HasSubstr("config.json"));
  EXPECT_TRUE(Load(folder + "/model.safetensors").ok());
  for (const char* config :
       {"", "[]", "{\"hidden_size\": \"64\"}", "{\"hidden_size\": 0}", "{\"hidden_size\": -4}",
        "{\"rope_theta\": -1}", "{\"rope_theta\": true}", "{\"rope_scaling\": 3}",
        "{\"rope_scaling\": {\"type\": 3}}", "{\"vocab_size\": 1e99}"}) {
    WriteConfig(config);
    EXPECT_EQ(Load(folder).code(), StatusCode::kCorrupt) << config;
    EXPECT_THAT(Load(folder).message(), HasSubstr("config.json: ")) << config;
  }
  WriteConfig(std::string(2 << 20, ' '));
  EXPECT_THAT(Load(folder).message(), HasSubstr("too large"));
  WriteConfig(std::string(100000, '['));
  EXPECT_EQ(Load(folder).code(), StatusCode::kCorrupt);

  GgufWriter writer;
  writer.SetString("general.architecture", "llama");
  ASSERT_TRUE(writer.Write(folder_.File("llama.gguf")).ok());
  EXPECT_THAT(Load(folder_.File("llama.gguf")).message(),
              HasSubstr("architecture \"llama\" is no kind of draft model; known are longspec, "));
  std::ofstream(folder_.File("text")) << "hello";
  EXPECT_THAT(Load(folder_.File("text")).message(), HasSubstr("not a safetensors file"));

  draft_["mlp.up_proj.weight"][7] = std::nanf("");
  for (const char* weights : {"q8_0", "f32"}) {  // as it is stored, too
    EXPECT_THAT(Load(Write(), weights).message(),
                HasSubstr("mlp.up_proj.weight holds a value that is not a finite number"))
        << weights;
  }
}

TEST(PackedRows, HaveTheBitsOfTheirRows) {
  const int n_in = 512, n_out = 37;
  const std::vector<int32_t> rows = {36, 0, 5, 5, 17, 16, 15, 31, 32, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11};
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
                           DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ6_K}) {
    const RngStream rng{.seed = 3, .purpose = RngPurpose::kTest};
    TensorView all{.dtype = type, .n_dims = 2, .shape = {n_in, n_out, 1, 1}};
    const size_t row_bytes = RowBytes(type, n_in);
    std::vector<std::byte> stored(row_bytes * n_out), chosen(row_bytes * rows.size());
    std::vector<float> row(n_in);
    for (uint64_t r = 0; r < n_out; ++r) {
      for (uint32_t i = 0; i < n_in; ++i) row[i] = static_cast<float>(rng.Uniform(r, i)) - 0.4F;
      QuantizeRow(type, row.data(), n_in, stored.data() + r * row_bytes);
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      std::memcpy(chosen.data() + i * row_bytes, stored.data() + static_cast<size_t>(rows[i]) * row_bytes,
                  row_bytes);
    }
    all.data = stored.data();
    TensorView some = all;
    some.shape[1] = static_cast<int64_t>(rows.size());
    some.data = chosen.data();
    kernels::PackedWeights packed(all), expected(some);
    packed.Pack(all, 0, packed.n_groups());
    expected.Pack(some, 0, expected.n_groups());
    AlignedBuffer memory;
    const kernels::PackedMatrix gathered = GatherPackedRows(packed.matrix(), rows, &memory);
    EXPECT_EQ(gathered.n_out, static_cast<int64_t>(rows.size()));
    ASSERT_EQ(gathered.group_bytes, expected.matrix().group_bytes);
    EXPECT_EQ(std::memcmp(gathered.data, expected.matrix().data,
                          gathered.group_bytes * static_cast<size_t>(expected.n_groups())),
              0)
        << Info(type).name;
  }
}

}  // namespace
}  // namespace longspec::testing
