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
using kernels::gpu::LaunchGraph;
using kernels::gpu::LaunchList;
using kernels::gpu::LaunchTable;
using kernels::gpu::Runtime;

const LaunchTable& Launches() {
  static const LaunchTable table = {
      .products = CardProductLaunches(), .attention = CardAttentionLaunches(), .rows = CardRowLaunches()};
  return table;
}

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
    if (stream_.stream != nullptr) cudaStreamDestroy(stream_.stream);
    if (captured_ != nullptr) cudaStreamDestroy(captured_);
  }
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  cudaError_t Begin() {
    const Use use(*this);
    const cudaError_t error = cudaStreamCreateWithFlags(&captured_, cudaStreamNonBlocking);
    if (error != cudaSuccess) return error;
    return cudaStreamCreateWithFlags(&stream_.stream, cudaStreamNonBlocking);
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
    Keep(cudaStreamSynchronize(stream_.stream));
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
    Keep(cudaStreamSynchronize(stream_.stream));
    Keep(cudaFreeHost(at));
  }

  // Copies from memory of the host that is not locked are staged before they return, and those to it are done
  // when they return; the wait makes sure of memory of other kinds.
  void Copy(const void* from, void* to, size_t bytes) override {
    if (bytes == 0) return;
    const Use use(*this);
    Keep(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.stream));
    if (IsHosts(to) || IsLocked(from)) Keep(cudaStreamSynchronize(stream_.stream));
  }

  void Fill(std::byte* at, size_t bytes, std::byte with) override {
    const Use use(*this);
    Keep(cudaMemsetAsync(at, static_cast<int>(with), bytes, stream_.stream));
  }

  // What goes wrong here does not concern the stream: the launches can still be made one by one.
  std::unique_ptr<LaunchGraph> MakeGraph(const LaunchList& launches) override {
    const Use use(*this);
    CardStream captured = {.stream = captured_};
    cudaGraph_t graph = nullptr;
    if (cudaStreamBeginCapture(captured_, cudaStreamCaptureModeThreadLocal) != cudaSuccess) return NoGraph();
    launches.ForEach([&](int number, const void* args) { Launches().Of(number)(&captured, args); });
    if (cudaStreamEndCapture(captured_, &graph) != cudaSuccess) return NoGraph();
    cudaGraphExec_t exec = nullptr;
    const cudaError_t error =
        captured.error != cudaSuccess ? captured.error : cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    if (error != cudaSuccess) return NoGraph();
    return std::make_unique<CardGraph>(exec);
  }

  void LaunchAsOne(const LaunchGraph& graph) override {
    const Use use(*this);
    Keep(cudaGraphLaunch(static_cast<const CardGraph&>(graph).exec(), stream_.stream));
  }

  Status Wait() override {
    const Use use(*this);
    Keep(cudaStreamSynchronize(stream_.stream));
    if (stream_.error == cudaSuccess) return {};
    return IoError(facts_.name + ": " + cudaGetErrorString(stream_.error) + " (" +
                   cudaGetErrorName(stream_.error) + ")");
  }

 protected:
  void LaunchBody(int number, const void* args) override {
    const Use use(*this);
    Launches().Of(number)(&stream_, args);
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

  void Keep(cudaError_t error) {
    if (stream_.error == cudaSuccess) stream_.error = error;
  }

  const int index_;
  CardFacts facts_;
  mutable std::mutex mutex_;
  CardStream stream_;
  cudaStream_t captured_ = nullptr;  // into which graphs are captured
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
