// SPDX-License-Identifier: Apache-2.0
//
// Calibrations on disk: what was written comes back, anything else in the file is refused.
#include "engine/calibration_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/cache_file.h"
#include "engine/testing/cache_folder.h"
#include "lab/testing/with_lab.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

class CalibrationCacheTest : public ::testing::Test {
 protected:
  testing::CacheFolderOfOne cache_;
  const std::string folder_ = cache_.path();
  const KeptCosts costs_ = {.table = {.rows = {1, 8}, .keys = {256, 4096}, .ms = {5.125, 19.1, 1.0 / 3, 48}},
                            .steady = false,
                            .measured_at = 1'795'000'000};
};

TEST_F(CalibrationCacheTest, WhatIsWrittenComesBack) {
  EXPECT_EQ(ReadCalibration(folder_, "key").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(WriteCalibration(folder_ + "/deeper", "key", costs_).ok());
  const auto read = ReadCalibration(folder_ + "/deeper", "key");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->table.rows, costs_.table.rows);
  EXPECT_EQ(read->table.keys, costs_.table.keys);
  EXPECT_EQ(read->table.ms, costs_.table.ms);
  EXPECT_EQ(read->steady, costs_.steady);
  EXPECT_EQ(read->measured_at, costs_.measured_at);
  EXPECT_EQ(ReadCalibration(folder_ + "/deeper", "other key").status().code(), StatusCode::kNotFound);
}

TEST_F(CalibrationCacheTest, HostileFilesAreRefused) {
  ASSERT_TRUE(WriteCalibration(folder_, "key", costs_).ok());
  const std::string good = cache_.Contents();
  for (size_t n = 0; n < good.size(); ++n) {
    cache_.Overwrite(good.substr(0, n));
    ASSERT_FALSE(ReadCalibration(folder_, "key").ok()) << n;
  }
  cache_.Overwrite(good);
  ASSERT_TRUE(ReadCalibration(folder_, "key").ok());
  const std::string first = "longspec costs 7\nkey\n";
  const std::string head = first + "steady 1\nmeasured_at 1795000000\n";
  for (const std::string& bad :
       {std::string(), std::string("\n\n\n"), std::string(1000, '\0'), first, head,
        first + "rows 1 8\nkeys 256 4096\nms 1 2 3 4\nend\n",
        first + "steady\nmeasured_at\nrows 1 8\nkeys 256 4096\nms 1 2 3 4\nend\n",
        first + "steady 1\nmeasured_at x\nrows 1 8\nkeys 256 4096\nms 1 2 3 4\nend\n",
        head + "rows 1 8\nkeys 256 4096\nms 1 2 3\nend\n",
        head + "rows 1 8\nkeys 256 4096\nms 1 2 3 nan\nend\n",
        head + "rows 1 8\nkeys 256 4096\nms 1 2 3 -4\nend\n",
        head + "rows 1 8\nkeys 256 4096\nms 1 2 3 1e999\nend\n",
        head + "rows 8 1\nkeys 256 4096\nms 1 2 3 4\nend\n",
        head + "rows 1 99999999999\nkeys 256 4096\nms 1 2 3 4\n",
        head + "rows 1 x\nkeys 256 4096\nms 1 2 3 4\nend\n", head + "keys 1 8\nrows 256 4096\nms 1 2 3 4\n",
        head + "rows\nkeys\nms\nend\n", head + "rows 1 8\nkeys 0 4096\nms 1 2 3 4\nend\n"}) {
    cache_.Overwrite(bad);
    EXPECT_FALSE(ReadCalibration(folder_, "key").ok()) << bad;
  }
  std::string many = head + "rows 1";
  for (int i = 2; i < 200; ++i) many += " " + std::to_string(i);
  cache_.Overwrite(many + "\nkeys 1\nms 1\n");
  EXPECT_THAT(ReadCalibration(folder_, "key").status().message(), HasSubstr("too many"));
  cache_.Overwrite(head + std::string(70000, ' '));
  EXPECT_THAT(ReadCalibration(folder_, "key").status().message(), HasSubstr("too large"));
  const std::string path = cache_.TheFile();
  std::filesystem::remove(path);
  std::filesystem::create_directory(path);
  EXPECT_EQ(ReadCalibration(folder_, "key").status().code(), StatusCode::kNotFound);
}

// Of a format that did not know busy machines: it is measured again.
TEST_F(CalibrationCacheTest, AnOlderVersionIsNotRead) {
  ASSERT_TRUE(WriteCalibration(folder_, "key", costs_).ok());
  std::string older = cache_.Contents();
  ASSERT_EQ(older.rfind("longspec costs 7\n", 0), 0U);
  older[15] = '5';
  cache_.Overwrite(older);
  EXPECT_EQ(ReadCalibration(folder_, "key").status().code(), StatusCode::kCorrupt);
}

TEST_F(CalibrationCacheTest, FoldersThatCannotBeWrittenAreAnErrorAndNoMore) {
  EXPECT_FALSE(WriteCalibration("", "key", costs_).ok());
  EXPECT_FALSE(WriteCalibration("/proc/nowhere/longspec", "key", costs_).ok());
  EXPECT_FALSE(ReadCalibration("", "key").ok());
}

TEST_F(CalibrationCacheTest, TheFolderFollowsTheEnvironment) {
  const auto set = [](const char* name, const char* value) {
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  };
  const char* home = std::getenv("HOME");
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const std::string old_home = home == nullptr ? "" : home, old_cache = cache == nullptr ? "" : cache;
  set("XDG_CACHE_HOME", "/x/cache");
  EXPECT_EQ(CacheFolder(), "/x/cache/longspec");
  set("XDG_CACHE_HOME", "relative");
  set("HOME", "/home/me");
  EXPECT_EQ(CacheFolder(), "/home/me/.cache/longspec");
  set("XDG_CACHE_HOME", nullptr);
  set("HOME", nullptr);
  EXPECT_EQ(CacheFolder(), "");
  if (home != nullptr) set("HOME", old_home.c_str());
  if (cache != nullptr) set("XDG_CACHE_HOME", old_cache.c_str());
}

TEST_F(CalibrationCacheTest, TheKeyNamesEverythingACostDependsOn) {
  std::filesystem::create_directories(folder_);
  const std::string path = folder_ + "/m.gguf";
  std::ofstream(path) << "x";
  ModelInfo info;
  info.path = path;
  info.file_bytes = 1;
  info.cpu = "A CPU\nwith a line break";
  info.kernels = "avx2";
  info.threads = 2;
  info.n_ctx = 8192;
  const std::string key = CalibrationKey(info, {});
  EXPECT_EQ(key.find('\n'), std::string::npos);
  EXPECT_EQ(key, CalibrationKey(info, {}));
  const auto changed = [&](auto&& change) {
    ModelInfo other = info;
    ModelOptions options;
    change(other, options);
    return CalibrationKey(other, options) != key;
  };
  EXPECT_TRUE(changed([](auto& i, auto&) { i.kernels = "avx512"; }));
  EXPECT_TRUE(changed([](auto& i, auto&) { i.threads = 3; }));
  EXPECT_TRUE(changed([](auto& i, auto&) { i.cpu = "B"; }));
  EXPECT_TRUE(changed([](auto& i, auto&) { i.file_bytes = 2; }));
  EXPECT_TRUE(changed([](auto& i, auto&) { i.path += "2"; }));
  EXPECT_TRUE(changed([](auto& i, auto&) { i.n_ctx = 4096; }));
  EXPECT_TRUE(changed([](auto&, auto& o) { o.cache_type_k = CacheType::kF32; }));
  EXPECT_TRUE(changed([](auto&, auto& o) { o.attention = AttentionKind::kEager; }));
  std::filesystem::last_write_time(path,
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_NE(CalibrationKey(info, {}), key);
}

}  // namespace
}  // namespace longspec
