// SPDX-License-Identifier: Apache-2.0
//
// Shards of features come back as they were written, and files that are not whole are refused.
#include "formats/feature_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "base/testing/files.h"
#include "formats/tiny_model.h"

namespace longspec {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

FeatureHeader Header(int top_k = 0, const FeatureKeep& keep = {}) {
  FeatureHeader h;
  h.target = {.name = "tiny \"model\"",
              .fingerprint = "0123456789abcdef",
              .n_embd = 64,
              .n_head = 4,
              .n_head_kv = 2,
              .head_dim = 4,
              .n_ff = 96,
              .n_vocab = 50,
              .n_ctx = 512,
              .rms_eps = 1e-5,
              .rope_base = 10000,
              .rope_factor = 2,
              .rope_scaling = "linear",
              .rope_frequencies = {0.1, 1.0 / 3.0},
              .rope_magnitude = 1.25};
  h.source = "a.jsonl";
  h.top_k = top_k;
  h.keep = keep;
  h.next_document = 3;
  h.next_piece = 1;
  return h;
}

// n tokens of made-up features.
struct Made {
  explicit Made(int n, int top_k, int first_token) {
    for (int i = 0; i < n; ++i) {
      tokens.push_back((first_token + i) % 50);
      positions.push_back(i);
      loss.push_back(i % 2 == 0 ? 1 : 0);
      for (int j = 0; j < 8; ++j) {
        keys.push_back(static_cast<uint16_t>(i * 8 + j));
        values.push_back(static_cast<uint16_t>(1000 + i * 8 + j));
      }
      for (int k = 0; k < top_k; ++k) {
        top_ids.push_back(k);
        top_log_probs.push_back(static_cast<uint16_t>(0xBC00 + k));
      }
    }
  }
  FeatureSequence view() const {
    return {tokens, positions, loss, {keys, values, {}, {}}, top_ids, top_log_probs};
  }

