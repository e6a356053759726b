// SPDX-License-Identifier: Apache-2.0
//
// A sequence on disk: its tokens, and the keys and values of a prefix of them, in chunks as they lie in
// memory. They mean something to one model file in one arithmetic only, which the file says line by line.
// Behind them lie named sections, whose bytes mean something to whoever wrote them. Written beside and
// renamed; checksums cover every byte, and each section has its own, so that one that is damaged costs no
// more than itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "longspec/status.h"

namespace longspec {

struct SessionSection {
  std::string name;      // at most kMostSectionName bytes, none of them 0
  uint32_t version = 1;  // of the format of its bytes
  std::span<const std::byte> bytes;
  bool damaged = false;  // when read: the bytes are not those that were written
};
inline constexpr size_t kMostSectionName = 35, kMostSections = 64;

struct SessionContents {
  // What it belongs to: ("model", fingerprint), ("matmul Q4_1", "q8"), ... Names and values without line
  // breaks.
  std::vector<std::pair<std::string, std::string>> belongs_to;
  std::vector<int32_t> tokens;
  int n_positions = 0;  // of keys and values, at most tokens.size()
  uint64_t chunk_bytes = 0;
  int chunk_positions = 256;
  std::vector<std::span<const std::byte>> chunks;  // as many as n_positions need, chunk_bytes each
  std::vector<SessionSection> sections = {};       // each name once

  size_t n_chunks() const {
    return static_cast<size_t>((n_positions + chunk_positions - 1) / chunk_positions);
  }
  const SessionSection* Find(std::string_view name) const;  // null: there is none
};

// kIo, kResourceExhausted (a full disk): what stood under this name before still does.
Status WriteSessionFile(const std::string& path, const SessionContents& contents);

// Views into the mapped file.
struct SessionFile {
  MappedFile file;
  SessionContents contents;
};
// kNotFound; kCorrupt: not a session, of a format version that is not known, cut, or changed elsewhere than
// in a section.
Result<SessionFile> ReadSessionFile(const std::string& path);
// The same of bytes, which must outlive the result. `name` is what errors say.
Result<SessionContents> ParseSession(std::span<const std::byte> bytes, const std::string& name);

// For tests: makes the checksums of a file's bytes right, as far as its sizes allow.
void SealSession(std::span<std::byte> bytes);

// kInvalidArgument, naming what differs, unless the file belongs to this.
Status CheckBelongs(const SessionContents& contents,
                    const std::vector<std::pair<std::string, std::string>>& to, const std::string& path);

}  // namespace longspec
