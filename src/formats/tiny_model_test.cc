// SPDX-License-Identifier: Apache-2.0
//
// Made-up models have what real ones have, as a function of their options.
#include "formats/tiny_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/testing/files.h"
#include "formats/gguf.h"
#include "formats/gguf_test_bytes.h"
#include "formats/tiny_vocabulary.h"
#include "tensor/dequantize.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

struct Opened {
  std::vector<std::byte> bytes;
  std::shared_ptr<const GgufFile> file;
};

Opened Make(const TinyModelOptions& options) {
  auto bytes = TinyModelBytes(options);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  if (!bytes.ok()) return {};
  Opened opened{std::move(*bytes), nullptr};
  auto file = GgufFile::Parse(opened.bytes, "tiny");
  EXPECT_TRUE(file.ok()) << file.status().message();
  if (file.ok()) opened.file = *file;
  return opened;
}

std::vector<float> Decode(const TensorView& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.n_elements()));
  for (int64_t r = 0; r < tensor.n_rows(); ++r) {
    DequantizeRow(tensor.dtype, tensor.row(r), tensor.shape[0], values.data() + r * tensor.shape[0]);
  }
  return values;
}

double Deviation(const std::vector<float>& values, double mean) {
  double sum = 0;
  for (const float v : values) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

TEST(TinyModelTest, HasTheKeysAndTensorsOfALlama) {
  TinyModelOptions options;
  options.n_layers = 3;
  options.tied = false;
  const Opened model = Make(options);
  ASSERT_NE(model.file, nullptr);
  const GgufFile& file = *model.file;
  EXPECT_EQ(*file.GetString("general.architecture"), "llama");
  EXPECT_EQ(*file.GetUint("llama.block_count"), 3U);
  EXPECT_EQ(*file.GetUint("llama.context_length"), 512U);
  EXPECT_EQ(*file.GetUint("llama.embedding_length"), 64U);
  EXPECT_EQ(*file.GetUint("llama.feed_forward_length"), 128U);
  EXPECT_EQ(*file.GetUint("llama.attention.head_count"), 4U);
  EXPECT_EQ(*file.GetUint("llama.attention.head_count_kv"), 2U);
  EXPECT_EQ(*file.GetUint("llama.rope.dimension_count"), 16U);
  EXPECT_EQ(*file.GetUint("llama.vocab_size"), 384U);
  EXPECT_EQ(*file.GetFloat("llama.rope.freq_base"), 10000.0);
  EXPECT_NEAR(*file.GetFloat("llama.attention.layer_norm_rms_epsilon"), 1e-5, 1e-10);
  EXPECT_EQ(*file.GetString("tokenizer.ggml.pre"), "smollm");
  EXPECT_EQ(*file.GetUint("tokenizer.ggml.eos_token_id"), 2U);
  EXPECT_THAT(*file.GetString("tokenizer.chat_template"), HasSubstr("<|im_start|>"));
  EXPECT_EQ(file.tensors().size(), 3U + 3U * 9U);
  const TensorView* k = file.FindTensor("blk.2.attn_k.weight");
  ASSERT_NE(k, nullptr);
  EXPECT_EQ(k->shape[0], 64);
  EXPECT_EQ(k->shape[1], 32);
  const TensorView* down = file.FindTensor("blk.0.ffn_down.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->shape[0], 128);
  EXPECT_EQ(down->shape[1], 64);
  EXPECT_NE(file.FindTensor("output.weight"), nullptr);
}

TEST(TinyModelTest, ATiedModelHasNoOutputMatrix) {
  const Opened model = Make({});
  ASSERT_NE(model.file, nullptr);
  EXPECT_EQ(model.file->FindTensor("output.weight"), nullptr);
  EXPECT_NE(model.file->FindTensor("output_norm.weight"), nullptr);
}

TEST(TinyModelTest, WeightsHaveTheStatedSpread) {
  const Opened model = Make({});
  ASSERT_NE(model.file, nullptr);
  EXPECT_NEAR(Deviation(Decode(*model.file->FindTensor("blk.0.attn_q.weight")), 0), 1 / std::sqrt(64.0),
              0.005);
  EXPECT_NEAR(Deviation(Decode(*model.file->FindTensor("blk.1.ffn_down.weight")), 0), 1 / std::sqrt(128.0),
              0.003);
  EXPECT_NEAR(Deviation(Decode(*model.file->FindTensor("output_norm.weight")), 1), 0.1, 0.04);
}

TEST(TinyModelTest, IsAFunctionOfItsOptions) {
  TinyModelOptions options;
  const auto first = TinyModelBytes(options), again = TinyModelBytes(options);
  options.seed = 2;
  const auto other = TinyModelBytes(options);
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ(*first, *again);
  EXPECT_NE(*first, *other);
  const testing::Folder folder;
  options.seed = 1;
  ASSERT_TRUE(WriteTinyModel(options, folder.File("tiny.gguf")).ok());
  EXPECT_EQ(ReadFileBytes(folder.File("tiny.gguf")), *first);
}

TEST(TinyModelTest, EveryWeightTypeApproximatesTheSameModel) {
  TinyModelOptions options;
  options.n_layers = 1;
  options.n_embd = options.n_ff = 256;
  const Opened exact = Make(options);
  ASSERT_NE(exact.file, nullptr);
  const std::vector<float> expected = Decode(*exact.file->FindTensor("blk.0.ffn_up.weight"));
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                            DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    options.dtype = dtype;
    options.embedding_dtype = DType::kQ8_0;
    const Opened model = Make(options);
    ASSERT_NE(model.file, nullptr);
    EXPECT_EQ(model.file->FindTensor("token_embd.weight")->dtype, DType::kQ8_0);
    const TensorView& up = *model.file->FindTensor("blk.0.ffn_up.weight");
    EXPECT_EQ(up.dtype, dtype);
    EXPECT_NE(*model.file->GetUint("general.file_type"), 0U);
    std::vector<float> error = Decode(up);
    for (size_t i = 0; i < error.size(); ++i) error[i] -= expected[i];
    EXPECT_LT(Deviation(error, 0), 0.1 * Deviation(expected, 0)) << Info(dtype).name;
  }
}

TEST(TinyModelTest, ContradictionsAreNamed) {
  const auto expect_error = [](TinyModelOptions options, const std::string& message) {
    const auto bytes = TinyModelBytes(options);
    ASSERT_FALSE(bytes.ok()) << message;
    EXPECT_EQ(bytes.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(bytes.status().message(), HasSubstr(message));
    EXPECT_EQ(WriteTinyModel(options, "/nowhere/x.gguf").code(), StatusCode::kInvalidArgument);
  };
  TinyModelOptions o;
  o.n_layers = 0;
  expect_error(o, "layers: 0, expected 1 to");
  o = {};
  o.n_vocab = 258;
  expect_error(o, "vocab: 258, expected 259 to");
  o = {};
  o.n_heads = 3;
  expect_error(o, "heads: embd");
  o = {};
  o.n_kv_heads = 3;
  expect_error(o, "kv-heads: heads");
  o = {};
  o.dtype = DType::kQ4_K;
  expect_error(o, "embd: 64 is no multiple of 256, the block size of Q4_K");
  o = {};
  o.dtype = DType::kQ4_0;
  o.n_ff = 100;
  expect_error(o, "ff: 100 is no multiple of 32");
  o = {};
  o.dtype = DType::kI8;
  expect_error(o, "type: weights cannot be I8");
  o = {};
  o.rope_freq_base = -1;
  expect_error(o, "rope-freq-base");
}

TEST(TinyVocabularyTest, EveryByteAndEveryMergeHasAToken) {
  const TinyVocabulary vocabulary = MakeTinyVocabulary(2000);
  EXPECT_EQ(vocabulary.tokens.size(), 2000U);
  EXPECT_EQ(vocabulary.types.size(), 2000U);
  EXPECT_EQ(vocabulary.merges.size(), 2000U - 259U);
  const std::set<std::string> tokens(vocabulary.tokens.begin(), vocabulary.tokens.end());
  EXPECT_EQ(tokens.size(), 2000U);
  EXPECT_EQ(vocabulary.tokens[0], "<|endoftext|>");
  EXPECT_EQ(vocabulary.types[2], 3);
  EXPECT_EQ(vocabulary.types[3], 1);
  EXPECT_EQ(vocabulary.tokens[3 + 'A'], "A");
  EXPECT_EQ(vocabulary.tokens[3 + ' '], "\xC4\xA0");   // U+0120
  EXPECT_EQ(vocabulary.tokens[3 + '\n'], "\xC4\x8A");  // U+010A
  EXPECT_EQ(vocabulary.tokens[3 + 0xAD], "\xC5\x83");  // U+0143, the last one moved
  EXPECT_EQ(vocabulary.tokens[3 + 0xFF], "\xC3\xBF");  // U+00FF
  for (const std::string& merge : vocabulary.merges) {
    const size_t space = merge.find(' ');
    const std::string left = merge.substr(0, space), right = merge.substr(space + 1);
    EXPECT_TRUE(tokens.contains(left) && tokens.contains(right) && tokens.contains(left + right)) << merge;
  }
}

TEST(TinyVocabularyTest, TheSmallestHasNoMerges) {
  const TinyVocabulary vocabulary = MakeTinyVocabulary(kTinyModelMinVocab);
  EXPECT_EQ(vocabulary.tokens.size(), 259U);
  EXPECT_TRUE(vocabulary.merges.empty());
}

}  // namespace
}  // namespace longspec
