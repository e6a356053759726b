// SPDX-License-Identifier: Apache-2.0
#include "engine/drafter_snapshots.h"

namespace longspec {
namespace {

constexpr std::string_view kPrefix = "draft ";

}  // namespace

std::vector<SessionSection> SectionsOf(std::span<const DrafterSnapshot> snapshots) {
  std::vector<SessionSection> sections;
  for (const DrafterSnapshot& snapshot : snapshots) {
    sections.push_back({.name = std::string(kPrefix) + snapshot.drafter,
                        .version = snapshot.version,
                        .bytes = std::span(snapshot.bytes)});
  }
  return sections;
}

std::vector<DrafterSnapshot> SnapshotsOf(const SessionContents& saved, std::string* notice) {
  std::vector<DrafterSnapshot> snapshots;
  for (const SessionSection& section : saved.sections) {
    if (!section.name.starts_with(kPrefix)) continue;
    const std::string drafter = section.name.substr(kPrefix.size());
    if (section.damaged) {
      AddNotice("the session file's state of " + drafter + " is damaged: it learns anew", notice);
      continue;
    }
    snapshots.push_back({.drafter = drafter,
                         .version = section.version,
                         .bytes = {section.bytes.begin(), section.bytes.end()}});
  }
  return snapshots;
}

void RestoreSnapshots(std::span<const int32_t> tokens, std::span<const DrafterSnapshot> snapshots,
                      Drafter& drafter, std::string* notice) {
  if (snapshots.empty()) return;
  // One that cannot follow says so again when the answer begins.
  if (!drafter.Follow(tokens).ok()) return;
  for (const DrafterSnapshot& snapshot : snapshots) {
    const Status restored = drafter.Restore(snapshot);
    if (!restored.ok()) AddNotice(snapshot.drafter + " learns anew: " + restored.message(), notice);
  }
}

void AddNotice(const std::string& more, std::string* notice) {
  if (!more.empty()) *notice += (notice->empty() ? "" : "; ") + more;
}

}  // namespace longspec
