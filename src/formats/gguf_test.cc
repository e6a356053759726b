// SPDX-License-Identifier: Apache-2.0
//
// GGUF files that were put together byte by byte are read, and their values are typed.
#include "formats/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <map>

#include "base/testing/files.h"
#include "base/testing/source_path.h"
#include "formats/gguf_test_bytes.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const GgufFile> ParseOrDie(std::span<const std::byte> bytes) {
  auto file = GgufFile::Parse(bytes, "test.gguf");
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? *file : nullptr;
}

TEST(GgufTest, ReadsEveryScalarType) {
  GgufBytes b;
  b.Header(0, 12)
      .Entry<uint8_t>("u8", GgufType::kUint8, 200)
      .Entry<int8_t>("i8", GgufType::kInt8, -100)
      .Entry<uint16_t>("u16", GgufType::kUint16, 60000)
      .Entry<int16_t>("i16", GgufType::kInt16, -30000)
      .Entry<uint32_t>("u32", GgufType::kUint32, 4000000000)
      .Entry<int32_t>("i32", GgufType::kInt32, -2000000000)
      .Entry<uint64_t>("u64", GgufType::kUint64, 18000000000000000000U)
      .Entry<int64_t>("i64", GgufType::kInt64, std::numeric_limits<int64_t>::min())
      .Entry<float>("f32", GgufType::kFloat32, 0.1F)
      .Entry<double>("f64", GgufType::kFloat64, 0.1)
      .Entry<uint8_t>("yes", GgufType::kBool, 1)
      .Key("text", GgufType::kString)
      .String(std::string_view("a\0b", 3));
  const auto file = ParseOrDie(b);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->version(), 3U);
  EXPECT_EQ(file->path(), "test.gguf");
  EXPECT_EQ(file->file_bytes(), b.bytes().size());
  EXPECT_EQ(std::get<uint64_t>(*file->Find("u8")), 200U);
  EXPECT_EQ(std::get<int64_t>(*file->Find("i8")), -100);
  EXPECT_EQ(std::get<uint64_t>(*file->Find("u16")), 60000U);
  EXPECT_EQ(std::get<int64_t>(*file->Find("i16")), -30000);
  EXPECT_EQ(std::get<uint64_t>(*file->Find("u32")), 4000000000U);
  EXPECT_EQ(std::get<int64_t>(*file->Find("i32")), -2000000000);
  EXPECT_EQ(std::get<uint64_t>(*file->Find("u64")), 18000000000000000000U);
  EXPECT_EQ(std::get<int64_t>(*file->Find("i64")), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(std::get<double>(*file->Find("f32")), static_cast<double>(0.1F));
  EXPECT_EQ(std::get<double>(*file->Find("f64")), 0.1);
  EXPECT_TRUE(std::get<bool>(*file->Find("yes")));
  EXPECT_EQ(std::get<std::string>(*file->Find("text")), std::string("a\0b", 3));
  EXPECT_EQ(file->Find("absent"), nullptr);
  EXPECT_FALSE(file->Has("absent"));
  EXPECT_TRUE(file->Has("u8"));
  EXPECT_EQ(file->metadata().front().first, "u8");
  EXPECT_EQ(file->metadata().back().first, "text");
}

template <typename Stored, typename Wide>
void ExpectArray(GgufType type, const std::vector<Stored>& values) {
  GgufBytes b;
  b.Header(0, 1).ArrayEntry("a", type, values.size());
  for (const Stored value : values) b.Put(value);
  const auto file = ParseOrDie(b);
  ASSERT_NE(file, nullptr);
  const auto array = std::get<std::shared_ptr<const GgufArray>>(*file->Find("a"));
  EXPECT_EQ(array->size(), values.size());
  EXPECT_EQ(std::get<std::vector<Wide>>(array->values), std::vector<Wide>(values.begin(), values.end()));
}

