// SPDX-License-Identifier: Apache-2.0
#include "draft_model/option_use.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "draft/portfolio_drafter.h"

namespace longspec {
namespace {

constexpr SharedOption kShared[] = {
    {{.flags = "--spec-policy", .member = At<&SpeculationOptions::policy>, .help = ""},
     &DrafterEntry::proposes},
    {{.flags = "--spec-draft-n-max", .member = At<&SpeculationOptions::draft_n_max>, .help = ""},
     &DrafterEntry::proposes},
    {{.flags = "--spec-adaptive-n-max", .member = At<&SpeculationOptions::adaptive_n_max>, .help = ""},
     &DrafterEntry::proposes},
    {{.flags = "--spec-draft-n-min", .member = At<&SpeculationOptions::draft_n_min>, .help = ""},
     &DrafterEntry::proposes},
    {{.flags = "--spec-tree", .member = At<&SpeculationOptions::tree>, .help = ""},
     &DrafterEntry::reads_tree},
    {{.flags = "--spec-dice", .member = At<&SpeculationOptions::dice>, .help = ""},
     &DrafterEntry::reads_dice},
};

// One option may stand in the tables of several drafters.
bool IsSame(const DrafterOption& a, const DrafterOption& b) { return a.flags == b.flags; }

const SharedOption* FindShared(const DrafterOption& option) {
  const auto* const found = std::ranges::find_if(
      kShared, [&](const SharedOption& shared) { return IsSame(shared.option, option); });
  return found == std::end(kShared) ? nullptr : found;
}

// As this drafter has it; null: it has none.
const DrafterOption* FindIn(const DrafterEntry& entry, const DrafterOption& option) {
  if (const SharedOption* shared = FindShared(option); shared != nullptr)
    return entry.*shared->read_by ? &shared->option : nullptr;
  const auto own =
      std::ranges::find_if(entry.options, [&](const DrafterOption& o) { return IsSame(o, option); });
  return own == entry.options.end() ? nullptr : &*own;
}

enum class Use { kNone, kLacking, kRead };

Use UseOfParts(std::span<const SpeculationOptions> parts, const SpeculationOptions& options,
               const DrafterOption& option, std::string_view* lacking);

// `lacking`: what it lacks, if that is all.
Use UseOf(const SpeculationOptions& options, const DrafterOption& option, std::string_view* lacking) {
  const DrafterEntry* const entry = EntryOf(options.type);
  if (entry == nullptr) return Use::kNone;
  Use use = Use::kNone;
  if (const DrafterOption* own = FindIn(*entry, option); own != nullptr) {
    const std::string_view lacks = own->lacks == nullptr ? std::string_view() : own->lacks(options);
    if (lacks.empty()) return Use::kRead;
    *lacking = lacks;
    use = Use::kLacking;
  }
  if (entry->parts == nullptr) return use;
  return std::max(use, UseOfParts(entry->parts(options), options, option, lacking));
}

bool IsEqual(const DrafterOption& option, const SpeculationOptions& a, const SpeculationOptions& b) {
  return std::visit([&](auto member) { return member.In(a) == member.In(b); }, option.member);
}

// Who makes a drafter hands on to it what that is to read.
Use UseOfParts(std::span<const SpeculationOptions> parts, const SpeculationOptions& options,
               const DrafterOption& option, std::string_view* lacking) {
  Use use = Use::kNone;
  for (const SpeculationOptions& part : parts) {
    if (IsEqual(option, part, options)) use = std::max(use, UseOf(part, option, lacking));
  }
  return use;
}

std::string Listed(const std::vector<std::string_view>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += names[i];
  }
  return text;
}

// "eagle, eagle3 and lm", or "all but none and grammar" where that is shorter.
std::string ReadersOf(const DrafterOption& option) {
  std::vector<std::string_view> readers, others;
  for (const DrafterEntry* entry : Drafters()) {
    if (entry->parts != nullptr && FindIn(*entry, option) == nullptr) continue;
    (FindIn(*entry, option) != nullptr ? readers : others).push_back(entry->name);
  }
  return others.size() < readers.size() ? "all but " + Listed(others) : Listed(readers);
}

Status Refusal(const SpeculationOptions& options, const DrafterOption& option, Use use,
               std::string_view lacking) {
  const std::string name(option.name());
  if (use == Use::kLacking) return InvalidArgument(name + ": has no effect without " + std::string(lacking));
  return InvalidArgument(name + ": has no effect with --spec-type " + options.type + "; it is for " +
                         ReadersOf(option));
}

// Both of these say how many nodes there may be. Programs set them together, and one is read.
bool IsOfEitherPolicy(const DrafterOption& option) {
  return option.name() == "--spec-draft-n-max" || option.name() == "--spec-adaptive-n-max";
}

void Copy(const DrafterOption& option, const SpeculationOptions& from, SpeculationOptions* to) {
  std::visit([&](auto member) { member.In(*to) = member.In(from); }, option.member);
}

}  // namespace

