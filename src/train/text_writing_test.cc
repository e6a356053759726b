// SPDX-License-Identifier: Apache-2.0
//
// Texts after beginnings: runs that are stopped and go on, and what is refused.
#include "train/text_writing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "formats/feature_shard.h"
#include "formats/testing/file_size_limit.h"
#include "formats/tiny_model.h"
#include "train/feature_set.h"
#include "train/testing/rig.h"

namespace longspec::train {
namespace {

using longspec::testing::FileSizeLimit;
using ::testing::HasSubstr;
using testing::ReadText;
using testing::Rig;
using testing::SequenceTokens;

void LearnNothing(FeatureHeader& header, std::vector<int8_t>& loss) {
  header.source = "of a test";
  std::ranges::fill(loss, 0);
}

// Beginnings of these lengths, each of other tokens, and how they are ended.
struct Writing {
  explicit Writing(const std::vector<int>& lengths = {3, 9, 1, 5, 9, 4, 2})
      : rig(Beginnings(lengths), LearnNothing, {}, {.kv = false}, 0) {
    options.beginnings = rig.options.features;
    options.model = rig.options.model;
    options.output = rig.folder.File("texts");
    options.max_tokens = 6;
    options.temperatures = {0.0F, 1.0F};
    options.at_once = 3;
    options.device = "cpu";
  }

  static std::vector<std::vector<int32_t>> Beginnings(const std::vector<int>& lengths) {
    std::vector<std::vector<int32_t>> all;
    for (const int length : lengths) all.push_back(SequenceTokens(static_cast<int>(all.size()), length));
    return all;
  }

  Result<TextSummary> Run(int stop_after = 1 << 30) {
    calls = 0;
    return WriteTexts(options, [&](const TextProgress& p) {
      last = p;
      return ++calls < stop_after;
    });
  }
  std::string Error() { return Run().status().message(); }

  // The bytes of all files, by name.
  std::vector<std::pair<std::string, std::string>> Files() const {
    std::vector<std::pair<std::string, std::string>> files;
    for (const auto& entry : std::filesystem::directory_iterator(options.output)) {
      files.emplace_back(entry.path().filename().string(), ReadText(entry.path().string()));
    }
    std::ranges::sort(files);
    return files;
  }
  std::vector<std::vector<int32_t>> Texts() const {
    std::vector<std::vector<int32_t>> texts;
    const auto shards = OpenFeatureShards(options.output);
    EXPECT_TRUE(shards.ok()) << shards.status().message();
    for (const auto& shard : *shards) {
      for (int i = 0; i < shard->n_sequences(); ++i) {
        const FeatureSequence s = shard->sequence(i);
        EXPECT_EQ(std::ranges::count(s.loss, 0), 0);
        texts.emplace_back(s.tokens.begin(), s.tokens.end());
      }
    }
    return texts;
  }

  Rig rig;
  TextOptions options;
  TextProgress last;
  int calls = 0;
};

TEST(WriteTexts, GoOnAfterBeginningsInTheirOrder) {
  const std::vector<int> lengths = {3, 9, 1, 5, 9, 4, 2};
  Writing writing(lengths);
  const auto made = writing.Run();
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->texts, 7);
  EXPECT_EQ(made->shards, 3);
  EXPECT_EQ(made->left_out, 0);
  const auto beginnings = Writing::Beginnings(lengths), texts = writing.Texts();
  ASSERT_EQ(texts.size(), 7U);
  int64_t tokens = 0, written = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    ASSERT_GT(texts[i].size(), beginnings[i].size());
    EXPECT_LE(texts[i].size(), beginnings[i].size() + 6);
    EXPECT_TRUE(std::ranges::equal(std::span(texts[i]).first(beginnings[i].size()), beginnings[i])) << i;
    tokens += std::ssize(texts[i]);
    written += std::ssize(texts[i]) - std::ssize(beginnings[i]);
  }
  EXPECT_EQ(made->tokens, tokens);
  EXPECT_EQ(writing.last.tokens, written);
  EXPECT_EQ(writing.last.texts, 7);
  EXPECT_EQ(writing.last.all, 7);
  const auto shards = OpenFeatureShards(writing.options.output);
  EXPECT_FALSE(shards->front()->header().keep.any());
  EXPECT_EQ(shards->front()->header().target,
            OpenFeatureShards(writing.options.beginnings[0])->front()->header().target);
  // And they are what longspec-train reads.
  const auto set = FeatureSet::Open(std::vector{writing.options.output});
  ASSERT_TRUE(set.ok()) << set.status().message();
  EXPECT_EQ(set->n_sequences(), 7);
}

