// SPDX-License-Identifier: Apache-2.0
//
// Samples of tasks are read from plain and compressed files; mistakes have a file and a line.
#include "eval/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/files.h"
#include "base/testing/source_path.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kData = testing::SourcePath("src/eval/testdata");

class SamplesTest : public ::testing::Test {
 protected:
  Status Read(const std::string& text, const std::string& name = "x.jsonl") {
    folder_.Write(name, text);
    return ReadFamily(folder_.path(), "x").status();
  }
  const testing::Folder folder_;
};

TEST_F(SamplesTest, ReadsPlainAndGzipFamilies) {
  EXPECT_THAT(*ListFamilies(kData), ElementsAre("code_completion", "needle", "report"));
  const auto reports = ReadFamily(kData, "report");
  ASSERT_TRUE(reports.ok()) << reports.status().message();
  ASSERT_EQ(reports->size(), 3U);
  EXPECT_EQ((*reports)[0].id, "report-0");
  EXPECT_EQ((*reports)[0].family, "report");
  EXPECT_EQ((*reports)[0].instruction, "Summarise the report.");
  EXPECT_TRUE((*reports)[0].reference.has_value());
  const auto code = ReadFamily(kData, "code_completion");
  ASSERT_TRUE(code.ok()) << code.status().message();
  EXPECT_THAT((*code)[1].text, HasSubstr("return x + 1"));
}

TEST_F(SamplesTest, ASubsetMayBeNamed) {
  ASSERT_TRUE(Read("{\"id\":\"a\",\"prompt_text\":\"t\",\"subset\":\"pg19\"}\n"
                   "{\"id\":\"b\",\"prompt_text\":\"t\"}\n")
                  .ok());
  const auto samples = ReadFamily(folder_.path(), "x");
  ASSERT_TRUE(samples.ok());
  EXPECT_EQ((*samples)[0].subset, "pg19");
  EXPECT_EQ((*samples)[1].subset, "");
}

TEST_F(SamplesTest, ErrorsNameFileAndLine) {
  EXPECT_THAT(Read("{\"id\":\"a\",\"prompt_text\":\"t\"}\n\nnot json\n").message(),
              HasSubstr("x.jsonl:3: not a JSON"));
  EXPECT_THAT(Read("[1]\n").message(), HasSubstr("x.jsonl:1: not a JSON object"));
  EXPECT_THAT(Read("{\"prompt_text\":\"t\"}").message(), HasSubstr("`id` is missing"));
  EXPECT_THAT(Read("{\"id\":\"a\"}").message(), HasSubstr("`prompt_text` is missing"));
  EXPECT_THAT(Read("{\"id\":5,\"prompt_text\":\"t\"}").message(), HasSubstr("`id` is not a string"));
  EXPECT_THAT(Read("\n\n").message(), HasSubstr("no samples"));
  EXPECT_TRUE(Read("{\"id\":\"a\",\"prompt_text\":\"t\",\"reference\":null,\"instruction\":null}\r\n").ok());
}

TEST_F(SamplesTest, DamagedGzipIsCorrupt) {
  const std::string good = testing::ReadText(kData + "/code_completion.jsonl.gz");
  EXPECT_EQ(Read(good.substr(0, good.size() - 20), "x.jsonl.gz").code(), StatusCode::kCorrupt);
  std::string flipped = good;
  flipped[good.size() / 2] = static_cast<char>(flipped[good.size() / 2] ^ 0x55);
  EXPECT_EQ(Read(flipped, "x.jsonl.gz").code(), StatusCode::kCorrupt);
}

TEST_F(SamplesTest, FoldersWithoutFamilies) {
  EXPECT_THAT(ListFamilies(folder_.path()).status().message(), HasSubstr("no .jsonl"));
  EXPECT_THAT(ListFamilies(folder_.File("none")).status().message(), HasSubstr("--data"));
  EXPECT_EQ(ReadFamily(folder_.path(), "absent").status().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace longspec
