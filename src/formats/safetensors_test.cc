// SPDX-License-Identifier: Apache-2.0
//
// safetensors files are read and written; each kind of damage is refused.
#include "formats/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/counter_rng.h"
#include "base/testing/files.h"
#include "base/testing/source_path.h"
#include "formats/gguf_test_bytes.h"
#include "formats/safetensors_exercise.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::StartsWith;

std::vector<std::byte> File(const std::string& header, size_t n_data, uint64_t length) {
  std::vector<std::byte> bytes(sizeof(length) + header.size() + n_data);
  std::memcpy(bytes.data(), &length, sizeof(length));
  std::memcpy(bytes.data() + sizeof(length), header.data(), header.size());
  return bytes;
}
std::vector<std::byte> File(const std::string& header, size_t n_data = 0) {
  return File(header, n_data, header.size());
}

void ExpectRefused(const std::vector<std::byte>& bytes, const std::string& message,
                   StatusCode code = StatusCode::kCorrupt) {
  const auto file = SafetensorsFile::Parse(bytes, "bad.safetensors");
  ASSERT_FALSE(file.ok()) << message;
  EXPECT_EQ(file.status().code(), code) << file.status().message();
  EXPECT_THAT(file.status().message(), HasSubstr(message));
  EXPECT_THAT(file.status().message(), StartsWith("bad.safetensors: "));
  EXPECT_EQ(file.status().message().find('\n'), std::string::npos);
}

std::string Entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

TEST(Safetensors, ReadsNamesTypesShapesAndBytes) {
  const std::string header = "{\"__metadata__\":{\"format\":\"pt\"}," + Entry("b", "F16", "[3]", "[24,30]") +
                             "," + Entry("a", "F32", "[2,3]", "[0,24]") + "," +
                             Entry("scalar", "BF16", "[]", "[30,32]") + "}   ";
  std::vector<std::byte> bytes = File(header, 32);
  bytes[bytes.size() - 8] = std::byte{0x77};
  const auto file = SafetensorsFile::Parse(bytes, "x");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->path(), "x");
  EXPECT_THAT((*file)->metadata(), ElementsAre(Pair("format", "pt")));
  ASSERT_EQ((*file)->tensors().size(), 3U);
  EXPECT_EQ((*file)->tensors()[0].name, "a");  // in order of their bytes
  const TensorView* a = (*file)->FindTensor("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::kF32);
  EXPECT_EQ(a->n_dims, 2);
  EXPECT_EQ(a->shape[0], 3);
  EXPECT_EQ(a->n_rows(), 2);
  const TensorView* b = (*file)->FindTensor("b");
  EXPECT_EQ(b->data - a->data, 24);
  EXPECT_EQ(b->n_bytes, 6U);
  EXPECT_EQ(b->data[0], std::byte{0x77});
  EXPECT_EQ((*file)->FindTensor("scalar")->n_elements(), 1);
  EXPECT_EQ((*file)->FindTensor("c"), nullptr);
}

