// SPDX-License-Identifier: Apache-2.0
//
// For tests: a text that is written with a drafter, and all that it proposed on the way.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "decode/batch_decoder.h"
#include "draft_model/testing/batch_sequence.h"
#include "draft_model/testing/longspec_files.h"

namespace longspec::testing {

struct ProposedNode {
  int32_t token, parent;
  float score;
  bool operator==(const ProposedNode&) const = default;
};

struct WrittenText {
  std::vector<int32_t> tokens;
  std::vector<ProposedNode> proposed;
};

// A drafter that sees a part of the cache sees little of it.
inline SpeculationOptions FewGuesses(const std::string& type, const std::string& draft = "") {
  SpeculationOptions options;
  options.type = type;
  options.draft_model = draft;
  options.draft_n_max = 6;
  options.ppm.prior = "none";
  options.partial.sink = 16;
  options.partial.budget = 32;
  options.partial.window = 16;
  options.partial.refresh = 8;
  options.magicdec.sink = 16;
  options.magicdec.window = 48;
  return options;
}

// Goes on from so many random tokens, brought in pieces, until there are `n_all`.
inline WrittenText WriteText(Target* target, std::unique_ptr<KvCache> cache,
                             const SpeculationOptions& options, const SamplingOptions& sampling, int n_prompt,
                             size_t n_all) {
  BatchSequence text(target, std::move(cache), options, nullptr,
                     *Sampler::Create(sampling, target->vocab_size()), RandomTokens(n_prompt, 4));
  WrittenText written;
  text.sequence.on_proposal = [&](const TokenTree& tree) {
    for (const TreeNode& node : tree.nodes().subspan(1)) {
      written.proposed.push_back({node.token, node.parent, node.score});
    }
  };
  BatchDecoder rounds(target);
  while (text.tokens.size() < n_all) {
    Turn turn{.sequence = &text.sequence, .max_rows = text.sequence.NextRows(40), .max_tokens = 8};
    EXPECT_TRUE(rounds.Run({&turn, 1}).ok());
    EXPECT_TRUE(turn.status.ok()) << turn.status.message();
    if (!turn.status.ok()) break;
  }
  EXPECT_EQ(text.sequence.draft_failure, "");
  written.tokens = text.tokens;
  return written;
}

}  // namespace longspec::testing
