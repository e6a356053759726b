// SPDX-License-Identifier: Apache-2.0
#include "engine/drafter_memories.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/largest.h"
#include "base/status_macros.h"
#include "engine/cache_file.h"

namespace longspec {
namespace {

constexpr CacheFileKind kLearned = {.header = "longspec learned 1", .suffix = ".learned"};
constexpr size_t kMostDrafters = 16;
constexpr size_t kMostNumbers = 256;

}  // namespace

std::string DrafterMemoryKey(const Drafter& drafter, const SpeculationOptions& options, bool dice) {
  std::string key = AcceptanceKey(drafter, dice);
  if (!options.draft_model.empty()) key += ", draft " + FileState(options.draft_model);
  return key;
}

Result<DrafterMemories> ReadDrafterMemories(const std::string& folder, const std::string& key) {
  LS_ASSIGN(CacheFileReader file, CacheFileReader::Open(kLearned, folder, key));
  DrafterMemories drafters;
  while (!file.AtEnd()) {
    LS_ASSIGN(std::string name, file.Text("drafter"));
    LS_ASSIGN(const std::vector<double> beliefs, file.Values<double>("asking", kMostNumbers));
    DrafterMemory memory;
    if (drafters.size() == kMostDrafters || !memory.asking.Believe(beliefs))
      return Corrupt("what was learned of " + name + ": no beliefs");
    drafters.emplace(std::move(name), std::move(memory));
  }
  LS_TRY(file.End());
  return drafters;
}

Status WriteDrafterMemories(const std::string& folder, const std::string& key,
                            const DrafterMemories& drafters) {
  std::vector<const DrafterMemories::value_type*> kept;
  for (const auto& drafter : drafters) {
    if (!drafter.second.asking.Beliefs().empty() && drafter.first.find('\n') == std::string::npos)
      kept.push_back(&drafter);
  }
  KeepLargest(kept, kMostDrafters, [](const auto* drafter) { return drafter->second.last_used; });
  CacheFileWriter file(kLearned, key);
  for (const auto* drafter : kept) {
    file.Text("drafter", drafter->first);
    file.Values("asking", drafter->second.asking.Beliefs());
  }
  return file.WriteTo(folder);
}

}  // namespace longspec
