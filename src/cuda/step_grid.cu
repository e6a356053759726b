// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <functional>

#include "cuda/attention_lists.h"
#include "cuda/graph_time.h"
#include "cuda/random_weights.h"
#include "cuda/step_grid.h"
#include "kernels/gpu/choice.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/fused_attention.h"
#include "kernels/gpu/matmul_table.h"
#include "kernels/gpu/merge_states.h"
#include "kernels/gpu/norm.h"
#include "kernels/gpu/quantize.h"
#include "kernels/gpu/store_kv.h"

namespace longspec::cuda {
namespace {

using kernels::kChunk;
using kernels::KvType;
using kernels::Q8KBlock;
using kernels::WeightFormat;
namespace gpu = kernels::gpu;

constexpr int kMostRows = 2048, kMostContext = 65536 + kMostRows, kReplays = 7;

struct LaunchInto {
  cudaStream_t stream;
  template <typename Body>
  void operator()(Body, const typename Body::Args& args) const {
    Launch<Body>(args, stream);
  }
};

struct Layer {
  // Matrices of one format that read the same rows are one: values are apart if they have more bits.
  DeviceMatrix qkv, v, o, gate_up, down;
};

// llama.cpp's Q4_K_M stores values and down projections of these layers as Q6_K.
bool HasMoreBits(int layer, int n) { return layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2; }

class Steps {
 public:
  Steps(const ModelShape& shape, cudaStream_t stream) : s_(shape), stream_(stream) {
    const auto matrix = [&](int64_t n_in, int64_t n_out, bool more_bits) {
      DeviceMatrix m{.n_out = n_out,
                     .n_in = n_in,
                     .format = more_bits ? WeightFormat::kSuperU6Halves : WeightFormat::kSuperU4Min};
      m.group_bytes = SuperGroupBytes(m.format, n_in);
      auto* data = arena_.New<std::byte>(m.bytes());
      m.data = data;
      FillRandomly(m, data, ++seed_, stream_);
      return m;
    };
    const int n_q = s_.n_head * s_.head_dim, n_kv = s_.n_kv_head * s_.head_dim;
    for (int i = 0; i < s_.n_layer; ++i) {
      const bool more = HasMoreBits(i, s_.n_layer);
      layers_.push_back({.qkv = matrix(s_.n_embd, n_q + (more ? 1 : 2) * n_kv, false),
                         .v = more ? matrix(s_.n_embd, n_kv, true) : DeviceMatrix(),
                         .o = matrix(n_q, s_.n_embd, false),
                         .gate_up = matrix(s_.n_embd, 2 * s_.n_ff, false),
                         .down = matrix(s_.n_ff, s_.n_embd, more)});
    }
    head_ = matrix(s_.n_embd, s_.n_vocab, true);
    layer_bytes_ = size_t{2} * s_.n_kv_head * kChunk * s_.head_dim * 2;
    n_chunks_ = (kMostContext + kChunk - 1) / kChunk;
    chunks_ = arena_.New<std::byte>(n_chunks_ * ChunkBytes());
    FillHalves(chunks_, n_chunks_ * ChunkBytes() / 2, ++seed_, stream_);
    const auto floats = [&](int n) {
      auto* to = arena_.New<float>(size_t{kMostRows} * static_cast<size_t>(n));
      FillFloats(to, size_t{kMostRows} * static_cast<size_t>(n), ++seed_, stream_);
      return to;
    };
    x_ = floats(s_.n_embd);
    q_ = floats(static_cast<int>(QkvStride()));
    k_ = q_ + n_q;
    v_ = k_ + n_kv;
    attended_ = floats(n_q);
    gate_ = floats(2 * s_.n_ff);
    norm_ = floats(std::max(1, s_.n_embd / 1024));
    cos_sin_ = floats(s_.head_dim);
    logits_ = arena_.New<float>(size_t{64} * static_cast<size_t>(s_.n_vocab));
    blocks_ = arena_.New<Q8KBlock>(size_t{kMostRows} * static_cast<size_t>(s_.n_ff / kernels::kSuperBlock));
    best_ = arena_.New<gpu::BestLogit>(size_t{64} * 256);
    indices_ = arena_.New<int32_t>(kMostRows);
  }