TEST(GgufTest, ReadsArraysOfEveryType) {
  ExpectArray<uint8_t, uint64_t>(GgufType::kUint8, {0, 255});
  ExpectArray<int8_t, int64_t>(GgufType::kInt8, {-128, 127});
  ExpectArray<uint16_t, uint64_t>(GgufType::kUint16, {0, 65535});
  ExpectArray<int16_t, int64_t>(GgufType::kInt16, {-32768, 1});
  ExpectArray<uint32_t, uint64_t>(GgufType::kUint32, {1, 0xFFFFFFFF});
  ExpectArray<int32_t, int64_t>(GgufType::kInt32, {-1, 5});
  ExpectArray<uint64_t, uint64_t>(GgufType::kUint64, {~uint64_t{0}});
  ExpectArray<int64_t, int64_t>(GgufType::kInt64, {-1});
  ExpectArray<float, double>(GgufType::kFloat32, {1.5F, 0.1F});
  ExpectArray<double, double>(GgufType::kFloat64, {0.1});
  ExpectArray<uint8_t, bool>(GgufType::kBool, {1, 0, 1});
  ExpectArray<float, double>(GgufType::kFloat32, {});
}

TEST(GgufTest, ReadsNestedArrays) {
  GgufBytes b;
  b.Header(0, 1).ArrayEntry("nested", GgufType::kArray, 2);
  b.Put(GgufType::kString).Put<uint64_t>(1).String("deep");
  b.Put(GgufType::kInt8).Put<uint64_t>(2).Put<int8_t>(-1).Put<int8_t>(1);
  const auto file = ParseOrDie(b);
  ASSERT_NE(file, nullptr);
  const auto outer = std::get<std::shared_ptr<const GgufArray>>(*file->Find("nested"));
  const auto& values = std::get<std::vector<GgufValue>>(outer->values);
  ASSERT_EQ(values.size(), 2U);
  const auto inner = [&](size_t i) { return std::get<std::shared_ptr<const GgufArray>>(values[i])->values; };
  EXPECT_THAT(std::get<std::vector<std::string>>(inner(0)), ElementsAre("deep"));
  EXPECT_THAT(std::get<std::vector<int64_t>>(inner(1)), ElementsAre(-1, 1));
}

TEST(GgufTest, PlacesTensorsByOffsetAndAlignment) {
  GgufBytes b;
  b.Header(2, 1).Entry<uint32_t>("general.alignment", GgufType::kUint32, 64);
  b.Tensor("b", {32, 2}, 3, 64).Tensor("a", {5}, 0, 0).Data(64 + 40, 64);
  const auto file = ParseOrDie(b);
  ASSERT_NE(file, nullptr);
  ASSERT_EQ(file->tensors().size(), 2U);
  const TensorView* matrix = file->FindTensor("b");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->dtype, DType::kQ4_1);
  EXPECT_EQ(matrix->n_dims, 2);
  EXPECT_EQ(matrix->n_bytes, 40U);
  EXPECT_EQ(matrix->n_rows(), 2);
  EXPECT_EQ(matrix->n_elements(), 64);
  const TensorView* vector = file->FindTensor("a");
  ASSERT_NE(vector, nullptr);
  EXPECT_EQ(vector->n_bytes, 20U);
  EXPECT_EQ(vector->data + 64, matrix->data);
  EXPECT_EQ(matrix->row(1), matrix->data + 20);
  EXPECT_EQ((vector->data - b.bytes().data()) % 64, 0);
  EXPECT_EQ(matrix->data + matrix->n_bytes, b.bytes().data() + b.bytes().size());
  EXPECT_EQ(file->FindTensor("c"), nullptr);
}

TEST(GgufTest, ReadsVersionTwo) {
  GgufBytes b;
  b.Header(0, 0, 2);
  const auto file = ParseOrDie(b);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->version(), 2U);
}