// Stopped anywhere, a run ends in the same files; then nothing is left to write.
TEST(WriteTexts, AStoppedRunGoesOn) {
  Writing whole;
  ASSERT_TRUE(whole.Run().ok());
  const auto expected = whole.Files();
  ASSERT_EQ(expected.size(), 3U);
  Writing rig;
  EXPECT_EQ(rig.Run(3).status().code(), StatusCode::kCancelled);  // in the first batch: nothing is complete
  EXPECT_TRUE(rig.Files().empty());
  int stops = 0;
  while (true) {
    const auto made = rig.Run(8);
    if (made.ok()) break;
    ASSERT_EQ(made.status().code(), StatusCode::kCancelled) << made.status().message();
    ASSERT_LT(++stops, 9);
  }
  EXPECT_GE(stops, 2);
  EXPECT_TRUE(rig.Files() == expected);  // not shown: bytes
  const auto again = rig.Run();
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(rig.calls, 0);
  EXPECT_EQ(again->texts, 7);
  EXPECT_EQ(again->shards, 3);
  EXPECT_TRUE(rig.Files() == expected);
}

// So several machines can share the work.
TEST(WriteTexts, PartsAreThoseOfTheWhole) {
  Writing whole, part;
  ASSERT_TRUE(whole.Run().ok());
  part.options.first = 3;
  part.options.most = 3;
  ASSERT_TRUE(part.Run().ok());
  const auto all = whole.Texts();
  EXPECT_EQ(part.Texts(), std::vector(all.begin() + 3, all.begin() + 6));
}

TEST(WriteTexts, TheSeedDecides) {
  Writing a, b;
  b.options.seed = 2;
  ASSERT_TRUE(a.Run().ok() && b.Run().ok());
  EXPECT_NE(a.Texts(), b.Texts());
  EXPECT_EQ(a.Texts()[0], b.Texts()[0]);  // greedy
}

TEST(WriteTexts, EndWhereTheModelEndsAnAnswer) {
  Writing writing(std::vector<int>(12, 3));
  writing.options.max_tokens = 200;
  writing.options.temperatures = {3.0F};
  writing.options.at_once = 12;
  ASSERT_TRUE(writing.Run().ok());
  int ended = 0;
  const auto is_end = [](int32_t token) { return token == kTinyModelEos || token == kTinyModelEndOfText; };
  for (const auto& text : writing.Texts()) {
    const auto end = std::ranges::find_if(text, is_end);
    if (end == text.end()) {
      EXPECT_EQ(text.size(), 203U);
      continue;
    }
    ++ended;
    EXPECT_EQ(end + 1, text.end());
  }
  EXPECT_GT(ended, 0);
}

TEST(WriteTexts, ABeginningThatLeavesNoRoomIsLeftOut) {
  Writing writing({3, 507, 506, 4});
  const auto made = writing.Run();
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(made->left_out, 1);
  EXPECT_EQ(made->texts, 3);
  EXPECT_EQ(writing.last.all, 3);
  Writing none({508, 509});
  EXPECT_THAT(none.Error(),
              HasSubstr("--write 6: no beginning leaves as much room in the model's context of 512"));
}

