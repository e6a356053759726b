// SPDX-License-Identifier: Apache-2.0
//
// What launches take as a CUDA graph. Only for what nvcc compiles.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <vector>

#include "cuda/runtime.h"

namespace longspec::cuda {

// Memory of a card, taken piece by piece.
class Arena {
 public:
  template <typename T>
  T* New(size_t n) {
    pieces_.emplace_back(n * sizeof(T));
    return reinterpret_cast<T*>(pieces_.back().get());
  }
  template <typename T>
  T* Copy(const std::vector<T>& host) {
    T* to = New<T>(host.size());
    MustSucceed(cudaMemcpy(to, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice),
                "copy to the card");
    return to;
  }

 private:
  std::deque<DeviceBytes> pieces_;
};

// Median of so many replays of what is launched into the stream, in milliseconds.
inline double GraphTime(cudaStream_t stream, int n_replays, const std::function<void()>& launch) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  MustSucceed(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture of a graph");
  launch();
  MustSucceed(cudaStreamEndCapture(stream, &graph), "capture of a graph");
  MustSucceed(cudaGraphInstantiate(&exec, graph, 0), "graph");
  cudaEvent_t begin, end;
  MustSucceed(cudaEventCreate(&begin), "event");
  MustSucceed(cudaEventCreate(&end), "event");
  std::vector<float> times;
  for (int i = 0; i < n_replays + 1; ++i) {
    MustSucceed(cudaEventRecord(begin, stream), "event");
    MustSucceed(cudaGraphLaunch(exec, stream), "graph");
    MustSucceed(cudaEventRecord(end, stream), "event");
    MustSucceed(cudaEventSynchronize(end), "kernels of a step");
    float ms = 0;
    MustSucceed(cudaEventElapsedTime(&ms, begin, end), "event");
    if (i > 0) times.push_back(ms);
    if (ms > 500 && i > 1) break;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace longspec::cuda
