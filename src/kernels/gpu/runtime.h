// SPDX-License-Identifier: Apache-2.0
//
// A card as a host sees it: memory that the host cannot address, and one stream in which copies, bodies
// (cta.h) and graphs of these follow each other. Either an NVIDIA card (cuda/cuda_runtime.h) or, in tests,
// fibers and memory that may not be touched (kernels/testing/emulated_runtime.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "kernels/gpu/launch_list.h"
#include "longspec/status.h"

namespace longspec::kernels::gpu {

struct CardFacts {
  std::string device;       // as options name it: "cuda:0"
  std::string name;         // for people: "cuda:0, NVIDIA H200, compute capability 9.0"
  int multiprocessors = 1;  // that run blocks of threads at the same time
  size_t shared_bytes = 0;  // that a block of threads may have
  uint64_t memory_bytes = 0;
};

// Launches that a card starts as one, with the arguments that they had when it was made: a runtime's own.
class LaunchGraph {
 public:
  virtual ~LaunchGraph() = default;
};

// Thread-safe. What goes wrong on the card is told by Wait, and from then on nothing is right.
class Runtime {
 public:
  static constexpr size_t kAlignment = 256;

  virtual ~Runtime() = default;
  virtual const CardFacts& facts() const = 0;
  virtual uint64_t FreeMemory() const = 0;

  // At a multiple of kAlignment, of any content; null: there is no room.
  virtual std::byte* Allocate(size_t bytes) = 0;
  // Once what is in the stream is done.
  virtual void Free(std::byte* at) = 0;
  // Memory of the host that bodies read and write where it lies. Null: there is no room.
  virtual std::byte* AllocateOnHost(size_t bytes) = 0;
  virtual void FreeOnHost(std::byte* at) = 0;

  // Behind what is in the stream. Either end may be the host's, of any kind: `from` may change once this has
  // returned, and `to`, if it is the host's, is there by then.
  virtual void Copy(const void* from, void* to, size_t bytes) = 0;
  virtual void Fill(std::byte* at, size_t bytes, std::byte with) = 0;
  // Behind what is in the stream.
  template <class Body>
  void Launch(const typename Body::Args& args) {
    LaunchBody(BodyNumber<Body>(), &args);
  }
  // Once what is in the stream is done, a copy from the host's memory begins, and goes on beside what comes
  // after it. There are two places for such copies, numbered 0 and 1. Until AwaitFetch of its place nobody
  // reads what is copied to, and nobody writes what is copied.
  static constexpr int kFetches = 2;
  virtual void BeginFetch(int place, const FetchChunks::Args& args) = 0;
  // What comes after this in the stream waits for the copy that was begun there. Each is waited for.
  virtual void AwaitFetch(int place) = 0;
  // One after the other.
  void LaunchAll(const LaunchList& launches) { launches.StartOn(*this); }
  // The same as one, which takes the host less long. Null: the card makes none of these, or no more of them.
  // REQUIRES: each of the bodies was launched before.
  virtual std::unique_ptr<LaunchGraph> MakeGraph(const LaunchList& launches) = 0;
  // Behind what is in the stream. REQUIRES: this runtime made it.
  virtual void LaunchAsOne(const LaunchGraph& graph) = 0;

  // Until all of that is done. kIo: what went wrong since the card is used.
  virtual Status Wait() = 0;

 protected:
  friend class LaunchList;
  virtual void LaunchBody(int number, const void* args) = 0;
};

// Opens card `index` of this machine. kUnsupported: this program has no kernels for cards, or not for this
// one, or the driver is too old; kNotFound: there is no such card. Defined in src/cuda/, or in src/gpu/ where
// the program is built without CUDA.
Result<std::shared_ptr<Runtime>> OpenCard(int index);

}  // namespace longspec::kernels::gpu
