// SPDX-License-Identifier: Apache-2.0
//
// Which model runs where none was named.
#include "cli/model_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>

#include "base/testing/files.h"

namespace longspec::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr char kCoder[] = "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf";
constexpr char kSmallCoder[] = "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf";
constexpr char kSmall[] = "SmolLM2-135M-Instruct.Q4_1.gguf";

class ModelChoice : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"near", "far"}) std::filesystem::create_directory(Folder(folder));
  }

  std::string Folder(const std::string& name) const { return root_.File(name); }
  void Put(const std::string& folder, const std::string& name) const {
    root_.Write(folder + "/" + name, "x");
  }
  Result<std::string> Choose() const {
    return ChooseModel({Folder("near"), Folder("nowhere"), Folder("far")});
  }

 private:
  const longspec::testing::Folder root_;
};

TEST_F(ModelChoice, TheCoderComesFirst) {
  Put("near", kSmall);
  EXPECT_EQ(*Choose(), Folder("near") + "/" + kSmall);
  Put("near", kSmallCoder);
  EXPECT_EQ(*Choose(), Folder("near") + "/" + kSmallCoder);
  Put("near", kCoder);
  Put("near", "another.gguf");
  EXPECT_EQ(*Choose(), Folder("near") + "/" + kCoder);
}

TEST_F(ModelChoice, TheNearestFolderThatHasAnyDecides) {
  Put("far", kCoder);
  EXPECT_EQ(*Choose(), Folder("far") + "/" + kCoder);
  Put("near", kSmall);
  EXPECT_EQ(*Choose(), Folder("near") + "/" + kSmall);
}

TEST_F(ModelChoice, TheOnlyFileIsMeant) {
  Put("near", "mine-00001-of-00002.gguf");
  Put("near", "mine-00002-of-00002.gguf");
  Put("near", "README.md");
  std::filesystem::create_directories(Folder("near/folder.gguf"));
  EXPECT_EQ(*Choose(), Folder("near") + "/mine-00001-of-00002.gguf");
}

TEST_F(ModelChoice, OfSeveralNoneIsGuessed) {
  Put("near", "b.gguf");
  Put("near", "a.gguf");
  Put("far", kCoder);
  EXPECT_THAT(Choose().status().message(), HasSubstr(Folder("near") + " has a.gguf, b.gguf: say it with -m"));
}

TEST_F(ModelChoice, NoneSaysWhatWouldBeRight) {
  const std::string message = Choose().status().message();
  EXPECT_THAT(message, HasSubstr(Folder("far")));
  EXPECT_THAT(message, HasSubstr("'make model'"));
}

TEST_F(ModelChoice, FoldersAreHereBesideTheBuildAndTheUsers) {
  const char* old = std::getenv("XDG_DATA_HOME");
  const std::string kept = old == nullptr ? "" : old;
  setenv("XDG_DATA_HOME", "/somewhere", 1);
  const std::vector<std::string> folders = ModelFolders();
  old == nullptr ? unsetenv("XDG_DATA_HOME") : setenv("XDG_DATA_HOME", kept.c_str(), 1);
  ASSERT_EQ(folders.size(), 3U);
  EXPECT_EQ(folders[0], "models");
  EXPECT_THAT(folders[1], EndsWith("/models"));
  EXPECT_EQ(folders[2], "/somewhere/longspec/models");
}

TEST_F(ModelChoice, AnOptionThatIsGivenIsTaken) {
  for (const std::string value : {"x.gguf", ""}) {
    CLI::App app;
    std::string path;
    AddModelFile(app, &path, "GGUF file");
    const char* arguments[] = {"longspec", "-m", value.c_str()};
    if (value.empty()) {
      EXPECT_THROW(app.parse(3, arguments), CLI::ValidationError);
    } else {
      app.parse(3, arguments);
      EXPECT_EQ(path, value);
    }
  }
}

}  // namespace
}  // namespace longspec::cli
