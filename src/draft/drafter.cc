// SPDX-License-Identifier: Apache-2.0
#include "draft/drafter.h"

#include <algorithm>

#include "base/status_macros.h"
#include "draft/registry.h"

namespace longspec {
namespace {

struct Entry {
  std::string_view name;
  std::array<std::string_view, 3> aliases;
  Status (*check)(const SpeculationOptions&);
  DrafterResult (*make)(const SpeculationOptions&, const DraftContext&);

  bool Answers(std::string_view wanted) const {
    return wanted == name ||
           (!wanted.empty() && std::find(aliases.begin(), aliases.end(), wanted) != aliases.end());
  }
};

Status NothingToCheck(const SpeculationOptions&) { return {}; }

constexpr Entry kEntries[] = {
    {"none", {"ar", "vanilla"}, NothingToCheck, MakeNoneDrafter},
    {"ngram", {"pld", "prompt_lookup", "ngram-simple"}, CheckNgramOptions, MakeNgramDrafter},
    {"replay", {}, CheckReplayOptions, MakeReplayDrafter},
    {"suffix", {"suffix_decoding", "sa"}, CheckSuffixOptions, MakeSuffixDrafter},
    {"ppm", {}, CheckPpmOptions, MakePpmDrafter},
    {"recycling", {"token_recycling", "tr"}, CheckRecyclingOptions, MakeRecyclingDrafter},
    {"magicdec", {"streaming", "self_streaming"}, CheckMagicDecOptions, MakeMagicDecDrafter},
    {"longspec", {"glide"}, CheckLongspecOptions, MakeLongspecDrafter},
    {"lm", {"draft", "draft_model", "draft-simple"}, CheckLmOptions, MakeLmDrafter},
    {"auto", {"portfolio"}, CheckPortfolioOptions, MakePortfolioDrafter},
};

Result<const Entry*> Find(std::string_view type) {
  const std::string_view wanted = IsPortfolio(type) ? "auto" : type;
  for (const Entry& entry : kEntries) {
    if (entry.Answers(wanted)) return &entry;
  }
  std::string known;
  for (const std::string& name : DrafterNames()) known += (known.empty() ? "" : ", ") + name;
  return InvalidArgument("--spec-type " + std::string(type) + ": unknown; known are " + known);
}

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

Status CheckDrafter(const SpeculationOptions& options) {
  LS_TRY(CheckLengths(options));
  LS_ASSIGN(const Entry* entry, Find(options.type));
  return entry->check(options);
}

Result<std::unique_ptr<Drafter>> MakeDrafter(const SpeculationOptions& options, const DraftContext& context) {
  LS_TRY(CheckDrafter(options));
  LS_ASSIGN(const Entry* entry, Find(options.type));
  return entry->make(options, context);
}

bool IsPortfolio(std::string_view type) {
  return type == "auto" || type == "portfolio" || type.find(',') != std::string_view::npos;
}

std::vector<std::string> DraftersOf(std::string_view type) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= type.size();) {
    const size_t end = std::min(type.find(',', begin), type.size());
    for (const Entry& entry : kEntries) {
      if (entry.Answers(type.substr(begin, end - begin))) names.emplace_back(entry.name);
    }
    begin = end + 1;
  }
  return names;
}

std::vector<std::string> DrafterNames() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.name);
  return names;
}

}  // namespace longspec
