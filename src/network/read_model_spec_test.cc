// SPDX-License-Identifier: Apache-2.0
//
// The description of a model is read from its file, and each mistake in it is named.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "formats/gguf_writer.h"
#include "formats/tiny_model.h"
#include "network/model_spec.h"

namespace longspec {
namespace {

// A tiny model's metadata and tensors, rewritten with changes.
class Edited {
 public:
  explicit Edited(const TinyModelOptions& tiny = {})
      : bytes_(*TinyModelBytes(tiny)), file_(*GgufFile::Parse(bytes_, "tiny.gguf")) {}

  Result<ModelSpec> Read(const std::function<void(GgufWriter&)>& edit, const std::string& without_tensor = "",
                         const RopeOptions& rope = {}) {
    GgufWriter writer;
    for (const auto& [key, value] : file_->metadata()) {
      if (const auto* u = std::get_if<uint64_t>(&value)) writer.SetUint32(key, static_cast<uint32_t>(*u));
      if (const auto* f = std::get_if<double>(&value)) writer.SetFloat32(key, static_cast<float>(*f));
      if (const auto* s = std::get_if<std::string>(&value)) writer.SetString(key, *s);
    }
    for (const TensorView& t : file_->tensors()) {
      if (t.name == without_tensor) continue;
      writer.AddTensor(t.name, t.dtype, std::vector<int64_t>(t.shape, t.shape + t.n_dims),
                       {t.data, t.n_bytes});
    }
    edit(writer);
    edited_bytes_ = writer.Serialize();
    const auto file = GgufFile::Parse(edited_bytes_, "tiny.gguf");
    if (!file.ok()) return file.status();
    return ReadModelSpec(**file, rope);
  }

  void ExpectError(const std::function<void(GgufWriter&)>& edit, const std::string& part,
                   const std::string& without = "", const RopeOptions& rope = {}) {
    const auto config = Read(edit, without, rope);
    ASSERT_FALSE(config.ok()) << part;
    EXPECT_NE(config.status().message().find(part), std::string::npos) << config.status().message();
  }

