// SPDX-License-Identifier: Apache-2.0
//
// Which options of speculation do something. Each drafter's entry says what it reads, and what it hands on to
// drafters that it makes; whatever is set and read by none of them is refused by its name. Names of papers
// and of other programs stand for settings.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "draft_model/registry.h"
#include "longspec/options.h"
#include "longspec/status.h"

namespace longspec {

// An option that most drafters read.
struct SharedOption {
  DrafterOption option;
  bool DrafterEntry::*read_by;
};
std::span<const SharedOption> SharedOptions();
// Shared ones, then those of drafters, each once.
std::vector<const DrafterOption*> SpeculationOptionTable();

// Whether an option is set. Programs that know what their users wrote say so; others go by whether it is what
// it is by default.
using IsGiven = std::function<bool(const DrafterOption&)>;
bool IsDefault(const DrafterOption& option, const SpeculationOptions& options);

// Whether drafters of this type do something with an option. Of `auto` with a draft model that is not opened,
// what any might read that it may be for.
bool Reads(const SpeculationOptions& options, const DrafterOption& option);

// Refuses the first option that is given and does nothing. `given` may be empty.
Status CheckUse(const SpeculationOptions& options, const IsGiven& given = {});
// The same if these are the drafters that are made.
Status CheckUseOf(std::span<const SpeculationOptions> parts, const SpeculationOptions& options);

// The name of a preset replaced by what it stands for, where nothing else is given. `given` may be empty.
SpeculationOptions WithPreset(const SpeculationOptions& options, const IsGiven& given = {});

// Options that were made of `base` for drafters of a type: of what these do not read, only what differs from
// the base is left, for CheckUse to refuse.
SpeculationOptions WithoutUnread(const SpeculationOptions& options, const SpeculationOptions& base);

// What is read of options when another type is asked for: the rest is as by default.
SpeculationOptions OnlyRead(const SpeculationOptions& options, std::string_view type);

}  // namespace longspec
