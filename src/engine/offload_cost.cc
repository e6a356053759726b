// SPDX-License-Identifier: Apache-2.0
#include "engine/offload_cost.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>

#include "engine/memory_plan.h"

namespace longspec {
namespace {

constexpr uint64_t kLeastProbe = uint64_t{1} << 20, kMostProbe = uint64_t{64} << 20;

std::string Seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2g s", seconds);
  return text;
}

std::string Speed(double bytes_per_second) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.0f MB/s", bytes_per_second / 1e6);
  return text;
}

}  // namespace

uint64_t KvFromDisk(const MemoryPlan& plan) {
  if (plan.available == 0) return 0;
  const uint64_t room = plan.available > plan.total() ? plan.available - plan.total() : 0;
  return plan.kv_in_file > room ? plan.kv_in_file - room : 0;
}

ReadSpeeds MeasureOffload(const std::string& folder, MemoryPlan* plan) {
  if (folder.empty() || plan->kv_in_file == 0) return {};
  static std::mutex mutex;
  static std::map<dev_t, ReadSpeeds> measured;
  struct stat facts = {};
  if (stat(folder.c_str(), &facts) != 0) return {};
  const std::lock_guard lock(mutex);
  auto found = measured.find(facts.st_dev);
  if (found == measured.end()) {
    const auto speeds = MeasureReadSpeeds(folder, std::clamp(plan->kv_in_file, kLeastProbe, kMostProbe));
    if (!speeds.ok()) return {};
    found = measured.emplace(facts.st_dev, *speeds).first;
  }
  plan->kv_from_disk = KvFromDisk(*plan);
  plan->disk_bytes_per_second = found->second.disk;
  return found->second;
}

uint64_t KvBytesAsQ8(const KvLayout& layout, int n_layer, const MemoryPlan& plan) {
  KvLayout q8 = layout;
  q8.k_type = q8.v_type = CacheType::kQ8_0;
  if (!CheckLayout(q8).ok()) return 0;
  const uint64_t before = KvChunkBytes(layout, n_layer), after = KvChunkBytes(q8, n_layer);
  if (after >= before) return 0;
  return (plan.kv_at_context + plan.kv_in_file) / before * after;
}

Status CheckOffloadPays(const std::string& folder, const MemoryPlan& plan, uint64_t kv_as_q8,
                        const ReadSpeeds& speeds) {
  const uint64_t from_disk = KvFromDisk(plan);
  if (from_disk == 0 || kv_as_q8 == 0 || !(speeds.disk > 0.0) || !(speeds.memory > 0.0)) return {};
  if (plan.total() - plan.kv_at_context + kv_as_q8 > plan.available) return {};  // it does not fit
  const uint64_t all = plan.kv_at_context + plan.kv_in_file;
  const double added = static_cast<double>(from_disk) / speeds.disk;
  const double in_memory = static_cast<double>(all) / speeds.memory;
  if (added <= in_memory) return {};
  return ResourceExhausted("--kv-offload " + folder + ": of " + FormatBytes(all) +
                           " of keys and values memory has no room for " + FormatBytes(from_disk) +
                           ", which each step would read at " + Speed(speeds.disk) + ", in " +
                           Seconds(added) + " (all of them from memory: " + Seconds(in_memory) +
                           "); -ctk q8_0 -ctv q8_0 instead needs " + FormatBytes(kv_as_q8) +
                           " of memory, which there are; --kv-offload-anyway goes on");
}

}  // namespace longspec