std::span<const SharedOption> SharedOptions() { return kShared; }

std::vector<const DrafterOption*> SpeculationOptionTable() {
  std::vector<const DrafterOption*> all;
  for (const SharedOption& shared : kShared) all.push_back(&shared.option);
  for (const ReadOption& read : DrafterOptions()) all.push_back(read.option);
  return all;
}

bool IsDefault(const DrafterOption& option, const SpeculationOptions& options) {
  return IsEqual(option, options, SpeculationOptions());
}

bool Reads(const SpeculationOptions& options, const DrafterOption& option) {
  std::string_view lacking;
  return UseOf(options, option, &lacking) == Use::kRead;
}

Status CheckUse(const SpeculationOptions& options, const IsGiven& given) {
  for (const DrafterOption* option : SpeculationOptionTable()) {
    if (given ? !given(*option) : IsDefault(*option, options)) continue;
    std::string_view lacking;
    const Use use = UseOf(options, *option, &lacking);
    if (use != Use::kRead) return Refusal(options, *option, use, lacking);
  }
  return {};
}

Status CheckUseOf(std::span<const SpeculationOptions> parts, const SpeculationOptions& options) {
  for (const DrafterOption* option : SpeculationOptionTable()) {
    if (IsDefault(*option, options) || IsOfEitherPolicy(*option)) continue;
    std::string_view lacking;
    const Use use = UseOfParts(parts, options, *option, &lacking);
    if (use != Use::kRead) return Refusal(options, *option, use, lacking);
  }
  return {};
}

SpeculationOptions WithoutUnread(const SpeculationOptions& options, const SpeculationOptions& base) {
  SpeculationOptions left = options;
  for (const DrafterOption* option : SpeculationOptionTable()) {
    if (IsEqual(*option, options, base) && !Reads(options, *option))
      Copy(*option, SpeculationOptions(), &left);
  }
  return left;
}

SpeculationOptions OnlyRead(const SpeculationOptions& options, std::string_view type) {
  SpeculationOptions all = options;
  all.type = type;
  SpeculationOptions read = all;
  const SpeculationOptions decided = WithPreset(all);
  for (const DrafterOption* option : SpeculationOptionTable()) {
    if (!Reads(decided, *option)) Copy(*option, SpeculationOptions(), &read);
  }
  return read;
}

SpeculationOptions WithPreset(const SpeculationOptions& options, const IsGiven& given) {
  SpeculationOptions with = options;
  const DrafterEntry* const entry = IsPortfolio(options.type) ? nullptr : FindDrafter(options.type);
  if (entry == nullptr) return with;
  with.type = entry->name;
  const auto preset = std::ranges::find(entry->presets, options.type, &DrafterPreset::name);
  if (preset == entry->presets.end()) return with;
  SpeculationOptions wanted;
  preset->set(wanted);
  for (const DrafterOption* option : SpeculationOptionTable()) {
    const bool set = given ? given(*option) : !IsDefault(*option, options);
    if (!set) Copy(*option, wanted, &with);
  }
  return with;
}

SpeculationOptions Settled(const SpeculationOptions& options) {
  SpeculationOptions settled = WithPreset(options);
  const DrafterEntry* const entry = EntryOf(settled.type);
  if (entry != nullptr && entry->settle != nullptr) entry->settle(settled);
  return settled;
}

}  // namespace longspec
