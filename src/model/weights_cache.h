// SPDX-License-Identifier: Apache-2.0
//
// Packed weights kept on disk, one file per model file, so that a model loaded before is mapped rather than
// packed again, and processes that run the same model share its memory.
//
// A file is named after a hash of everything its bytes depend on: the contents of the model file, the packed
// layout and where each matrix lies. It is a header of one page and then the packed matrices as they are in
// memory. Nothing in it is believed: the header has a checksum and the matrices have one, which every reading
// compares, at the speed at which memory is read. A model's pages have to come from the disk before its first
// token anyway; and a bit that a disk lost would change output without a word. It is no protection against
// whoever may write into the folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/owned_bytes.h"
#include "base/thread_team.h"
#include "formats/atomic_file.h"
#include "formats/gguf.h"
#include "longspec/status.h"

namespace longspec {

// One thread at a time; any number of processes may use one folder.
class WeightsCache {
 public:
  using Progress = std::function<bool(double)>;  // share done; false cancels; may be empty

  // Hashes the model file, unless the folder remembers its hash. `layout`: what besides it the packed bytes
  // depend on. Makes the folder if there is none; kIo if that cannot be. kCancelled.
  static Result<WeightsCache> Open(const std::string& folder, const GgufFile& file, std::string_view layout,
                                   uint64_t packed_bytes, ThreadTeam& team, const Progress& on_progress);

  const std::string& path() const { return path_; }

  // The packed bytes, mapped. kNotFound: they were not kept; kCorrupt: the file is damaged, of another
  // program version or of another model; kIo; kCancelled.
  Result<OwnedBytes> Read(ThreadTeam& team, const Progress& on_progress) const;

  // Keeping them takes two steps, so that what cannot work is known before the weights are packed.
  Result<AtomicFile> Create() const;
  // `packed` has packed_bytes bytes. kIo, kResourceExhausted (a full disk), kCancelled: nothing is left
  // behind then.
  Status Write(AtomicFile file, std::span<const std::byte> packed, ThreadTeam& team,
               const Progress& on_progress) const;

 private:
  WeightsCache(std::string path, const Hash128& key, uint64_t packed_bytes)
      : path_(std::move(path)), key_(key), packed_bytes_(packed_bytes) {}
  std::string path_;
  Hash128 key_;
  uint64_t packed_bytes_ = 0;
};

}  // namespace longspec
