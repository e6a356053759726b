// SPDX-License-Identifier: Apache-2.0
//
// What a GGUF file says of its tokenizer: the keys tokenizer.ggml.*, as a TokenizerSpec. Pure; an open file
// may be read from several threads.
#pragma once

#include "draft_text/priors.h"
#include "formats/gguf.h"
#include "longspec/status.h"
#include "tokenizer/tokenizer.h"

namespace longspec {

// Errors name the file and the key. What a file may leave out gets the meaning such files have: no
// pre-tokeniser is "default", and whether BOS is added follows from the pre-tokeniser.
Result<TokenizerSpec> TokenizerSpecFromGguf(const GgufFile& file);

// What n-gram priors for this model have to fit, and where they are looked for: in the folder "priors" beside
// the model file.
PriorSource PriorsOf(const GgufFile& file, const TokenizerSpec& spec, int vocab_size);

}  // namespace longspec
