// SPDX-License-Identifier: Apache-2.0
//
// An NVIDIA card as a runtime that models run on (kernels/gpu/runtime.h): its memory, and one stream.
#include <memory>
#include <mutex>
#include <string>

#include "cuda/card_launch.h"
#include "kernels/gpu/runtime.h"

namespace longspec::cuda {
namespace {

using kernels::gpu::CardFacts;
using kernels::gpu::FetchChunks;
using kernels::gpu::LaunchGraph;
using kernels::gpu::LaunchList;
using kernels::gpu::LaunchTable;
using kernels::gpu::Runtime;

const LaunchTable& Launches() {
  static const LaunchTable table = {
      .products = CardProductLaunches(), .attention = CardAttentionLaunches(), .rows = CardRowLaunches()};
  return table;
}

// A stream, and one beside it in which chunks are fetched.
class CardStreams {
 public:
  cudaError_t Begin() {
    cudaError_t error = cudaStreamCreateWithFlags(&main_.stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&beside_.stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&reached_, cudaEventDisableTiming);
    for (cudaEvent_t& fetched : fetched_) {
      if (error == cudaSuccess) error = cudaEventCreateWithFlags(&fetched, cudaEventDisableTiming);
    }
    return error;
  }
  void End() {
    for (cudaStream_t stream : {main_.stream, beside_.stream}) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
    for (cudaEvent_t event : {reached_, fetched_[0], fetched_[1]}) {
      if (event != nullptr) cudaEventDestroy(event);
    }
  }

  cudaStream_t main() const { return main_.stream; }
  // The first that was met.
  cudaError_t error() const { return main_.error; }
  void Keep(cudaError_t error) {
    if (main_.error == cudaSuccess) main_.error = error;
  }
  void ForgetErrors() { main_.error = beside_.error = cudaSuccess; }

  void LaunchBody(int number, const void* args) { Launches().Of(number)(&main_, args); }
  void BeginFetch(int place, const FetchChunks::Args& args) {
    Keep(cudaEventRecord(reached_, main_.stream));
    Keep(cudaStreamWaitEvent(beside_.stream, reached_));
    Launches().Of(kernels::gpu::BodyNumber<FetchChunks>())(&beside_, &args);
    Keep(beside_.error);
    Keep(cudaEventRecord(fetched_[place], beside_.stream));
  }
  void AwaitFetch(int place) { Keep(cudaStreamWaitEvent(main_.stream, fetched_[place])); }

 private:
  CardStream main_, beside_;
  cudaEvent_t reached_ = nullptr, fetched_[Runtime::kFetches] = {};
};

class CardGraph final : public LaunchGraph {
 public:
  explicit CardGraph(cudaGraphExec_t exec) : exec_(exec) {}
  ~CardGraph() override { cudaGraphExecDestroy(exec_); }
  CardGraph(const CardGraph&) = delete;
  CardGraph& operator=(const CardGraph&) = delete;
  cudaGraphExec_t exec() const { return exec_; }

 private:
  const cudaGraphExec_t exec_;
};

class Card final : public Runtime {
 public:
  Card(int index, const cudaDeviceProp& properties) : index_(index) {
    facts_.device = "cuda:" + std::to_string(index);
    facts_.name = facts_.device + ", " + properties.name + ", compute capability " +
                  std::to_string(properties.major) + "." + std::to_string(properties.minor);
    facts_.multiprocessors = properties.multiProcessorCount;
    facts_.shared_bytes = properties.sharedMemPerBlockOptin;
    facts_.memory_bytes = properties.totalGlobalMem;
  }
  ~Card() override {
    streams_.End();
    captured_.End();
  }
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  cudaError_t Begin() {
    const Use use(*this);
    const cudaError_t error = streams_.Begin();
    return error == cudaSuccess ? captured_.Begin() : error;
  }

  const CardFacts& facts() const override { return facts_; }

  uint64_t FreeMemory() const override {
    const Use use(*this);
    size_t free = 0, all = 0;
    return cudaMemGetInfo(&free, &all) == cudaSuccess ? free : 0;
  }

  std::byte* Allocate(size_t bytes) override {
    const Use use(*this);
    void* at = nullptr;
    const cudaError_t error = cudaMalloc(&at, bytes);
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // it is told, and nothing else is wrong
      return nullptr;
    }
    Keep(error);
    return error == cudaSuccess ? static_cast<std::byte*>(at) : nullptr;
  }

  void Free(std::byte* at) override {
    const Use use(*this);
    Keep(cudaStreamSynchronize(streams_.main()));
    Keep(cudaFree(at));
  }

  std::byte* AllocateOnHost(size_t bytes) override {
    const Use use(*this);
    void* at = nullptr;
    if (cudaHostAlloc(&at, bytes, cudaHostAllocMapped) == cudaSuccess) return static_cast<std::byte*>(at);
    cudaGetLastError();  // it is told, and nothing else is wrong
    return nullptr;
  }

