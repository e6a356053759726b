// SPDX-License-Identifier: Apache-2.0
//
// The table of drafters: all that the command line, its help, "auto", the memory plan and the self-check know
// of them. A new drafter is declared here, or in draft_text/text_drafters.h, and is a line of the table in
// registry.cc.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "draft/drafter.h"
#include "draft/drafter_entry.h"
#include "draft_model/draft_files.h"

namespace longspec {

extern const DrafterEntry kMagicDecDrafter, kPartialDrafter, kLongspecDrafter, kEagleDrafter, kEagle3Drafter,
    kBeagleDrafter, kMedusaDrafter, kTokenswiftDrafter, kExitDrafter, kLmDrafter, kPortfolioDrafter;

// In the order in which the help shows them, and in which "auto" asks them.
std::span<const DrafterEntry* const> Drafters();
// One more, which stands before the one of this name. `entry` stays for good. Before there is an engine, from
// one thread.
void AddDrafter(const DrafterEntry* entry, std::string_view before);
// By any name that it answers to; null if there is none.
const DrafterEntry* FindDrafter(std::string_view name);
// Of a type as SpeculationOptions has it; null if it is unknown.
const DrafterEntry* EntryOf(std::string_view type);
// The drafter that a draft model is for: lm, if no other reads this architecture.
const DrafterEntry* FindReader(std::string_view architecture);

// The options of all drafters, each once.
struct ReadOption {
  const DrafterOption* option;
  std::string readers;  // "longspec, eagle, lm"
};
std::vector<ReadOption> DrafterOptions();

// Options as they count: the name of a preset is the drafter's own, with its settings where nothing else is
// set, and what the rest leaves open is filled in. Settled options stay as they are.
SpeculationOptions Settled(const SpeculationOptions& options);
// Whether MakeDrafter would take these options, as far as they tell without a model. Unknown types are an
// error that lists the known ones; so are options that these drafters do not read, with those that do.
Status CheckDrafter(const SpeculationOptions& options);
Result<std::unique_ptr<Drafter>> MakeDrafter(const SpeculationOptions& options,
                                             const DraftContext& context = {});
// Names MakeDrafter knows, in the order the help shows them (draft_model/registry.h has the rest of the
// table).
std::vector<std::string> DrafterNames();

// What the drafters of SpeculationOptions::type will take, by their entries (draft_model/registry.h). Nothing
// without a draft model, or without a drafter that reads it; nor of an unknown type, which is the error of
// the generation that asks for it. A draft model that cannot be read or does not fit the target is an error.
// What is opened stays open in `files`.
Result<DraftMemory> PlanDraftMemory(const SpeculationOptions& speculation, const TargetFacts& target,
                                    DraftFiles& files);

}  // namespace longspec
