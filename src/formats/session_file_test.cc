// SPDX-License-Identifier: Apache-2.0
//
// A session comes back from its file as it was; each damage to a byte is noticed.
#include "formats/session_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/testing/files.h"
#include "base/testing/source_path.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

class SessionFileTest : public ::testing::Test {
 protected:
  SessionFileTest() {
    for (int i = 0; i < 3; ++i) chunks_.emplace_back(640, static_cast<std::byte>(i + 1));
    contents_ = {.belongs_to = {{"model", "llama 12ab"}, {"attention", "f32"}},
                 .tokens = {5, 6, 7, 8, 9},
                 .n_positions = 4,
                 .chunk_bytes = 640,
                 .chunk_positions = 2,
                 .chunks = {chunks_[0], chunks_[1]},
                 .sections = {}};
  }

  std::string Bytes() const { return testing::ReadText(path_); }

  const testing::Folder folder_;
  const std::string path_ = folder_.File("x.session");
  std::vector<std::vector<std::byte>> chunks_;
  SessionContents contents_;
};

TEST_F(SessionFileTest, ComesBackAsItWas) {
  ASSERT_TRUE(WriteSessionFile(path_, contents_).ok());
  const auto file = ReadSessionFile(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->contents.belongs_to, contents_.belongs_to);
  EXPECT_EQ(file->contents.tokens, contents_.tokens);
  EXPECT_EQ(file->contents.n_positions, 4);
  ASSERT_EQ(file->contents.chunks.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(std::ranges::equal(file->contents.chunks[i], chunks_[i]));
  }
  EXPECT_TRUE(CheckBelongs(file->contents, contents_.belongs_to, path_).ok());
}

TEST_F(SessionFileTest, AnEmptySessionIsOne) {
  contents_ = {
      .belongs_to = {{"model", "x"}}, .tokens = {}, .n_positions = 0, .chunk_bytes = 640, .chunks = {}};
  ASSERT_TRUE(WriteSessionFile(path_, contents_).ok());
  EXPECT_TRUE(ReadSessionFile(path_)->contents.tokens.empty());
}

TEST_F(SessionFileTest, AnotherModelOrArithmeticIsNamed) {
  const auto message = [&](std::vector<std::pair<std::string, std::string>> here) {
    return CheckBelongs(contents_, here, "old.session").message();
  };
  EXPECT_THAT(
      message({{"model", "llama 99ff"}, {"attention", "f32"}}),
      HasSubstr("old.session: the session was saved with model llama 12ab, and here it is model llama 99ff"));
  EXPECT_THAT(message({{"model", "llama 12ab"}, {"attention", "bf16"}}), HasSubstr("attention f32"));
  EXPECT_THAT(message({{"model", "llama 12ab"}}), HasSubstr("attention f32"));
}

TEST_F(SessionFileTest, EveryDamageIsNoticed) {
  ASSERT_TRUE(WriteSessionFile(path_, contents_).ok());
  const std::string good = Bytes();
  const auto parse = [&](const std::string& bytes) {
    return ParseSession(std::as_bytes(std::span(bytes)), "x.session").status();
  };
  ASSERT_TRUE(parse(good).ok());
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    const Status status = parse(bad);
    ASSERT_EQ(status.code(), StatusCode::kCorrupt) << i;
    ASSERT_THAT(status.message(), HasSubstr("x.session: ")) << i;
  }
  for (size_t n = 0; n < good.size(); ++n) {
    ASSERT_EQ(parse({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)}).code(),
              StatusCode::kCorrupt);
  }
  std::string longer = good;
  longer.push_back(0);
  EXPECT_THAT(parse(longer).message(), HasSubstr("bytes instead of"));
}

// With checksums that are right, sizes that are not are noticed all the same, and nothing is read beyond the
// file.
TEST_F(SessionFileTest, ImpossibleSizesAreRefused) {
  ASSERT_TRUE(WriteSessionFile(path_, contents_).ok());
  const std::string good = Bytes();
  std::mt19937 rng(7);
  int n_refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (unsigned n = 1 + rng() % 3; n > 0; --n) bad[20 + rng() % 28] = static_cast<char>(rng());
    const auto bytes = std::as_writable_bytes(std::span(bad));
    SealSession(bytes);
    n_refused += ParseSession(bytes, "x").ok() ? 0 : 1;
  }
  EXPECT_GT(n_refused, 2500);
  std::string same = good;
  SealSession(std::as_writable_bytes(std::span(same)));
  EXPECT_EQ(same, good);
}

