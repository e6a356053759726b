// SPDX-License-Identifier: Apache-2.0
//
// Files that are wrong: each is refused with a message that says what and where, and none does harm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "base/counter_rng.h"
#include "base/mapped_file.h"
#include "base/testing/sanitized.h"
#include "base/testing/source_path.h"
#include "formats/gguf.h"
#include "formats/gguf_exercise.h"
#include "formats/gguf_test_bytes.h"
#include "formats/tiny_model.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;
using testing::kSanitized;

constexpr uint32_t kF32 = 0, kQ4_0 = 2;

void ExpectRefused(std::span<const std::byte> bytes, const std::string& message,
                   StatusCode code = StatusCode::kCorrupt) {
  const auto file = GgufFile::Parse(bytes, "bad.gguf");
  ASSERT_FALSE(file.ok()) << message;
  EXPECT_EQ(file.status().code(), code) << file.status().message();
  EXPECT_THAT(file.status().message(), HasSubstr(message));
  EXPECT_THAT(file.status().message(), ::testing::StartsWith("bad.gguf: "));
  EXPECT_EQ(file.status().message().find('\n'), std::string::npos);
}

// Another kind of file, an unknown version, or one of the other byte order.
TEST(GgufHostileTest, Preamble) {
  ExpectRefused(GgufBytes().Put('P').Put('K').Put('\x03').Put('\x04').Data(64), "not a GGUF file");
  ExpectRefused(GgufBytes().Header(0, 0, 0), "GGUF version 0 is not supported", StatusCode::kUnsupported);
  ExpectRefused(GgufBytes().Header(0, 0, 1), "GGUF version 1 is not supported", StatusCode::kUnsupported);
  ExpectRefused(GgufBytes().Header(0, 0, 4), "GGUF version 4 is not supported", StatusCode::kUnsupported);
  ExpectRefused(GgufBytes().Header(0, 0, 3U << 24), "big-endian", StatusCode::kUnsupported);
}

TEST(GgufHostileTest, AbsurdCountsAreRefusedBeforeAllocating) {
  constexpr uint64_t kHuge = ~uint64_t{0};
  ExpectRefused(GgufBytes().Header(kHuge, 0), "18446744073709551615 tensors in the header do not fit");
  ExpectRefused(GgufBytes().Header(0, kHuge), "18446744073709551615 metadata entries");
  ExpectRefused(GgufBytes().Header(2, 0).Data(40), "2 tensors in the header do not fit");
  for (const auto type :
       {GgufType::kUint8, GgufType::kFloat64, GgufType::kBool, GgufType::kString, GgufType::kArray}) {
    ExpectRefused(GgufBytes().Header(0, 1).ArrayEntry("a", type, kHuge),
                  "array elements in metadata key 'a'");
    ExpectRefused(GgufBytes().Header(0, 1).ArrayEntry("a", type, uint64_t{1} << 40).Data(64),
                  "array elements in metadata key 'a'");
  }
  ExpectRefused(GgufBytes().Header(0, 1).Put(kHuge).Data(64), "more than 2^64 bytes expected");
  ExpectRefused(GgufBytes().Header(0, 1).Key("s", GgufType::kString).Put<uint64_t>(1000),
                "truncated in metadata key 's': at least 1045 bytes expected, 45 present");
}

// Keys that are empty or there twice, unknown types, bools that are neither; a key is shown without control
// characters and not in full length.
TEST(GgufHostileTest, Metadata) {
  ExpectRefused(GgufBytes().Header(0, 1).Entry<uint8_t>("", GgufType::kUint8, 0),
                "metadata entry 0 has an empty key");
  ExpectRefused(GgufBytes()
                    .Header(0, 2)
                    .Entry<uint8_t>("k", GgufType::kUint8, 0)
                    .Entry<uint8_t>("k", GgufType::kBool, 0),
                "metadata key 'k' appears twice");
  ExpectRefused(GgufBytes().Header(0, 1).Entry<uint32_t>("k", GgufType{13}, 0),
                "'k' has unknown value type 13");
  ExpectRefused(GgufBytes().Header(0, 1).ArrayEntry("k", GgufType{13}, 0),
                "'k' is an array of unknown type 13");
  ExpectRefused(GgufBytes().Header(0, 1).Entry<uint8_t>("k", GgufType::kBool, 2), "a bool of value 2");
  ExpectRefused(GgufBytes().Header(0, 1).ArrayEntry("k", GgufType::kBool, 1).Put<uint8_t>(255),
                "a bool of value 255");
  ExpectRefused(GgufBytes().Header(0, 1).Entry<uint8_t>("a\nb\x01", GgufType::kBool, 2),
                "key 'a\\x0ab\\x01'");
  ExpectRefused(GgufBytes().Header(0, 1).Entry<uint8_t>(std::string(500, 'k'), GgufType::kBool, 2),
                std::string(80, 'k') + "...'");
}

