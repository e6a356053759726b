// SPDX-License-Identifier: Apache-2.0
//
// All bodies that a runtime launches, and tables of who launches each: a runtime has them compiled in three
// parts (products, attention, the rest), since most of the compiler's time is theirs.
#pragma once

#include <array>
#include <type_traits>

#include "kernels/gpu/check_rows.h"
#include "kernels/gpu/choice.h"
#include "kernels/gpu/each.h"
#include "kernels/gpu/elementwise.h"
#include "kernels/gpu/fetch_chunks.h"
#include "kernels/gpu/fused_attention.h"
#include "kernels/gpu/gate.h"
#include "kernels/gpu/gumbel.h"
#include "kernels/gpu/matmul_table.h"
#include "kernels/gpu/merge_states.h"
#include "kernels/gpu/move_kv.h"
#include "kernels/gpu/norm.h"
#include "kernels/gpu/quantize.h"
#include "kernels/gpu/rows.h"
#include "kernels/gpu/runtime.h"
#include "kernels/gpu/store_kv.h"
#include "kernels/gpu/top_k.h"

namespace longspec::kernels::gpu {

// Launches a body with its Args. `stream` is the runtime's.
using LaunchFunction = void (*)(void* stream, const void* args);

template <class... Bodies>
struct BodyList {
  static constexpr int kSize = sizeof...(Bodies);

  // kSize: it is not among them.
  template <class Body>
  static consteval int NumberOf() {
    int number = 0;
    bool found = false;
    ((found = found || std::is_same_v<Body, Bodies>, number += found ? 0 : 1), ...);
    return number;
  }

  // By Launcher::Launch<Body>(stream, args).
  template <class Launcher>
  static constexpr std::array<LaunchFunction, sizeof...(Bodies)> Functions() {
    return {&Start<Launcher, Bodies>...};
  }

 private:
  template <class Launcher, class Body>
  static void Start(void* stream, const void* args) {
    Launcher::template Launch<Body>(stream, *static_cast<const typename Body::Args*>(args));
  }
};

namespace internal {

template <class... Lists>
struct Join;
template <class... Bodies>
struct Join<BodyList<Bodies...>> {
  using List = BodyList<Bodies...>;
};
template <class... A, class... B, class... Rest>
struct Join<BodyList<A...>, BodyList<B...>, Rest...> {
  using List = typename Join<BodyList<A..., B...>, Rest...>::List;
};

// What LaunchProduct chooses among.
template <class Units>
using ProductsOf = BodyList<ManyRows<Units, 64>, ManyRows<Units, 32>, FewRows<Units, 1>, FewRows<Units, 2>,
                            StreamedRows<Units, 2>, StreamedRows<Units, 8>>;

}  // namespace internal

using ProductBodies = internal::Join<
    internal::ProductsOf<UnitsQ8<WeightFormat::kU4>>, internal::ProductsOf<UnitsQ8<WeightFormat::kU4Min>>,
    internal::ProductsOf<UnitsQ8<WeightFormat::kU5>>, internal::ProductsOf<UnitsQ8<WeightFormat::kU5Min>>,
    internal::ProductsOf<UnitsQ8<WeightFormat::kS8>>, internal::ProductsOf<UnitsQ8<WeightFormat::kU4Iq>>,
    internal::ProductsOf<UnitsQ8<WeightFormat::kU4Fp>>,
    internal::ProductsOf<UnitsQ8K<WeightFormat::kSuperU4Min>>,
    internal::ProductsOf<UnitsQ8K<WeightFormat::kSuperU5Min>>,
    internal::ProductsOf<UnitsQ8K<WeightFormat::kSuperU3Halves>>,
    internal::ProductsOf<UnitsQ8K<WeightFormat::kSuperU6Halves>>,
    internal::ProductsOf<UnitsQ8K<WeightFormat::kSuperU4Iq>>,
    BodyList<FloatRows<WeightFormat::kF32>, FloatRows<WeightFormat::kF16>,
             FloatRows<WeightFormat::kBF16>>>::List;

// Attention is compiled for heads of so many dimensions at most, and so many entries of an item: rows times
// the query heads of a KV head. More entries read a chunk less often, fewer are more blocks of threads.
inline constexpr int kFewEntries = 8, kManyEntries = 32;
template <KvType T, int kDims, int kEntries>
using AttentionOf = FusedAttention<T, T, kDims, kEntries,
                                   kDims == 512              ? 2
                                   : kEntries == kFewEntries ? 4
                                                             : 3>;

template <KvType T>
using AttentionBodiesOf = BodyList<AttentionOf<T, 64, kFewEntries>, AttentionOf<T, 64, kManyEntries>,
                                   AttentionOf<T, 128, kFewEntries>, AttentionOf<T, 128, kManyEntries>,
                                   AttentionOf<T, 256, kFewEntries>, AttentionOf<T, 256, kManyEntries>,
                                   AttentionOf<T, 512, kFewEntries>>;
using AttentionBodies = internal::Join<AttentionBodiesOf<KvType::kF32>, AttentionBodiesOf<KvType::kF16>,
                                       AttentionBodiesOf<KvType::kQ8_0>, AttentionBodiesOf<KvType::kQ4_0>,
                                       AttentionBodiesOf<KvType::kI8>>::List;

using RowBodies =
    BodyList<RmsNorm, QuantizeNorm<ToQ8>, QuantizeNorm<ToQ8K>, Quantize<ToQ8>, Quantize<ToQ8K>,
             Quantize<ToQ8, GatedRows<Silu>>, Quantize<ToQ8K, GatedRows<Silu>>,
             Quantize<ToQ8, GatedRows<Gelu>>, Quantize<ToQ8K, GatedRows<Gelu>>, Each<Gated<Silu>>,
             Each<Gated<Gelu>>, Rope, Each<WithBias>, Each<Sum>, Each<GatheredRows>, Each<QueriesByHead>,
             Each<AllowedLogits>, Scatter, StoreKv, MoveSlots, MoveBlocks, FetchChunks, MergeStates<64>,
             MergeStates<128>, MergeStates<256>, MergeStates<512>, CheckRows, Argmax, JoinParts<BestLogit>,
             Gumbel, JoinParts<BestKey>, TopK>;

using AllBodies = internal::Join<ProductBodies, AttentionBodies, RowBodies>::List;

template <class Body>
consteval int BodyNumber() {
  constexpr int kNumber = AllBodies::NumberOf<Body>();
  static_assert(kNumber < AllBodies::kSize, "a body that no runtime has compiled");
  return kNumber;
}

// Of AllBodies, in their parts.
struct LaunchTable {
  const LaunchFunction* products;
  const LaunchFunction* attention;
  const LaunchFunction* rows;

  LaunchFunction Of(int number) const {
    if (number < ProductBodies::kSize) return products[number];
    number -= ProductBodies::kSize;
    if (number < AttentionBodies::kSize) return attention[number];
    return rows[number - AttentionBodies::kSize];
  }
};

}  // namespace longspec::kernels::gpu
