// SPDX-License-Identifier: Apache-2.0
//
// Which models read and write the same tokens. A pure function; thread-safe.
#pragma once

#include "base/hash.h"
#include "tokenizer/tokenizer.h"

namespace longspec {

// Of the pre-tokeniser's name, the tokens and the merges: what decides the tokens of a text. Special tokens
// and chat templates, which a fine-tuned model may change, are no part of it.
Hash128 TokenizerHash(const TokenizerSpec& spec);

}  // namespace longspec
