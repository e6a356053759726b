// SPDX-License-Identifier: Apache-2.0
#include "model/contents_hash.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "base/mapped_file.h"
#include "formats/atomic_file.h"

namespace longspec {
namespace {

constexpr char kMagic[17] = "longspec hash 1\n";

struct Memory {
  char magic[16];
  Hash128 identity, contents;
  Hash128 checksum;  // of all before it
};
static_assert(sizeof(Memory) == 64);

Hash128 Checksum(const Memory& memory) {
  return HashOf(std::as_bytes(std::span(&memory, 1)).first(offsetof(Memory, checksum)));
}

// Nothing if a part of the file is no file.
std::optional<std::vector<FileIdentity>> Identities(const GgufFile& file) {
  std::vector<FileIdentity> identities;
  for (const GgufShard& shard : file.shards()) {
    if (!shard.identity) return std::nullopt;
    identities.push_back(*shard.identity);
  }
  return identities;
}

bool ChangedBefore(const std::vector<FileIdentity>& identities, int64_t time_ns) {
  return std::all_of(identities.begin(), identities.end(), [time_ns](const FileIdentity& identity) {
    return std::max(identity.modified_ns, identity.changed_ns) <= time_ns;
  });
}

std::optional<Hash128> Recall(const std::string& path, const Hash128& identity) {
  const auto file = MappedFile::Open(path);
  if (!file.ok() || file->bytes().size() != sizeof(Memory)) return std::nullopt;
  Memory memory;
  std::memcpy(&memory, file->bytes().data(), sizeof(memory));
  const bool good = std::memcmp(memory.magic, kMagic, sizeof(memory.magic)) == 0 &&
                    memory.checksum == Checksum(memory) && memory.identity == identity;
  return good ? std::optional(memory.contents) : std::nullopt;
}

// What goes wrong here is no harm: the next load hashes again.
void Remember(const std::string& path, const Hash128& identity, const Hash128& contents) {
  Memory memory{.identity = identity, .contents = contents};
  std::memcpy(memory.magic, kMagic, sizeof(memory.magic));
  memory.checksum = Checksum(memory);
  auto file = AtomicFile::Create(path);
  if (file.ok() && file->Write(std::as_bytes(std::span(&memory, 1))).ok()) {
    [[maybe_unused]] const Status committed = file->Commit();
  }
}

std::optional<Hash128> Compute(const GgufFile& file, ThreadTeam& team,
                               const std::function<bool(double)>& on_progress) {
  std::vector<Hash128> parts;
  uint64_t before = 0;
  for (const GgufShard& shard : file.shards()) {
    const auto report = [&](uint64_t bytes) {
      return !on_progress ||
             on_progress(static_cast<double>(before + bytes) / static_cast<double>(file.file_bytes()));
    };
    const auto hash = HashInPieces(shard.bytes, team, report);
    if (!hash) return std::nullopt;
    parts.push_back(*hash);
    before += shard.bytes.size();
  }
  return HashOf(std::as_bytes(std::span(parts)));
}

}  // namespace

std::optional<Hash128> HashContents(const GgufFile& file, const std::string& folder, ThreadTeam& team,
                                    const std::function<bool(double)>& on_progress,
                                    std::chrono::nanoseconds settled) {
  using std::chrono::nanoseconds;
  const auto now =
      std::chrono::duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch());
  const auto identities = Identities(file);
  if (!identities) return Compute(file, team, on_progress);
  const Hash128 identity = HashOf(std::as_bytes(std::span(*identities)));
  const std::string path = folder + "/" + ToHex(identity) + ".longspec-hash";
  if (const auto known = Recall(path, identity)) {
    if (on_progress && !on_progress(1)) return std::nullopt;
    return known;
  }
  const auto hash = Compute(file, team, on_progress);
  if (hash && ChangedBefore(*identities, (now - settled).count())) Remember(path, identity, *hash);
  return hash;
}

}  // namespace longspec
