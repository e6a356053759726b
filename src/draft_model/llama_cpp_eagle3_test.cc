// SPDX-License-Identifier: Apache-2.0
//
// EAGLE-3 drafts in llama.cpp's layout: one draft in both layouts proposes the same, bit for bit.
#include "draft_model/llama_cpp_eagle3.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "draft/testing/table_model.h"
#include "draft_model/eagle.h"
#include "draft_model/testing/eagle_scene.h"
#include "formats/gguf_writer.h"

namespace longspec::testing {
namespace {

using ::testing::HasSubstr;

// What its converter does with rows of queries and keys: reshape (heads, 2, half, in), swap the axes of
// halves and of what lies in them, and reshape back.
std::vector<float> PermutedRows(const std::vector<float>& rows, size_t n_in, size_t head_dim) {
  std::vector<float> permuted;
  for (size_t head = 0; head < rows.size() / n_in / head_dim; ++head) {
    for (size_t j = 0; j < head_dim / 2; ++j) {
      for (size_t half = 0; half < 2; ++half) {
        const size_t row = head * head_dim + half * (head_dim / 2) + j;
        permuted.insert(permuted.end(), rows.begin() + static_cast<std::ptrdiff_t>(row * n_in),
                        rows.begin() + static_cast<std::ptrdiff_t>((row + 1) * n_in));
      }
    }
  }
  return permuted;
}

struct LlamaCppLayout {
  std::vector<int32_t> inputs = {1, 2, 3};               // of SmallEagle's layers
  std::function<void(GgufWriter&)> more = [](auto&) {};  // keys and tensors
  std::vector<std::string> without = {};                 // published names
};

// As llama.cpp's converter writes this draft.
std::string WriteLlamaCpp(const SmallEagle& eagle, const LlamaCppLayout& layout = {}) {
  const std::map<std::string, std::string> names = {
      {"fc.weight", "fc.weight"},
      {"input_norm.weight", "enc.output_norm.weight"},
      {"midlayer.input_layernorm.weight", "blk.0.attn_norm.weight"},
      {"midlayer.hidden_norm.weight", "blk.0.attn_norm_2.weight"},
      {"midlayer.self_attn.q_proj.weight", "blk.0.attn_q.weight"},
      {"midlayer.self_attn.k_proj.weight", "blk.0.attn_k.weight"},
      {"midlayer.self_attn.v_proj.weight", "blk.0.attn_v.weight"},
      {"midlayer.self_attn.o_proj.weight", "blk.0.attn_output.weight"},
      {"midlayer.post_attention_layernorm.weight", "blk.0.ffn_norm.weight"},
      {"midlayer.mlp.gate_proj.weight", "blk.0.ffn_gate.weight"},
      {"midlayer.mlp.up_proj.weight", "blk.0.ffn_up.weight"},
      {"midlayer.mlp.down_proj.weight", "blk.0.ffn_down.weight"},
      {"norm.weight", "output_norm.weight"},
      {"lm_head.weight", "output.weight"}};
  const EagleShape& s = eagle.shape;
  GgufWriter writer;
  writer.SetString("general.architecture", "eagle3");
  const std::pair<const char*, int> sizes[] = {{"block_count", 1},
                                               {"context_length", 2048},
                                               {"embedding_length", eagle.tiny.spec.n_embd},
                                               {"feed_forward_length", s.n_ff},
                                               {"attention.head_count", s.n_head},
                                               {"attention.head_count_kv", s.n_kv_head},
                                               {"attention.key_length", s.head_dim},
                                               {"attention.value_length", s.head_dim},
                                               {"rope.dimension_count", s.head_dim},
                                               {"vocab_size", eagle.tiny.spec.n_vocab},
                                               {"target_hidden_size", eagle.tiny.spec.n_embd}};
  for (const auto& [key, value] : sizes)
    writer.SetUint32(std::string("eagle3.") + key, static_cast<uint32_t>(value));
  writer.SetFloat32("eagle3.attention.layer_norm_rms_epsilon", eagle.tiny.spec.rms_eps);
  writer.SetFloat32("eagle3.rope.freq_base", 10000.0F);
  writer.SetBool("eagle3.norm_before_residual", false);
  writer.SetBool("eagle3.norm_before_fc", s.norm_before_fc);
  writer.SetInt32s("eagle3.target_layers", layout.inputs);
  writer.SetStrings("tokenizer.ggml.tokens", {"a", "b"});  // the target's, whatever they are
  for (const auto& [name, tensor] : eagle.draft.tensors) {
    if (std::ranges::find(layout.without, name) != layout.without.end()) continue;
    const bool rotated = name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight");
    const std::vector<float> values = rotated
                                          ? PermutedRows(tensor.values, static_cast<size_t>(tensor.shape[0]),
                                                         static_cast<size_t>(s.head_dim))
                                          : tensor.values;
    writer.AddTensor(names.at(name), DType::kF32, tensor.shape, std::as_bytes(std::span(values)));
  }
  if (!eagle.tokens.empty())
    writer.AddTensor("d2t", DType::kI64, {std::ssize(eagle.tokens)}, std::as_bytes(std::span(eagle.tokens)));
  layout.more(writer);
  const std::string path = eagle.folder.File("llama_cpp.gguf");
  EXPECT_TRUE(writer.Write(path).ok());
  return path;
}

std::map<Path, double> ProposalsOf(SmallEagle& eagle, std::string path) {
  const std::string own = std::exchange(eagle.path, std::move(path));
  EagleScene scene(&eagle, "4,8,8");
  eagle.path = own;
  scene.Follow(RandomTokens(60, 7));
  scene.Compute(23);
  return PathsOf(scene.Propose(20, 3));
}

void ExpectSameProposals(SmallEagle& eagle, const LlamaCppLayout& layout = {}) {
  const std::map<Path, double> published = ProposalsOf(eagle, eagle.path);
  EXPECT_EQ(published.size(), 20U);
  EXPECT_EQ(ProposalsOf(eagle, WriteLlamaCpp(eagle, layout)), published);
}

TEST(LlamaCppEagle3, ProposesWhatThePublishedLayoutDoes) {
  SmallEagle all({.eagle3 = true}), some({.eagle3 = true}, SomeTokens());
  SmallEagle heads({.eagle3 = true, .n_head = 4, .n_kv_head = 2, .norm_before_fc = true}, SomeTokens());
  for (SmallEagle* eagle : {&all, &some, &heads}) ExpectSameProposals(*eagle);
  // What is compared sees the order of layers, of rows, and of tokens.
  SmallEagle others({.eagle3 = true}, SomeTokens());
  EXPECT_NE(ProposalsOf(others, WriteLlamaCpp(others, {.inputs = {2, 3, 4}})),
            ProposalsOf(others, others.path));
}

TEST(LlamaCppEagle3, KeysSayWhatConfigurationsDo) {
  SmallEagle residual({.eagle3 = true}, SomeTokens(), R"(, "norm_before_residual": true)");
  ExpectSameProposals(residual,
                      {.more = [](GgufWriter& w) { w.SetBool("eagle3.norm_before_residual", true); }});
  SmallEagle base({.eagle3 = true}, SomeTokens(), R"(, "rope_theta": 500000)");
  ExpectSameProposals(base,
                      {.more = [](GgufWriter& w) { w.SetFloat32("eagle3.rope.freq_base", 500000.0F); }});
  SmallEagle yarn(
      {.eagle3 = true}, SomeTokens(),
      R"(, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32})");
  ExpectSameProposals(yarn, {.more = [](GgufWriter& w) {
                        w.SetString("eagle3.rope.scaling.type", "yarn");
                        w.SetFloat32("eagle3.rope.scaling.factor", 4.0F);
                        w.SetUint32("eagle3.rope.scaling.original_context_length", 32);
                      }});
  // Llama 3's scaling is a tensor there.
  SmallEagle llama3({.eagle3 = true}, SomeTokens(),
                    R"(, "rope_scaling": {"type": "llama3", "factor": 8, "low_freq_factor": 1,
                          "high_freq_factor": 4, "original_max_position_embeddings": 64})");
  const auto checkpoint = OpenDraftCheckpoint(llama3.path);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const std::vector<float> factors = ReadDraftRope(*checkpoint, 32)->freq_factors;
  ASSERT_EQ(factors.size(), 16U);
  ExpectSameProposals(llama3, {.more = [&](GgufWriter& w) {
                        w.AddTensor("rope_freqs.weight", DType::kF32, {16},
                                    std::as_bytes(std::span(factors)));
                      }});
}

// A draft that has no head of its own has the target's. An embedding of its own is not used.
TEST(LlamaCppEagle3, HeadAndEmbeddingMayBeTheTargets) {
  SmallEagle eagle({.eagle3 = true});
  const SharedParts& target = eagle.tiny.parts();
  std::vector<float>& head = eagle.draft["lm_head.weight"];
  ASSERT_EQ(head.size() * sizeof(float), target.head.n_bytes);
  std::memcpy(head.data(), target.head.data, target.head.n_bytes);
  eagle.path = WriteEagle(eagle.folder, "own", eagle.tiny.spec, eagle.shape, eagle.draft, {}, kLowLayers);
  ExpectSameProposals(
      eagle, {.more =
                  [&](GgufWriter& w) {
                    const TensorView& e = target.embedding;
                    w.AddTensor("token_embd.weight", e.dtype, {e.shape[0], e.shape[1]}, {e.data, e.n_bytes});
                  },
              .without = {"lm_head.weight"}});
  SmallEagle some({.eagle3 = true}, SomeTokens());
  const auto opened = OpenDraftCheckpoint(WriteLlamaCpp(some, {.without = {"lm_head.weight"}}));
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  EXPECT_THAT(Eagle3Model::CheckFit(*opened, some.tiny.spec).message(), HasSubstr("tensor d2t says"));
}

TEST(LlamaCppEagle3, BecomesADraftLikeAnyOther) {
  SmallEagle eagle({.eagle3 = true}, SomeTokens());
  const auto checkpoint = OpenDraftCheckpoint(WriteLlamaCpp(eagle));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const std::string gguf = eagle.folder.File("ours.gguf"), folder = eagle.folder.File("ours");
  ASSERT_TRUE(WriteDraftGguf(*checkpoint, std::nullopt, gguf).ok());
  ASSERT_TRUE(WriteDraftFolder(*checkpoint, std::nullopt, folder).ok());
  const std::map<Path, double> published = ProposalsOf(eagle, eagle.path);
  EXPECT_EQ(ProposalsOf(eagle, gguf), published);
  EXPECT_EQ(ProposalsOf(eagle, folder), published);
}

TEST(LlamaCppEagle3, WhatItCannotMeanIsRefused) {
  SmallEagle eagle({.eagle3 = true}, SomeTokens());
  const auto refusal = [&](const LlamaCppLayout& layout) {
    return OpenDraftCheckpoint(WriteLlamaCpp(eagle, layout)).status().message();
  };
  EXPECT_EQ(refusal({}), "");
  EXPECT_THAT(refusal({.inputs = {0, 2, 3}}),
              HasSubstr("eagle3.target_layers numbers layers by what they read"));
  EXPECT_THAT(refusal({.more = [](GgufWriter& w) { w.SetUint32("eagle3.block_count", 2); }}),
              HasSubstr("eagle3.block_count is 2"));
  EXPECT_THAT(refusal({.more = [](GgufWriter& w) { w.SetUint32("eagle3.rope.dimension_count", 16); }}),
              HasSubstr("eagle3.rope.dimension_count is 16"));
  EXPECT_THAT(refusal({.more = [](GgufWriter& w) { w.SetFloat32("eagle3.rope.scaling.magic", 2.0F); }}),
              HasSubstr("eagle3.rope.scaling.magic is not supported"));
  EXPECT_THAT(refusal({
                  .more = [](GgufWriter& w) { w.SetUint32("eagle3.attention.key_length", 24); },
              }),
              HasSubstr("expected an even number up to the head dimension 24"));
  EXPECT_THAT(refusal({.without = {"fc.weight"}}), HasSubstr("tensor fc.weight is missing"));
  const float extra[2] = {1, 2};
  EXPECT_THAT(refusal({.more =
                           [&](GgufWriter& w) {
                             w.AddTensor("blk.1.attn_norm.weight", DType::kF32, {2},
                                         std::as_bytes(std::span(extra)));
                           }}),
              HasSubstr("tensor blk.1.attn_norm.weight is none"));
  // Of an early converter.
  GgufWriter writer;
  writer.SetString("general.architecture", "eagle3");
  writer.SetFloat32("eagle3.attention.layer_norm_rms_epsilon", 1e-5F);
  writer.AddTensor("blk.0.attn_norm.weight", DType::kF32, {2}, std::as_bytes(std::span(extra)));
  ASSERT_TRUE(writer.Write(eagle.folder.File("early.gguf")).ok());
  EXPECT_THAT(OpenDraftCheckpoint(eagle.folder.File("early.gguf")).status().message(),
              HasSubstr("but no key eagle3.target_layers"));
}

}  // namespace
}  // namespace longspec::testing
