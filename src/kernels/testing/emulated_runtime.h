// SPDX-License-Identifier: Apache-2.0
//
// A card that is this CPU: bodies run on fibers, and its memory may be touched inside launches and copies
// alone. Whoever touches it elsewhere dies. A fetch copies when it is waited for, as late as it may: who
// reads what is copied to before that dies, and so does who has written what is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "kernels/gpu/bodies.h"
#include "kernels/gpu/runtime.h"

namespace longspec::kernels::testing {

class EmulatedRuntime final : public gpu::Runtime {
 public:
  explicit EmulatedRuntime(size_t memory_bytes = size_t{256} << 20, int multiprocessors = 4);
  // Ends the test if something was written behind a piece of memory, or was not given back.
  ~EmulatedRuntime() override;
  EmulatedRuntime(const EmulatedRuntime&) = delete;
  EmulatedRuntime& operator=(const EmulatedRuntime&) = delete;

  const gpu::CardFacts& facts() const override { return facts_; }
  uint64_t FreeMemory() const override;
  std::byte* Allocate(size_t bytes) override;
  void Free(std::byte* at) override;
  std::byte* AllocateOnHost(size_t bytes) override;
  void FreeOnHost(std::byte* at) override;
  void Copy(const void* from, void* to, size_t bytes) override;
  void Fill(std::byte* at, size_t bytes, std::byte with) override;
  void BeginFetch(int place, const gpu::FetchChunks::Args& args) override;
  void AwaitFetch(int place) override;
  std::unique_ptr<gpu::LaunchGraph> MakeGraph(const gpu::LaunchList& launches) override;
  // With the arguments that it was made with, whatever these are today.
  void LaunchAsOne(const gpu::LaunchGraph& graph) override;
  Status Wait() override;

  // So many launches from now on are the last; then the card is gone.
  void DieAfter(int64_t launches);
  int64_t n_launches() const { return n_launches_; }
  int64_t n_copies() const { return n_copies_; }
  // Bytes of those that had one end in memory that bodies do not touch.
  int64_t host_copied_bytes() const { return host_copied_bytes_; }
  // So many graphs are made, and then no more.
  void LimitGraphs(int64_t most) { most_graphs_ = most; }
  int64_t n_graphs() const { return n_graphs_; }
  int64_t n_graph_launches() const { return n_graph_launches_; }
  int64_t n_fetches() const { return n_fetches_; }
  // From now on nothing waits for fetches, as if who uses the card had forgotten to.
  void ForgetWaits() { forgets_waits_ = true; }
  // Of the host's memory that bodies may touch.
  size_t host_bytes() const;

 protected:
  void LaunchBody(int number, const void* args) override;

 private:
  class Opened;
  struct Fetch {
    gpu::FetchChunks::Args args;
    std::vector<std::byte> read;  // what it is going to read, as it was when it began
  };

  std::vector<std::byte> ReadBy(const gpu::FetchChunks::Args& args) const;
  size_t Taken(size_t bytes) const;
  bool Holds(const void* at) const;
  void CheckEndOf(const std::byte* at, size_t bytes) const;
  bool IsAlive() const { return n_launches_ < most_launches_; }

  gpu::CardFacts facts_;
  mutable std::recursive_mutex mutex_;
  const size_t memory_bytes_;
  std::byte* memory_ = nullptr;
  size_t touched_ = 0;                  // bytes from the beginning on that were ever taken
  std::map<std::byte*, size_t> taken_;  // bytes asked for
  size_t n_taken_ = 0;                  // bytes
  std::map<std::byte*, size_t> on_host_;
  int64_t n_launches_ = 0, n_copies_ = 0, host_copied_bytes_ = 0, most_launches_ = INT64_MAX;
  int64_t n_graphs_ = 0, n_graph_launches_ = 0, most_graphs_ = INT64_MAX;
  std::optional<Fetch> fetches_[kFetches];  // that nobody has waited for
  int64_t n_fetches_ = 0;
  bool forgets_waits_ = false;
};

// Parts of its table (gpu/bodies.h).
const gpu::LaunchFunction* EmulatedProductLaunches();
const gpu::LaunchFunction* EmulatedAttentionLaunches();
const gpu::LaunchFunction* EmulatedRowLaunches();

}  // namespace longspec::kernels::testing
