// SPDX-License-Identifier: Apache-2.0
//
// Functions of a kernel table (gpu/table.h): attention's operations. Those of arithmetics "bf16" and
// "bf16-amx" remain the reference's.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/gpu/attention.h"
#include "kernels/gpu/each.h"
#include "kernels/gpu/softmax.h"
#include "kernels/gpu/store_kv.h"
#include "kernels/kv_format.h"
#include "kernels/tables.h"

namespace longspec::kernels::gpu {

// Launches Body<type>; false: that has none.
template <typename Device, template <KvType> typename Body, typename Args>
bool LaunchFor(KvType type, const Args& args) {
  switch (type) {
    case KvType::kF32:
      Device::template Launch<Body<KvType::kF32>>(args);
      return true;
    case KvType::kF16:
      Device::template Launch<Body<KvType::kF16>>(args);
      return true;
    case KvType::kQ8_0:
      Device::template Launch<Body<KvType::kQ8_0>>(args);
      return true;
    case KvType::kQ4_0:
      Device::template Launch<Body<KvType::kQ4_0>>(args);
      return true;
    case KvType::kI8:
      Device::template Launch<Body<KvType::kI8>>(args);
      return true;
    default:
      return false;
  }
}

inline bool IsOfCpus(KvType type) { return type == KvType::kBF16 || type == KvType::kBF16Amx; }

template <typename Device>
struct AttentionOperations {
  using Bytes = typename Device::template In<std::byte>;
  using In = typename Device::template In<float>;
  using InOut = typename Device::template InOut<float>;

  static void ScoreKeys(const ScoresArgs& args) {
    if (IsOfCpus(args.type)) return kReferenceTable.scores(args);
    if (args.n_rows == 0 || args.block_end <= args.block_begin) return;
    ScoresArgs a = args;
    const Bytes keys(a.keys, Size(a.block_end) * kKeyGroup * FormatOf(a.type, a.head_dim).bytes());
    const In q(a.q, Size(a.n_rows) * Size(a.head_dim));
    const InOut out(a.out, Rows(a.n_rows, a.out_stride, kChunk));
    a.keys = keys.get();
    a.q = q.get();
    a.out = out.get();
    LaunchFor<Device, Scores>(a.type, a);
  }

  static void Softmax(float* scores, int n, float* state) {
    const InOut s(scores, Size(n)), to(state, kStateHeader);
    Device::template Launch<SoftmaxChunk>({.scores = s.get(), .state = to.get(), .n = n});
  }

  static void AddChunk(const ValuesArgs& args) {
    if (IsOfCpus(args.type)) return kReferenceTable.values(args);
    if (args.n_rows == 0) return;
    ValuesArgs a = args;
    const int most = *std::max_element(a.n_keys, a.n_keys + a.n_rows);
    const Bytes values(a.values, Size(most) * FormatOf(a.type, a.head_dim).bytes());
    const In p(a.p, Rows(a.n_rows, a.p_stride, most));
    const InOut o(a.o, Rows(a.n_rows, a.o_stride, a.head_dim));
    const typename Device::template In<int> n_keys(a.n_keys, Size(a.n_rows));
    a.values = values.get();
    a.p = p.get();
    a.o = o.get();
    a.n_keys = n_keys.get();
    LaunchFor<Device, Values>(a.type, a);
  }

  static void AddGathered(const GatheredValuesArgs& args) {
    if (IsOfCpus(args.type)) return kReferenceTable.gathered_values(args);
    if (args.n_rows == 0) return;
    GatheredValuesArgs a = args;
    const size_t row_bytes = FormatOf(a.type, a.head_dim).bytes();
    std::vector<std::byte> rows(Size(a.n_keys) * row_bytes);
    for (int i = 0; i < a.n_keys; ++i) std::memcpy(rows.data() + Size(i) * row_bytes, a.values[i], row_bytes);
    const Bytes on_device(rows.data(), rows.size());
    std::vector<const std::byte*> at;
    for (int i = 0; i < a.n_keys; ++i) at.push_back(on_device.get() + Size(i) * row_bytes);
    const typename Device::template In<const std::byte*> values(at.data(), at.size());
    const In p(a.p, Rows(a.n_rows, a.p_stride, a.n_keys));
    const InOut o(a.o, Rows(a.n_rows, a.o_stride, a.head_dim));
    a.values = values.get();
    a.p = p.get();
    a.o = o.get();
    LaunchFor<Device, GatheredValues>(a.type, a);
  }

  static void Merge(float* state, const float* chunk, int head_dim) {
    const InOut to(state, Size(kStateHeader + head_dim));
    const In next(chunk, Size(kStateHeader + head_dim));
    Device::template Launch<MergeState>({.state = to.get(), .chunk = next.get(), .head_dim = head_dim});
  }

  static void Finish(const float* state, int head_dim, float* out) {
    const In from(state, Size(kStateHeader + head_dim));
    const InOut to(out, Size(head_dim));
    Device::template Launch<Each<FinishState>>({.of = {.state = from.get()}, .out = to.get(), .n = head_dim});
  }

  static void Store(const StoreKvArgs& a) {
    const In k(a.k, Size(a.head_dim)), v(a.v, Size(a.head_dim));
    const size_t k_bytes = kChunk * FormatOf(a.k_type, a.head_dim).bytes();
    const size_t v_bytes = kChunk * FormatOf(a.v_type, a.head_dim).bytes();
    const typename Device::template InOut<std::byte> keys(a.keys, k_bytes), values(a.values, v_bytes);
    Device::template Launch<StoreKv>({.k = k.get(),
                                      .v = v.get(),
                                      .row_stride = a.head_dim,
                                      .places = nullptr,
                                      .place = {keys.get(), values.get(), a.offset},
                                      .k_head_bytes = static_cast<int64_t>(k_bytes),
                                      .v_head_bytes = static_cast<int64_t>(v_bytes),
                                      .layer_offset = 0,
                                      .n_rows = 1,
                                      .n_heads = 1,
                                      .head_dim = a.head_dim,
                                      .k_type = a.k_type,
                                      .v_type = a.v_type});
  }

 private:
  static size_t Size(int64_t n) { return static_cast<size_t>(n); }
  static size_t Rows(int n_rows, int64_t stride, int length) { return Size((n_rows - 1) * stride + length); }
};

template <typename Device>
void SetAttention(KernelTable& table) {
  using Operations = AttentionOperations<Device>;
  table.scores = Operations::ScoreKeys;
  table.softmax_chunk = Operations::Softmax;
  table.values = Operations::AddChunk;
  table.gathered_values = Operations::AddGathered;
  table.merge_state = Operations::Merge;
  table.finish_state = Operations::Finish;
  table.store_kv = Operations::Store;
}

}  // namespace longspec::kernels::gpu
