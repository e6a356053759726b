// SPDX-License-Identifier: Apache-2.0
//
// What drafters keep of a sequence, as named sections of its session file, and back. Nothing of it changes
// what is generated: a snapshot that is lost costs speed, so it is left out with a notice and never an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "draft/drafter.h"
#include "formats/session_file.h"

namespace longspec {

// The sections of these snapshots, which must outlive them: "draft NAME".
std::vector<SessionSection> SectionsOf(std::span<const DrafterSnapshot> snapshots);

// The snapshots of a session file. Those that are damaged are left out, and `notice` gets why.
std::vector<DrafterSnapshot> SnapshotsOf(const SessionContents& saved, std::string* notice);

// Gives them to a drafter that was just made. `tokens`: the sequence they were saved of.
void RestoreSnapshots(std::span<const int32_t> tokens, std::span<const DrafterSnapshot> snapshots,
                      Drafter& drafter, std::string* notice);

// Several notices are one line.
void AddNotice(const std::string& more, std::string* notice);

}  // namespace longspec
