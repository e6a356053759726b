// SPDX-License-Identifier: Apache-2.0
//
// 128-bit hashes (XXH3) that tell contents apart and notice damage. They notice accidents, not forgeries:
// whoever wants to can make two texts of the same hash. Free functions; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/thread_team.h"

namespace longspec {

struct Hash128 {
  uint64_t high = 0, low = 0;
  bool operator==(const Hash128&) const = default;
};

std::string ToHex(const Hash128& hash);  // 32 digits

Hash128 HashOf(std::span<const std::byte> bytes);

inline constexpr size_t kHashPiece = size_t{16} << 20;  // bytes

// The hash of the hashes of pieces of kHashPiece bytes, which the team's threads share: another value than
// HashOf's, the same for every team. `on_done` (may be empty) hears the bytes done so far, a few pieces at a
// time; if it returns false there is no result. The bytes may be of a mapped file: they are asked for a piece
// at a time.
std::optional<Hash128> HashInPieces(std::span<const std::byte> bytes, ThreadTeam& team,
                                    const std::function<bool(uint64_t)>& on_done = {});

}  // namespace longspec