TEST(Safetensors, PartsAreWrittenAsOneTensor) {
  const std::vector<int16_t> values = {1, 2, 3, 4, 5, 6};
  const auto bytes = std::as_bytes(std::span(values));
  SafetensorsWriter whole, parts;
  whole.AddTensor("a", DType::kI16, {2, 3}, bytes);
  whole.AddTensor("b", DType::kI16, {1}, bytes.first(2));
  parts.AddTensorInParts("a", DType::kI16, {2, 3}, {bytes.first(4), {}, bytes.subspan(4)});
  parts.AddTensor("b", DType::kI16, {1}, bytes.first(2));
  EXPECT_EQ(parts.Serialize(), whole.Serialize());
  const testing::Folder folder;
  const std::string path = folder.File("parts.safetensors");
  ASSERT_TRUE(parts.Write(path).ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(std::memcmp((*file)->FindTensor("a")->data, values.data(), bytes.size()), 0);
}

TEST(Safetensors, WrittenFilesAreReadBack) {
  std::vector<float> values(30);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) - 3.5F;
  SafetensorsWriter writer;
  writer.SetMetadata("note", "a \"quoted\" line\nand another");
  writer.AddTensor("matrix", DType::kF32, {5, 6}, std::as_bytes(std::span(values)));
  writer.AddTensor("ids", DType::kI64, {2}, std::as_bytes(std::span(values)).first(16));
  writer.AddTensor("half", DType::kF16, {3}, std::as_bytes(std::span(values)).first(6));
  const testing::Folder folder;
  const std::string path = folder.File("m.safetensors");
  ASSERT_TRUE(writer.Write(path).ok());
  EXPECT_EQ(ReadFileBytes(path), writer.Serialize());
  EXPECT_EQ(folder.n_files(), 1U);
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_THAT((*file)->metadata(), ElementsAre(Pair("note", "a \"quoted\" line\nand another")));
  const TensorView* matrix = (*file)->FindTensor("matrix");
  ASSERT_NE(matrix, nullptr);
  EXPECT_EQ(matrix->shape[0], 5);
  EXPECT_EQ(matrix->shape[1], 6);
  EXPECT_EQ(std::memcmp(matrix->data, values.data(), matrix->n_bytes), 0);
  EXPECT_EQ((*file)->FindTensor("ids")->dtype, DType::kI64);
  EXPECT_TRUE(IsSafetensorsType(DType::kBF16));
  EXPECT_FALSE(IsSafetensorsType(DType::kQ8_0));
}

TEST(Safetensors, OpenSaysWhatIsWrongWithTheFile) {
  EXPECT_EQ(SafetensorsFile::Open("/nonexistent.safetensors").status().code(), StatusCode::kNotFound);
  const testing::Folder folder;
  EXPECT_EQ(SafetensorsFile::Open(folder.File("")).status().code(), StatusCode::kInvalidArgument);
  folder.Write("empty", "");
  const auto empty = SafetensorsFile::Open(folder.File("empty"));
  EXPECT_THAT(empty.status().message(), HasSubstr("fewer than 8 bytes"));
  EXPECT_FALSE(SafetensorsWriter().Write("/nonexistent/x.safetensors").ok());
}

// A length that the file does not have, a header that is no JSON object or nests too deep, and bytes of no
// tensor.
TEST(Safetensors, Preamble) {
  ExpectRefused({}, "fewer than 8 bytes");
  ExpectRefused(File("{}", 0, 3), "a header of 3 bytes in a file of 10");
  ExpectRefused(File("{}", 0, ~uint64_t{0}), "a header of 18446744073709551615 bytes");
  ExpectRefused(File("", 0), "not a JSON object");
  ExpectRefused(File("[1]"), "not a JSON object");
  ExpectRefused(File("{\"a\""), "not a JSON object");
  ExpectRefused(File("{\"\xFF\":1}"), "not a JSON object");
  ExpectRefused(File("{} x"), "not a JSON object");
  ExpectRefused(File(std::string(100000, '[')), "nests deeper");
  ExpectRefused(File("{\"a\":{\"shape\":[[1]]}}"), "nests deeper");
  ExpectRefused(File("{}", 3), "3 bytes at the end belong to no tensor");
  EXPECT_TRUE(SafetensorsFile::Parse(File("{}"), "empty").ok());
}

// Metadata are strings by name, and nothing else.
TEST(Safetensors, Metadata) {
  ExpectRefused(File("{\"__metadata__\":3}"), "must be an object of strings");
  ExpectRefused(File("{\"__metadata__\":{\"a\":1}}"), "__metadata__ 'a' must be a string");
}