TEST_F(SessionFileTest, SectionsComeBackByName) {
  const std::vector<std::byte> state(70, std::byte{7});
  contents_.sections = {{.name = "draft x", .version = 3, .bytes = state},
                        {.name = "empty", .bytes = {}},
                        {.name = std::string(kMostSectionName, 'y'), .bytes = chunks_[2]}};
  ASSERT_TRUE(WriteSessionFile(path_, contents_).ok());
  const auto file = ReadSessionFile(path_);
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_TRUE(std::ranges::equal(file->contents.chunks[1], chunks_[1]));
  const SessionSection* draft = file->contents.Find("draft x");
  ASSERT_NE(draft, nullptr);
  EXPECT_EQ(draft->version, 3U);
  EXPECT_TRUE(std::ranges::equal(draft->bytes, state));
  EXPECT_FALSE(draft->damaged);
  EXPECT_TRUE(file->contents.Find("empty")->bytes.empty());
  EXPECT_EQ(file->contents.sections.back().bytes.size(), 640U);
  EXPECT_EQ(file->contents.Find("none"), nullptr);

  contents_.sections = {{.name = std::string(kMostSectionName + 1, 'y'), .bytes = {}}};
  EXPECT_EQ(WriteSessionFile(path_, contents_).code(), StatusCode::kInvalidArgument);
  EXPECT_NE(ReadSessionFile(path_)->contents.Find("draft x"), nullptr);  // still what was there
}

// What is lost is lost of that section alone.
TEST_F(SessionFileTest, DamageInASectionIsThatSections) {
  contents_.sections = {{.name = "a", .bytes = chunks_[0]}, {.name = "b", .bytes = chunks_[1]}};
  ASSERT_TRUE(WriteSessionFile(path_, contents_).ok());
  const std::string good = Bytes();
  const size_t before_sections = good.size() - 2 * 640;
  for (size_t i = 0; i < good.size(); i += i + 9 < before_sections ? 7 : 1) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    const auto contents = ParseSession(std::as_bytes(std::span(bad)), "x.session");
    ASSERT_EQ(contents.ok(), i >= before_sections) << i;
    if (!contents.ok()) continue;
    EXPECT_EQ(contents->Find("a")->damaged, i < before_sections + 640) << i;
    EXPECT_EQ(contents->Find("b")->damaged, i >= before_sections + 640) << i;
  }
}

TEST_F(SessionFileTest, SectionsThatCannotBeAreRefused) {
  contents_.sections = {{.name = "a", .bytes = chunks_[0]}, {.name = "b", .bytes = chunks_[1]}};
  ASSERT_TRUE(WriteSessionFile(path_, contents_).ok());
  const std::string good = Bytes();
  const auto with = [&](size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    SealSession(std::as_writable_bytes(std::span(bytes)));
    return ParseSession(std::as_bytes(std::span(bytes)), "x").status().message();
  };
  const std::string text = "model\nllama 12ab\nattention\nf32\n";
  const size_t first = 80 + text.size() + 4 * 5, second = first + 64;  // records
  ASSERT_EQ(good[first], 'a');
  ASSERT_EQ(good[second], 'b');
  EXPECT_EQ(with(first, 'c'), "");
  EXPECT_THAT(with(first, 'b'), HasSubstr("impossible sections"));  // twice
  EXPECT_THAT(with(first, 0), HasSubstr("impossible sections"));    // without a name
  EXPECT_THAT(with(first + 35, 'x'), HasSubstr("impossible sections"));
  EXPECT_THAT(with(second + 47, 1), HasSubstr("impossible sections"));      // 2^56 bytes
  EXPECT_THAT(with(44, kMostSections + 1), HasSubstr("impossible sizes"));  // so many sections
}

// The format before sections.
TEST_F(SessionFileTest, FilesOfVersionOneAreRead) {
  const auto file = ReadSessionFile(testing::SourcePath("src/formats/testdata/fuzz_session_file/version1"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->contents.chunks.size(), 2U);
  EXPECT_FALSE(file->contents.tokens.empty());
  EXPECT_TRUE(file->contents.sections.empty());
}

TEST_F(SessionFileTest, WhatIsThereStaysUntilTheNewOneIsWhole) {
  ASSERT_TRUE(WriteSessionFile(path_, contents_).ok());
  const std::string good = Bytes();
  // As a killed process leaves it.
  std::ofstream(path_ + ".tmp", std::ios::binary) << "half";
  EXPECT_TRUE(ReadSessionFile(path_).ok());
  EXPECT_EQ(Bytes(), good);
  contents_.tokens.push_back(10);
  ASSERT_TRUE(WriteSessionFile(path_, contents_).ok());
  EXPECT_EQ(ReadSessionFile(path_)->contents.tokens.size(), 6U);
  EXPECT_FALSE(std::filesystem::exists(path_ + ".tmp"));
  EXPECT_EQ(ReadSessionFile(path_ + ".none").status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(WriteSessionFile("/nowhere/x.session", contents_).ok());
}

}  // namespace
}  // namespace longspec
