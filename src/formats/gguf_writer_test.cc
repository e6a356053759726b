// SPDX-License-Identifier: Apache-2.0
//
// What is written as GGUF is read back, and a file is whole or not there.
#include "formats/gguf_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/testing/files.h"
#include "formats/atomic_file.h"
#include "formats/gguf_test_bytes.h"
#include "formats/testing/file_size_limit.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::byte> Pattern(size_t n, unsigned seed) {
  std::vector<std::byte> bytes(n);
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<std::byte>((i * 7 + seed) & 0xFF);
  return bytes;
}

GgufWriter Example() {
  GgufWriter writer;
  writer.SetUint32("u32", 4000000000U);
  writer.SetInt32("i32", -5);
  writer.SetUint64("u64", ~uint64_t{0});
  writer.SetFloat32("f32", 0.1F);
  writer.SetBool("bool", true);
  writer.SetString("string", "text");
  writer.SetStrings("strings", {"a", "", "c"});
  writer.SetInt32s("ints", {-1, 2});
  writer.SetFloat32s("floats", {0.5F});
  writer.AddTensor("vector", DType::kF32, {3}, Pattern(12, 1));
  writer.AddTensor("matrix", DType::kQ4_1, {64, 3}, Pattern(120, 2));
  writer.AddTensor("cube", DType::kI8, {1, 2, 3, 4}, Pattern(24, 3));
  return writer;
}

void ExpectExample(const GgufFile& file) {
  EXPECT_EQ(*file.GetUint("u32"), 4000000000U);
  EXPECT_EQ(std::get<int64_t>(*file.Find("i32")), -5);
  EXPECT_EQ(*file.GetUint("u64"), ~uint64_t{0});
  EXPECT_EQ(*file.GetFloat("f32"), static_cast<double>(0.1F));
  EXPECT_TRUE(*file.GetBool("bool"));
  EXPECT_EQ(*file.GetString("string"), "text");
  EXPECT_THAT(*file.GetStrings("strings"), ElementsAre("a", "", "c"));
  EXPECT_THAT(*file.GetInts("ints"), ElementsAre(-1, 2));
  EXPECT_THAT(*file.GetFloats("floats"), ElementsAre(0.5F));
  EXPECT_EQ(file.metadata().size(), 9U);
  ASSERT_EQ(file.tensors().size(), 3U);
  unsigned seed = 1;
  for (const char* name : {"vector", "matrix", "cube"}) {
    const TensorView* tensor = file.FindTensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    const std::vector<std::byte> expected = Pattern(tensor->n_bytes, seed++);
    EXPECT_EQ(std::memcmp(tensor->data, expected.data(), expected.size()), 0) << name;
  }
  EXPECT_EQ(file.FindTensor("matrix")->dtype, DType::kQ4_1);
  EXPECT_EQ(file.FindTensor("cube")->n_dims, 4);
  EXPECT_EQ(file.FindTensor("cube")->shape[2], 3);
}

TEST(GgufWriterTest, WhatIsSerializedCanBeParsed) {
  const std::vector<std::byte> bytes = Example().Serialize();
  const auto file = GgufFile::Parse(bytes, "memory");
  ASSERT_TRUE(file.ok()) << file.status().message();
  ExpectExample(**file);
}

TEST(GgufWriterTest, EveryTypeRoundTrips) {
  GgufWriter writer;
  for (int i = 0; i <= static_cast<int>(DType::kF64); ++i) {
    const WeightTypeInfo& info = Info(static_cast<DType>(i));
    writer.AddTensor(std::string(info.name), static_cast<DType>(i), {info.block_elements},
                     Pattern(static_cast<size_t>(info.block_bytes), 0));
  }
  const std::vector<std::byte> bytes = writer.Serialize();
  const auto file = GgufFile::Parse(bytes, "memory");
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (const TensorView& tensor : (*file)->tensors()) EXPECT_EQ(tensor.name, Info(tensor.dtype).name);
}

TEST(GgufWriterTest, WritesTheSameBytesAndNoTemporaryFile) {
  const testing::Folder folder;
  const std::string path = folder.File("model.gguf");
  const Status status = Example().Write(path);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(ReadFileBytes(path), Example().Serialize());
  EXPECT_EQ(folder.n_files(), 1U);
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  ExpectExample(**file);
}

TEST(GgufWriterTest, SettingAgainReplaces) {
  GgufWriter writer;
  writer.SetUint32("key", 1);
  writer.SetString("other", "x");
  writer.SetString("key", "now text");
  const std::vector<std::byte> bytes = writer.Serialize();
  const auto file = GgufFile::Parse(bytes, "memory");
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_EQ((*file)->metadata().size(), 2U);
  EXPECT_EQ((*file)->metadata()[0].first, "key");
  EXPECT_EQ(*(*file)->GetString("key"), "now text");
}

TEST(GgufWriterTest, ObeysTheAlignment) {
  GgufWriter writer = Example();
  writer.SetUint32("general.alignment", 256);
  const std::vector<std::byte> bytes = writer.Serialize();
  const auto file = GgufFile::Parse(bytes, "memory");
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (const TensorView& tensor : (*file)->tensors()) EXPECT_EQ((tensor.data - bytes.data()) % 256, 0);
  EXPECT_EQ(bytes.size() % 256, 0U);
}