  std::vector<int32_t> tokens, positions, top_ids;
  std::vector<int8_t> loss;
  std::vector<uint16_t> keys, values, top_log_probs;
};

Status WriteShard(const FeatureHeader& header, const std::string& path, const std::vector<Made>& sequences) {
  FeatureShardWriter writer;
  for (const Made& made : sequences) writer.Add(header, made.view());
  return writer.Write(header, path);
}

TEST(FeatureShard, HoldsWhatWasWritten) {
  for (const int top_k : {0, 3}) {
    const testing::Folder folder;
    const std::string path = FeatureShardPath(folder.path(), 0);
    const FeatureHeader header = Header(top_k);
    const std::vector<Made> made = {Made(5, top_k, 7), Made(1, top_k, 20), Made(3, top_k, 48)};
    ASSERT_TRUE(WriteShard(header, path, made).ok());
    const auto shard = FeatureShard::Open(path);
    ASSERT_TRUE(shard.ok()) << shard.status().message();
    EXPECT_EQ((*shard)->header().target, header.target);
    EXPECT_EQ((*shard)->header().source, "a.jsonl");
    EXPECT_EQ((*shard)->header().top_k, top_k);
    EXPECT_EQ((*shard)->header().next_document, 3);
    EXPECT_EQ((*shard)->header().next_piece, 1);
    EXPECT_FALSE((*shard)->header().last);
    EXPECT_EQ((*shard)->n_tokens(), 9);
    ASSERT_EQ((*shard)->n_sequences(), 3);
    for (int i = 0; i < 3; ++i) {
      const FeatureSequence s = (*shard)->sequence(i);
      const Made& m = made[static_cast<size_t>(i)];
      EXPECT_THAT(s.tokens, ElementsAreArray(m.tokens));
      EXPECT_THAT(s.positions, ElementsAreArray(m.positions));
      EXPECT_THAT(s.loss, ElementsAreArray(m.loss));
      EXPECT_THAT(s.kept.keys, ElementsAreArray(m.keys));
      EXPECT_THAT(s.kept.values, ElementsAreArray(m.values));
      EXPECT_THAT(s.top_ids, ElementsAreArray(m.top_ids));
      EXPECT_THAT(s.top_log_probs, ElementsAreArray(m.top_log_probs));
    }
  }
}

TEST(FeatureShard, HoldsTheTensorsThatAreNamed) {
  const auto numbers = [](size_t n, int from) {
    std::vector<uint16_t> made(n);
    std::iota(made.begin(), made.end(), static_cast<uint16_t>(from));
    return made;
  };
  const auto keep = ParseFeatureKeep("hidden:14,final,hidden:2", DType::kBF16);
  ASSERT_TRUE(keep.ok());
  EXPECT_EQ(FormatFeatureKeep(*keep), "final,hidden:2,hidden:14");
  const FeatureHeader header = Header(0, *keep);
  EXPECT_EQ(FeatureBytesPerToken(header.target, *keep, 0), 9 + 3 * 64 * 2);
  const testing::Folder folder;
  const std::string path = FeatureShardPath(folder.path(), 0);
  FeatureShardWriter writer;
  int from = 0;
  std::vector<std::vector<uint16_t>> expected;
  for (const int n : {3, 2}) {
    const Made made(n, 0, 7);
    FeatureSequence s = made.view();
    s.kept = {};
    for (int i = 0; i < 3; ++i) expected.push_back(numbers(static_cast<size_t>(n) * 64, from += 1000));
    s.kept.final_hidden = expected[expected.size() - 3];
    s.kept.hidden = {expected[expected.size() - 2], expected[expected.size() - 1]};
    writer.Add(header, s);
  }
  ASSERT_TRUE(writer.Write(header, path).ok());
  const auto shard = FeatureShard::Open(path);
  ASSERT_TRUE(shard.ok()) << shard.status().message();
  EXPECT_EQ((*shard)->header().keep, *keep);
  for (int i = 0; i < 2; ++i) {
    const FeatureSequence s = (*shard)->sequence(i);
    const size_t at = static_cast<size_t>(i) * 3;
    EXPECT_TRUE(s.kept.keys.empty() && s.kept.values.empty());
    EXPECT_THAT(s.kept.final_hidden, ElementsAreArray(expected[at]));
    ASSERT_EQ(s.kept.hidden.size(), 2U);
    EXPECT_THAT(s.kept.hidden[0], ElementsAreArray(expected[at + 1]));
    EXPECT_THAT(s.kept.hidden[1], ElementsAreArray(expected[at + 2]));
  }
}

TEST(FeatureShard, MayHoldTokensAlone) {
  const auto keep = ParseFeatureKeep("none", DType::kF16);
  ASSERT_TRUE(keep.ok());
  EXPECT_FALSE(keep->any());
  EXPECT_EQ(FormatFeatureKeep(*keep), "none");
  const FeatureHeader header = Header(0, *keep);
  EXPECT_EQ(FeatureBytesPerToken(header.target, *keep, 0), 9);
  const testing::Folder folder;
  const std::string path = FeatureShardPath(folder.path(), 0);
  FeatureShardWriter writer;
  const std::vector<Made> made = {Made(3, 0, 7), Made(2, 0, 20)};
  for (const Made& m : made) {
    FeatureSequence s = m.view();
    s.kept = {};
    writer.Add(header, s);
  }
  ASSERT_TRUE(writer.Write(header, path).ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->tensors().size(), 4U);  // tokens, positions, loss, sequence_ends
  const auto shard = FeatureShard::Open(path);
  ASSERT_TRUE(shard.ok()) << shard.status().message();
  EXPECT_EQ((*shard)->header().keep, *keep);
  ASSERT_EQ((*shard)->n_sequences(), 2);
  for (int i = 0; i < 2; ++i) {
    const FeatureSequence s = (*shard)->sequence(i);
    const Made& m = made[static_cast<size_t>(i)];
    EXPECT_THAT(s.tokens, ElementsAreArray(m.tokens));
    EXPECT_THAT(s.positions, ElementsAreArray(m.positions));
    EXPECT_THAT(s.loss, ElementsAreArray(m.loss));
    EXPECT_TRUE(s.kept.keys.empty() && s.kept.values.empty() && s.kept.final_hidden.empty());
    EXPECT_TRUE(s.kept.hidden.empty());
  }
}

TEST(FeatureKeep, BadListsAreRefused) {
  for (const char* list : {"", "none,kv", "kv,none", "kv,", "keys", "kv,kv", "hidden:", "hidden:-1",
                           "hidden:1x", "hidden:3,hidden:3", "hidden:99999999999"}) {
    const auto keep = ParseFeatureKeep(list, DType::kF16);
    EXPECT_THAT(keep.status().message(), HasSubstr("--keep " + std::string(list) + ":")) << list;
  }
}

TEST(FeatureShard, TheWriterForgetsWhatItWrote) {
  const testing::Folder folder;
  FeatureShardWriter writer;
  writer.Add(Header(), Made(4, 0, 0).view());
  ASSERT_TRUE(writer.Write(Header(), FeatureShardPath(folder.path(), 0)).ok());
  EXPECT_EQ(writer.n_tokens(), 0);
}

TEST(FeatureShards, OfOneRunAreReadInOrder) {
  const testing::Folder folder;
  EXPECT_THAT(OpenFeatureShards(folder.path()).status().message(), HasSubstr("no feature shards"));
  ASSERT_TRUE(WriteShard(Header(), FeatureShardPath(folder.path(), 0), {Made(4, 0, 0)}).ok());
  ASSERT_TRUE(WriteShard(Header(), FeatureShardPath(folder.path(), 1), {Made(6, 0, 0)}).ok());
  const auto shards = OpenFeatureShards(folder.path());
  ASSERT_TRUE(shards.ok());
  ASSERT_EQ(shards->size(), 2U);
  EXPECT_EQ((*shards)[1]->n_tokens(), 6);
  FeatureHeader other = Header();
  other.target.fingerprint = "other";
  ASSERT_TRUE(WriteShard(other, FeatureShardPath(folder.path(), 1), {Made(6, 0, 0)}).ok());
  EXPECT_THAT(OpenFeatureShards(folder.path()).status().message(), HasSubstr("made from another model"));
}

// What is wrong with a shard is said with its name.
std::string ErrorOf(const FeatureHeader& header, const std::function<void(Made&)>& change) {
  const testing::Folder folder;
  Made made(4, header.top_k, 0);
  change(made);
  const std::string path = FeatureShardPath(folder.path(), 0);
  EXPECT_TRUE(WriteShard(header, path, {made}).ok());
  const auto shard = FeatureShard::Open(path);
  EXPECT_THAT(shard.status().message(), HasSubstr("features-00000"));
  return shard.status().message();
}

TEST(FeatureShard, BadContentsAreRefused) {
  const auto same = [](Made&) {};
  EXPECT_THAT(ErrorOf(Header(), [](Made& m) { m.tokens[2] = 50; }), HasSubstr("token 50"));
  EXPECT_THAT(ErrorOf(Header(2), [](Made& m) { m.top_ids[1] = -1; }), HasSubstr("top_ids names token -1"));
  FeatureHeader header = Header();
  header.target.n_head = 3;
  EXPECT_THAT(ErrorOf(header, same), HasSubstr("malformed"));
  header = Header();
  header.target.n_vocab = 0;
  EXPECT_THAT(ErrorOf(header, same), HasSubstr("malformed"));
  header = Header();
  header.target.rope_frequencies = {1, 1, 1};
  EXPECT_THAT(ErrorOf(header, same), HasSubstr("malformed"));
}

TEST(FeatureShard, ASequenceWithoutTokensIsRefused) {
  const testing::Folder folder;
  const std::string path = FeatureShardPath(folder.path(), 0);
  ASSERT_TRUE(WriteShard(Header(), path, {Made(4, 0, 0), Made(0, 0, 0)}).ok());
  EXPECT_THAT(FeatureShard::Open(path).status().message(), HasSubstr("sequence_ends does not ascend"));
}

Status OpenWithMetadata(const std::string& text) {
  const testing::Folder folder;
  const std::string path = FeatureShardPath(folder.path(), 0);
  SafetensorsWriter writer;
  if (!text.empty()) writer.SetMetadata("longspec.features", text);
  EXPECT_TRUE(writer.Write(path).ok());
  return FeatureShard::Open(path).status();
}

TEST(FeatureShard, OtherFilesAreNamedAsSuch) {
  EXPECT_THAT(OpenWithMetadata("").message(), HasSubstr("not a feature shard"));
  EXPECT_THAT(OpenWithMetadata("{").message(), HasSubstr("malformed"));
  EXPECT_THAT(OpenWithMetadata("[]").message(), HasSubstr("malformed"));
  EXPECT_THAT(OpenWithMetadata(R"({"version": "x"})").message(), HasSubstr("malformed"));
  EXPECT_THAT(OpenWithMetadata(R"({"version": 2})").message(), HasSubstr("malformed"));
  EXPECT_THAT(OpenWithMetadata(R"({"version": 3})").message(), HasSubstr("version 3, known are 1 and 2"));
  EXPECT_THAT(OpenWithMetadata(R"({"version": 1})").message(), HasSubstr("malformed"));
}

TEST(TargetFingerprint, TellsModelsApart) {
  const auto of = [](const TinyModelOptions& options) {
    const auto bytes = TinyModelBytes(options);
    const auto file = GgufFile::Parse(*bytes, "tiny.gguf");
    return TargetFingerprint(**file);
  };
  const std::string first = of({});
  EXPECT_EQ(first.size(), 16U);
  EXPECT_EQ(first, of({}));
  EXPECT_NE(first, of({.seed = 2}));
  EXPECT_NE(first, of({.n_layers = 3}));
}

// Files of drafts hold it: it stays what it is when types of weights are added.
TEST(TargetFingerprint, StaysWhatItIs) {
  const auto of = [](DType type) {
    const auto bytes = TinyModelBytes({.n_layers = 1, .n_embd = 256, .n_ff = 256, .dtype = type});
    const auto file = GgufFile::Parse(*bytes, "tiny.gguf");
    return TargetFingerprint(**file);
  };
  EXPECT_EQ(of(DType::kQ4_1), "201c415f005dd483");
  EXPECT_EQ(of(DType::kQ4_K), "09e56ab6628e9772");
  EXPECT_EQ(of(DType::kMXFP4), "8b6e805766cb04ee");
}

}  // namespace
}  // namespace longspec
