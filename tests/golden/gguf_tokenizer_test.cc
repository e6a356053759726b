// SPDX-License-Identifier: Apache-2.0
//
// A tokenizer is read from the keys of a GGUF file.
#include "engine/gguf_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/testing/files.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"

namespace longspec {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<TokenizerSpec> SpecOf(const std::function<void(GgufWriter*)>& write) {
  const testing::Folder folder;
  const std::string path = folder.File("vocabulary.gguf");
  GgufWriter writer;
  write(&writer);
  if (Status status = writer.Write(path); !status.ok()) return status;
  const auto file = GgufFile::Open(path);
  if (!file.ok()) return file.status();
  return TokenizerSpecFromGguf(**file);
}

void WriteMinimal(GgufWriter* writer) {
  writer->SetString("tokenizer.ggml.model", "gpt2");
  writer->SetStrings("tokenizer.ggml.tokens", {"a", "b", "ab"});
  writer->SetStrings("tokenizer.ggml.merges", {"a b"});
}

TEST(GgufTokenizer, ReadsEveryKey) {
  const auto spec = SpecOf([](GgufWriter* writer) {
    WriteMinimal(writer);
    writer->SetString("tokenizer.ggml.pre", "qwen2");
    writer->SetInt32s("tokenizer.ggml.token_type", {1, 3, 4});
    writer->SetUint32("tokenizer.ggml.bos_token_id", 0);
    writer->SetUint32("tokenizer.ggml.eos_token_id", 1);
    writer->SetUint32("tokenizer.ggml.eot_token_id", 2);
    writer->SetUint32("tokenizer.ggml.unknown_token_id", 3);
    writer->SetUint32("tokenizer.ggml.padding_token_id", 4);
    writer->SetBool("tokenizer.ggml.add_bos_token", true);
    writer->SetBool("tokenizer.ggml.add_eos_token", true);
  });
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->model, "gpt2");
  EXPECT_EQ(spec->pre, "qwen2");
  EXPECT_THAT(spec->tokens, ElementsAre("a", "b", "ab"));
  EXPECT_THAT(spec->token_types, ElementsAre(1, 3, 4));
  EXPECT_THAT(spec->merges, ElementsAre("a b"));
  EXPECT_THAT((std::vector<int32_t>{spec->bos, spec->eos, spec->eot, spec->unk, spec->pad}),
              ElementsAre(0, 1, 2, 3, 4));
  EXPECT_TRUE(spec->add_bos);
  EXPECT_TRUE(spec->add_eos);
}

TEST(GgufTokenizer, WhatMayBeLeftOut) {
  const auto spec = SpecOf(WriteMinimal);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_EQ(spec->pre, "default");
  EXPECT_TRUE(spec->token_types.empty());
  EXPECT_THAT((std::vector<int32_t>{spec->bos, spec->eos, spec->eot, spec->unk, spec->pad}),
              ElementsAre(-1, -1, -1, -1, -1));
  EXPECT_FALSE(spec->add_bos);
  EXPECT_FALSE(spec->add_eos);
}

TEST(GgufTokenizer, BosFollowsFromThePretokenizer) {
  const auto write = [](GgufWriter* writer) {
    WriteMinimal(writer);
    writer->SetString("tokenizer.ggml.pre", "llama-bpe");
    writer->SetUint32("tokenizer.ggml.bos_token_id", 0);
  };
  EXPECT_TRUE(SpecOf(write)->add_bos);
  EXPECT_FALSE(SpecOf([&](GgufWriter* writer) {
                 write(writer);
                 writer->SetBool("tokenizer.ggml.add_bos_token", false);
               })->add_bos);
  EXPECT_FALSE(SpecOf([](GgufWriter* writer) {
                 WriteMinimal(writer);
                 writer->SetString("tokenizer.ggml.pre", "llama-bpe");
               })->add_bos);
}

TEST(GgufTokenizer, OtherModelsNeedNoMerges) {
  const auto spec = SpecOf([](GgufWriter* writer) {
    writer->SetString("tokenizer.ggml.model", "bert");
    writer->SetStrings("tokenizer.ggml.tokens", {"a"});
  });
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  const auto tokenizer = Tokenizer::Create(*spec);
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_THAT(tokenizer.status().message(), HasSubstr("'bert'"));
}

TEST(GgufTokenizer, SentencePieceHasScores) {
  const auto write = [](GgufWriter* writer) {
    writer->SetString("tokenizer.ggml.model", "llama");
    writer->SetStrings("tokenizer.ggml.tokens", {"a", "aa"});
    writer->SetUint32("tokenizer.ggml.bos_token_id", 0);
  };
  EXPECT_THAT(SpecOf(write).status().message(), HasSubstr("tokenizer.ggml.scores"));
  const auto with_scores = [&](GgufWriter* writer) {
    write(writer);
    writer->SetFloat32s("tokenizer.ggml.scores", {-1.5F, 2.0F});
  };
  const auto spec = SpecOf(with_scores);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  EXPECT_THAT(spec->scores, ElementsAre(-1.5F, 2.0F));
  EXPECT_TRUE(spec->add_space_prefix);
  EXPECT_TRUE(spec->add_bos);
  EXPECT_FALSE(SpecOf([&](GgufWriter* writer) {
                 with_scores(writer);
                 writer->SetBool("tokenizer.ggml.add_space_prefix", false);
               })->add_space_prefix);
}

TEST(GgufTokenizer, MissingAndWrongKeysAreNamed) {
  const auto missing = SpecOf([](GgufWriter* writer) {
    writer->SetString("tokenizer.ggml.model", "gpt2");
    writer->SetStrings("tokenizer.ggml.tokens", {"a"});
  });
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.status().message(), HasSubstr("tokenizer.ggml.merges"));

  const auto out_of_range = SpecOf([](GgufWriter* writer) {
    WriteMinimal(writer);
    writer->SetUint64("tokenizer.ggml.eos_token_id", uint64_t{1} << 31);
  });
  ASSERT_FALSE(out_of_range.ok());
  EXPECT_THAT(out_of_range.status().message(), HasSubstr("tokenizer.ggml.eos_token_id"));
  EXPECT_THAT(out_of_range.status().message(), HasSubstr("2147483648"));

  const auto wrong_type = SpecOf([](GgufWriter* writer) {
    WriteMinimal(writer);
    writer->SetString("tokenizer.ggml.token_type", "normal");
  });
  ASSERT_FALSE(wrong_type.ok());
  EXPECT_THAT(wrong_type.status().message(), HasSubstr("tokenizer.ggml.token_type"));
}

}  // namespace
}  // namespace longspec
