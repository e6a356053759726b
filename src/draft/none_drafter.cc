// SPDX-License-Identifier: Apache-2.0
//
// Proposes nothing: the round becomes plain decoding.
#include "draft/registry.h"

namespace longspec {
namespace {

class NoneDrafter final : public Drafter {
 public:
  std::string_view name() const override { return "none"; }
  Status Follow(std::span<const int32_t>) override { return {}; }
  Status Propose(const DraftBudget&, std::span<const int32_t>, TokenTree&) override { return {}; }
  Status Read(const CommittedRows&) override { return {}; }
};

}  // namespace

Result<std::unique_ptr<Drafter>> MakeNoneDrafter(const SpeculationOptions&, const DraftContext&) {
  return std::unique_ptr<Drafter>(std::make_unique<NoneDrafter>());
}

}  // namespace longspec
