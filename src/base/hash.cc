// SPDX-License-Identifier: Apache-2.0
#include "base/hash.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#define XXH_INLINE_ALL  // its code is in the header: there is no library to link
#include <xxhash.h>

namespace longspec {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kPiecesAtOnce = 4;  // of each thread, between two reports

// Asks for all pages of the range in large requests, rather than fault by fault. A wish: it may fail.
void WillNeed(std::span<const std::byte> bytes) {
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t begin = address / kPage * kPage;
  madvise(reinterpret_cast<void*>(begin), address + bytes.size() - begin, MADV_WILLNEED);
}

}  // namespace

std::string ToHex(const Hash128& hash) {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx", static_cast<unsigned long long>(hash.high),
                static_cast<unsigned long long>(hash.low));
  return text;
}

Hash128 HashOf(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {.high = hash.high64, .low = hash.low64};
}

std::optional<Hash128> HashInPieces(std::span<const std::byte> bytes, ThreadTeam& team,
                                    const std::function<bool(uint64_t)>& on_done) {
  const size_t n_pieces = (bytes.size() + kHashPiece - 1) / kHashPiece;
  const size_t at_once = kPiecesAtOnce * static_cast<size_t>(team.size());
  std::vector<Hash128> hashes(n_pieces + 1);
  for (size_t first = 0; first < n_pieces; first += at_once) {
    const size_t n = std::min(at_once, n_pieces - first);
    team.Run([&](ThreadTeam::Worker& worker) {
      for (auto i = static_cast<size_t>(worker.Claim()); i < n; i = static_cast<size_t>(worker.Claim())) {
        const size_t begin = (first + i) * kHashPiece;
        const auto piece = bytes.subspan(begin, std::min(kHashPiece, bytes.size() - begin));
        WillNeed(piece);
        hashes[first + i] = HashOf(piece);
      }
    });
    if (on_done && !on_done(std::min((first + n) * kHashPiece, bytes.size()))) return std::nullopt;
  }
  hashes[n_pieces].low = bytes.size();
  return HashOf(std::as_bytes(std::span(hashes)));
}

}  // namespace longspec
