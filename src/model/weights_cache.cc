// SPDX-License-Identifier: Apache-2.0
#include "model/weights_cache.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "kernels/packing.h"
#include "model/contents_hash.h"

namespace longspec {
namespace {

constexpr char kMagic[17] = "longspec weights";
constexpr uint32_t kFormat = 1;                   // of the header
constexpr uint32_t kPackedOffset = 4096;          // a page: the matrices begin where a mapping may
constexpr size_t kWritePiece = size_t{64} << 20;  // bytes between two reports of progress

struct Header {
  char magic[16];
  uint32_t format, packed_offset;
  Hash128 key;
  uint64_t packed_bytes;
  Hash128 packed_hash;
  Hash128 header_hash;  // of all before it
};
static_assert(sizeof(Header) == 80 && sizeof(Header) <= kPackedOffset);

Hash128 HeaderHash(const Header& header) {
  return HashOf(std::as_bytes(std::span(&header, 1)).first(offsetof(Header, header_hash)));
}

// Progress counted in bytes.
std::function<bool(uint64_t)> CountBytes(const WeightsCache::Progress& on_progress, uint64_t total) {
  if (!on_progress) return {};
  return [&on_progress, total](uint64_t done) {
    return on_progress(total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total));
  };
}

Status LoadingCancelled() { return Cancelled("loading was cancelled"); }

}  // namespace

Result<WeightsCache> WeightsCache::Open(const std::string& folder, const GgufFile& file,
                                        std::string_view layout, uint64_t packed_bytes, ThreadTeam& team,
                                        const Progress& on_progress) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return IoError(folder + ": cannot be created: " + error.message());
  const auto contents = HashContents(file, folder, team, on_progress);
  if (!contents) return LoadingCancelled();
  const Hash128 parts[] = {*contents,
                           HashOf(std::as_bytes(std::span(layout))),
                           {.high = kernels::kPackedLayoutVersion, .low = packed_bytes}};
  const Hash128 key = HashOf(std::as_bytes(std::span(parts)));
  return WeightsCache(folder + "/" + ToHex(key) + ".longspec-weights", key, packed_bytes);
}

Result<OwnedBytes> WeightsCache::Read(ThreadTeam& team, const Progress& on_progress) const {
  LS_ASSIGN(MappedFile file, MappedFile::Open(path_));
  const std::span<const std::byte> bytes = file.bytes();
  Header header{};
  if (bytes.size() < kPackedOffset) return Corrupt(path_ + ": cut short");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(header.magic)) != 0) {
    return Corrupt(path_ + ": not a file of packed weights");
  }
  if (header.format != kFormat || header.packed_offset != kPackedOffset) {
    return Corrupt(path_ + ": written by another version of the program");
  }
  if (header.header_hash != HeaderHash(header)) return Corrupt(path_ + ": its header is damaged");
  if (header.key != key_) return Corrupt(path_ + ": the weights of another model file");
  const uint64_t size = kPackedOffset + packed_bytes_;
  if (header.packed_bytes != packed_bytes_ || bytes.size() != size) {
    return Corrupt(path_ + ": has " + std::to_string(bytes.size()) + " bytes, should have " +
                   std::to_string(size));
  }
  const auto hash = HashInPieces(bytes.subspan(kPackedOffset), team, CountBytes(on_progress, packed_bytes_));
  if (!hash) return LoadingCancelled();
  if (*hash != header.packed_hash) return Corrupt(path_ + ": not the bytes that were written");
  return OwnedBytes(std::move(file), kPackedOffset);
}

Result<AtomicFile> WeightsCache::Create() const {
  return AtomicFile::Create(path_, kPackedOffset + packed_bytes_);
}

Status WeightsCache::Write(AtomicFile file, std::span<const std::byte> packed, ThreadTeam& team,
                           const Progress& on_progress) const {
  Header header{.format = kFormat,
                .packed_offset = kPackedOffset,
                .key = key_,
                .packed_bytes = packed.size(),
                .packed_hash = *HashInPieces(packed, team)};
  std::memcpy(header.magic, kMagic, sizeof(header.magic));
  header.header_hash = HeaderHash(header);
  std::vector<std::byte> page(kPackedOffset);
  std::memcpy(page.data(), &header, sizeof(header));
  LS_TRY(file.Write(page));
  for (size_t done = 0; done < packed.size();) {
    const size_t n = std::min(kWritePiece, packed.size() - done);
    LS_TRY(file.Write(packed.subspan(done, n)));
    done += n;
    const bool go_on =
        !on_progress || on_progress(static_cast<double>(done) / static_cast<double>(packed.size()));
    if (!go_on) return LoadingCancelled();
  }
  return file.Commit();
}

}  // namespace longspec
