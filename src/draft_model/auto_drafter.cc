// SPDX-License-Identifier: Apache-2.0
//
// The entry of portfolios (draft/portfolio_drafter.h): which drafters are members of "auto" and of lists, and
// with which options.
#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "draft/portfolio_drafter.h"
#include "draft_model/draft_models.h"
#include "draft_model/option_use.h"
#include "draft_model/registry.h"

namespace longspec {
namespace {

bool IsList(const std::string& type) { return type.find(',') != std::string::npos; }

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

// What it is made with: what it reads, and what only a member does.
SpeculationOptions OptionsOf(std::string_view member, const SpeculationOptions& options) {
  SpeculationOptions own = WithPreset(OnlyRead(options, member));
  const DrafterEntry* entry = FindDrafter(member);
  if (entry != nullptr && entry->as_member != nullptr) entry->as_member(own);
  return Settled(own);
}

bool IsMember(const DrafterEntry& entry, const SpeculationOptions& options) {
  return entry.in_auto != nullptr && entry.in_auto(options) &&
         (entry.reads == nullptr || !options.draft_model.empty());
}

// Of "auto" with a draft model, all that it may be for: its file is not opened here.
std::vector<SpeculationOptions> PartsOfPortfolio(const SpeculationOptions& options) {
  std::vector<SpeculationOptions> parts;
  if (IsList(options.type)) {
    for (const std::string& name : Split(options.type)) parts.push_back(OptionsOf(name, options));
    return parts;
  }
  for (const DrafterEntry* entry : Drafters()) {
    if (IsMember(*entry, options)) parts.push_back(OptionsOf(entry->name, options));
  }
  return parts;
}

// The options of each member. `files`: DraftFiles or DraftModels, which know the draft model.
template <typename Files>
Result<std::vector<SpeculationOptions>> Members(const SpeculationOptions& options, Files& files) {
  std::vector<SpeculationOptions> members;
  if (IsList(options.type)) {
    for (const std::string& name : Split(options.type)) members.push_back(OptionsOf(name, options));
    return members;
  }
  std::string architecture;
  if (!options.draft_model.empty()) {
    LS_ASSIGN(architecture, files.Architecture(options.draft_model));
    const DrafterEntry* reader = FindReader(architecture);
    if (reader->in_auto == nullptr) {
      const std::string name(reader->name);
      return InvalidArgument(options.draft_model + ": a draft for --spec-type " + name +
                             ", which cannot be one of several and has to be named");
    }
  }
  for (const DrafterEntry* entry : Drafters()) {
    if (!IsMember(*entry, options)) continue;
    if (entry->reads != nullptr && !entry->reads(architecture)) continue;
    members.push_back(OptionsOf(entry->name, options));
  }
  LS_TRY(CheckUseOf(members, options));
  return members;
}

Status CheckList(const SpeculationOptions& options) {
  std::vector<const DrafterEntry*> seen;
  for (const std::string& name : Split(options.type)) {
    const DrafterEntry* entry = FindDrafter(name);
    if (entry != nullptr && entry->alone) {
      return InvalidArgument("--spec-type " + options.type + ": " + name + " cannot be one of several");
    }
    if (std::ranges::find(seen, entry) != seen.end()) {
      return InvalidArgument("--spec-type " + options.type + ": " + name + " is named twice");
    }
    LS_TRY(CheckDrafter(OptionsOf(name, options)));
    seen.push_back(entry);
  }
  return {};
}

// Which drafter a draft model is for, its file will tell: until then it is enough that one takes the options.
Status CheckAuto(const SpeculationOptions& options) {
  Status refusal;
  bool taken = options.draft_model.empty();
  std::vector<SpeculationOptions> members;  // the last one is in turn each that may read the model
  for (const DrafterEntry* entry : Drafters()) {
    if (!IsMember(*entry, options) || entry->reads != nullptr) continue;
    members.push_back(OptionsOf(entry->name, options));
    LS_TRY(CheckDrafter(members.back()));
  }
  members.emplace_back();
  for (const DrafterEntry* entry : Drafters()) {
    if (!IsMember(*entry, options) || entry->reads == nullptr) continue;
    members.back() = OptionsOf(entry->name, options);
    Status status = CheckDrafter(members.back());
    if (status.ok()) status = CheckUseOf(members, options);
    taken = taken || status.ok();
    if (refusal.ok()) refusal = status;
  }
  return taken ? Status() : refusal;
}

Status CheckPortfolio(const SpeculationOptions& options) {
  return IsList(options.type) ? CheckList(options) : CheckAuto(options);
}

// Whether its members fit, they say when theirs is planned.
Result<DraftMemory> PortfolioMemory(const SpeculationOptions& options, const TargetFacts& target,
                                    DraftFiles& files) {
  LS_ASSIGN(const auto members, Members(options, files));
  DraftMemory plan;
  for (const SpeculationOptions& member : members) {
    LS_ASSIGN(const DraftMemory own, PlanDraftMemory(member, target, files));
    plan += own;
  }
  return plan;
}

DrafterResult MakePortfolio(const SpeculationOptions& options, const DraftContext& context) {
  LS_ASSIGN(const auto chosen, Members(options, *context.models));
  std::vector<std::unique_ptr<Drafter>> members;
  DraftContext of_member = context;
  of_member.one_of_several = true;
  for (const SpeculationOptions& own : chosen) {
    LS_ASSIGN(std::unique_ptr<Drafter> member, MakeDrafter(own, of_member));
    members.push_back(std::move(member));
  }
  return NewPortfolio(options.type, std::move(members));
}

}  // namespace

constexpr DrafterEntry kPortfolioDrafter = {
    .name = kPortfolioType,
    .aliases = {kPortfolioAlias},
    .summary = "all that these options and this model allow, in one tree",
    .reads_tree = false,
    .parts = PartsOfPortfolio,
    .check = CheckPortfolio,
    .memory = PortfolioMemory,
    .make = MakePortfolio,
    .alone = true,
};

}  // namespace longspec
