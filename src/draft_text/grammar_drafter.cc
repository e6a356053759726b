// SPDX-License-Identifier: Apache-2.0
//
// Proposes what the answer's grammar leaves no choice about: the skeleton of a JSON object, the rest of a
// name once it is told from the others (jump-forward decoding, Zheng et al. 2024, arXiv:2312.07104, as a
// draft). The target still chooses, since one text can be written in several tokens. Without a grammar it
// proposes nothing.
#include <algorithm>

#include "draft_text/text_drafters.h"

namespace longspec {
namespace {

// How likely a token is to be chosen, once those before it were: the text is certain, its cut into tokens is
// not. The last one may be the beginning of a longer token.
constexpr float kChance = 0.95F;
constexpr float kChanceOfLast = 0.7F;

class GrammarDrafter final : public Drafter {
 public:
  std::string_view name() const override { return "grammar"; }
  Status Follow(std::span<const int32_t>) override { return {}; }

  Status Propose(const DraftBudget& budget, std::span<const int32_t>, TokenTree& tree) override {
    Constraint* const constraint = budget.foresight.constraint();
    if (constraint == nullptr) return {};
    const std::vector<int32_t> forced = constraint->Forced(std::min(budget.max_nodes, budget.max_depth));
    int parent = 0;
    float score = 1.0F;
    for (size_t i = 0; i < forced.size(); ++i) {
      score *= i + 1 == forced.size() ? kChanceOfLast : kChance;
      parent = tree.AddChild(parent, forced[i], score);
    }
    return {};
  }

  Status Read(const CommittedRows&) override { return {}; }
};

DrafterResult MakeGrammar(const SpeculationOptions&, const DraftContext&) {
  return std::unique_ptr<Drafter>(std::make_unique<GrammarDrafter>());
}

}  // namespace

constexpr DrafterEntry kGrammarDrafter = {
    .name = "grammar",
    .summary = "what the grammar of the answer leaves no choice about",
    .reads_tree = false,
    .make = MakeGrammar,
    .in_auto = Always,
    .chain_by_default = true,
};

}  // namespace longspec