  void FreeOnHost(std::byte* at) override {
    const Use use(*this);
    Keep(cudaStreamSynchronize(streams_.main()));
    Keep(cudaFreeHost(at));
  }

  // Copies from memory of the host that is not locked are staged before they return, and those to it are done
  // when they return; the wait makes sure of memory of other kinds.
  void Copy(const void* from, void* to, size_t bytes) override {
    if (bytes == 0) return;
    const Use use(*this);
    Keep(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, streams_.main()));
    if (IsHosts(to) || IsLocked(from)) Keep(cudaStreamSynchronize(streams_.main()));
  }

  void Fill(std::byte* at, size_t bytes, std::byte with) override {
    const Use use(*this);
    Keep(cudaMemsetAsync(at, static_cast<int>(with), bytes, streams_.main()));
  }

  void BeginFetch(int place, const FetchChunks::Args& args) override {
    const Use use(*this);
    streams_.BeginFetch(place, args);
  }
  void AwaitFetch(int place) override {
    const Use use(*this);
    streams_.AwaitFetch(place);
  }

  // What goes wrong here does not concern the stream: the launches can still be made one by one. A fetch is a
  // branch of the graph, which joins it where it is waited for.
  std::unique_ptr<LaunchGraph> MakeGraph(const LaunchList& launches) override {
    const Use use(*this);
    captured_.ForgetErrors();
    cudaGraph_t graph = nullptr;
    if (cudaStreamBeginCapture(captured_.main(), cudaStreamCaptureModeThreadLocal) != cudaSuccess)
      return NoGraph();
    launches.StartOn(captured_);
    if (cudaStreamEndCapture(captured_.main(), &graph) != cudaSuccess) return NoGraph();
    cudaGraphExec_t exec = nullptr;
    const cudaError_t error =
        captured_.error() != cudaSuccess ? captured_.error() : cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    if (error != cudaSuccess) return NoGraph();
    return std::make_unique<CardGraph>(exec);
  }

  void LaunchAsOne(const LaunchGraph& graph) override {
    const Use use(*this);
    Keep(cudaGraphLaunch(static_cast<const CardGraph&>(graph).exec(), streams_.main()));
  }

  Status Wait() override {
    const Use use(*this);
    Keep(cudaStreamSynchronize(streams_.main()));
    const cudaError_t error = streams_.error();
    if (error == cudaSuccess) return {};
    return IoError(facts_.name + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")");
  }

 protected:
  void LaunchBody(int number, const void* args) override {
    const Use use(*this);
    streams_.LaunchBody(number, args);
  }

 private:
  // The calling thread alone uses the card, and its calls are about this card.
  class Use {
   public:
    explicit Use(const Card& card) : lock_(card.mutex_) { cudaSetDevice(card.index_); }

   private:
    const std::lock_guard<std::mutex> lock_;
  };

  static std::unique_ptr<LaunchGraph> NoGraph() {
    cudaGetLastError();  // it is told
    return nullptr;
  }

  static bool IsHosts(const void* at) {
    cudaPointerAttributes attributes;
    if (cudaPointerGetAttributes(&attributes, at) != cudaSuccess) return true;
    return attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged;
  }

  static bool IsLocked(const void* at) {
    cudaPointerAttributes attributes;
    return cudaPointerGetAttributes(&attributes, at) == cudaSuccess && attributes.type == cudaMemoryTypeHost;
  }

  void Keep(cudaError_t error) { streams_.Keep(error); }

  const int index_;
  CardFacts facts_;
  mutable std::mutex mutex_;
  CardStreams streams_;
  CardStreams captured_;  // into which graphs are captured
};

// Whether the program has kernels that were compiled for this card.
bool HasKernels() {
  cudaFuncAttributes attributes;
  const bool has = cudaFuncGetAttributes(&attributes, RunBody<kernels::gpu::CheckRows>) == cudaSuccess;
  if (!has) cudaGetLastError();
  return has;
}

}  // namespace
}  // namespace longspec::cuda

namespace longspec::kernels::gpu {

Result<std::shared_ptr<Runtime>> OpenCard(int index) {
  const std::string name = "cuda:" + std::to_string(index);
  if (const std::string why = cuda::WhyNoDevice(index); !why.empty()) return Unsupported(name + ": " + why);
  cudaDeviceProp properties;
  if (cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess)
    return IoError(name + ": " + cudaGetErrorString(error));
  auto card = std::make_shared<cuda::Card>(index, properties);
  if (cudaError_t error = card->Begin(); error != cudaSuccess)
    return IoError(name + ": " + cudaGetErrorString(error));
  if (!cuda::HasKernels())
    return Unsupported(card->facts().name + ": this program was not compiled for it (docs/cuda.md)");
  return std::shared_ptr<Runtime>(std::move(card));
}

}  // namespace longspec::kernels::gpu
