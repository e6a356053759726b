// SPDX-License-Identifier: Apache-2.0
//
// What attention reads of chunks in host memory is fetched to the card ahead, by two places in its memory:
// while attention reads what was fetched to one of them, the next chunks come to the other. As a rule a place
// has room for all that a layer reads, and that of the next layer comes while this one computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/gpu_memory.h"
#include "kernels/gpu/launch_list.h"

namespace longspec {

class ChunkFetches {
 public:
  using Args = kernels::gpu::FetchChunks::Args;
  // Of a place: larger ones would hide no more of the time that copies take.
  static constexpr size_t kMostPlaceBytes = size_t{32} << 20;

  // All borrowed; launches are added to the list.
  ChunkFetches(Runtime& card, const ChunksOnHost& on_host, kernels::gpu::LaunchList* launches)
      : card_(card), on_host_(on_host), launches_(launches) {}

  // Before a pass is planned: nothing is to be fetched yet.
  void Begin();
  bool IsOnHost(const std::byte* chunk) const { return on_host_.Holds(chunk); }
  // Chunks of a layer that a place has room for in this pass. 0: nothing is fetched.
  size_t most_chunks() const { return most_chunks_; }
  // The first place, for these chunks of a layer of so many bytes. Throws std::bad_alloc.
  std::byte* PlaceFor(size_t layer_bytes);

  // In the order in which they are going to be read: `to` is set here. REQUIRES: PlaceFor.
  void Add(const Args& fetch) { fetches_.push_back(fetch); }
  // Adds the first to the launches.
  void Start();
  // What is launched from now on may read the next of them: it lies so many bytes behind the first place.
  int64_t Next();
  // What was launched since Next has read it: the place is free for what comes after the other.
  void Release();
  bool AreAllRead() const { return n_read_ == fetches_.size(); }

 private:
  void BeginNext();

  Runtime& card_;
  const ChunksOnHost& on_host_;
  kernels::gpu::LaunchList* const launches_;
  GpuBuffer places_;
  size_t most_chunks_ = 0, place_bytes_ = 0;
  std::vector<Args> fetches_;
  size_t n_begun_ = 0, n_read_ = 0;
};

}  // namespace longspec
