// SPDX-License-Identifier: Apache-2.0
#include "engine/memory_plan.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>

#include "attention/attention_kind.h"
#include "base/cgroups.h"
#include "gpu/chunk_fetches.h"
#include "kv/full_cache.h"

namespace longspec {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // absent, or "max"
}

// The number after `key` in a file of "key value" lines; `key` may end in ':'.
std::optional<uint64_t> ReadField(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t value = 0;
    if (words >> name && name == key && words >> value) return value;
  }
  return std::nullopt;
}

struct CgroupFiles {
  const char *limit, *usage, *inactive, *active;
};
constexpr CgroupFiles kFilesOfV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
                                    "total_active_file"};
constexpr CgroupFiles kFilesOfV2 = {"memory.max", "memory.current", "inactive_file", "active_file"};

// What one control group still allows: page cache it holds can be dropped, so it counts as free.
uint64_t GroupRoom(const std::string& folder, const CgroupFiles& files) {
  const auto limit = ReadNumber(folder + "/" + files.limit);
  const auto usage = ReadNumber(folder + "/" + files.usage);
  if (!limit || !usage || *limit > kNoLimit / 2) return kNoLimit;
  const std::string stat = folder + "/memory.stat";
  const uint64_t cache =
      ReadField(stat, files.inactive).value_or(0) + ReadField(stat, files.active).value_or(0);
  const uint64_t used = *usage - std::min(*usage, cache);
  return *limit - std::min(*limit, used);
}

uint64_t CgroupRoom(const std::string& root) {
  uint64_t room = kNoLimit;
  ForEachCgroup(root, "memory", [&](const std::string& folder, CgroupVersion version) {
    room = std::min(room, GroupRoom(folder, version == CgroupVersion::kV2 ? kFilesOfV2 : kFilesOfV1));
  });
  return room;
}

uint64_t AddressSpaceRoom(const std::string& root) {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  const auto pages = ReadNumber(root + "/proc/self/statm");  // the first number: pages mapped
  const uint64_t used = pages.value_or(0) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, used);
}

uint64_t Chunks(const MemoryNeeds& needs) {
  const auto positions = static_cast<uint64_t>(needs.kv_chunk_positions);
  return (static_cast<uint64_t>(std::max(needs.ctx_size, 0)) + positions - 1) / positions;
}

bool FitsModel(const MemoryPlan& plan) { return plan.available == 0 || plan.total() <= plan.available; }
bool FitsHost(const MemoryPlan& plan) {
  return plan.host_available == 0 || HostTotal(plan) <= plan.host_available;
}

MemoryPlan PlanContext(MemoryNeeds needs, int ctx_size, uint64_t available, uint64_t on_host) {
  needs.ctx_size = ctx_size;
  return PlanMemory(needs, available, on_host);
}

// Half of what is left, as the other half is for whoever else is there.
uint64_t HalfOfRest(uint64_t available, uint64_t taken) {
  return available == 0 ? kNoLimit : (available - std::min(available, taken)) / 2;
}

// Whole chunks in half of what the plan leaves. Where a part of the context lies in a file, memory has no
// room for anything else.
uint64_t PromptCacheOf(const MemoryNeeds& needs, const MemoryPlan& plan) {
  if (plan.kv_in_file > 0 || needs.kept_chunk() == 0) return 0;
  uint64_t bytes = needs.most_prompt_cache;
  if (needs.most_kv) bytes = std::min(bytes, *needs.most_kv - plan.kv_at_context);
  const uint64_t rest = HalfOfRest(plan.available, plan.total());
  if (!needs.draft_on_host) return std::min(bytes, rest) / needs.kept_chunk() * needs.kept_chunk();
  uint64_t chunks = std::min(bytes / needs.kept_chunk(), rest / needs.kv_chunk);
  if (needs.draft.kept_chunk > 0)
    chunks = std::min(chunks, HalfOfRest(plan.host_available, plan.host_draft) / needs.draft.kept_chunk);
  return chunks * needs.kept_chunk();
}

