// SPDX-License-Identifier: Apache-2.0
#include "engine/gguf_tokenizer.h"

#include <filesystem>
#include <limits>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "tokenizer/control_tokens.h"
#include "tokenizer/tokenizer_hash.h"

namespace longspec {
namespace {

Status OutOfRange(const GgufFile& file, const std::string& key, const std::string& value) {
  return Corrupt(file.path() + ": " + key + " holds " + value +
                 ", which is not in the range of a 32-bit integer");
}

// -1 when the key is absent.
Status ReadId(const GgufFile& file, const std::string& key, int32_t* id) {
  if (!file.Has(key)) return {};
  LS_ASSIGN(const uint64_t value, file.GetUint(key));
  if (value > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
    return OutOfRange(file, key, std::to_string(value));
  }
  *id = static_cast<int32_t>(value);
  return {};
}

Status ReadTokenTypes(const GgufFile& file, TokenizerSpec* spec) {
  const std::string key = "tokenizer.ggml.token_type";
  if (!file.Has(key)) return {};
  LS_ASSIGN(const std::vector<int64_t> types, file.GetInts(key));
  spec->token_types.reserve(types.size());
  for (const int64_t type : types) {
    if (type != static_cast<int32_t>(type)) return OutOfRange(file, key, std::to_string(type));
    spec->token_types.push_back(static_cast<int32_t>(type));
  }
  return {};
}

}  // namespace

Result<TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file) {
  TokenizerSpec spec;
  LS_ASSIGN(spec.model, file.GetString("tokenizer.ggml.model"));
  LS_ASSIGN(spec.pre, file.GetStringOr("tokenizer.ggml.pre", "default"));
  LS_ASSIGN(spec.tokens, file.GetStrings("tokenizer.ggml.tokens"));
  LS_TRY(ReadTokenTypes(file, &spec));
  // What is no model that is known is refused by its name later.
  if (spec.model == "gpt2") {
    LS_ASSIGN(spec.merges, file.GetStrings("tokenizer.ggml.merges"));
  } else if (spec.model == "llama") {
    LS_ASSIGN(spec.scores, file.GetFloats("tokenizer.ggml.scores"));
    LS_ASSIGN(spec.add_space_prefix, file.GetBoolOr("tokenizer.ggml.add_space_prefix", true));
  }
  for (const TokenIdKey& key : TokenIdKeys()) LS_TRY(ReadId(file, key.key, &(spec.*key.id)));
  const bool bos_by_default = spec.bos >= 0 && Tokenizer::AddsBosByDefault(spec.model, spec.pre);
  LS_ASSIGN(spec.add_bos, file.GetBoolOr("tokenizer.ggml.add_bos_token", bos_by_default));
  LS_ASSIGN(spec.add_eos, file.GetBoolOr("tokenizer.ggml.add_eos_token", false));
  return spec;
}

PriorSource PriorsOf(const GgufFile& file, const TokenizerSpec& spec, int vocab_size) {
  const std::filesystem::path folder = std::filesystem::path(file.path()).parent_path() / "priors";
  return {.tokenizer = TokenizerHash(spec), .vocab_size = vocab_size, .folder = folder.string()};
}

}  // namespace longspec
