// SPDX-License-Identifier: Apache-2.0
//
// A model in several files is one model, and what is missing of it is named.
#include "formats/gguf_shards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "base/testing/files.h"
#include "formats/gguf.h"
#include "formats/gguf_test_bytes.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

TEST(ShardNameTest, ParsesAndFormats) {
  const auto name = ParseShardName("dir/model-Q4-00002-of-00013.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->prefix, "dir/model-Q4");
  EXPECT_EQ(name->number, 2);
  EXPECT_EQ(name->count, 13);
  EXPECT_EQ(FormatShardName(*name), "dir/model-Q4-00002-of-00013.gguf");
  EXPECT_EQ(FormatShardName({"", 99999, 99999}), "-99999-of-99999.gguf");
}

TEST(ShardNameTest, OtherNamesAreNoShards) {
  for (const char* path : {"model.gguf", "model-0001-of-00002.gguf", "model-00001-of-00002.ggu",
                           "model-00001_of-00002.gguf", "model-0000x-of-00002.gguf", ""}) {
    EXPECT_FALSE(ParseShardName(path).has_value()) << path;
  }
}

struct ShardSpec {
  std::optional<uint16_t> number, count;  // split.no, split.count
  std::optional<int32_t> n_tensors;       // split.tensors.count
  std::string tensor;
};

GgufBytes ShardBytes(const ShardSpec& spec, float value) {
  const uint64_t n_entries =
      1U + spec.number.has_value() + spec.count.has_value() + spec.n_tensors.has_value();
  GgufBytes b;
  b.Header(1, n_entries).Entry<float>("value", GgufType::kFloat32, value);
  if (spec.number) b.Entry("split.no", GgufType::kUint16, *spec.number);
  if (spec.count) b.Entry("split.count", GgufType::kUint16, *spec.count);
  if (spec.n_tensors) b.Entry("split.tensors.count", GgufType::kInt32, *spec.n_tensors);
  b.Tensor(spec.tensor, {1}, 0, 0).Data(0).Put(value);
  return b;
}

class GgufShardsTest : public ::testing::Test {
 protected:
  // Writes shards 1.. of `count` and opens shard `number`.
  Result<std::shared_ptr<const GgufFile>> Open(const std::vector<ShardSpec>& specs, int count = 3,
                                               int number = 1) {
    for (size_t i = 0; i < specs.size(); ++i) {
      folder_.Write(FormatShardName({"m", static_cast<int>(i) + 1, count}),
                    ShardBytes(specs[i], static_cast<float>(i + 1)));
    }
    return GgufFile::Open(folder_.File(FormatShardName({"m", number, count})));
  }

  static std::vector<ShardSpec> Specs() { return {{0, 3, 3, "a"}, {1, 3, 3, "b"}, {2, 3, 3, "c"}}; }

  void ExpectError(const Result<std::shared_ptr<const GgufFile>>& result, StatusCode code,
                   const std::vector<std::string>& parts) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), code) << result.status().message();
    for (const std::string& part : parts) EXPECT_THAT(result.status().message(), HasSubstr(part));
  }

  testing::Folder folder_;
};

// Named by its first shard, a model has the tensors of all of them, and the metadata of the first.
TEST_F(GgufShardsTest, OpensAll) {
  const auto file = Open(Specs());
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->tensors().size(), 3U);
  EXPECT_EQ((*file)->file_bytes(), 3 * ShardBytes(Specs()[0], 0).bytes().size());
  EXPECT_EQ(*(*file)->GetFloat("value"), 1.0);  // the first shard's
  ASSERT_EQ((*file)->shards().size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    const GgufShard& shard = (*file)->shards()[i];
    EXPECT_THAT(std::vector(shard.bytes.begin(), shard.bytes.end()),
                ::testing::ElementsAreArray(ShardBytes(Specs()[i], static_cast<float>(i + 1)).bytes()));
    ASSERT_TRUE(shard.identity.has_value());
    EXPECT_EQ(shard.identity->size, shard.bytes.size());
  }
  float value = 0;
  for (const char* name : {"a", "b", "c"}) {
    const TensorView* tensor = (*file)->FindTensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    value += 1;
    EXPECT_EQ(std::memcmp(tensor->data, &value, sizeof value), 0) << name;
  }
}

TEST_F(GgufShardsTest, TheKeysAreOptional) {
  const auto file = Open({{{}, {}, {}, "a"}, {{}, {}, {}, "b"}}, 2);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->tensors().size(), 2U);
}

TEST_F(GgufShardsTest, AMissingShardIsNamed) {
  auto specs = Specs();
  specs.pop_back();
  ExpectError(Open(specs), StatusCode::kNotFound, {"m-00003-of-00003.gguf: missing", "shard 3 of 3"});
}

TEST_F(GgufShardsTest, OnlyTheFirstCanBeOpened) {
  ExpectError(Open(Specs(), 3, 2), StatusCode::kInvalidArgument,
              {"m-00002-of-00003.gguf: shard 2 of 3", "open the first", "m-00001-of-00003.gguf"});
}

TEST_F(GgufShardsTest, ImpossibleNumbersAreRefused) {
  ExpectError(Open({}, 3, 4), StatusCode::kInvalidArgument, {"no shard 4 of 3"});
  ExpectError(Open({}, 3, 0), StatusCode::kInvalidArgument, {"no shard 0 of 3"});
}

TEST_F(GgufShardsTest, KeysMustAgreeWithNames) {
  auto specs = Specs();
  specs[1].number = 2;
  ExpectError(Open(specs), StatusCode::kCorrupt, {"m-00002-of-00003.gguf", "'split.no' is 2, expected 1"});
  specs = Specs();
  specs[2].count = 4;
  ExpectError(Open(specs), StatusCode::kCorrupt, {"m-00003-of-00003.gguf", "'split.count' is 4, expected 3"});
  specs = Specs();
  specs[0].n_tensors = 4;
  ExpectError(Open(specs), StatusCode::kCorrupt,
              {"'split.tensors.count' is 4, but the shards have 3 tensors"});
  specs[0].n_tensors = -1;
  ExpectError(Open(specs), StatusCode::kCorrupt, {"'split.tensors.count' must be an integer"});
}

TEST_F(GgufShardsTest, ATensorInTwoShardsIsRefused) {
  auto specs = Specs();
  specs[2] = {2, 3, 3, "a"};
  ExpectError(Open(specs), StatusCode::kCorrupt, {"tensor 'a' appears twice"});
}

TEST_F(GgufShardsTest, ACorruptShardIsNamed) {
  (void)Open(Specs());
  const std::string path = folder_.File("m-00002-of-00003.gguf");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  ExpectError(GgufFile::Open(folder_.File("m-00001-of-00003.gguf")), StatusCode::kCorrupt,
              {"m-00002-of-00003.gguf: truncated"});
}

TEST_F(GgufShardsTest, ARenamedShardIsNotTakenForAModel) {
  const std::string path = folder_.Write("renamed.gguf", ShardBytes({1, 3, 3, "b"}, 0));
  ExpectError(GgufFile::Open(path), StatusCode::kInvalidArgument, {"renamed.gguf: one of 3 shards"});
  const std::string whole = folder_.Write("whole.gguf", ShardBytes({0, 1, 1, "b"}, 0));
  EXPECT_TRUE(GgufFile::Open(whole).ok());
}

}  // namespace
}  // namespace longspec
