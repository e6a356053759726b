// SPDX-License-Identifier: Apache-2.0
//
// Which tokens of a vocabulary are control tokens and which of them end an answer: by the ids that a file
// names, and by the names that such tokens have in the models that are around, since files leave ids out and
// give tokens of these names wrong types. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace longspec {

struct TokenizerSpec;

// Where a GGUF file names a token that TokenizerSpec has a place for.
struct TokenIdKey {
  const char* key;
  const char* name;  // for messages
  int32_t TokenizerSpec::*id;
};

// In the order in which they are read: of two keys for one place the later one counts.
std::span<const TokenIdKey> TokenIdKeys();

// Finds by name what no id says, and types what is a control token by its name as one. Settling twice is
// settling once. REQUIRES: a type for each token, or none.
void SettleControlTokens(TokenizerSpec* spec);

// Control tokens by which a model calls tools, thinks, or parts its answer into channels: they are part of
// what it says. REQUIRES: the spec is settled.
std::vector<int32_t> MarksOfAnswers(const TokenizerSpec& spec);

// EOS, EOT, EOM, what fills up, names a repository or parts files in code, and the usual end-of-turn tokens,
// in no order; one may be there twice. REQUIRES: the spec is settled.
std::vector<int32_t> EndsOfGeneration(const TokenizerSpec& spec);

}  // namespace longspec
