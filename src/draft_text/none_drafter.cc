// SPDX-License-Identifier: Apache-2.0
//
// Proposes nothing: the round becomes plain decoding.
#include "draft_text/text_drafters.h"

namespace longspec {
namespace {

class NoneDrafter final : public Drafter {
 public:
  std::string_view name() const override { return "none"; }
  Status Follow(std::span<const int32_t>) override { return {}; }
  Status Propose(const DraftBudget&, std::span<const int32_t>, TokenTree&) override { return {}; }
  Status Read(const CommittedRows&) override { return {}; }
};

DrafterResult MakeNone(const SpeculationOptions&, const DraftContext&) {
  return std::unique_ptr<Drafter>(std::make_unique<NoneDrafter>());
}

}  // namespace

constexpr DrafterEntry kNoneDrafter = {
    .name = "none",
    .aliases = {"ar", "vanilla"},
    .summary = "nothing, which is plain decoding",
    .proposes = false,
    .reads_tree = false,
    .make = MakeNone,
    .alone = true,
};

}  // namespace longspec
