// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <iterator>

#include "cuda/attention_grid.h"
#include "cuda/attention_lists.h"
#include "cuda/graph_time.h"
#include "cuda/random_weights.h"
#include "cuda/step_grid.h"
#include "kernels/gpu/fused_attention.h"
#include "kernels/gpu/merge_states.h"
#include "kernels/gpu/store_kv.h"
#include "kernels/kv_format.h"

namespace longspec::cuda {
namespace {

using kernels::kChunk;
using kernels::KvType;
namespace gpu = kernels::gpu;

constexpr int kContexts[] = {1024, 16384, 65536}, kRowCounts[] = {1, 8, 16, 64}, kReplays = 5;
constexpr int kChunks = 65536 / kChunk;

// The layers of a model with keys and values of one type.
class Layers {
 public:
  Layers(const ModelShape& shape, KvType type, cudaStream_t stream)
      : s_(shape), type_(type), stream_(stream) {
    head_bytes_ = kChunk * kernels::FormatOf(type, s_.head_dim).bytes();
    layer_bytes_ = 2 * head_bytes_ * static_cast<size_t>(s_.n_kv_head);
    chunk_bytes_ = layer_bytes_ * static_cast<size_t>(s_.n_layer);
    chunks_ = arena_.New<std::byte>(kChunks * chunk_bytes_);
    const size_t n = static_cast<size_t>(s_.n_head * s_.head_dim) * 64;
    q_ = arena_.New<float>(n);
    out_ = arena_.New<float>(n);
    FillFloats(q_, n, 1, stream);
    FillLayer();
  }

  // The kernel's arguments for so many rows at the end of a context; lists lie in `work`.
  gpu::AttentionArgs Plan(int rows, int context, int item_rows, Arena& work) {
    const std::vector<int> ends(static_cast<size_t>(rows), context);
    const AttentionLists lists = ListsOf(ends, item_rows, chunks_, chunk_bytes_);
    const auto state_floats = static_cast<size_t>(kernels::kStateHeader + s_.head_dim);
    const auto n_states = static_cast<size_t>(lists.n_states) * static_cast<size_t>(s_.n_head);
    parts_ = work.Copy(lists.parts);
    part_begins_ = work.Copy(lists.part_begins);
    operations_ = 2.0 * lists.seen * s_.n_head * s_.head_dim * s_.n_layer;
    bytes_ = static_cast<double>(chunk_bytes_) / kChunk * context;
    return {.items = work.Copy(lists.items),
            .rows = work.Copy(lists.rows),
            .slots = nullptr,
            .q = q_,
            .states = work.New<float>(n_states * state_floats),
            .layer_offset = 0,
            .n_items = static_cast<int>(lists.items.size()),
            .n_rows = rows,
            .n_states = lists.n_states,
            .n_kv_head = s_.n_kv_head,
            .group = Group(),
            .head_dim = s_.head_dim,
            .scale = 0.0883F};
  }

  template <KvType T, int kEntries, int kRing>
  void Time(int rows, int context, std::vector<AttentionTime>* times) {
    const int wanted = rows * Group();
    if (kEntries < Group() || (kEntries > 8 && wanted <= kEntries / 2)) return;
    Arena work;
    const gpu::AttentionArgs args = Plan(rows, context, kEntries / Group(), work);
    const double ms = GraphTime(stream_, kReplays, [&] {
      for (int layer = 0; layer < s_.n_layer; ++layer) {
        gpu::AttentionArgs of_layer = args;
        of_layer.layer_offset = static_cast<int64_t>(layer_bytes_) * layer;
        Launch<gpu::FusedAttention<T, T, 128, kEntries, kRing>>(of_layer, stream_);
      }
    });
    const double merge_ms = GraphTime(stream_, kReplays, [&] {
      for (int layer = 0; layer < s_.n_layer; ++layer) {
        Launch<gpu::MergeStates<128>>({.rows = args.rows,
                                       .states = args.states,
                                       .parts = parts_,
                                       .part_begins = part_begins_,
                                       .out_rows = nullptr,
                                       .out = out_,
                                       .n_rows = rows,
                                       .n_states = args.n_states,
                                       .n_kv_head = s_.n_kv_head,
                                       .group = Group(),
                                       .head_dim = s_.head_dim},
                                      stream_);
      }
    });
    times->push_back({.model = s_.name,
                      .type = T == KvType::kF16 ? "f16" : "q8_0",
                      .rows = rows,
                      .context = context,
                      .entries = kEntries,
                      .ring = kRing,
                      .ms = ms,
                      .merge_ms = merge_ms,
                      .bytes = bytes_,
                      .operations = operations_});
  }