// What would fit, for the end of a refusal.
std::string Advice(const MemoryNeeds& needs, uint64_t available, uint64_t on_host, bool by_option) {
  const int fits = LargestContextThatFits(needs, available, on_host);
  if (fits == 0) {
    const MemoryPlan none = PlanContext(needs, 0, available, on_host);
    const bool on_card = FitsModel(PlanContext(needs, 1, available, on_host));
    return "no context size fits, what does not grow with it alone takes " +
           FormatBytes(on_card ? HostTotal(none) : none.total());
  }
  const bool is_hosts = FitsModel(PlanMemory(needs, available, on_host));
  return "a context size of " + std::to_string(fits) +
         (by_option ? " (-c " + std::to_string(fits) + ")" : std::string()) + " would fit" +
         (!needs.most_kv ? ""
          : is_hosts     ? ", or a larger --kv-memory may"
                         : ", or a smaller --kv-memory may");
}

// Whose the host's memory is to be.
std::string OnHost(const MemoryPlan& plan) {
  const uint64_t kv = HostTotal(plan) - plan.host_draft;
  if (kv == 0) return "the draft model";
  if (plan.host_draft == 0) return "the KV cache";
  return "the KV cache (" + FormatBytes(kv) + ") and the draft model (" + FormatBytes(plan.host_draft) + ")";
}

}  // namespace

uint64_t MostPromptCache(int cache_ram) {
  constexpr uint64_t kMoreThanThereIs = uint64_t{1} << 46;
  return cache_ram < 0 ? kMoreThanThereIs : static_cast<uint64_t>(cache_ram) << 20;
}

MemoryNeeds NeedsOf(const ModelMemory& model, const ModelSpec& spec, const KvLayout& layout, int ctx_size,
                    const DraftMemory& draft, const WorkingSetMemory& working_set) {
  return {.weights = model.weights,
          .scratch = model.scratch +
                     FindAttention(spec.attention_kind)->sequence_bytes(spec.attention(), layout, ctx_size),
          .kv_chunk = KvChunkBytes(layout, spec.n_layer),
          .draft = draft,
          .working_set = working_set,
          .kv_chunk_positions = kKvChunk,
          .ctx_size = ctx_size};
}

MemoryPlan PlanMemory(const MemoryNeeds& needs, uint64_t available, uint64_t on_host) {
  MemoryPlan plan;
  plan.weights = needs.weights;
  const uint64_t kv = Chunks(needs) * needs.kv_chunk;
  plan.kv_at_context = std::min(kv, needs.most_kv.value_or(kv));
  plan.kv_in_file = kv - plan.kv_at_context;
  plan.scratch = needs.scratch;
  plan.draft = needs.draft.with_target + Chunks(needs) * needs.draft.with_target_chunk;
  const uint64_t own = needs.draft.fixed + Chunks(needs) * needs.draft.kv_chunk;
  plan.kv_on_host = needs.rest_on_host;
  if (needs.draft_on_host || needs.rest_on_host) plan.host_available = on_host;
  if (needs.draft_on_host) {
    plan.host_draft = own + needs.draft_keys();
  } else {
    plan.draft += own;
    plan.draft_keys = needs.draft_keys();
  }
  plan.working_set = needs.working_set.fixed + Chunks(needs) * needs.working_set.source_chunk;
  plan.available = available;
  plan.ctx_size = needs.ctx_size;
  plan.prompt_cache = PromptCacheOf(needs, plan);
  return plan;
}

uint64_t HostTotal(const MemoryPlan& plan) {
  return plan.host_draft + (plan.kv_on_host ? plan.kv_in_file : 0);
}

// What a plan takes grows with its chunks.
int LargestContextThatFits(const MemoryNeeds& needs, uint64_t available, uint64_t on_host) {
  const auto fits = [&](int ctx_size) {
    const MemoryPlan plan = PlanContext(needs, ctx_size, available, on_host);
    return FitsModel(plan) && FitsHost(plan);
  };
  if (fits(needs.ctx_size)) return needs.ctx_size;
  int most = 0, too_many = static_cast<int>(Chunks(needs));
  while (too_many - most > 1) {
    const int chunks = most + (too_many - most) / 2;
    (fits(chunks * needs.kv_chunk_positions) ? most : too_many) = chunks;
  }
  return most * needs.kv_chunk_positions;
}

