// SPDX-License-Identifier: Apache-2.0
//
// Beginnings whose keys and values are known, by their tokens: a tree of chunks, each under the chunks before
// it. Every lookup compares the tokens themselves. What two sequences have in common is kept once, and found
// down to the token. What was not used for longest is dropped first. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "kv/chunk_pool.h"

namespace longspec {

class PrefixIndex {
 public:
  // Holds at most so many chunks by itself; those that sequences hold too do not count.
  explicit PrefixIndex(size_t most_chunks);
  ~PrefixIndex();
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  struct Match {
    int length = 0;                  // positions
    std::vector<KvChunkRef> chunks;  // the last may hold more than is matched

    void KeepOnly(int positions) {
      length = positions;
      chunks.resize(static_cast<size_t>((positions + kKvChunk - 1) / kKvChunk));
    }
    void KeepWholeChunks() { KeepOnly(length - length % kKvChunk); }
  };
  // The longest known beginning of `tokens`.
  Match Find(std::span<const int32_t> tokens);
  // The length alone, and its whole chunks if they are asked for, valid until the next change; nothing counts
  // as used.
  int LengthKnown(std::span<const int32_t> tokens, std::vector<const KvChunk*>* whole_chunks = nullptr) const;

  // Remembers that `chunks` hold these tokens' keys and values. Trim when the sequence may have let go of
  // others.
  void Insert(std::span<const int32_t> tokens, std::span<const KvChunkRef> chunks);

  // Gives up the chunk that was not used for longest, of those that nobody else holds. False: there is none.
  bool DropOldest();

  // Gives up this chunk, if it is the last of a beginning and nobody but the caller holds it too: then the
  // caller may write it without a copy.
  void Forget(const KvChunkRef& chunk);

  // Gives up what is known of the end of these tokens, back to where others go on differently.
  void Forget(std::span<const int32_t> tokens);

  // Drops the oldest until it holds no more by itself than it may.
  void Trim();

  size_t n_reclaimable() const;  // chunks that nobody else holds
  size_t n_chunks() const { return n_chunks_; }

 private:
  struct Node;
  using Children = std::map<std::vector<int32_t>, std::unique_ptr<Node>>;
  struct Step {
    Node* child = nullptr;
    int common = 0;  // tokens
  };
  static Step Closest(const Node& node, std::span<const int32_t> tokens);

  const size_t most_chunks_;
  const std::unique_ptr<Node> root_;
  size_t n_chunks_ = 0;
  uint64_t now_ = 0;
};

}  // namespace longspec
