// SPDX-License-Identifier: Apache-2.0
//
// Small models of the Llama family with random weights and a byte-level tokenizer, for tests that need
// a model of some shape and type but no knowledge in it. The bytes are a pure function of the options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "longspec/status.h"
#include "tensor/dtype.h"

namespace longspec {

struct TinyModelOptions {
  std::string architecture =
      "llama";  // or qwen2 (biases of q, k and v), qwen3 (norms of the heads of q and k), gemma3
  uint64_t seed = 1;
  int n_layers = 2;
  int n_embd = 64;
  int n_heads = 4;
  int n_kv_heads = 2;
  int head_dim = 0;  // 0: n_embd / n_heads
  int n_ff = 128;
  int n_vocab = 384;  // at least kTinyModelMinVocab
  int context_length = 512;
  int window = 5;                        // of gemma3: attention.sliding_window, in layers but each sixth
  DType dtype = DType::kF32;             // of all matrices; norms are F32
  std::optional<DType> embedding_dtype;  // of token_embd.weight and output.weight, `dtype` if absent
  float rope_freq_base = 10000.0F;
  std::string rope_scaling = {};  // rope.scaling.type; empty: the file does not say
  int rope_original_context = 0;  // rope.scaling.original_context_length; 0: the file does not say
  // Other keys under rope.scaling. that are floats: {"factor", 4}, {"yarn_beta_fast", 16}.
  std::vector<std::pair<std::string, float>> rope_scaling_numbers = {};
  bool tied = true;          // the output matrix is token_embd.weight
  bool fills_holes = false;  // its vocabulary has the tokens for that (formats/tiny_vocabulary.h)
  std::string name = "tiny";
  std::string chat_template = {};  // in Jinja; empty: one of the ChatML kind
};

// Three control tokens and 256 bytes; further tokens are merges of letters.
inline constexpr int kTinyModelMinVocab = 259;
// Token ids, in the order of SmolLM2's.
inline constexpr int kTinyModelEndOfText = 0;  // <|endoftext|>
inline constexpr int kTinyModelBos = 1;        // <|im_start|>
inline constexpr int kTinyModelEos = 2;        // <|im_end|>

// kInvalidArgument, naming the option, if the dimensions contradict each other or the block size of the type.
Status WriteTinyModel(const TinyModelOptions& options, const std::string& path);
Result<std::vector<std::byte>> TinyModelBytes(const TinyModelOptions& options);

}  // namespace longspec