  StepTime Time(int rows, int context, bool prompt, bool all_kinds) {
    Arena work;
    Plan(rows, context, prompt, work);
    StepTime time{.model = s_.name, .rows = rows, .context = context, .prompt = prompt};
    std::vector<Kind> kinds = Kinds();
    time.ms = Measure([&] {
      for (int layer = 0; layer < s_.n_layer; ++layer) {
        for (const Kind& kind : kinds) {
          if (kind.of_layer) kind.launch(layer);
        }
      }
      for (const Kind& kind : kinds) {
        if (!kind.of_layer) kind.launch(0);
      }
    });
    for (const Kind& kind : kinds) {
      if (!all_kinds && !kind.of_context) continue;
      const double ms = Measure([&] {
        for (int layer = 0; layer < (kind.of_layer ? s_.n_layer : 1); ++layer) kind.launch(layer);
      });
      time.kinds.push_back({.kind = kind.name, .ms = ms, .bytes = kind.bytes, .operations = kind.operations});
    }
    return time;
  }

 private:
  struct Kind {
    const char* name;
    bool of_layer, of_context;
    double bytes, operations;
    std::function<void(int layer)> launch;
  };

  size_t ChunkBytes() const { return layer_bytes_ * static_cast<size_t>(s_.n_layer); }
  int Group() const { return s_.n_head / s_.n_kv_head; }

  double Measure(const std::function<void()>& launch) { return GraphTime(stream_, kReplays, launch); }

  // Which rows see which chunks.
  void Plan(int rows, int context, bool prompt, Arena& work) {
    rows_ = rows;
    int n_multiprocessors = 0;
    MustSucceed(cudaDeviceGetAttribute(&n_multiprocessors, cudaDevAttrMultiProcessorCount, 0),
                "properties of the card");
    const int chunks = gpu::CeilDiv(prompt ? context + rows : context + 1, kChunk);
    entries_ = gpu::EntriesOf(rows, Group(), int64_t{chunks} * s_.n_kv_head, n_multiprocessors);
    const int item_rows = entries_ / Group();
    std::vector<int> ends;
    for (int row = 0; row < rows; ++row) ends.push_back((prompt ? context + row : context) + 1);
    const AttentionLists lists = ListsOf(ends, item_rows, chunks_, ChunkBytes());
    std::vector<gpu::StoreKv::Place> places;
    const size_t half = layer_bytes_ / 2;
    for (int row = 0; row < rows; ++row) {
      const int at = ends[static_cast<size_t>(row)] - 1;
      std::byte* chunk = chunks_ + static_cast<size_t>(at / kChunk) * ChunkBytes();
      places.push_back({.keys = chunk, .values = chunk + half, .offset = at % kChunk});
    }
    seen_ = lists.seen;
    n_items_ = static_cast<int>(lists.items.size());
    n_states_ = lists.n_states;
    items_ = work.Copy(lists.items);
    seen_rows_ = work.Copy(lists.rows);
    parts_ = work.Copy(lists.parts);
    part_begins_ = work.Copy(lists.part_begins);
    places_ = work.Copy(places);
    states_ = work.New<float>(static_cast<size_t>(s_.n_kv_head) * static_cast<size_t>(n_states_) *
                              static_cast<size_t>(Group()) *
                              static_cast<size_t>(kernels::kStateHeader + s_.head_dim));
  }

  void Product(const DeviceMatrix& m, float* y, int64_t y_stride, int rows, bool add) {
    kernels::WithSuperFormat(m.format, [&](auto f) {
      gpu::LaunchProduct<gpu::UnitsQ8K<decltype(f)::kValue>>(
          {.w = m.data,
           .group_bytes = m.group_bytes,
           .n_out = m.n_out,
           .n_groups = m.n_groups(),
           .n_units = static_cast<int>(m.n_in / kernels::kSuperBlock),
           .x = blocks_,
           .y = y,
           .y_stride = y_stride,
           .n_rows = rows,
           .add = add},
          LaunchInto{stream_});
    });
  }

  void Norm(int rows) {
    Launch<gpu::QuantizeNorm<gpu::ToQ8K>>(
        {.rows = {.x = x_, .stride = s_.n_embd, .w = norm_, .n = s_.n_embd, .n_rows = rows, .eps = 1e-6F},
         .out = blocks_},
        stream_);
  }

  template <int kEntries>
  void AttendWith(int layer) {
    constexpr int kRing = kEntries <= 16 ? 4 : 3;
    Launch<gpu::FusedAttention<KvType::kF16, KvType::kF16, 128, kEntries, kRing>>(
        {.items = items_,
         .rows = seen_rows_,
         .slots = nullptr,
         .q = q_,
         .states = states_,
         .layer_offset = static_cast<int64_t>(layer_bytes_) * layer,
         .n_items = n_items_,
         .n_rows = rows_,
         .n_states = n_states_,
         .n_kv_head = s_.n_kv_head,
         .group = Group(),
         .head_dim = s_.head_dim,
         .scale = 0.0883F},
        stream_);
  }
  void Attend(int layer) {
    switch (entries_) {
      case 8:
        return AttendWith<8>(layer);
      case 16:
        return AttendWith<16>(layer);
      case 32:
        return AttendWith<32>(layer);
      default:
        return AttendWith<64>(layer);
    }
  }

