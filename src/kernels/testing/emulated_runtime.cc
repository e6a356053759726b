// SPDX-License-Identifier: Apache-2.0
#include "kernels/testing/emulated_runtime.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kernels/testing/card_under_test.h"

namespace longspec::kernels::testing {
namespace {

constexpr size_t kPage = 4096;
constexpr int kGarbage = 0xFF;  // floats that are no numbers, and indices of nothing
// In one piece: behind it are zeros. Pages that exist cost each launch time, which opens and closes them.
constexpr size_t kMostGarbage = size_t{16} << 20;
constexpr size_t kGap = gpu::Runtime::kAlignment;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "emulated card: %s\n", what);
  std::abort();
}

size_t BytesOf(const gpu::FetchChunks::Args& args) {
  return static_cast<size_t>(args.n) * static_cast<size_t>(args.bytes);
}

const gpu::LaunchTable& Launches() {
  static const gpu::LaunchTable table = {.products = EmulatedProductLaunches(),
                                         .attention = EmulatedAttentionLaunches(),
                                         .rows = EmulatedRowLaunches()};
  return table;
}

// A graph begins and ends without fetches that are under way: a card makes no other.
struct FetchesOfGraph {
  bool is_begun[gpu::Runtime::kFetches] = {};

  void LaunchBody(int /*number*/, const void* /*args*/) {}
  void BeginFetch(int place, const gpu::FetchChunks::Args& /*args*/) {
    if (std::exchange(is_begun[place], true)) Die("a graph that begins a fetch and does not wait for it");
  }
  void AwaitFetch(int place) {
    if (!std::exchange(is_begun[place], false)) Die("a graph that waits for a fetch that it does not begin");
  }
};

class EmulatedGraph final : public gpu::LaunchGraph {
 public:
  explicit EmulatedGraph(const gpu::LaunchList& of) : launches(of) {}
  const gpu::LaunchList launches;
};

}  // namespace

// While it lives, memory may be touched.
class EmulatedRuntime::Opened {
 public:
  explicit Opened(const EmulatedRuntime& card) : lock_(card.mutex_), card_(card) {
    Protect(0, card_.touched_ + kPage - 1, PROT_READ | PROT_WRITE);
    for (const std::optional<Fetch>& fetch : card_.fetches_) {
      if (!fetch) continue;
      // Whole pages of it.
      const auto begin = static_cast<size_t>(fetch->args.to - card_.memory_);
      Protect(begin + kPage - 1, begin + BytesOf(fetch->args), PROT_NONE);
    }
  }
  ~Opened() { Protect(0, card_.touched_ + kPage - 1, PROT_NONE); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

 private:
  void Protect(size_t begin, size_t end, int how) const {
    begin = begin / kPage * kPage;
    end = end / kPage * kPage;
    if (begin < end && mprotect(card_.memory_ + begin, end - begin, how) != 0) Die("mprotect failed");
  }

  const std::lock_guard<std::recursive_mutex> lock_;
  const EmulatedRuntime& card_;
};

EmulatedRuntime::EmulatedRuntime(size_t memory_bytes, int multiprocessors)
    : facts_{.device = "cuda (emulated)",
             .name = "cuda (emulated)",
             .multiprocessors = multiprocessors,
             .shared_bytes = size_t{227} << 10,
             .memory_bytes = memory_bytes},
      memory_bytes_(memory_bytes) {
  void* const at = mmap(nullptr, memory_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) Die("no address space");
  memory_ = static_cast<std::byte*>(at);
}

EmulatedRuntime::~EmulatedRuntime() {
  if (!taken_.empty() || !on_host_.empty()) Die("memory was not given back");
  munmap(memory_, memory_bytes_);
}

size_t EmulatedRuntime::Taken(size_t bytes) const {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment + kGap;
}

uint64_t EmulatedRuntime::FreeMemory() const {
  const std::lock_guard lock(mutex_);
  return memory_bytes_ - n_taken_;
}

bool EmulatedRuntime::Holds(const void* at) const {
  const auto* byte = static_cast<const std::byte*>(at);
  for (const auto& [begin, bytes] : on_host_) {
    if (byte >= begin && byte < begin + bytes) return true;
  }
  return byte >= memory_ && byte < memory_ + memory_bytes_;
}

std::byte* EmulatedRuntime::Allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::byte* at = memory_;
  for (const auto& [next, next_bytes] : taken_) {
    if (static_cast<size_t>(next - at) >= Taken(bytes)) break;
    at = next + Taken(next_bytes);
  }
  const auto end = static_cast<size_t>(at - memory_) + Taken(bytes);
  if (end > memory_bytes_) return nullptr;
  taken_[at] = bytes;
  n_taken_ += Taken(bytes);
  if (end > touched_) touched_ = end;
  const Opened opened(*this);
  std::memset(at, kGarbage, std::min(bytes, kMostGarbage));
  std::memset(at + bytes, kGarbage, Taken(bytes) - bytes);
  return at;
}

void EmulatedRuntime::CheckEndOf(const std::byte* at, size_t bytes) const {
  for (size_t i = bytes; i < Taken(bytes); ++i) {
    if (at[i] != std::byte{kGarbage}) Die("something was written behind a piece of memory");
  }
}