TEST(GgufWriterDeathTest, WrongUseIsABug) {
  GgufWriter writer = Example();
  EXPECT_DEATH(writer.AddTensor("vector", DType::kF32, {1}, Pattern(4, 0)), "");
  EXPECT_DEATH(writer.AddTensor("", DType::kF32, {1}, Pattern(4, 0)), "");
  EXPECT_DEATH(writer.AddTensor("short", DType::kF32, {2}, Pattern(4, 0)), "");
  EXPECT_DEATH(writer.AddTensor("flat", DType::kF32, {}, Pattern(4, 0)), "");
  EXPECT_DEATH(writer.SetBool("", true), "");
  writer.SetUint32("general.alignment", 48);
  EXPECT_DEATH((void)writer.Serialize(), "");
}

TEST(GgufWriterTest, AFullDiskLeavesTheOldFileAndNothingElse) {
  const testing::Folder folder;
  const std::string path = folder.Write("model.gguf", Pattern(10, 9));
  Status status;
  {
    const testing::FileSizeLimit limit(100);
    status = Example().Write(path);
  }
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_THAT(status.message(), HasSubstr(path));
  EXPECT_EQ(ReadFileBytes(path), Pattern(10, 9));
  EXPECT_EQ(folder.n_files(), 1U);
}

TEST(GgufWriterTest, AMissingFolderIsNamed) {
  const testing::Folder folder;
  const Status status = Example().Write(folder.File("absent/model.gguf"));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("absent/model.gguf.tmp: cannot be created: No such file"));
  EXPECT_EQ(folder.n_files(), 0U);
}

TEST(GgufWriterTest, AFolderInTheWayStays) {
  const testing::Folder folder;
  std::filesystem::create_directory(folder.File("model.gguf"));
  const Status status = Example().Write(folder.File("model.gguf"));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("model.gguf: cannot be replaced"));
  EXPECT_EQ(folder.n_files(), 1U);
}

TEST(AtomicFileTest, WithoutCommitNothingRemains) {
  const testing::Folder folder;
  {
    auto file = AtomicFile::Create(folder.File("x"));
    ASSERT_TRUE(file.ok());
    AtomicFile moved = std::move(*file);
    EXPECT_TRUE(moved.Write(Pattern(5, 0)).ok());
    EXPECT_EQ(folder.n_files(), 1U);
  }
  EXPECT_EQ(folder.n_files(), 0U);
}

// A conversation that others must not read, or that lies elsewhere, stays as it was.
TEST(AtomicFileTest, WhoMayReadAndWhereALinkLeadsStay) {
  const testing::Folder folder;
  const auto write = [&](const std::string& name, size_t n) {
    auto file = AtomicFile::Create(folder.File(name));
    ASSERT_TRUE(file.ok() && file->Write(Pattern(n, 0)).ok() && file->Commit().ok());
  };
  write("x", 5);
  const auto only_mine = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;
  std::filesystem::permissions(folder.File("x"), only_mine);
  std::filesystem::create_symlink("x", folder.File("link"));
  write("link", 7);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.File("link")));
  EXPECT_EQ(ReadFileBytes(folder.File("x")), Pattern(7, 0));
  EXPECT_EQ(std::filesystem::status(folder.File("x")).permissions(), only_mine);
}

TEST(AtomicFileTest, OnlyOneWritesAtOnce) {
  const testing::Folder folder;
  {
    auto first = AtomicFile::Create(folder.File("x"));
    ASSERT_TRUE(first.ok());
    const auto second = AtomicFile::Create(folder.File("x"));
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code(), StatusCode::kIo);
    EXPECT_THAT(second.status().message(), HasSubstr("x.tmp: another process is writing it"));
    EXPECT_TRUE(first->Write(Pattern(5, 0)).ok());
    EXPECT_TRUE(first->Commit().ok());
    EXPECT_TRUE(AtomicFile::Create(folder.File("x")).ok());  // once it is committed
  }
  EXPECT_EQ(ReadFileBytes(folder.File("x")), Pattern(5, 0));
  EXPECT_EQ(folder.n_files(), 1U);
}

TEST(AtomicFileTest, WhatAKilledProcessLeftIsWrittenOver) {
  const testing::Folder folder;
  std::ofstream(folder.File("x.tmp")) << "much longer than what comes";
  auto file = AtomicFile::Create(folder.File("x"));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->Write(Pattern(5, 0)).ok());
  EXPECT_TRUE(file->Commit().ok());
  EXPECT_EQ(ReadFileBytes(folder.File("x")), Pattern(5, 0));
  EXPECT_EQ(folder.n_files(), 1U);
}

TEST(AtomicFileTest, MissingRoomIsKnownBeforeItIsUsed) {
  const testing::Folder folder;
  const auto file = AtomicFile::Create(folder.File("x"), uint64_t{1} << 60);
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(file.status().message(), HasSubstr("x.tmp: cannot be written: "));
  EXPECT_EQ(folder.n_files(), 0U);
}

}  // namespace
}  // namespace longspec
