// SPDX-License-Identifier: Apache-2.0
//
// How a kind of vocabulary turns text into tokens, and how it writes text in them. What a file calls
// tokenizer.ggml.model is one of these. Immutable once made; may be shared between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longspec/status.h"

namespace longspec {

struct TokenizerSpec;

class TextModel {
 public:
  virtual ~TextModel() = default;
  // Appends the tokens of a text without special tokens. `begins`: nothing or a special token is before it.
  virtual void Encode(std::string_view text, bool begins, std::vector<int32_t>* tokens) const = 0;
  // The bytes that an ordinary token stands for, which the vocabulary writes as `token`.
  virtual std::string BytesOf(const std::string& token) const = 0;
};

// "gpt2": a pre-tokeniser and the merges of a byte-level BPE.
Result<std::unique_ptr<const TextModel>> MakeByteLevelModel(const TokenizerSpec& spec);
// "llama": SentencePiece's BPE. Spaces are written as U+2581; beginning with characters, the two neighbours
// are merged whose union is the token of the highest score, leftmost first, until no union is a token; what
// is no token then becomes tokens of its bytes, "<0x0A>".
Result<std::unique_ptr<const TextModel>> MakeSentencePieceModel(const TokenizerSpec& spec);

}  // namespace longspec