// Each part of a tensor's entry that is missing, of the wrong kind, or contradicts type, shape or file.
TEST(Safetensors, Tensors) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return File("{" + Entry("t", dtype, shape, offsets) + "}", 8);
  };
  EXPECT_TRUE(SafetensorsFile::Parse(one("F32", "[2]", "[0,8]"), "good").ok());
  ExpectRefused(File("{\"t\":1}"), "tensor 't': needs dtype, shape and data_offsets");
  ExpectRefused(File("{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}"), "needs dtype, shape and data_offsets");
  ExpectRefused(File("{\"t\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4),
                "dtype must be a string");
  ExpectRefused(one("F8_E4M3", "[8]", "[0,8]"), "has type 'F8_E4M3'; supported are F32",
                StatusCode::kUnsupported);
  ExpectRefused(one("F32", "2", "[0,8]"), "shape must be an array");
  ExpectRefused(one("F32", "[1,1,1,1,2]", "[0,8]"), "5 dimensions");
  ExpectRefused(one("F32", "[-2]", "[0,8]"), "whole numbers");
  ExpectRefused(one("F32", "[2.0]", "[0,8]"), "whole numbers");
  ExpectRefused(one("F32", "[0]", "[0,0]"), "dimension 0 is out of range");
  ExpectRefused(one("F32", "[4294967296,4294967296]", "[0,8]"), "out of range");
  ExpectRefused(one("F32", "[18446744073709551615]", "[0,8]"), "out of range");
  ExpectRefused(one("F32", "[2]", "[0,8,9]"), "two whole numbers");
  ExpectRefused(one("F32", "[2]", "[-1,7]"), "two whole numbers");
  ExpectRefused(one("F32", "[2]", "[8,0]"), "bytes 8 to 0 are not in the file's 8");
  ExpectRefused(one("F32", "[2]", "[4,12]"), "bytes 4 to 12 are not in the file's 8");
  ExpectRefused(one("F32", "[1]", "[0,8]"), "8 bytes, its type and shape need 4");
}

TEST(Safetensors, EveryByteBelongsToOneTensor) {
  const auto two = [](const std::string& a, const std::string& b, size_t n_data) {
    return File("{" + Entry("a", "F16", "[2]", a) + "," + Entry("b", "F16", "[2]", b) + "}", n_data);
  };
  EXPECT_TRUE(SafetensorsFile::Parse(two("[4,8]", "[0,4]", 8), "good").ok());
  ExpectRefused(two("[0,4]", "[0,4]", 4), "overlap");
  ExpectRefused(two("[0,4]", "[2,6]", 6), "tensor 'b': its bytes overlap");
  ExpectRefused(two("[0,4]", "[6,10]", 10), "tensor 'b': bytes before it belong to no tensor");
  ExpectRefused(two("[0,4]", "[4,8]", 10), "2 bytes at the end");
  const std::string entry = Entry("a", "F16", "[2]", "[0,4]");
  ExpectRefused(File("{" + entry + "," + entry + "}", 4), "tensor 'a' appears twice");
}

// Random damage: refused or harmless.
TEST(Safetensors, DamagedFiles) {
  std::vector<float> values(16, 1.0F);
  SafetensorsWriter writer;
  writer.SetMetadata("format", "pt");
  writer.AddTensor("one", DType::kF32, {4, 2}, std::as_bytes(std::span(values)).first(32));
  writer.AddTensor("two", DType::kBF16, {8}, std::as_bytes(std::span(values)).first(16));
  const std::vector<std::byte> whole = writer.Serialize();
  ASSERT_TRUE(ExerciseSafetensors(whole));
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(ExerciseSafetensors(std::span(whole).first(n))) << n;
  }
  const RngStream rng{.seed = 5, .purpose = RngPurpose::kTest};
  int refused = 0;
  for (uint64_t round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes = whole;
    for (uint32_t i = 0; i < 3; ++i) {
      const auto at = static_cast<size_t>(rng.Uniform(round, 2 * i) * static_cast<double>(bytes.size()));
      bytes[at] = static_cast<std::byte>(static_cast<int>(rng.Uniform(round, 2 * i + 1) * 256));
    }
    refused += ExerciseSafetensors(bytes) ? 0 : 1;
  }
  EXPECT_GT(refused, 1000);
}

// What fuzzing starts from: files named bad_ are refused, the others are read.
TEST(Safetensors, FuzzCorpus) {
  int n = 0, n_good = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(testing::SourcePath("src/formats/testdata/safetensors_corpus"))) {
    const bool good = ExerciseSafetensors(ReadFileBytes(entry.path().string()));
    EXPECT_EQ(good, !entry.path().filename().string().starts_with("bad_")) << entry.path();
    ++n;
    n_good += good ? 1 : 0;
  }
  EXPECT_GE(n, 8);
  EXPECT_GE(n_good, 3);
}

}  // namespace
}  // namespace longspec