 private:
  int Group() const { return s_.n_head / s_.n_kv_head; }

  // Finite numbers: one chunk of one layer by the kernel that stores, and copies of it.
  void FillLayer() {
    const int width = s_.n_kv_head * s_.head_dim;
    Arena work;
    auto* k = work.New<float>(static_cast<size_t>(width) * kChunk);
    FillFloats(k, static_cast<size_t>(width) * kChunk, 2, stream_);
    std::vector<gpu::StoreKv::Place> places;
    for (int i = 0; i < kChunk; ++i) places.push_back({chunks_, chunks_ + layer_bytes_ / 2, i});
    Launch<gpu::StoreKv>({.k = k,
                          .v = k,
                          .row_stride = width,
                          .places = work.Copy(places),
                          .place = {},
                          .k_head_bytes = static_cast<int64_t>(head_bytes_),
                          .v_head_bytes = static_cast<int64_t>(head_bytes_),
                          .layer_offset = 0,
                          .n_rows = kChunk,
                          .n_heads = s_.n_kv_head,
                          .head_dim = s_.head_dim,
                          .k_type = type_,
                          .v_type = type_},
                         stream_);
    for (size_t at = layer_bytes_; at < kChunks * chunk_bytes_; at *= 2) {
      const size_t n = std::min(at, kChunks * chunk_bytes_ - at);
      MustSucceed(cudaMemcpyAsync(chunks_ + at, chunks_, n, cudaMemcpyDeviceToDevice, stream_),
                  "copy on the card");
    }
    MustSucceed(cudaStreamSynchronize(stream_), "keys and values");
  }

  const ModelShape& s_;
  const KvType type_;
  cudaStream_t stream_;
  Arena arena_;
  size_t head_bytes_ = 0, layer_bytes_ = 0, chunk_bytes_ = 0;
  std::byte* chunks_ = nullptr;
  float *q_ = nullptr, *out_ = nullptr;
  int *parts_ = nullptr, *part_begins_ = nullptr;  // of the last Plan
  double bytes_ = 0, operations_ = 0;
};

template <KvType T>
void TimeCell(Layers& layers, int rows, int context, std::vector<AttentionTime>* times) {
  layers.Time<T, 8, 3>(rows, context, times);
  layers.Time<T, 8, 4>(rows, context, times);
  layers.Time<T, 8, 8>(rows, context, times);
  layers.Time<T, 16, 3>(rows, context, times);
  layers.Time<T, 16, 5>(rows, context, times);
  layers.Time<T, 32, 2>(rows, context, times);
  layers.Time<T, 32, 3>(rows, context, times);
  layers.Time<T, 64, 2>(rows, context, times);
  layers.Time<T, 64, 3>(rows, context, times);
}

}  // namespace

std::vector<AttentionTime> TimeAttention(double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  double budget = 0;
  std::vector<AttentionTime> times;
  cudaStream_t stream;
  MustSucceed(cudaStreamCreate(&stream), "stream");
  for (const ModelShape& shape : kShapes) {
    for (const KvType type : {KvType::kF16, KvType::kQ8_0}) {
      budget += seconds / static_cast<double>(2 * std::size(kShapes));
      Layers layers(shape, type, stream);
      for (const int context : kContexts) {
        for (const int rows : kRowCounts) {
          if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > budget)
            continue;
          if (type == KvType::kF16) {
            TimeCell<KvType::kF16>(layers, rows, context, &times);
          } else {
            TimeCell<KvType::kQ8_0>(layers, rows, context, &times);
          }
        }
      }
    }
  }
  cudaStreamDestroy(stream);
  return times;
}

}  // namespace longspec::cuda