class GgufGetTest : public ::testing::Test {
 protected:
  void SetUp() override {
    bytes_.Header(0, 12)
        .Entry<uint32_t>("uint", GgufType::kUint32, 7)
        .Entry<int32_t>("int", GgufType::kInt32, 8)
        .Entry<int32_t>("negative", GgufType::kInt32, -8)
        .Entry<float>("float", GgufType::kFloat32, 2.5F)
        .Entry<uint8_t>("bool", GgufType::kBool, 1)
        .Key("string", GgufType::kString)
        .String("text");
    bytes_.ArrayEntry("strings", GgufType::kString, 2).String("x").String("y");
    bytes_.ArrayEntry("ints", GgufType::kInt32, 2).Put<int32_t>(-1).Put<int32_t>(2);
    bytes_.ArrayEntry("uints", GgufType::kUint32, 1).Put<uint32_t>(3);
    bytes_.ArrayEntry("huge", GgufType::kUint64, 1).Put(~uint64_t{0});
    bytes_.ArrayEntry("floats", GgufType::kFloat32, 2).Put(0.1F).Put(-3.0F);
    bytes_.ArrayEntry("bools", GgufType::kBool, 1).Put<uint8_t>(1);
    file_ = ParseOrDie(bytes_);
    ASSERT_NE(file_, nullptr);
  }

  template <typename T>
  static void ExpectWrongType(const Result<T>& result, const std::string& key, const std::string& expected) {
    ASSERT_FALSE(result.ok()) << key;
    EXPECT_EQ(result.status().code(), StatusCode::kCorrupt);
    EXPECT_EQ(result.status().message(), "test.gguf: metadata key '" + key + "' must be " + expected);
  }

  GgufBytes bytes_;
  std::shared_ptr<const GgufFile> file_;
};

TEST_F(GgufGetTest, ConvertsBetweenIntegersThatFit) {
  EXPECT_EQ(*file_->GetUint("uint"), 7U);
  EXPECT_EQ(*file_->GetUint("int"), 8U);
  ExpectWrongType(file_->GetUint("negative"), "negative", "an integer that is not negative");
  ExpectWrongType(file_->GetUint("float"), "float", "an integer that is not negative");
  ExpectWrongType(file_->GetUint("bool"), "bool", "an integer that is not negative");
  ExpectWrongType(file_->GetUint("ints"), "ints", "an integer that is not negative");
}

TEST_F(GgufGetTest, FloatsAcceptIntegers) {
  EXPECT_EQ(*file_->GetFloat("float"), 2.5);
  EXPECT_EQ(*file_->GetFloat("uint"), 7.0);
  EXPECT_EQ(*file_->GetFloat("negative"), -8.0);
  ExpectWrongType(file_->GetFloat("string"), "string", "a number");
}

TEST_F(GgufGetTest, StringsAndBoolsAreExact) {
  EXPECT_EQ(*file_->GetString("string"), "text");
  ExpectWrongType(file_->GetString("uint"), "uint", "a string");
  EXPECT_TRUE(*file_->GetBool("bool"));
  ExpectWrongType(file_->GetBool("uint"), "uint", "a bool");
}

// An array is read as what was asked for if each of its elements is that, else the key and what it should be
// are named.
TEST_F(GgufGetTest, Arrays) {
  EXPECT_THAT(*file_->GetStrings("strings"), ElementsAre("x", "y"));
  ExpectWrongType(file_->GetStrings("ints"), "ints", "an array of strings");
  ExpectWrongType(file_->GetStrings("string"), "string", "an array of strings");
  EXPECT_THAT(*file_->GetInts("ints"), ElementsAre(-1, 2));
  EXPECT_THAT(*file_->GetInts("uints"), ElementsAre(3));
  ExpectWrongType(file_->GetInts("huge"), "huge", "an array of integers up to 2^63 - 1");
  ExpectWrongType(file_->GetInts("floats"), "floats", "an array of integers up to 2^63 - 1");
  EXPECT_THAT(*file_->GetFloats("floats"), ElementsAre(0.1F, -3.0F));
  EXPECT_THAT(*file_->GetFloats("ints"), ElementsAre(-1.0F, 2.0F));
  EXPECT_THAT(*file_->GetFloats("uints"), ElementsAre(3.0F));
  ExpectWrongType(file_->GetFloats("bools"), "bools", "an array of numbers");
}

