// SPDX-License-Identifier: Apache-2.0
//
// What an engine keeps of prompts and answers, so that one that begins like an earlier one is not evaluated
// again, and how much memory that takes. Chunks that sequences hold stay; among the others, those that were
// not used for longest go first (kv/prefix_index.h). Where memory is full, what a sequence needs is found
// with the least loss: the end of a text is written over in place rather than copied while another text makes
// room. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "kv/chunk_pool.h"
#include "kv/full_cache.h"
#include "kv/prefix_index.h"

namespace longspec {

class PromptCache final : public ChunkReclaimer {
 public:
  // Chunks that may be kept: as many of `context` as sequences leave, and `beside` more in any case.
  struct Room {
    size_t context = 0, beside = 0;
  };
  PromptCache(std::shared_ptr<ChunkPool> pool, Room room) : pool_(std::move(pool)), room_(room) {}

  // While it lives, those who take chunks on this thread find all of the pool at most `most_chunks`, as long
  // as there are some that may go.
  class Limit {
   public:
    Limit(PromptCache* cache, size_t most_chunks);  // null: no cache, no limit
    ~Limit();
    Limit(const Limit&) = delete;
    Limit& operator=(const Limit&) = delete;

   private:
    PromptCache* const cache_;
  };

  PrefixIndex::Match Find(std::span<const int32_t> tokens) { return index_.Find(tokens); }
  int LengthKnown(std::span<const int32_t> tokens,
                  std::vector<const KvChunk*>* whole_chunks = nullptr) const {
    return index_.LengthKnown(tokens, whole_chunks);
  }
  // What the cache holds of the first `length` of these tokens is known from now on.
  void Remember(std::span<const int32_t> tokens, const FullCache& cache, size_t length);
  // Gives up what is known of the end of these tokens, back to where others go on differently.
  void Forget(std::span<const int32_t> tokens) { index_.Forget(tokens); }
  // Gives up what there is no room for beside what sequences hold.
  void Trim();

  // Within a limit, a sequence that is about to write behind a chunk's first positions shares it with those
  // who know it. Where `needed` chunks, the copy of this one among them, make others go, and at least half of
  // what is known of this one are the sequence's own tokens, it is the sequence's alone: nothing is copied.
  // `is_wanted`: others wait for it, so it stays known if there is room at all.
  //
  // Fit decides this for a beginning that was found, before it is held. True: its last chunk is written in
  // place, and one chunk less is needed. Where there is no room for anything else, that chunk is left out.
  bool Fit(PrefixIndex::Match& match, size_t needed, bool is_wanted);
  // TakeBackEnd decides it for a sequence that runs.
  void TakeBackEnd(const FullCache& cache, size_t needed, bool is_wanted);

  size_t n_reclaimable() const { return index_.n_reclaimable(); }  // chunks that nobody else holds
  bool GiveUpChunk() override;

 private:
  enum class LastChunk : uint8_t { kCopied, kOwn, kNoRoom };
  void KeepLimit();
  LastChunk Settle(const KvChunkRef& chunk, int length, size_t needed, bool is_wanted);

  const std::shared_ptr<ChunkPool> pool_;
  const Room room_;
  PrefixIndex index_;
  size_t limit_ = 0;  // chunks; 0: none
  std::thread::id limited_;
};

}  // namespace longspec