void EmulatedRuntime::Free(std::byte* at) {
  const Opened opened(*this);
  const auto taken = taken_.find(at);
  if (taken == taken_.end()) Die("memory was given back that was not taken");
  CheckEndOf(at, taken->second);
  n_taken_ -= Taken(taken->second);
  taken_.erase(taken);
}

std::byte* EmulatedRuntime::AllocateOnHost(size_t bytes) {
  const std::lock_guard lock(mutex_);
  void* const at = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (at == nullptr) return nullptr;
  std::memset(at, kGarbage, bytes);
  on_host_[static_cast<std::byte*>(at)] = bytes;
  return static_cast<std::byte*>(at);
}

void EmulatedRuntime::FreeOnHost(std::byte* at) {
  const std::lock_guard lock(mutex_);
  if (on_host_.erase(at) == 0) Die("memory of the host was given back that was not taken");
  std::free(at);
}

size_t EmulatedRuntime::host_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t all = 0;
  for (const auto& [at, bytes] : on_host_) all += bytes;
  return all;
}

void EmulatedRuntime::Copy(const void* from, void* to, size_t bytes) {
  const Opened opened(*this);
  ++n_copies_;
  if (!Holds(from) || !Holds(to)) host_copied_bytes_ += static_cast<int64_t>(bytes);
  if (bytes > 0 && IsAlive()) std::memmove(to, from, bytes);
}

void EmulatedRuntime::Fill(std::byte* at, size_t bytes, std::byte with) {
  const Opened opened(*this);
  if (!Holds(at)) Die("memory of the host was to be filled");
  if (IsAlive()) std::memset(at, std::to_integer<int>(with), bytes);
}

// The list of its chunks, and of each of them what is copied.
std::vector<std::byte> EmulatedRuntime::ReadBy(const gpu::FetchChunks::Args& args) const {
  std::vector<std::byte> read;
  const auto add = [&](const void* from, size_t bytes) {
    const auto* const begin = static_cast<const std::byte*>(from);
    read.insert(read.end(), begin, begin + bytes);
  };
  add(args.chunks, static_cast<size_t>(args.n) * sizeof(args.chunks[0]));
  for (int i = 0; i < args.n; ++i) {
    if (args.chunks[i] == nullptr) continue;
    if (on_host_.count(const_cast<std::byte*>(args.chunks[i])) == 0)
      Die("what is no chunk of the host's was to be fetched");
    add(args.chunks[i] + args.offset, static_cast<size_t>(args.bytes));
  }
  return read;
}

void EmulatedRuntime::BeginFetch(int place, const gpu::FetchChunks::Args& args) {
  const Opened opened(*this);
  if (fetches_[place]) Die("a fetch was begun where another one was not waited for");
  if (!IsAlive()) return;
  ++n_launches_;
  ++n_fetches_;
  if (args.to < memory_ || args.to + BytesOf(args) > memory_ + memory_bytes_)
    Die("a fetch was to go to memory of the host");
  std::memset(args.to, kGarbage, BytesOf(args));
  fetches_[place].emplace(Fetch{.args = args, .read = ReadBy(args)});
}

void EmulatedRuntime::AwaitFetch(int place) {
  const std::lock_guard lock(mutex_);
  if (forgets_waits_) return;
  if (!fetches_[place]) {
    if (IsAlive()) Die("a fetch was waited for that was not begun");
    return;
  }
  const Fetch fetch = *std::exchange(fetches_[place], std::nullopt);
  const Opened opened(*this);
  if (!IsAlive()) return;
  if (ReadBy(fetch.args) != fetch.read) Die("what was being fetched was written");
  Launches().Of(gpu::BodyNumber<gpu::FetchChunks>())(nullptr, &fetch.args);
}

Status EmulatedRuntime::Wait() {
  const std::lock_guard lock(mutex_);
  if (!IsAlive()) return IoError(facts_.name + ": the card is gone");
  if (fetches_[0] || fetches_[1]) Die("a fetch was not waited for");
  return {};
}

void EmulatedRuntime::DieAfter(int64_t launches) {
  const std::lock_guard lock(mutex_);
  most_launches_ = n_launches_ + launches;
}

void EmulatedRuntime::LaunchBody(int number, const void* args) {
  const Opened opened(*this);
  if (!IsAlive()) return;
  ++n_launches_;
  Launches().Of(number)(nullptr, args);
}

std::unique_ptr<gpu::LaunchGraph> EmulatedRuntime::MakeGraph(const gpu::LaunchList& launches) {
  const std::lock_guard lock(mutex_);
  FetchesOfGraph fetches;
  launches.StartOn(fetches);
  if (fetches.is_begun[0] || fetches.is_begun[1]) Die("a graph that ends with a fetch");
  if (n_graphs_ == most_graphs_) return nullptr;
  ++n_graphs_;
  return std::make_unique<EmulatedGraph>(launches);
}

void EmulatedRuntime::LaunchAsOne(const gpu::LaunchGraph& graph) {
  const std::lock_guard lock(mutex_);
  ++n_graph_launches_;
  LaunchAll(static_cast<const EmulatedGraph&>(graph).launches);
}

std::shared_ptr<gpu::Runtime> CardUnderTest() { return std::make_shared<EmulatedRuntime>(); }

}  // namespace longspec::kernels::testing