TEST(GgufHostileTest, ArraysNestedTooDeepAreRefused) {
  const auto nested = [](int depth) {
    GgufBytes b;
    b.Header(0, 1).Key("n", GgufType::kArray);
    for (int i = 1; i < depth; ++i) b.Put(GgufType::kArray).Put<uint64_t>(1);
    b.Put(GgufType::kUint8).Put<uint64_t>(0);
    return b;
  };
  EXPECT_TRUE(GgufFile::Parse(nested(8), "good.gguf").ok());
  ExpectRefused(nested(9), "arrays nested more than 8 deep");
  ExpectRefused(nested(10000), "arrays nested more than 8 deep");
}

// An alignment that would overflow sums, or would not be one.
TEST(GgufHostileTest, Alignment) {
  for (const uint32_t alignment : {0U, 1U, 4U, 24U, 33U, 1U << 21, 1U << 31}) {
    ExpectRefused(GgufBytes().Header(0, 1).Entry("general.alignment", GgufType::kUint32, alignment),
                  "'general.alignment' must be a power of two");
  }
  ExpectRefused(GgufBytes().Header(0, 1).Entry("general.alignment", GgufType::kFloat32, 32.0F),
                "'general.alignment' must be a power of two");
}

GgufBytes OneTensor(std::string_view name, const std::vector<uint64_t>& shape, uint32_t type,
                    uint64_t offset = 0, size_t n_data = 1024) {
  GgufBytes b;
  b.Header(1, 0).Tensor(name, shape, type, offset).Data(n_data);
  return b;
}

TEST(GgufHostileTest, TensorNamesAndShapes) {
  ExpectRefused(OneTensor("", {4}, kF32), "tensor 0 has a name of 0 bytes");
  EXPECT_TRUE(GgufFile::Parse(OneTensor(std::string(64, 'n'), {4}, kF32), "good.gguf").ok());
  ExpectRefused(OneTensor(std::string(65, 'n'), {4}, kF32),
                "tensor 0 has a name of 65 bytes, expected 1 to 64");
  ExpectRefused(OneTensor("t", {}, kF32), "tensor 't' has 0 dimensions, expected 1 to 4");
  ExpectRefused(OneTensor("t", {1, 1, 1, 1, 1}, kF32), "tensor 't' has 5 dimensions");
  ExpectRefused(OneTensor("t", {4, 0}, kF32), "tensor 't': dimension 1 is not positive");
  ExpectRefused(OneTensor("t", {uint64_t{1} << 63}, kF32), "tensor 't': dimension 0 is not positive");
  ExpectRefused(OneTensor("t", {uint64_t{1} << 32, uint64_t{1} << 32}, kF32),
                "product of its dimensions overflows");
  ExpectRefused(OneTensor("t", {uint64_t{1} << 62}, kF32), "product of its dimensions overflows");
  ExpectRefused(OneTensor("t", {33}, kQ4_0), "rows of 33 elements, expected a multiple of 32 for Q4_0");
  ExpectRefused(OneTensor("t", {16, 2}, kQ4_0), "rows of 16 elements");
}

// An unknown number is a damaged file, a known type that is not supported is named.
TEST(GgufHostileTest, TensorTypes) {
  for (const uint32_t number : {4U, 5U, 31U, 36U, 40U, 0xFFFFFFFFU}) {
    ExpectRefused(OneTensor("t", {256}, number),
                  "tensor 't' has unknown type number " + std::to_string(number));
  }
  ExpectRefused(OneTensor("t", {256}, 16), "tensor 't' has type IQ2_XXS, which is not supported",
                StatusCode::kUnsupported);
  ExpectRefused(OneTensor("t", {256}, 10), "tensor 't' has type Q2_K, which is not supported",
                StatusCode::kUnsupported);
}

// A tensor lies where the one before it ends, and inside the file.
TEST(GgufHostileTest, TensorPlaces) {
  ExpectRefused(OneTensor("t", {4}, kF32, 16), "tensor 't' lies at offset 16, expected a multiple of 32");
  ExpectRefused(OneTensor("t", {4}, kF32, 1024),
                "truncated: 1104 bytes expected (the end of tensor 't'), 1088 present");
  ExpectRefused(OneTensor("t", {257}, kF32), "truncated: 1092 bytes expected");
  ExpectRefused(OneTensor("t", {4}, kF32, ~uint64_t{31}), "tensor 't' lies at offset 18446744073709551584");
  // Longer than what remains, by so much that sums could wrap.
  ExpectRefused(OneTensor("t", {uint64_t{1} << 60}, kF32), "truncated");
}

