// SPDX-License-Identifier: Apache-2.0
#include "draft/drafter.h"

#include <algorithm>
#include <array>

#include "base/status_macros.h"
#include "draft/registry.h"

namespace longspec {
namespace {

struct Entry {
  std::string_view name;
  std::array<std::string_view, 3> aliases;
  Result<std::unique_ptr<Drafter>> (*make)(const SpeculationOptions&);

  bool Answers(std::string_view wanted) const {
    return wanted == name ||
           (!wanted.empty() && std::find(aliases.begin(), aliases.end(), wanted) != aliases.end());
  }
};

constexpr std::array<Entry, 3> kEntries = {{
    {"none", {"ar", "vanilla"}, MakeNoneDrafter},
    {"ngram", {"pld", "prompt_lookup", "ngram-simple"}, MakeNgramDrafter},
    {"replay", {}, MakeReplayDrafter},
}};

Status CheckLengths(const SpeculationOptions& options) {
  if (options.draft_n_max < 0) {
    return InvalidArgument("--spec-draft-n-max " + std::to_string(options.draft_n_max) +
                           ": must be 0 or more");
  }
  if (options.draft_n_min < 0 || options.draft_n_min > options.draft_n_max) {
    return InvalidArgument("--spec-draft-n-min " + std::to_string(options.draft_n_min) +
                           ": must be from 0 to --spec-draft-n-max (" + std::to_string(options.draft_n_max) +
                           ")");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Drafter>> MakeDrafter(const SpeculationOptions& options) {
  LS_TRY(CheckLengths(options));
  for (const Entry& entry : kEntries) {
    if (entry.Answers(options.type)) return entry.make(options);
  }
  std::string known;
  for (const std::string& name : DrafterNames()) known += (known.empty() ? "" : ", ") + name;
  return InvalidArgument("--spec-type " + options.type + ": unknown; known are " + known);
}

std::vector<std::string> DrafterNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace longspec
