// SPDX-License-Identifier: Apache-2.0
#include "draft_model/registry.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "base/status_macros.h"
#include "draft/portfolio_drafter.h"
#include "draft_model/draft_models.h"
#include "draft_model/option_use.h"
#include "draft_text/text_drafters.h"

namespace longspec {
namespace {

std::vector<const DrafterEntry*>& Table() {
  static std::vector<const DrafterEntry*> table = {
      &kNoneDrafter,       &kNgramDrafter,    &kPpmDrafter,     &kSuffixDrafter,
      &kRecyclingDrafter,  &kMagicDecDrafter, &kPartialDrafter, &kLongspecDrafter,
      &kEagleDrafter,      &kEagle3Drafter,   &kBeagleDrafter,  &kMedusaDrafter,
      &kTokenswiftDrafter, &kExitDrafter,     &kLmDrafter,      &kGrammarDrafter,
      &kPredictionDrafter,  // the last of a portfolio, so that the others' places are the same without it
      &kPortfolioDrafter,
  };
  return table;
}

// Names that promised more than was done under them, and what that is called.
struct RetiredName {
  std::string_view name, instead;
};
constexpr RetiredName kRetiredNames[] = {
    {"streaming", "--spec-type magicdec drafts with StreamingLLM's cache"},
    {"self_streaming", "--spec-type magicdec drafts with StreamingLLM's cache"},
    {"suffix_decoding", "--spec-type suffix is its tree of one text; there is none of earlier answers"},
    {"sa", "--spec-type suffix looks up the longest suffix"},
    {"glide", "--spec-type longspec is the draft that LongSpec trains"},
    {"layerskip", "--spec-type exit drafts with a block after the first layers, which LayerSkip has not"},
    {"kangaroo", "--spec-type exit drafts with a block after the first layers, of another form"},
};

// Names of llama.cpp whose drafts nobody makes here, and what does their job.
constexpr RetiredName kUnknownNames[] = {
    {"ngram-map-k", "--spec-type ngram-simple looks up the same 12 tokens and drafts the same 48"},
    {"ngram-map-k4v", "--spec-type suffix drafts the most frequent of several continuations"},
    {"ngram-mod", "--spec-type suffix looks up long suffixes, with --spec-corpus in other texts too"},
    {"ngram-cache", "--spec-type ppm counts what followed, with --spec-prior in other texts too"},
    {"draft-mtp", "--spec-type auto drafts without a model, and with -md by the draft model's kind"},
    {"draft-dflash", "--spec-type auto drafts without a model, and with -md by the draft model's kind"},
    {"draft-dspark", "--spec-type auto drafts without a model, and with -md by the draft model's kind"},
};

// Why there is none of this name, if that is known; else empty.
std::string InsteadOf(std::string_view type) {
  const auto what = [type](std::span<const RetiredName> names, const std::string& is) {
    const auto found = std::ranges::find(names, type, &RetiredName::name);
    return found == names.end() ? std::string() : is + "; " + std::string(found->instead);
  };
  const std::string retired = what(kRetiredNames, "is no name here any more");
  return retired.empty() ? what(kUnknownNames, "is not supported") : retired;
}

Result<const DrafterEntry*> KnownEntryOf(std::string_view type) {
  if (const DrafterEntry* entry = EntryOf(type); entry != nullptr) return entry;
  if (const std::string instead = InsteadOf(type); !instead.empty())
    return InvalidArgument("--spec-type " + std::string(type) + ": " + instead);
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

std::string Bound(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.10g", x);
  return text;
}

template <typename T>
Status CheckRange(const DrafterOption& option, T value) {
  const auto x = static_cast<double>(value);
  if (std::isfinite(x) && x <= option.most && (option.above_least ? x > option.least : x >= option.least)) {
    return {};
  }
  const bool bounded = std::isfinite(option.most);
  std::string allowed;
  if (option.above_least) {
    allowed = "more than " + Bound(option.least) + (bounded ? " and at most " + Bound(option.most) : "");
  } else {
    allowed = bounded ? "from " + Bound(option.least) + " to " + Bound(option.most)
                      : Bound(option.least) + " or more";
  }
  return InvalidArgument(std::string(option.name()) + " " + std::to_string(value) + ": must be " + allowed);
}

Status CheckRange(const DrafterOption&, const std::string&) { return {}; }

// What this drafter reads. `name`: what it was called.
Status CheckOwnOptions(const DrafterEntry& entry, const SpeculationOptions& options,
                       const std::string& name) {
  if (entry.reads != nullptr && options.draft_model.empty()) {
    return InvalidArgument("--spec-type " + name +
                           ": needs a draft model; name its file or folder with --spec-draft-model (-md)");
  }
  for (const DrafterOption& option : entry.options) {
    LS_TRY(std::visit([&](auto member) { return CheckRange(option, member.In(options)); }, option.member));
  }
  return entry.check == nullptr ? Status() : entry.check(options);
}

}  // namespace

const DrafterEntry* EntryOf(std::string_view type) {
  return IsPortfolio(type) ? &kPortfolioDrafter : FindDrafter(type);
}

std::span<const DrafterEntry* const> Drafters() { return Table(); }

void AddDrafter(const DrafterEntry* entry, std::string_view before) {
  auto& table = Table();
  table.insert(std::ranges::find(table, before, &DrafterEntry::name), entry);
}

const DrafterEntry* FindDrafter(std::string_view name) {
  const auto found =
      std::ranges::find_if(Table(), [&](const DrafterEntry* entry) { return entry->Answers(name); });
  return found == Table().end() ? nullptr : *found;
}

std::vector<const DraftKind*> DraftKinds() {
  std::vector<const DraftKind*> kinds;
  for (const DrafterEntry* entry : Table()) {
    if (entry->kind != nullptr) kinds.push_back(entry->kind);
  }
  return kinds;
}

const DraftKind* FindDraftKind(std::string_view name) {
  for (const DraftKind* kind : DraftKinds()) {
    if (kind->name == name) return kind;
  }
  return nullptr;
}

std::string DraftKindNames() {
  std::string names;
  for (const DraftKind* kind : DraftKinds()) names += (names.empty() ? "" : ", ") + std::string(kind->name);
  return names;
}

const DrafterEntry* FindReader(std::string_view architecture) {
  const auto found = std::ranges::find_if(Table(), [&](const DrafterEntry* entry) {
    return entry->reads != nullptr && entry->reads(architecture);
  });
  return found == Table().end() ? nullptr : *found;
}

std::vector<ReadOption> DrafterOptions() {
  std::vector<ReadOption> all;
  for (const DrafterEntry* entry : Table()) {
    for (const DrafterOption& option : entry->options) {
      const auto known = std::ranges::find_if(
          all, [&](const ReadOption& other) { return other.option->flags == option.flags; });
      if (known != all.end()) {
        known->readers += ", " + std::string(entry->name);
      } else {
        all.push_back({.option = &option, .readers = std::string(entry->name)});
      }
    }
  }
  return all;
}

Status CheckDrafter(const SpeculationOptions& given) {
  const SpeculationOptions options = Settled(given);
  LS_TRY(CheckLengths(options));
  LS_ASSIGN(const DrafterEntry* entry, KnownEntryOf(options.type));
  LS_TRY(CheckOwnOptions(*entry, options, given.type));
  return CheckUse(options);
}

Result<DraftMemory> PlanDraftMemory(const SpeculationOptions& given, const TargetFacts& target,
                                    DraftFiles& files) {
  const SpeculationOptions speculation = Settled(given);
  const DrafterEntry* entry = EntryOf(speculation.type);
  if (entry == nullptr || entry->memory == nullptr) return DraftMemory{};
  if (entry->reads != nullptr) {
    if (speculation.draft_model.empty()) return DraftMemory{};
    LS_TRY(CheckOwnOptions(*entry, speculation, given.type));
  }
  if (entry->fits != nullptr) LS_TRY(entry->fits(speculation, target, files));
  return entry->memory(speculation, target, files);
}

Result<std::unique_ptr<Drafter>> MakeDrafter(const SpeculationOptions& given, const DraftContext& context) {
  const SpeculationOptions options = Settled(given);
  LS_TRY(CheckDrafter(options));
  LS_ASSIGN(const DrafterEntry* entry, KnownEntryOf(options.type));
  DraftModels own;
  DraftContext complete = context;
  if (complete.models == nullptr) complete.models = &own;
  complete.priors = &complete.models->priors();
  auto drafter = entry->make(options, complete);
  // What was refused may be another file the next time.
  if (!drafter.ok() && !options.draft_model.empty()) complete.models->Close(options.draft_model);
  return drafter;
}

std::vector<std::string> DrafterNames() {
  std::vector<std::string> names;
  for (const DrafterEntry* entry : Table()) names.emplace_back(entry->name);
  return names;
}

}  // namespace longspec
