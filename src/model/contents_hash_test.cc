// SPDX-License-Identifier: Apache-2.0
//
// The hash of a file's contents is remembered, and another file is noticed.
#include "model/contents_hash.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/testing/files.h"
#include "formats/tiny_model.h"

namespace longspec {
namespace {

namespace fs = std::filesystem;
using std::chrono::nanoseconds;
using std::chrono::seconds;

class ContentsHashTest : public ::testing::Test {
 protected:
  ContentsHashTest() { EXPECT_TRUE(WriteTinyModel({}, model_).ok()); }

  Hash128 Hash(nanoseconds settled = nanoseconds(0), int threads = 1) {
    ThreadTeam team(threads);
    const auto file = GgufFile::Open(model_);
    EXPECT_TRUE(file.ok());
    return *HashContents(**file, folder_, team, {}, settled);
  }

  std::vector<fs::path> Memories() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".longspec-hash") paths.push_back(entry.path());
    }
    return paths;
  }

  // Changes the byte at `at` from the end, which leaves the name and the inode as they are.
  static void Flip(const fs::path& path, int at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-at, std::ios::end);
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-at, std::ios::end);
    file.put(byte);
  }

  const testing::Folder own_;
  const fs::path folder_ = own_.path();
  fs::path model_ = folder_ / "model.gguf";
};

TEST_F(ContentsHashTest, IsTheSameRememberedOrNot) {
  const Hash128 fresh = Hash(seconds(3600), 3);
  EXPECT_THAT(Memories(), ::testing::IsEmpty());  // the model was written just now
  EXPECT_EQ(Hash(), fresh);
  ASSERT_EQ(Memories().size(), 1U);
  EXPECT_EQ(Hash(), fresh);
  fs::copy(model_, folder_ / "copy.gguf");
  model_ = folder_ / "copy.gguf";
  EXPECT_EQ(Hash(), fresh);
  EXPECT_EQ(Memories().size(), 2U);
}

TEST_F(ContentsHashTest, WhatIsRememberedIsUsed) {
  Hash();
  const fs::path own = Memories().at(0);
  TinyModelOptions tiny;
  tiny.seed = 2;
  model_ = folder_ / "other.gguf";
  ASSERT_TRUE(WriteTinyModel(tiny, model_).ok());
  const Hash128 other = Hash();
  // A memory of another file under this one's name is not believed, nor is a damaged or shortened one.
  for (const fs::path& path : Memories()) {
    if (path != own) fs::copy_file(own, path, fs::copy_options::overwrite_existing);
  }
  EXPECT_EQ(Hash(), other);
  for (const int at : {1, 17, 33, 64}) {
    for (const fs::path& path : Memories()) Flip(path, at);
    EXPECT_EQ(Hash(), other) << at;
  }
  for (const fs::path& path : Memories()) fs::resize_file(path, 63);
  EXPECT_EQ(Hash(), other);
  // Nothing is read where it is remembered: one report, of the whole.
  ThreadTeam team(1);
  std::vector<double> shares;
  const auto report = [&](double share) {
    shares.push_back(share);
    return shares.size() < 2;
  };
  EXPECT_EQ(HashContents(**GgufFile::Open(model_), folder_, team, report), other);
  EXPECT_THAT(shares, ::testing::ElementsAre(1.0));
  EXPECT_FALSE(HashContents(**GgufFile::Open(model_), folder_, team, report).has_value());
}

TEST_F(ContentsHashTest, AChangedFileIsReadAgainWhateverItsTime) {
  const Hash128 before = Hash();
  const auto time = fs::last_write_time(model_);
  usleep(20000);  // more than a tick of the file system's clock
  Flip(model_, 1);
  fs::last_write_time(model_, time);
  const Hash128 changed = Hash();
  EXPECT_NE(changed, before);
  usleep(20000);
  Flip(model_, 1);
  EXPECT_EQ(Hash(), before);
}

TEST_F(ContentsHashTest, BytesInMemoryAreHashedEachTime) {
  const auto bytes = *TinyModelBytes({});
  const auto file = *GgufFile::Parse(bytes, "memory");
  ThreadTeam team(1);
  EXPECT_EQ(HashContents(*file, folder_, team, {}, nanoseconds(0)), Hash(seconds(3600)));
  EXPECT_THAT(Memories(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace longspec