 private:
  std::vector<std::byte> bytes_, edited_bytes_;
  std::shared_ptr<const GgufFile> file_;
};

void Unchanged(GgufWriter&) {}

TEST(ModelSpec, ReadsATinyModel) {
  Edited model;
  const auto config = model.Read(Unchanged);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_EQ(config->n_layer, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->n_head_kv, 2);
  EXPECT_EQ(config->n_vocab, 384);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_EQ(config->rope.Describe(), "none");
  EXPECT_EQ(config->attention().group(), 2);
  EXPECT_FLOAT_EQ(config->attention().scale, 0.25F);
}

TEST(ModelSpec, EveryErrorNamesWhatIsWrong) {
  Edited model;
  model.ExpectError([](GgufWriter& w) { w.SetString("general.architecture", "mamba"); },
                    "\"mamba\" is not supported; known are llama, qwen2, qwen3");
  model.ExpectError([](GgufWriter& w) { w.SetUint32("llama.block_count", 0); }, "llama.block_count is 0");
  model.ExpectError([](GgufWriter& w) { w.SetUint32("llama.block_count", 3); },
                    "tensor blk.2.attn_norm.weight is missing");
  model.ExpectError([](GgufWriter& w) { w.SetUint32("llama.block_count", 4000000000U); },
                    "llama.block_count");
  model.ExpectError([](GgufWriter& w) { w.SetUint32("llama.attention.head_count", 3); }, "cannot share");
  model.ExpectError([](GgufWriter& w) { w.SetUint32("llama.feed_forward_length", 256); },
                    "expected (64, 256)");
  model.ExpectError([](GgufWriter& w) { w.SetUint32("llama.embedding_length", 80); }, "multiple");
  model.ExpectError([](GgufWriter& w) { w.SetUint32("llama.attention.key_length", 24); },
                    "head dimension 24");
  model.ExpectError([](GgufWriter& w) { w.SetUint32("llama.attention.key_length", 528); },
                    "head dimension 528 is not a multiple of 16 up to 512");
  model.ExpectError([](GgufWriter& w) { w.SetUint32("llama.expert_count", 8); }, "mixture-of-experts");
  model.ExpectError([](GgufWriter& w) { w.SetUint32("llama.rope.dimension_count", 64); },
                    "rope.dimension_count is 64");
  model.ExpectError([](GgufWriter& w) { w.SetString("llama.rope.scaling.type", "longrope"); },
                    "\"longrope\" is not supported");
  model.ExpectError(Unchanged, "token_embd.weight is missing", "token_embd.weight");
  model.ExpectError(Unchanged, "output_norm.weight is missing", "output_norm.weight");
  model.ExpectError(
      [](GgufWriter& w) {
        const std::vector<std::byte> bytes(3 * 4);
        w.AddTensor("rope_freqs.weight", DType::kF32, {3}, bytes);
      },
      "rope_freqs.weight must hold 8");
}

// qwen2 needs biases, qwen3 norms of the heads; a llama may have biases, and then has all of them.
TEST(ModelSpec, KnowsWhatAnArchitectureHas) {
  TinyModelOptions tiny;
  tiny.architecture = "qwen2";
  Edited qwen2(tiny);
  auto config = qwen2.Read(Unchanged);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_TRUE(config->layers[0].qkv_bias);
  EXPECT_FALSE(config->layers[0].head_norms);
  EXPECT_EQ(config->rope.pairing, kernels::RopePairing::kHalfSplit);
  qwen2.ExpectError(Unchanged, "tensor blk.0.attn_q.bias is missing", "blk.0.attn_q.bias");
  tiny.architecture = "qwen3";
  Edited qwen3(tiny);
  config = qwen3.Read(Unchanged);
  ASSERT_TRUE(config.ok()) << config.status().message();
  EXPECT_FALSE(config->layers[0].qkv_bias);
  EXPECT_TRUE(config->layers[0].head_norms);
  qwen3.ExpectError(Unchanged, "tensor blk.1.attn_k_norm.weight is missing", "blk.1.attn_k_norm.weight");

  Edited llama;
  EXPECT_FALSE(llama.Read(Unchanged)->layers[0].qkv_bias);
  const auto add_bias = [](const std::string& name, int64_t n) {
    return [name, n](GgufWriter& w) {
      w.AddTensor(name, DType::kF32, {n}, std::vector<std::byte>(static_cast<size_t>(n) * 4));
    };
  };
  llama.ExpectError(add_bias("blk.0.attn_q.bias", 64), "tensor blk.0.attn_k.bias is missing");
  llama.ExpectError(add_bias("blk.0.attn_q.bias", 32), "expected (64, 1)");
  // What is not used changes the answers of who made the model.
  for (const char* name :
       {"blk.0.attn_output.bias", "blk.1.ffn_up.bias", "output.bias", "blk.0.post_norm.weight"})
    llama.ExpectError(add_bias(name, 64), "tensor " + std::string(name) + " is not supported");
}

TEST(ModelSpec, UsersRopeOptionsWin) {
  Edited model;
  RopeOptions options;
  options.scaling = RopeOptions::Scaling::kYarn;
  options.scale = 4;
  options.freq_base = 50000;
  options.yarn_orig_ctx = 256;
  const auto config = model.Read(Unchanged, "", options);
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->rope.Describe(), "yarn x4 (original 256)");
  EXPECT_DOUBLE_EQ(config->rope.freq_base, 50000);
  const auto linear = model.Read([](GgufWriter& w) {
    w.SetString("llama.rope.scaling.type", "linear");
    w.SetFloat32("llama.rope.scaling.factor", 2);
  });
  ASSERT_TRUE(linear.ok());
  EXPECT_EQ(linear->rope.Describe(), "linear x2");
  options.scale = -1;
  model.ExpectError(Unchanged, "--rope-scale", "", options);
  options = {};
  options.freq_base = 0.5F;
  model.ExpectError(Unchanged, "--rope-freq-base", "", options);
}

std::vector<float> Row(const RopeConfig& config, int position) {
  const RopeTable table(config);
  std::vector<float> row(static_cast<size_t>(table.n_rot()));
  table.Row(position, row.data());
  return row;
}

TEST(Rope, PlainAndLinear) {
  RopeConfig config;
  config.n_rot = 8;
  const std::vector<float> row = Row(config, 7);
  for (int i = 0; i < 4; ++i) {
    const double angle = 7 * std::pow(10000.0, -2.0 * i / 8);
    EXPECT_FLOAT_EQ(row[static_cast<size_t>(2 * i)], static_cast<float>(std::cos(angle)));
    EXPECT_FLOAT_EQ(row[static_cast<size_t>(2 * i + 1)], static_cast<float>(std::sin(angle)));
  }
  RopeConfig linear = config;
  linear.scaling = RopeOptions::Scaling::kLinear;
  linear.scale = 4;
  EXPECT_EQ(Row(linear, 28), row);
  RopeConfig factors = config;
  factors.freq_factors = {4, 4, 4, 4};
  EXPECT_EQ(Row(factors, 28), row);
}

// YaRN keeps fast rotations, interpolates slow ones and scales the magnitude by 0.1 ln(scale) + 1.
TEST(Rope, Yarn) {
  RopeConfig config;
  config.n_rot = 64;
  config.scaling = RopeOptions::Scaling::kYarn;
  config.scale = 4;
  config.orig_ctx = 2048;
  const std::vector<float> row = Row(config, 100);
  const double magnitude = 1.0 + 0.1 * std::log(4.0);
  EXPECT_NEAR(row[0], magnitude * std::cos(100.0), 1e-5);
  const double slowest = std::pow(10000.0, -62.0 / 64) / 4;
  EXPECT_NEAR(row[62], magnitude * std::cos(100 * slowest), 1e-6);
  EXPECT_NEAR(row[63], magnitude * std::sin(100 * slowest), 1e-6);
  for (size_t i = 0; i < 32; ++i) EXPECT_NEAR(std::hypot(row[2 * i], row[2 * i + 1]), magnitude, 1e-5);
  // In between the frequency falls from the unscaled to the scaled one.
  double previous = 1.0;
  for (int i = 0; i < 32; ++i) {
    const std::vector<float> unit = Row(config, 1);
    const size_t at = 2 * static_cast<size_t>(i);
    const double frequency = std::atan2(unit[at + 1], unit[at]);
    const double share = frequency / std::pow(10000.0, -2.0 * i / 64);
    EXPECT_LE(share, previous + 1e-3);
    previous = share;
  }
  EXPECT_NEAR(previous, 0.25, 1e-3);
}

}  // namespace
}  // namespace longspec
