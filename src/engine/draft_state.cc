// SPDX-License-Identifier: Apache-2.0
#include "engine/draft_state.h"

namespace longspec {
namespace {

constexpr std::string_view kPrefix = "draft ";

}  // namespace

std::vector<SessionSection> SectionsOf(std::span<const DraftState> states) {
  std::vector<SessionSection> sections;
  for (const DraftState& state : states) {
    sections.push_back({.name = std::string(kPrefix) + state.drafter,
                        .version = state.version,
                        .bytes = std::span(state.bytes)});
  }
  return sections;
}

std::vector<DraftState> DraftStatesOf(const SessionContents& saved, std::string* notice) {
  std::vector<DraftState> states;
  for (const SessionSection& section : saved.sections) {
    if (!section.name.starts_with(kPrefix)) continue;
    const std::string drafter = section.name.substr(kPrefix.size());
    if (section.damaged) {
      AddNotice("the session file's state of " + drafter + " is damaged: it learns anew", notice);
      continue;
    }
    states.push_back({.drafter = drafter,
                      .version = section.version,
                      .bytes = {section.bytes.begin(), section.bytes.end()}});
  }
  return states;
}

void RestoreDraftStates(std::span<const int32_t> tokens, std::span<const DraftState> states, Drafter& drafter,
                        std::string* notice) {
  if (states.empty()) return;
  // One that cannot follow says so again when the answer begins.
  if (!drafter.Follow(tokens).ok()) return;
  for (const DraftState& state : states) {
    const Status loaded = drafter.LoadState(state);
    if (!loaded.ok()) AddNotice(state.drafter + " learns anew: " + loaded.message(), notice);
  }
}

void AddNotice(const std::string& more, std::string* notice) {
  if (!more.empty()) *notice += (notice->empty() ? "" : "; ") + more;
}

}  // namespace longspec