  // Of queries, keys and values, which lie side by side.
  int64_t QkvStride() const { return int64_t{s_.n_head + 2 * s_.n_kv_head} * s_.head_dim; }

  void Rotate(float* x, int n_heads) {
    Launch<gpu::Rope>({.x = x,
                       .row_stride = QkvStride(),
                       .head_stride = s_.head_dim,
                       .cos_sin = cos_sin_,
                       .n_rows = rows_,
                       .n_heads = n_heads,
                       .n_rot = s_.head_dim,
                       .pairing = kernels::RopePairing::kHalfSplit},
                      stream_);
  }

  double LayerBytes(DeviceMatrix Layer::*matrix) const {
    double bytes = 0;
    for (const Layer& layer : layers_) bytes += static_cast<double>((layer.*matrix).bytes());
    return bytes;
  }
  double Macs(DeviceMatrix Layer::*matrix) const {
    double n = 0;
    for (const Layer& layer : layers_)
      n += static_cast<double>((layer.*matrix).n_in) * static_cast<double>((layer.*matrix).n_out);
    return n * rows_;
  }

  std::vector<Kind> Kinds() {
    const double l = s_.n_layer, rows = rows_;
    const int head_rows = std::min(rows_, 64);
    std::vector<Kind> kinds;
    const auto add = [&](const char* name, double bytes, double operations, std::function<void(int)> launch,
                         bool of_context = false, bool of_layer = true) {
      kinds.push_back({name, of_layer, of_context, bytes, operations, std::move(launch)});
    };
    add("norm, quantise", l * rows * s_.n_embd * 4, 0, [=](int) { Norm(rows_); });
    add("q, k, v", LayerBytes(&Layer::qkv) + LayerBytes(&Layer::v), Macs(&Layer::qkv) + Macs(&Layer::v),
        [=](int i) {
          const Layer& layer = layers_[static_cast<size_t>(i)];
          Product(layer.qkv, q_, QkvStride(), rows_, false);
          if (layer.v.n_out > 0) Product(layer.v, v_, QkvStride(), rows_, false);
        });
    add("rotate, store", l * rows * (s_.n_head + 4 * s_.n_kv_head) * s_.head_dim * 4, 0, [=](int layer) {
      Rotate(q_, s_.n_head + s_.n_kv_head);
      Launch<gpu::StoreKv>({.k = k_,
                            .v = v_,
                            .row_stride = QkvStride(),
                            .places = places_,
                            .place = {},
                            .k_head_bytes = int64_t{kChunk} * s_.head_dim * 2,
                            .v_head_bytes = int64_t{kChunk} * s_.head_dim * 2,
                            .layer_offset = 0,
                            .n_rows = rows_,
                            .n_heads = s_.n_kv_head,
                            .head_dim = s_.head_dim,
                            .k_type = KvType::kF16,
                            .v_type = KvType::kF16},
                           stream_);
    });
    add(
        "attention", l * n_items_ * static_cast<double>(layer_bytes_),
        2.0 * l * seen_ * s_.n_head * s_.head_dim, [=](int layer) { Attend(layer); }, true);
    const double state_bytes = 4.0 * n_states_ * s_.n_head * (kernels::kStateHeader + s_.head_dim);
    add(
        "merge", l * state_bytes, 0,
        [=](int) {
          Launch<gpu::MergeStates<128>>({.rows = seen_rows_,
                                         .states = states_,
                                         .parts = parts_,
                                         .part_begins = part_begins_,
                                         .out_rows = nullptr,
                                         .out = attended_,
                                         .n_rows = rows_,
                                         .n_states = n_states_,
                                         .n_kv_head = s_.n_kv_head,
                                         .group = Group(),
                                         .head_dim = s_.head_dim},
                                        stream_);
        },
        true);
    add("quantise", l * rows * s_.n_head * s_.head_dim * 4, 0, [=](int) {
      const int n = s_.n_head * s_.head_dim;
      Launch<gpu::Quantize<gpu::ToQ8K>>(
          {.source = {.x = attended_, .stride = n}, .out = blocks_, .n = n, .n_rows = rows_}, stream_);
    });
    add("o", LayerBytes(&Layer::o), Macs(&Layer::o),
        [=](int i) { Product(layers_[static_cast<size_t>(i)].o, x_, s_.n_embd, rows_, true); });
    add("norm, quantise again", l * rows * s_.n_embd * 4, 0, [=](int) { Norm(rows_); });
    add("gate, up", LayerBytes(&Layer::gate_up), Macs(&Layer::gate_up),
        [=](int i) { Product(layers_[static_cast<size_t>(i)].gate_up, gate_, 2 * s_.n_ff, rows_, false); });
    add("swiglu, quantise", l * rows * s_.n_ff * 8, 0, [=](int) {
      Launch<gpu::Quantize<gpu::ToQ8K, gpu::GatedRows<gpu::Silu>>>(
          {.source = {.g = gate_, .u = gate_ + s_.n_ff, .stride = 2 * s_.n_ff},
           .out = blocks_,
           .n = s_.n_ff,
           .n_rows = rows_},
          stream_);
    });
    add("down", LayerBytes(&Layer::down), Macs(&Layer::down),
        [=](int i) { Product(layers_[static_cast<size_t>(i)].down, x_, s_.n_embd, rows_, true); });
    add(
        "logits", static_cast<double>(head_.bytes()),
        static_cast<double>(head_.n_in) * s_.n_vocab * head_rows,
        [=](int) {
          Norm(head_rows);
          Product(head_, logits_, s_.n_vocab, head_rows, false);
        },
        false, false);
    add(
        "choice", 4.0 * s_.n_vocab * head_rows, 0,
        [=](int) {
          constexpr int kParts = 128;
          Launch<gpu::Argmax>({.x = logits_,
                               .stride = s_.n_vocab,
                               .parts = best_,
                               .n = s_.n_vocab,
                               .n_rows = head_rows,
                               .n_parts = kParts},
                              stream_);
          Launch<gpu::JoinParts<gpu::BestLogit>>(
              {.parts = best_, .n_parts = kParts, .n_rows = head_rows, .indices = indices_, .best = nullptr},
              stream_);
        },
        false, false);
    return kinds;
  }