TEST(GgufHostileTest, OverlapsAndDuplicates) {
  const auto two = [](std::string_view a, uint64_t offset_a, std::string_view b, uint64_t offset_b) {
    GgufBytes bytes;
    bytes.Header(2, 0).Tensor(a, {16}, kF32, offset_a).Tensor(b, {8}, kF32, offset_b).Data(96);
    return bytes;
  };
  EXPECT_TRUE(GgufFile::Parse(two("a", 0, "b", 64), "good.gguf").ok());
  EXPECT_TRUE(GgufFile::Parse(two("a", 32, "b", 0), "good.gguf").ok());
  ExpectRefused(two("a", 0, "b", 32), "tensors 'a' and 'b' overlap");
  ExpectRefused(two("a", 32, "b", 32), "overlap");
  ExpectRefused(two("t", 0, "t", 64), "tensor 't' appears twice");
}

// A small model with a bit of everything.
std::vector<std::byte> SmallFile() {
  GgufBytes b;
  b.Header(2, 4).Entry<uint32_t>("u", GgufType::kUint32, 1).Key("s", GgufType::kString).String("text");
  b.ArrayEntry("strings", GgufType::kString, 2).String("x").String("");
  b.ArrayEntry("nested", GgufType::kArray, 1).Put(GgufType::kBool).Put<uint64_t>(1).Put<uint8_t>(1);
  b.Tensor("a", {32, 2}, kQ4_0, 0).Tensor("b", {3}, kF32, 64).Data(64 + 12);
  return b.bytes();
}

TEST(GgufHostileTest, TruncationAtEveryByteSaysSo) {
  const std::vector<std::byte> whole = SmallFile();
  ASSERT_TRUE(ExerciseGguf(whole));
  for (size_t n = 0; n < whole.size(); ++n) {
    // A copy of its own, so that reading past its end is seen by the address sanitizer.
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    ExpectRefused(part, "truncated");
  }
}

TEST(GgufHostileTest, EveryFlippedBitIsHarmless) {
  const std::vector<std::byte> whole = SmallFile();
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::vector<std::byte> bytes = whole;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    (void)ExerciseGguf(bytes);
  }
}

TEST(GgufHostileTest, RandomBytesInAModelAreHarmless) {
  TinyModelOptions options;
  options.n_layers = 1;
  options.n_vocab = kTinyModelMinVocab;
  options.n_embd = options.n_ff = 32;
  options.dtype = DType::kQ4_0;
  const auto model = TinyModelBytes(options);
  ASSERT_TRUE(model.ok());
  const RngStream rng{1, 0, RngPurpose::kTest};
  const int n_trials = kSanitized ? 300 : 2000;
  size_t n_refused = 0;
  for (int trial = 0; trial < n_trials; ++trial) {
    std::vector<std::byte> bytes = *model;
    for (uint32_t i = 0; i < 8; ++i) {
      const auto at = static_cast<uint64_t>(trial);
      const auto place = static_cast<size_t>(rng.Uniform(at, 2 * i) * static_cast<double>(bytes.size()));
      bytes[place] = static_cast<std::byte>(rng.Uniform(at, 2 * i + 1) * 256);
    }
    n_refused += !ExerciseGguf(bytes);
  }
  EXPECT_GT(n_refused, 0U);
}

TEST(GgufHostileTest, TheDefaultModelsHeaderTruncatedEverywhere) {
  const std::string path = testing::SourcePath("models/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
  const auto mapped = MappedFile::Open(path);
  ASSERT_TRUE(mapped.ok());
  const auto whole = GgufFile::Parse(mapped->bytes(), "whole.gguf");
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  const auto header = static_cast<size_t>((*whole)->tensors().front().data - mapped->bytes().data());
  // Sanitizers take twenty times as long for the same loop over the vocabulary.
  const size_t step = std::getenv("LONGSPEC_SKIP_SLOW") != nullptr ? 16384 : kSanitized ? 4096 : 1024;
  for (size_t n = 0; n <= header; n += step) {
    ExpectRefused(mapped->bytes().first(n), "truncated");
  }
  ExpectRefused(mapped->bytes().first(mapped->bytes().size() - 1), "truncated: ");
}

TEST(GgufCorpusTest, EveryFileIsHarmless) {
  size_t n_files = 0, n_good = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(testing::SourcePath("src/formats/testdata/gguf_corpus"))) {
    ++n_files;
    n_good += ExerciseGguf(ReadFileBytes(entry.path().string()));
  }
  EXPECT_GE(n_files, 10U);
  EXPECT_GE(n_good, 4U);
}

}  // namespace
}  // namespace longspec
