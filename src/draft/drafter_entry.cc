// SPDX-License-Identifier: Apache-2.0
#include "draft/drafter_entry.h"

#include <algorithm>

namespace longspec {

bool DrafterEntry::Answers(std::string_view wanted) const {
  return wanted == name || (!wanted.empty() && std::ranges::find(aliases, wanted) != aliases.end()) ||
         std::ranges::find(presets, wanted, &DrafterPreset::name) != presets.end();
}

}  // namespace longspec