TEST(WriteTexts, AnotherCommandOnTheFolderIsRefused) {
  Writing writing;
  EXPECT_EQ(writing.Run(9).status().code(), StatusCode::kCancelled);
  const auto before = writing.Files();
  ASSERT_EQ(before.size(), 1U);
  const auto refused = [&](auto change) {
    TextOptions kept = writing.options;
    change(writing.options);
    const std::string error = writing.Error();
    writing.options = kept;
    return error;
  };
  const auto is_refusal = ::testing::AllOf(
      HasSubstr("texts: holds texts of another model, beginnings or options"),
      HasSubstr("begun with (tiny, longspec-write --write 6 --write-temps 0,1 --write-seed 1 --at-once 3"),
      HasSubstr("7 beginnings of of a test)"));
  EXPECT_THAT(refused([](TextOptions& o) { o.max_tokens = 7; }), is_refusal);
  EXPECT_THAT(refused([](TextOptions& o) { o.temperatures = {0.0F}; }), is_refusal);
  EXPECT_THAT(refused([](TextOptions& o) { o.seed = 2; }), is_refusal);
  EXPECT_THAT(refused([](TextOptions& o) { o.at_once = 4; }), is_refusal);
  EXPECT_THAT(refused([](TextOptions& o) { o.first = 1; }), is_refusal);
  EXPECT_THAT(refused([](TextOptions& o) { o.most = 6; }), is_refusal);
  // Into the beginnings themselves, too.
  EXPECT_THAT(refused([](TextOptions& o) { o.output = o.beginnings[0]; }), HasSubstr("give another folder"));
  EXPECT_TRUE(writing.Files() == before);
  EXPECT_EQ(writing.Error(), "");
}

TEST(WriteTexts, AFullDiskKeepsWhatIsComplete) {
  Writing whole, writing;
  ASSERT_TRUE(whole.Run().ok());
  EXPECT_EQ(writing.Run(9).status().code(), StatusCode::kCancelled);
  {
    const FileSizeLimit limit(1000);
    const Status status = writing.Run().status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(status.message(), HasSubstr("features-00001.safetensors: cannot be written"));
  }
  EXPECT_EQ(writing.Files().size(), 1U);
  ASSERT_TRUE(writing.Run().ok());
  EXPECT_TRUE(writing.Files() == whole.Files());
}

TEST(WriteTexts, WhatCannotWorkIsSaid) {
  Writing writing;
  const auto error = [&](auto change) {
    TextOptions kept = writing.options;
    change(writing.options);
    std::string message = writing.Error();
    writing.options = kept;
    return message;
  };
  EXPECT_THAT(error([](TextOptions& o) { o.max_tokens = 0; }), HasSubstr("--write: must be at least 1"));
  EXPECT_THAT(error([](TextOptions& o) { o.temperatures = {}; }), HasSubstr("--write-temps"));
  EXPECT_THAT(error([](TextOptions& o) { o.temperatures = {-1.0F}; }), HasSubstr("--write-temps"));
  EXPECT_THAT(error([](TextOptions& o) { o.temperatures = {std::numeric_limits<float>::quiet_NaN()}; }),
              HasSubstr("--write-temps"));
  EXPECT_THAT(error([](TextOptions& o) { o.at_once = 0; }), HasSubstr("--at-once"));
  EXPECT_THAT(error([](TextOptions& o) { o.first = -1; }), HasSubstr("--first"));
  EXPECT_THAT(error([](TextOptions& o) { o.first = 7; }), HasSubstr("--first 7: there are 7 beginnings"));
  EXPECT_THAT(error([](TextOptions& o) { o.most = -1; }), HasSubstr("--most"));
  for (const char* device : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda1"}) {
    EXPECT_THAT(error([&](TextOptions& o) { o.device = device; }), HasSubstr("must be cpu, cuda or cuda:N"));
  }
  EXPECT_THAT(error([](TextOptions& o) { o.beginnings[0] += "x"; }), HasSubstr("no feature shards"));
  EXPECT_THAT(error([](TextOptions& o) { o.model += "x"; }), HasSubstr("tiny.ggufx"));
  EXPECT_THAT(error([](TextOptions& o) { o.output = o.model + "/texts"; }),
              HasSubstr("tiny.gguf/texts: cannot be made"));
  Rig texts;
  EXPECT_THAT(error([&](TextOptions& o) { o.beginnings = texts.options.features; }),
              HasSubstr("holds texts to be learned, not beginnings"));
  const Rig other(std::vector<std::vector<int32_t>>{{5, 16}}, LearnNothing, {.seed = 2}, {.kv = false}, 0);
  EXPECT_THAT(error([&](TextOptions& o) { o.beginnings.push_back(other.options.features[0]); }),
              HasSubstr("beginnings of another model than"));
  EXPECT_THAT(error([&](TextOptions& o) { o.model = other.options.model; }), HasSubstr("tiny.gguf"));
}

}  // namespace
}  // namespace longspec::train