TEST_F(GgufGetTest, MissingKeysAreNamed) {
  const auto missing = file_->GetUint("llama.block_count");
  EXPECT_EQ(missing.status().code(), StatusCode::kNotFound);
  EXPECT_EQ(
      missing.status().message(),
      "test.gguf: metadata key 'llama.block_count' is missing; it must be an integer that is not negative");
}

TEST_F(GgufGetTest, FallbacksServeAbsentKeysOnly) {
  EXPECT_EQ(*file_->GetUintOr("absent", 5), 5U);
  EXPECT_EQ(*file_->GetUintOr("uint", 5), 7U);
  EXPECT_EQ(*file_->GetFloatOr("absent", 0.5), 0.5);
  EXPECT_EQ(*file_->GetFloatOr("float", 0.5), 2.5);
  EXPECT_EQ(*file_->GetStringOr("absent", "other"), "other");
  EXPECT_EQ(*file_->GetStringOr("string", "other"), "text");
  EXPECT_FALSE(*file_->GetBoolOr("absent", false));
  EXPECT_TRUE(*file_->GetBoolOr("bool", false));
  ExpectWrongType(file_->GetUintOr("string", 5), "string", "an integer that is not negative");
}

TEST(GgufOpenTest, MissingAndEmptyFilesAreErrors) {
  const testing::Folder folder;
  EXPECT_EQ(GgufFile::Open(folder.File("absent.gguf")).status().code(), StatusCode::kNotFound);
  const auto empty = GgufFile::Open(folder.Write("empty.gguf", ""));
  EXPECT_EQ(empty.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(empty.status().message(), HasSubstr("at least 4 bytes expected, 0 present"));
  EXPECT_FALSE(GgufFile::Open(folder.path()).ok());
}

TEST(GgufOpenTest, MapsAFile) {
  const testing::Folder folder;
  GgufBytes b;
  b.Header(1, 0).Tensor("t", {4}, 0, 0).Data(0).Put(1.0F).Put(2.0F).Put(3.0F).Put(4.0F);
  const auto file = GgufFile::Open(folder.Write("one.gguf", b));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->path(), folder.File("one.gguf"));
  const TensorView* tensor = (*file)->FindTensor("t");
  ASSERT_NE(tensor, nullptr);
  const float expected[] = {1, 2, 3, 4};
  EXPECT_EQ(std::memcmp(tensor->data, expected, sizeof expected), 0);
}

TEST(GgufOpenTest, OpensTheDefaultModel) {
  const std::string path = testing::SourcePath("models/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const GgufFile& gguf = **file;
  std::map<DType, int> n_by_type;
  for (const TensorView& tensor : gguf.tensors()) ++n_by_type[tensor.dtype];
  EXPECT_EQ(n_by_type, (std::map<DType, int>{{DType::kQ4_1, 210}, {DType::kF32, 61}, {DType::kQ8_0, 1}}));
  EXPECT_EQ(gguf.file_bytes(), std::filesystem::file_size(path));
  EXPECT_EQ(*gguf.GetString("general.architecture"), "llama");
  EXPECT_EQ(*gguf.GetUint("llama.block_count"), 30U);
  EXPECT_EQ(*gguf.GetFloat("llama.rope.freq_base"), 100000.0);
  const auto tokens = gguf.GetStrings("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens.ok());
  EXPECT_EQ(tokens->size(), 49152U);
  EXPECT_EQ((*tokens)[1], "<|im_start|>");
  const TensorView* embedding = gguf.FindTensor("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->dtype, DType::kQ8_0);
  EXPECT_EQ(embedding->shape[0], 576);
  EXPECT_EQ(embedding->shape[1], 49152);
}

}  // namespace
}  // namespace longspec