  const ModelShape& s_;
  cudaStream_t stream_;
  Arena arena_;
  uint32_t seed_ = 0;
  std::vector<Layer> layers_;
  DeviceMatrix head_;
  size_t layer_bytes_ = 0, n_chunks_ = 0;
  std::byte* chunks_ = nullptr;
  float *x_, *q_, *k_, *v_, *attended_, *gate_, *norm_, *cos_sin_, *logits_;
  Q8KBlock* blocks_;
  gpu::BestLogit* best_;
  int32_t* indices_;
  // Of the cell that is timed.
  int rows_ = 0, entries_ = 8, n_items_ = 0, n_states_ = 0;
  double seen_ = 0;
  gpu::AttentionItem* items_ = nullptr;
  gpu::AttentionRow* seen_rows_ = nullptr;
  int *parts_ = nullptr, *part_begins_ = nullptr;
  gpu::StoreKv::Place* places_ = nullptr;
  float* states_ = nullptr;
};

}  // namespace

std::vector<StepTime> TimeSteps(double seconds, int most_rows) {
  const auto begin = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::vector<StepTime> times;
  cudaStream_t stream;
  MustSucceed(cudaStreamCreate(&stream), "stream");
  double budget = 0;
  for (const ModelShape& shape : kShapes) {
    budget += seconds / static_cast<double>(std::size(kShapes));
    Steps steps(shape, stream);
    MustSucceed(cudaStreamSynchronize(stream), "random weights");
    for (const int context : {1024, 16384, 65536}) {
      for (const int rows : {1, 2, 4, 8, 16, 64}) {
        if (rows > most_rows || spent() > budget) continue;
        times.push_back(steps.Time(rows, context, false, context == 1024));
      }
      if (context == 1024 && most_rows >= kMostRows && spent() < budget)
        times.push_back(steps.Time(kMostRows, 0, true, true));
    }
  }
  cudaStreamDestroy(stream);
  return times;
}

double CopyRate() {
  const size_t n = size_t{1} << 30;
  const DeviceBytes from(n), to(n);
  cudaEvent_t begin, end;
  MustSucceed(cudaEventCreate(&begin), "event");
  MustSucceed(cudaEventCreate(&end), "event");
  FillHalves(from.get(), n / 2, 1, nullptr);
  std::vector<float> times;
  for (int i = 0; i < 9; ++i) {
    MustSucceed(cudaEventRecord(begin), "event");
    MustSucceed(cudaMemcpyAsync(to.get(), from.get(), n, cudaMemcpyDeviceToDevice), "copy on the card");
    MustSucceed(cudaEventRecord(end), "event");
    MustSucceed(cudaEventSynchronize(end), "copy on the card");
    float ms = 0;
    MustSucceed(cudaEventElapsedTime(&ms, begin, end), "event");
    times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return 2.0 * static_cast<double>(n) / (times[times.size() / 2] * 1e-3);
}

}  // namespace longspec::cuda
