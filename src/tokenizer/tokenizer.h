// SPDX-License-Identifier: Apache-2.0
//
// Byte-level BPE and SentencePiece's BPE as GGUF files describe them. A Tokenizer is immutable and may be
// shared between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longspec/status.h"

namespace longspec {

// What a model file says of its tokenizer (keys tokenizer.ggml.*), free of any file format.
struct TokenizerSpec {
  std::string model;                // "gpt2" or "llama"; others are refused by name (tokenizer/text_model.h)
  std::string pre;                  // of gpt2, the pre-tokeniser: smollm, gpt-2, llama-bpe, qwen2, ...
  std::vector<std::string> tokens;  // of gpt2 in its printable byte alphabet, of llama with U+2581 for spaces
  std::vector<int32_t> token_types;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte;
                                     // empty: all are normal
  std::vector<std::string> merges;   // of gpt2: "left right", best first
  std::vector<float> scores;         // of llama: the highest is merged first; empty: all are equal
  bool add_space_prefix = true;      // of llama: a text begins with a space that is not in it
  int32_t bos = -1, eos = -1, eot = -1, eom = -1, unk = -1, pad = -1;
  // Of code with a hole in it: what is before and after the hole, the hole itself, and what fills up, names a
  // repository and parts files.
  int32_t fim_prefix = -1, fim_suffix = -1, fim_middle = -1, fim_pad = -1, fim_repository = -1,
          fim_separator = -1;
  bool add_bos = false, add_eos = false;
};

struct EncodeOptions {
  bool add_special = false;   // BOS/EOS where the model asks for them
  bool parse_special = true;  // "<|im_start|>" becomes its token rather than text
};

class Tokenizer {
 public:
  // An unknown model or pre-tokeniser is an error that names it and lists the known ones.
  static Result<std::shared_ptr<const Tokenizer>> Create(TokenizerSpec spec);
  static std::vector<std::string> KnownPretokenizers();
  // Whether Create knows this model and this pre-tokeniser, from their names alone.
  static Status CheckKind(std::string_view model, std::string_view pre);
  // Whether a file that does not say so wants a BOS token; false for a pre-tokeniser that is not known.
  static bool AddsBosByDefault(std::string_view model, std::string_view pre);

  virtual ~Tokenizer() = default;
  // Any bytes are accepted; invalid UTF-8 is encoded byte by byte and decodes to the same bytes.
  // Some vocabularies lack bytes that valid UTF-8 never holds, FF for one: these become the unknown token, if
  // there is a token of that type, or nothing.
  virtual std::vector<int32_t> Encode(std::string_view text, EncodeOptions options = {}) const = 0;
  // The bytes of these tokens; a space that was put before the text stays. Control tokens appear only with
  // `keep_special`; ids out of range are skipped.
  virtual std::string Decode(const std::vector<int32_t>& ids, bool keep_special = false) const = 0;
  virtual const std::string& TokenBytes(int32_t id) const = 0;  // raw bytes; REQUIRES: 0 <= id < vocab_size()
  virtual int vocab_size() const = 0;
  // Stands for no text: an unknown token, or one of control but for those by which tools are called.
  virtual bool IsControl(int32_t id) const = 0;
  // Ends a generation (EndsOfGeneration of tokenizer/control_tokens.h).
  virtual bool IsEndOfGeneration(int32_t id) const = 0;
  // As it was given, its control tokens settled (tokenizer/control_tokens.h).
  virtual const TokenizerSpec& spec() const = 0;
};

// Turns tokens into text as they come, holding back bytes until they complete a UTF-8 character.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool keep_special = false);
  // Text that became complete with this token; may be empty. Bytes that can never become a character are
  // replaced by U+FFFD, one per maximal ill-formed subsequence.
  std::string Push(int32_t id);
  // What is still held back, with U+FFFD for an incomplete character.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  bool keep_special_;
  std::string pending_;
};

}  // namespace longspec