KvOffload OffloadOf(const ModelOptions& options, uint64_t kv_chunk, uint64_t available) {
  if (options.kv_offload.empty()) return {};
  const uint64_t bytes = options.kv_memory < 0 ? available / 2 : uint64_t(options.kv_memory) << 20;
  return {.folder = OffloadFolder(options),
          .memory_chunks = bytes / kv_chunk,
          .to_host = options.kv_offload == kOffloadToHost};
}

KvOffload PlanOffload(const ModelOptions& options, bool on_card, uint64_t available, int n_layer,
                      MemoryNeeds* needs) {
  const bool to_host = on_card && options.kv_offload == kOffloadToHost;  // on the CPU all is in host memory
  if (!to_host && OffloadFolder(options).empty()) return {};
  KvOffload offload = OffloadOf(options, needs->kv_chunk, available);
  needs->most_kv = offload.memory_chunks * needs->kv_chunk;
  needs->rest_on_host = to_host;
  if (to_host) {
    const uint64_t layer_bytes = needs->kv_chunk / static_cast<uint64_t>(n_layer);
    const uint64_t beyond = Chunks(*needs) - std::min<uint64_t>(Chunks(*needs), offload.memory_chunks);
    offload.fetched_chunks = std::min(beyond, ChunkFetches::kMostPlaceBytes / layer_bytes);
    needs->scratch += kernels::gpu::Runtime::kFetches * offload.fetched_chunks * layer_bytes;
  }
  return offload;
}

std::string OffloadFolder(const ModelOptions& options) {
  return options.kv_offload == kOffloadToHost ? "" : options.kv_offload;
}

Status CheckCardOffload(const ModelOptions& options) {
  if (OffloadFolder(options).empty()) return {};
  return Unsupported(
      "--kv-offload " + options.kv_offload +
      ": the cache of a card cannot lie in a file; with --kv-offload host what the card has no "
      "room for lies in host memory");
}

Status CheckOffload(const std::string& folder, const MemoryPlan& plan) {
  if (plan.kv_in_file == 0 || plan.kv_on_host) return {};
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  if (error) return IoError("--kv-offload " + folder + ": " + error.message());
  if (space.available >= plan.kv_in_file) return {};
  return ResourceExhausted("--kv-offload " + folder + ": " + FormatBytes(plan.kv_in_file) +
                           " of the key-value cache are to lie there, and " + FormatBytes(space.available) +
                           " are free; a smaller context (-c) or more memory (--kv-memory) needs less");
}

Status CheckMemory(const std::string& path, const MemoryNeeds& needs, uint64_t available, bool by_option,
                   uint64_t on_host) {
  const MemoryPlan plan = PlanMemory(needs, available, on_host);
  if (!FitsModel(plan)) {
    return ResourceExhausted(
        path + ": " + FormatBytes(plan.total()) + " of memory needed (weights " + FormatBytes(plan.weights) +
        ", KV cache " + FormatBytes(plan.kv_at_context) + " for a context of " +
        std::to_string(plan.ctx_size) + ", scratch " + FormatBytes(plan.scratch) +
        (plan.draft > 0 ? ", draft model " + FormatBytes(plan.draft) : std::string()) +
        (plan.draft_keys > 0 ? ", texts it keeps " + FormatBytes(plan.draft_keys) : std::string()) +
        (plan.working_set > 0 ? ", working set " + FormatBytes(plan.working_set) : std::string()) + ") but " +
        FormatBytes(available) + " available; " + Advice(needs, available, on_host, by_option));
  }
  if (FitsHost(plan)) return {};
  return ResourceExhausted(path + ": " + FormatBytes(HostTotal(plan)) + " of the host's memory needed for " +
                           OnHost(plan) + " at a context of " + std::to_string(plan.ctx_size) + " but " +
                           FormatBytes(plan.host_available) + " available; " +
                           Advice(needs, available, on_host, by_option));
}

uint64_t AvailableMemory(const std::string& root) {
  uint64_t room = std::min(CgroupRoom(root), AddressSpaceRoom(root));
  if (const auto kib = ReadField(root + "/proc/meminfo", "MemAvailable:")) room = std::min(room, *kib * 1024);
  return room == kNoLimit ? 0 : std::max<uint64_t>(room, 1);
}

std::string FormatBytes(uint64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return std::to_string(bytes) + " B";
  double value = static_cast<double>(bytes) / 1024.0;
  size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f %s", value, kUnits[unit]);
  return text.data();
}

}  // namespace longspec
