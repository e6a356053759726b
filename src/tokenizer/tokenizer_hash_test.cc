// SPDX-License-Identifier: Apache-2.0
//
// Two tokenizers have one hash if they make the same tokens.
#include "tokenizer/tokenizer_hash.h"

#include <gtest/gtest.h>

namespace longspec {
namespace {

TEST(TokenizerHashTest, IsOfWhatDecidesTokensAndOfNothingElse) {
  TokenizerSpec spec;
  spec.model = "gpt2";
  spec.pre = "smollm";
  spec.tokens = {"a", "b", "ab"};
  spec.merges = {"a b"};
  const Hash128 hash = TokenizerHash(spec);
  EXPECT_EQ(ToHex(hash), ToHex(TokenizerHash(TokenizerSpec(spec))));

  TokenizerSpec other = spec;
  other.bos = 1;
  other.eos = 2;
  other.add_bos = true;
  other.token_types = {1, 3, 1};
  EXPECT_EQ(TokenizerHash(other), hash);

  const auto changed = [&](auto change) {
    TokenizerSpec with = spec;
    change(with);
    return TokenizerHash(with) != hash;
  };
  EXPECT_TRUE(changed([](TokenizerSpec& s) { s.pre = "gpt-2"; }));
  EXPECT_TRUE(changed([](TokenizerSpec& s) { s.tokens = {"b", "a", "ab"}; }));
  EXPECT_TRUE(changed([](TokenizerSpec& s) { s.tokens = {"a", "ba", "b"}; }));
  EXPECT_TRUE(changed([](TokenizerSpec& s) { s.tokens.push_back("c"); }));
  EXPECT_TRUE(changed([](TokenizerSpec& s) { s.merges.clear(); }));
  EXPECT_TRUE(changed([](TokenizerSpec& s) { s.tokens.push_back("a b"), s.merges.clear(); }));
}

}  // namespace
}  // namespace longspec
