// SPDX-License-Identifier: Apache-2.0
//
// Beginnings whose keys and values are known, by their tokens: a tree of chunks, each under the chunks before
// it. Every lookup compares the tokens themselves. What two sequences have in common is kept once, and found
// down to the token. What was not used for longest is dropped first, the end of a text before its beginning;
// what somebody else holds is never dropped. Not thread-safe.
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
  PrefixIndex();
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
  // The longest known beginning of `tokens`. Its chunks count as used; a last one that holds much else only
  // if that is at least half of what it holds or of what is asked for: a word that all prompts begin with
  // keeps no text alive.
  Match Find(std::span<const int32_t> tokens);
  // The length alone, and its whole chunks if they are asked for, valid until the next change; nothing counts
  // as used.
  int LengthKnown(std::span<const int32_t> tokens, std::vector<const KvChunk*>* whole_chunks = nullptr) const;

  // Remembers that `chunks` hold these tokens' keys and values.
  void Insert(std::span<const int32_t> tokens, std::span<const KvChunkRef> chunks);

  // Gives up the chunk that was not used for longest, of those that nobody else holds. False: there is none.
  bool DropOldest();

  // Gives up this chunk, if it is the last of a text, nobody but the caller holds it too, and at least half
  // of what is known of it are its first `needed` tokens: then the caller may write behind those without a
  // copy. False: it stays.
  bool GiveUp(const KvChunkRef& chunk, int needed);

  // Gives up what is known of the end of these tokens, back to where others go on differently.
  void Forget(std::span<const int32_t> tokens);

  // Drops the oldest until it holds no more chunks by itself; those that somebody else holds do not count.
  void Trim(size_t most_chunks);

  size_t n_reclaimable() const;  // chunks that nobody else holds
  size_t n_chunks() const { return nodes_.size(); }

 private:
  struct Node;
  using Children = std::map<std::vector<int32_t>, std::unique_ptr<Node>>;
  struct Step {
    Node* child = nullptr;
    int common = 0;  // tokens
  };
  static Step Closest(const Node& node, std::span<const int32_t> tokens);
  Node* Add(Node& parent, std::span<const int32_t> tokens, KvChunkRef chunk);
  void Erase(Node& node);  // with those under it

  const std::unique_ptr<Node> root_;
  std::vector<Node*> nodes_;  // all but the root, in no order: what is asked of all of them is asked often
  uint64_t now_ = 0;
  mutable uint64_t count_ = 0;  // of walks over all nodes
};

}  // namespace longspec
