// SPDX-License-Identifier: Apache-2.0
//
// The tokenizer of a tiny model: three control tokens, the 256 bytes in GPT-2's printable alphabet, then
// merges.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/gguf_writer.h"

namespace longspec {

struct TinyVocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;  // 1 normal, 3 control
  std::vector<std::string> merges;
};

// fills_holes: the last six tokens are those of code with a hole in it, by the names that Qwen2.5-Coder has.
// REQUIRES: n_tokens >= 259, and six more if it fills holes.
TinyVocabulary MakeTinyVocabulary(int n_tokens, bool fills_holes = false);
// The same as the keys of a file.
void SetTinyVocabulary(int n_tokens, GgufWriter* writer, bool fills_holes = false);

}  // namespace longspec
