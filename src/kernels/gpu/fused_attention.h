// SPDX-License-Identifier: Apache-2.0
//
// Attention of a pass: a block of threads for each item, a chunk of 256 keys of one KV head and the rows that
// see it, times the query heads that share the KV head: an entry each. It leaves one softmax state for each
// entry, and merge_states.h merges them. Bits are those of scores, softmax_chunk, values and gathered_values.
//
// The chunk's bytes come to shared memory as a stream of stages, keys by 32 dimensions and values by keys, of
// which kRing are under way at a time. Scores: a thread has four keys and some entries, and goes through the
// dimensions. Softmax: a warp has an entry. Values: a thread has four dimensions and some entries, and goes
// through the keys. So every sum is one thread's, in the order of the reference.
//
// In arithmetic "i8" a query's integers are made as it comes to shared memory, and the integers that values
// are multiplied with as these do, by a thread for each entry, 32 keys and 32 dimensions.
//
// Keys past those that are stored in the chunk are a tail's: each row has slots of its own, whose keys and
// values are read where they lie.
#pragma once

#include <type_traits>

#include "kernels/gpu/cta.h"
#include "kernels/gpu/integers.h"
#include "kernels/gpu/kv.h"
#include "kernels/gpu/softmax.h"
#include "kernels/ops.h"

namespace longspec::kernels::gpu {

// What a row sees: positions [begin, end), then slots[tail], slots[tail + 1], ... as positions up to total.
struct AttentionRow {
  int begin, end, total, tail;
};

// Rows [row_begin, row_begin + n_rows) and one chunk; all KV heads have it.
struct AttentionItem {
  const std::byte* chunk;  // where the layers of this chunk lie; null if no key of it is stored
  // The chunks that slots are counted in. Null: the rows see what is stored, and no tail.
  const std::byte* const* tails;
  int first;     // the position of the chunk's first key
  int n_stored;  // keys of the chunk that lie there and that a row sees
  int row_begin, n_rows;
  int state;  // of the first row; states of one KV head lie together
};

struct AttentionArgs {
  const AttentionItem* items;
  const AttentionRow* rows;
  const int* slots;
  const float* q;        // (n_kv_head, n_rows, group, head_dim)
  float* states;         // (n_kv_head, n_states, group, kStateHeader + head_dim)
  int64_t layer_offset;  // in a chunk
  int n_items, n_rows, n_states, n_kv_head, group, head_dim;
  float scale;
  bool operator==(const AttentionArgs&) const = default;
};

// How many entries an item should have: more share what is read of a chunk, fewer are more items. As many as
// a row needs, then twice as many while that still leaves a block of threads for every multiprocessor.
// `chunks`: times the KV heads.
constexpr int EntriesOf(int rows, int group, int64_t chunks, int n_multiprocessors) {
  int entries = 8;
  while (entries < group) entries *= 2;
  while (entries < 64 && entries < rows * group &&
         chunks * CeilDiv(rows, 2 * entries / group) >= n_multiprocessors) {
    entries *= 2;
  }
  return entries;
}

// kDims: at least head_dim. kEntries: at least the rows of an item times the group.
template <KvType K, KvType V, int kDims, int kEntries, int kRing>
class FusedAttention {
 public:
  using Args = AttentionArgs;
  static constexpr int kThreads = 256;

  static Grid GridOf(const Args& a) {
    return {.width = a.n_items, .height = a.n_kv_head, .shared_bytes = sizeof(Shared)};
  }

  template <class Cta>
  static LONGSPEC_GPU void Run(const Cta& cta, const Args& a) {
    const Item<Cta> item(cta, a);
    item.Begin();
    item.AddScores();
    item.AddTailScores();
    cta.Sync();
    item.Softmax();
    if constexpr (kIntegerValues) {
      item.AddIntegerValues();
    } else {
      item.AddValues();
    }
  }

 private:
  static constexpr bool kIntegerKeys = K == KvType::kI8, kIntegerValues = V == KvType::kI8;
  static constexpr int kStageDims = kQuantBlock;
  static constexpr int kKeysTogether = KeysSummedTogether(V) > kKeyGroup ? KeysSummedTogether(V) : kKeyGroup;
  static constexpr int kBlocks = kChunk / kKeyGroup;
  // A block's dimensions of a stage, and a gap, so that blocks begin in different banks.
  template <KvType T>
  static constexpr int kSegment = 32 * kCode16<T> + (kScaled<T> ? 32 : 0);
  static constexpr int kKeySegment = kSegment<K> + (kScaled<K> ? 0 : 32);
  static constexpr int kKeyStage = kBlocks * kKeySegment;
  // 8,192 elements, or more where so many keys of all dimensions have more.
  static constexpr int kValueStage =
      kBlocks * kSegment<V> * (kKeysTogether * kDims > 8192 ? kKeysTogether * kDims / 8192 : 1);
  static constexpr int kStageBytes = kKeyStage > kValueStage ? kKeyStage : kValueStage;

  // Transposed.
  struct FloatQueries {
    float x[kDims][kEntries];
  };
  struct IntegerQueries {
    uint32_t words[kDims / 4][kEntries];
    float d[kDims / kQuantBlock][kEntries];
  };
  // Of a stage: units are 32 keys and 32 dimensions. A gap, so that units begin in different banks.
  static constexpr int kUnits = kDims > 256 ? kDims / kQuantBlock : 256 / kQuantBlock;
  struct IntegerWeights {
    uint32_t words[kUnits][kQuantBlock / 4 * kEntries + 4];  // (key / 4, entry)
    float d[kUnits][kEntries];
  };
  struct NoWeights {};

  struct alignas(16) Shared : std::conditional_t<kIntegerValues, IntegerWeights, NoWeights> {
    alignas(16) std::byte ring[kRing][kStageBytes];
    std::conditional_t<kIntegerKeys, IntegerQueries, FloatQueries> q;
    float p[kChunk * kEntries];          // by PlaceOf
    int low[kEntries], count[kEntries];  // keys [low, count) are seen
  };

  // Where a key's score of an entry lies. Entries lie in fours, which change places with each other so that
  // neither neighbouring keys nor every fourth lie in the same banks.
  static LONGSPEC_GPU int PlaceOf(int key, int entry) {
    constexpr int kFours = kEntries / 4, kShift = kEntries >= 32 ? 0 : kEntries == 16 ? 1 : 2;
    const int mixed = (key >> kShift) ^ (key >> (kShift + 2));
    return key * kEntries + ((entry / 4 ^ (mixed & (kFours < 8 ? kFours - 1 : 7))) * 4 + entry % 4);
  }

  // Threads as tiles: of four keys and of four dimensions, times some entries.
  static constexpr int kKeyLanes = kChunk / 4, kKeyTiles = kThreads / kKeyLanes;
  static constexpr int kDimLanes = kDims / 4, kDimTiles = kThreads / kDimLanes;
  static constexpr int kKeyEntries = kEntries / kKeyTiles;
  static constexpr int kDimEntries = kEntries > kDimTiles ? kEntries / kDimTiles : 1;
  static_assert(kEntries % 8 == 0 && kEntries % kKeyTiles == 0 &&
                (kEntries % kDimTiles == 0 || kEntries < kDimTiles));

  template <class Cta>
  class Item {
   public:
    LONGSPEC_GPU Item(const Cta& cta, const Args& a)
        : cta_(cta),
          a_(a),
          item_(a.items[cta.block()]),
          shared_(*reinterpret_cast<Shared*>(cta.Shared())),
          head_(cta.block_y()),
          n_entries_(item_.n_rows * a.group),
          key_bytes_(KvBytes<K>(a.head_dim)),
          value_bytes_(KvBytes<V>(a.head_dim)),
          stage_keys_(StageKeys(a.head_dim)),
          n_key_stages_(item_.n_stored > 0 ? (a.head_dim + kStageDims - 1) / kStageDims : 0),
          n_stages_(n_key_stages_ + (item_.n_stored + stage_keys_ - 1) / stage_keys_) {}

    // Copies are on their way, queries and what each entry sees in shared memory.
    LONGSPEC_GPU void Begin() const {
      for (int i = 0; i < kRing - 1; ++i) Fetch(i);
      const float* q =
          a_.q + (static_cast<int64_t>(head_) * a_.n_rows + item_.row_begin) * a_.group * a_.head_dim;
      if constexpr (kIntegerKeys) {
        BringIntegers(q);
      } else {
        for (int i = cta_.thread(); i < kEntries * kDims; i += kThreads) {
          const int entry = i / kDims, d = i % kDims;
          if (d < a_.head_dim) shared_.q.x[d][entry] = entry < n_entries_ ? q[entry * a_.head_dim + d] : 0.0F;
        }
      }
      if (cta_.thread() < kEntries) {
        int low = 0, count = 0;
        if (cta_.thread() < n_entries_) {
          const AttentionRow row = a_.rows[item_.row_begin + cta_.thread() / a_.group];
          count = InChunk((item_.tails == nullptr ? row.end : row.total) - item_.first);
          low = InChunk(row.begin - item_.first);
          if (low >= count) low = count = 0;
        }
        shared_.low[cta_.thread()] = low;
        shared_.count[cta_.thread()] = count;
      }
    }

    LONGSPEC_GPU void AddScores() const {
      const int lane = cta_.thread() % kKeyLanes, first_entry = cta_.thread() / kKeyLanes * kKeyEntries;
      float dot[kKeyEntries][4] = {};
      for (int stage = 0; stage < n_key_stages_; ++stage) {
        const std::byte* bytes = Arrived(stage) + lane / 4 * kKeySegment;
        const int d0 = stage * kStageDims, n = a_.head_dim - d0 < kStageDims ? a_.head_dim - d0 : kStageDims;
        float scale[4];
        if constexpr (kScaled<K>) {
          LONGSPEC_UNROLL
          for (int i = 0; i < 4; ++i)
            scale[i] = Cta::Half(U16At(bytes + 32 * kCode16<K> + (lane % 4 * 4 + i) * 2));
        }
        if constexpr (kIntegerKeys) {
          AddIntegerDots(bytes + lane % 4 * 16, stage, first_entry, scale, dot);
          continue;
        } else {
          for (int first = d0; first < d0 + n; first += 8) {
            LONGSPEC_UNROLL
            for (int d = first; d < first + 8; ++d) {
              float k[4];
              ReadKeys(bytes, lane % 4, d - d0, scale, k);
              LONGSPEC_UNROLL
              for (int e = 0; e < kKeyEntries; ++e) {
                const float q = shared_.q.x[d][first_entry + e];
                LONGSPEC_UNROLL
                for (int i = 0; i < 4; ++i) dot[e][i] = Cta::Fma(q, k[i], dot[e][i]);
              }
            }
          }
        }
      }
      LONGSPEC_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (lane * 4 + i >= item_.n_stored) continue;  // a tail's, or nobody's
        LONGSPEC_UNROLL
        for (int e = 0; e < kKeyEntries; ++e) {
          shared_.p[PlaceOf(lane * 4 + i, first_entry + e)] = Cta::Mul(dot[e][i], a_.scale);
        }
      }
    }

    // A thread for a row's key in a slot, and an entry.
    LONGSPEC_GPU void AddTailScores() const {
      if (item_.tails == nullptr) return;
      if (item_.n_stored == 0) cta_.Sync();  // nothing else has waited for Begin
      const int n_keys = kChunk - item_.n_stored;
      for (int i = cta_.thread(); i < n_entries_ * n_keys; i += kThreads) {
        const int entry = i % n_entries_, key = item_.n_stored + i / n_entries_;
        if (key >= shared_.count[entry]) continue;
        const int slot = SlotOf(entry, key);
        const std::byte* keys = HeadOf(item_.tails[slot / kChunk]);
        shared_.p[PlaceOf(key, entry)] = Cta::Mul(TailDot(keys, slot % kChunk, entry), a_.scale);
      }
    }

    LONGSPEC_GPU void Softmax() const {
      const int lane = cta_.thread() % kWarp;
      for (int entry = cta_.thread() / kWarp; entry < n_entries_; entry += kThreads / kWarp) {
        const int count = shared_.count[entry];
        SoftmaxSum sum = {0.0F, 0.0F};
        if (count > 0) {
          float s[kKeysOfLane];
          LONGSPEC_UNROLL
          for (int i = 0; i < kKeysOfLane; ++i) s[i] = shared_.p[PlaceOf(i * kWarp + lane, entry)];
          sum = SoftmaxOf(cta_, s, shared_.low[entry], count);
          LONGSPEC_UNROLL
          for (int i = 0; i < kKeysOfLane; ++i) shared_.p[PlaceOf(i * kWarp + lane, entry)] = s[i];
        }
        if (lane < kStateHeader) StateOf(entry)[lane] = lane == 0 ? sum.max : lane == 1 ? sum.sum : 0.0F;
      }
    }

    LONGSPEC_GPU void AddValues() const {
      const int lane = cta_.thread() % kDimLanes, first_entry = cta_.thread() / kDimLanes * kDimEntries;
      const bool inside = first_entry < n_entries_ && lane * 4 < a_.head_dim;
      float o[kDimEntries][4] = {};
      int least = kChunk, most = 0;
      LONGSPEC_UNROLL
      for (int e = 0; e < kDimEntries; ++e) {
        const int count = first_entry + e < n_entries_ ? shared_.count[first_entry + e] : kChunk;
        least = count < least ? count : least;
        if (first_entry + e < n_entries_) most = count > most ? count : most;
      }
      if (most > item_.n_stored) most = item_.n_stored;
      if (least > most) least = most;
      if (n_stages_ == n_key_stages_) cta_.Sync();  // no stage's arrival waits for the softmax
      for (int stage = n_key_stages_; stage < n_stages_; ++stage) {
        const std::byte* bytes = Arrived(stage);
        if (!inside) continue;
        const int begin = (stage - n_key_stages_) * stage_keys_;
        const int end = begin + stage_keys_;
        int key = begin;
#ifdef __CUDACC__
#pragma unroll 8
#endif
        for (; key < (least < end ? least : end); ++key) {
          float v[4];
          ReadValues(bytes + (key - begin) * value_bytes_, lane, v);
          LONGSPEC_UNROLL
          for (int e = 0; e < kDimEntries; ++e) AddValue(shared_.p[PlaceOf(key, first_entry + e)], v, o[e]);
        }
        for (; key < (most < end ? most : end); ++key) {  // some entries see no more
          float v[4];
          ReadValues(bytes + (key - begin) * value_bytes_, lane, v);
          LONGSPEC_UNROLL
          for (int e = 0; e < kDimEntries; ++e) {
            if (first_entry + e < n_entries_ && key < shared_.count[first_entry + e]) {
              AddValue(shared_.p[PlaceOf(key, first_entry + e)], v, o[e]);
            }
          }
        }
      }
      if (inside) StoreValues(first_entry, lane, o);
    }

    // The same in arithmetic "i8".
    LONGSPEC_GPU void AddIntegerValues() const {
      const int lane = cta_.thread() % kDimLanes, first_entry = cta_.thread() / kDimLanes * kDimEntries;
      const bool inside = first_entry < n_entries_ && lane * 4 < a_.head_dim;
      const int n_blocks = a_.head_dim / kQuantBlock;
      float o[kDimEntries][4] = {};
      if (n_stages_ == n_key_stages_) cta_.Sync();  // no stage's arrival waits for the softmax
      for (int stage = n_key_stages_; stage < n_stages_; ++stage) {
        const std::byte* bytes = Arrived(stage);
        const int begin = (stage - n_key_stages_) * stage_keys_;
        const int n = item_.n_stored - begin < stage_keys_ ? item_.n_stored - begin : stage_keys_;
        WeighStage(bytes, begin, n);
        cta_.Sync();
        if (!inside) continue;
        for (int first = 0; first < n; first += kQuantBlock) {
          const int unit = first / kQuantBlock * n_blocks + lane / 8;
          int32_t sum[kDimEntries][4] = {};
          LONGSPEC_UNROLL
          for (int four = 0; four < kQuantBlock / 4; ++four) {
            uint32_t v[4];
            LONGSPEC_UNROLL
            for (int i = 0; i < 4; ++i)
              v[i] = WordAt(bytes + (first + four * 4 + i) * value_bytes_ + lane * 4);
            Transpose(v);
            LONGSPEC_UNROLL
            for (int e = 0; e < kDimEntries; ++e) {
              const uint32_t weights = shared_.words[unit][four * kEntries + first_entry + e];
              LONGSPEC_UNROLL
              for (int i = 0; i < 4; ++i) sum[e][i] = Cta::DotS4(weights, v[i], sum[e][i]);
            }
          }
          LONGSPEC_UNROLL
          for (int e = 0; e < kDimEntries; ++e) {
            if (begin + first >= WeighedTo(first_entry + e)) continue;
            const float d = shared_.d[unit][first_entry + e];
            LONGSPEC_UNROLL
            for (int i = 0; i < 4; ++i) o[e][i] = Cta::Fma(static_cast<float>(sum[e][i]), d, o[e][i]);
          }
        }
      }
      if (inside) StoreValues(first_entry, lane, o);
    }

   private:
    static LONGSPEC_GPU int StageKeys(int head_dim) {
      const int n = 8192 / head_dim / kKeysTogether * kKeysTogether;
      return n > kChunk ? kChunk : n > kKeysTogether ? n : kKeysTogether;
    }

    // Integers of queries: a thread for an entry's 32 dimensions.
    LONGSPEC_GPU void BringIntegers(const float* q) const {
      for (int i = cta_.thread(); i < a_.head_dim / kQuantBlock * kEntries; i += kThreads) {
        const int entry = i % kEntries, block = i / kEntries;
        float x[kQuantBlock];
        LONGSPEC_UNROLL
        for (int d = 0; d < kQuantBlock; ++d)
          x[d] = entry < n_entries_ ? q[entry * a_.head_dim + block * kQuantBlock + d] : 0.0F;
        const Integers of = QueryIntegers<Cta>(x);
        LONGSPEC_UNROLL
        for (int word = 0; word < kQuantBlock / 4; ++word)
          shared_.q.words[block * (kQuantBlock / 4) + word][entry] = of.words[word];
        shared_.q.d[block][entry] = of.d;
      }
    }

    // Of 32 dimensions of four keys. `keys`: their words, those of 16 keys for four dimensions after another.
    LONGSPEC_GPU void AddIntegerDots(const std::byte* keys, int block, int first_entry,
                                     const float (&scale)[4], float (&dot)[kKeyEntries][4]) const {
      int32_t sum[kKeyEntries][4] = {};
      LONGSPEC_UNROLL
      for (int word = 0; word < kQuantBlock / 4; ++word) {
        const Bytes16 k = Cta::Load16(keys + word * (4 * kKeyGroup));
        LONGSPEC_UNROLL
        for (int e = 0; e < kKeyEntries; ++e) {
          const uint32_t q = shared_.q.words[block * (kQuantBlock / 4) + word][first_entry + e];
          LONGSPEC_UNROLL
          for (int i = 0; i < 4; ++i) sum[e][i] = Cta::DotS4(q, k.words[i], sum[e][i]);
        }
      }
      LONGSPEC_UNROLL
      for (int e = 0; e < kKeyEntries; ++e) {
        const float d = shared_.q.d[block][first_entry + e];
        LONGSPEC_UNROLL
        for (int i = 0; i < 4; ++i)
          dot[e][i] = Cta::Fma(scale[i], Cta::Mul(static_cast<float>(sum[e][i]), d), dot[e][i]);
      }
    }

    // A query times the key at `offset` of a chunk, by one thread.
    LONGSPEC_GPU float TailDot(const std::byte* keys, int offset, int entry) const {
      float dot = 0.0F;
      if constexpr (kIntegerKeys) {
        const IntegerKey k = IntegerKey::At(keys, a_.head_dim, offset);
        for (int block = 0; block < a_.head_dim / kQuantBlock; ++block) {
          int32_t sum = 0;
          LONGSPEC_UNROLL
          for (int i = 0; i < kQuantBlock / 4; ++i) {
            const int word = block * (kQuantBlock / 4) + i;
            sum = Cta::DotS4(shared_.q.words[word][entry], k.Word(word), sum);
          }
          dot = Cta::Fma(k.template Scale<Cta>(block),
                         Cta::Mul(static_cast<float>(sum), shared_.q.d[block][entry]), dot);
        }
      } else {
        const Key<K> k = Key<K>::At(keys, a_.head_dim, offset);
        for (int d = 0; d < a_.head_dim; ++d)
          dot = Cta::Fma(shared_.q.x[d][entry], k.template Value<Cta>(d), dot);
      }
      return dot;
    }

    // Keys of the chunk before it are weighed where they are stored; those of a group that a tail's keys are
    // in are weighed with these.
    LONGSPEC_GPU int WeighedTo(int entry) const {
      if (entry >= n_entries_) return 0;
      const int count = shared_.count[entry];
      return count > item_.n_stored ? item_.n_stored / kQuantBlock * kQuantBlock : count;
    }

    // Integers that the stage's values are multiplied with, of keys [begin, begin + n).
    LONGSPEC_GPU void WeighStage(const std::byte* bytes, int begin, int n) const {
      const int n_blocks = a_.head_dim / kQuantBlock;
      const int n_units = (n + kQuantBlock - 1) / kQuantBlock * n_blocks;
      for (int i = cta_.thread(); i < n_units * kEntries; i += kThreads) {
        const int entry = i % kEntries, unit = i / kEntries, block = unit % n_blocks;
        const int first = unit / n_blocks * kQuantBlock, end = WeighedTo(entry) - begin - first;
        float x[kQuantBlock];
        LONGSPEC_UNROLL
        for (int key = 0; key < kQuantBlock; ++key) {
          const std::byte* row = bytes + (first + key) * value_bytes_;
          x[key] = key < end ? Cta::Mul(shared_.p[PlaceOf(begin + first + key, entry)],
                                        IntegerValueScale<Cta>(row, a_.head_dim, block))
                             : 0.0F;
        }
        const Integers of = WeightIntegers<Cta>(x);
        LONGSPEC_UNROLL
        for (int word = 0; word < kQuantBlock / 4; ++word)
          shared_.words[unit][word * kEntries + entry] = of.words[word];
        shared_.d[unit][entry] = of.d;
      }
    }

    LONGSPEC_GPU const std::byte* ValueRow(int entry, int key) const {
      if (key < item_.n_stored) return HeadOf(item_.chunk, true) + key * value_bytes_;
      const int slot = SlotOf(entry, key);
      return HeadOf(item_.tails[slot / kChunk], true) + slot % kChunk * value_bytes_;
    }

    LONGSPEC_GPU void AddIntegerTail(int entry, int lane, float (&o)[4]) const {
      const int count = shared_.count[entry];
      for (int first = WeighedTo(entry); first < count; first += kQuantBlock) {
        const int end = count < first + kQuantBlock ? count : first + kQuantBlock;
        const auto x_of = [&](int key, const std::byte* row) {
          return Cta::Mul(shared_.p[PlaceOf(key, entry)], IntegerValueScale<Cta>(row, a_.head_dim, lane / 8));
        };
        uint32_t largest = 0;
        for (int key = first; key < end; ++key) {
          const uint32_t bits = Cta::ToBits(x_of(key, ValueRow(entry, key)));
          largest = bits > largest ? bits : largest;
        }
        const auto scale = IntegerScale<Cta>::By(largest);
        int32_t sum[4] = {};
        for (int key = first; key < end; ++key) {
          const std::byte* row = ValueRow(entry, key);
          const int weight = scale.Of(x_of(key, row));
          const uint32_t v = WordAt(row + lane * 4);
          LONGSPEC_UNROLL
          for (int i = 0; i < 4; ++i) sum[i] += weight * static_cast<int8_t>(v >> 8 * i);
        }
        LONGSPEC_UNROLL
        for (int i = 0; i < 4; ++i) o[i] = Cta::Fma(static_cast<float>(sum[i]), scale.d, o[i]);
      }
    }

    static LONGSPEC_GPU int InChunk(int n) { return n < 0 ? 0 : n > kChunk ? kChunk : n; }

    static LONGSPEC_GPU void AddValue(float p, const float (&v)[4], float (&o)[4]) {
      LONGSPEC_UNROLL
      for (int i = 0; i < 4; ++i) o[i] = Cta::Fma(p, v[i], o[i]);
    }

    LONGSPEC_GPU void AddTail(int entry, int lane, float (&o)[4]) const {
      for (int key = item_.n_stored; key < shared_.count[entry]; ++key) {
        const int slot = SlotOf(entry, key);
        const std::byte* row = HeadOf(item_.tails[slot / kChunk], true) + slot % kChunk * value_bytes_;
        float v[4];
        LONGSPEC_UNROLL
        for (int i = 0; i < 4; ++i) v[i] = ValueAt<V, Cta>(row, a_.head_dim, lane * 4 + i);
        AddValue(shared_.p[PlaceOf(key, entry)], v, o);
      }
    }

    // A thread's sums over stored keys, and what its entries' tails add to them, go to the states.
    LONGSPEC_GPU void StoreValues(int first_entry, int lane, float (&o)[kDimEntries][4]) const {
      LONGSPEC_UNROLL
      for (int e = 0; e < kDimEntries; ++e) {
        const int entry = first_entry + e;
        if (entry >= n_entries_) continue;
        if (item_.tails != nullptr) {
          if constexpr (kIntegerValues) {
            AddIntegerTail(entry, lane, o[e]);
          } else {
            AddTail(entry, lane, o[e]);
          }
        }
        LONGSPEC_UNROLL
        for (int i = 0; i < 4; ++i) StateOf(entry)[kStateHeader + lane * 4 + i] = o[e][i];
      }
    }

    LONGSPEC_GPU int SlotOf(int entry, int key) const {
      const AttentionRow row = a_.rows[item_.row_begin + entry / a_.group];
      return a_.slots[row.tail + item_.first + key - row.end];
    }

    // This head's keys or values in a chunk.
    LONGSPEC_GPU const std::byte* HeadOf(const std::byte* chunk, bool values = false) const {
      const int64_t keys = static_cast<int64_t>(kChunk) * key_bytes_;
      return chunk + a_.layer_offset +
             (values ? a_.n_kv_head * keys + static_cast<int64_t>(head_) * kChunk * value_bytes_
                     : head_ * keys);
    }

    LONGSPEC_GPU float* StateOf(int entry) const {
      return a_.states + ((static_cast<int64_t>(head_) * a_.n_states + item_.state) * a_.group + entry) *
                             (kStateHeader + a_.head_dim);
    }

    // Begins to copy a stage, of which nothing is left to be done past the last. A group of copies for each.
    LONGSPEC_GPU void Fetch(int stage) const {
      std::byte* to = shared_.ring[stage % kRing];
      if (stage < n_key_stages_) {
        FetchKeys(stage * kStageDims, to);
      } else if (stage < n_stages_) {
        const int begin = (stage - n_key_stages_) * stage_keys_;
        const int n = item_.n_stored - begin < stage_keys_ ? item_.n_stored - begin : stage_keys_;
        const std::byte* from = HeadOf(item_.chunk, true) + begin * value_bytes_;
        for (int i = cta_.thread(); i < (n * value_bytes_ + 15) / 16; i += kThreads) {
          cta_.CopyAsync(to + i * 16, from + i * 16);
        }
      }
      cta_.CommitCopies();
    }

    LONGSPEC_GPU void FetchKeys(int d0, std::byte* to) const {
      const std::byte* keys = HeadOf(item_.chunk);
      constexpr int kCodes = 2 * kCode16<K>,
                    kAll = kCodes + (kScaled<K> ? 2 : 0);  // of 32 dimensions, by 16 bytes
      const int n_codes = a_.head_dim - d0 < kStageDims ? kCodes / 2 : kCodes;
      const int n_blocks = (item_.n_stored + kKeyGroup - 1) / kKeyGroup;
      for (int i = cta_.thread(); i < n_blocks * kAll; i += kThreads) {
        const int block = i / kAll, at = i % kAll;
        const std::byte* from = keys + block * (kKeyGroup * key_bytes_);
        if (at < n_codes) {
          cta_.CopyAsync(to + block * kKeySegment + at * 16, from + d0 * kCode16<K> + at * 16);
        } else if (at >= kCodes) {
          const int scales = kKeyGroup * CodesBytes<K>(a_.head_dim) + d0 / kQuantBlock * (2 * kKeyGroup);
          cta_.CopyAsync(to + block * kKeySegment + at * 16, from + scales + (at - kCodes) * 16);
        }
      }
    }

    // Waits for a stage and begins with the one that takes the place of the stage before it.
    LONGSPEC_GPU const std::byte* Arrived(int stage) const {
      cta_.template WaitCopies<kRing - 2>();
      cta_.Sync();
      Fetch(stage + kRing - 1);
      return shared_.ring[stage % kRing];
    }

    // Dimension d of keys 4 quarter to 4 quarter + 3 of a block.
    static LONGSPEC_GPU void ReadKeys(const std::byte* block, int quarter, int d, const float (&scale)[4],
                                      float (&k)[4]) {
      if constexpr (K == KvType::kF32) {
        const Bytes16 bytes = Cta::Load16(block + d * 64 + quarter * 16);
        LONGSPEC_UNROLL
        for (int i = 0; i < 4; ++i) k[i] = Cta::Bits(bytes.words[i]);
      } else if constexpr (K == KvType::kF16) {
        const auto* words = reinterpret_cast<const uint64_t*>(block + d * 32 + quarter * 8);
        Halves(*words, k);
      } else if constexpr (K == KvType::kQ8_0) {
        Signed(*reinterpret_cast<const uint32_t*>(block + d * 16 + quarter * 4), scale, k);
      } else {
        Nibbles(*reinterpret_cast<const uint32_t*>(block + d / 2 * 16 + quarter * 4) >> (d % 2 * 4), scale,
                k);
      }
    }

    static LONGSPEC_GPU void Halves(uint64_t bits, float (&x)[4]) {
      LONGSPEC_UNROLL
      for (int i = 0; i < 4; ++i) x[i] = Cta::Half(static_cast<uint16_t>(bits >> 16 * i));
    }
    static LONGSPEC_GPU void Signed(uint32_t codes, const float (&scale)[4], float (&x)[4]) {
      LONGSPEC_UNROLL
      for (int i = 0; i < 4; ++i) {
        x[i] = Cta::Mul(static_cast<float>(static_cast<int8_t>(codes >> 8 * i)), scale[i]);
      }
    }
    static LONGSPEC_GPU void Nibbles(uint32_t codes, const float (&scale)[4], float (&x)[4]) {
      LONGSPEC_UNROLL
      for (int i = 0; i < 4; ++i) {
        x[i] = Cta::Mul(static_cast<float>(static_cast<int>(codes >> 8 * i & 15) - 8), scale[i]);
      }
    }

    // Dimensions 4 lane to 4 lane + 3 of a row.
    LONGSPEC_GPU void ReadValues(const std::byte* row, int lane, float (&v)[4]) const {
      if constexpr (V == KvType::kF32) {
        const Bytes16 bytes = Cta::Load16(row + lane * 16);
        LONGSPEC_UNROLL
        for (int i = 0; i < 4; ++i) v[i] = Cta::Bits(bytes.words[i]);
      } else if constexpr (V == KvType::kF16) {
        Halves(*reinterpret_cast<const uint64_t*>(row + lane * 8), v);
      } else {
        const int block = lane / 8, at = lane % 8 * 4;  // in the block
        const float d = Cta::Half(U16At(row + CodesBytes<V>(a_.head_dim) + 2 * block));
        const float scale[4] = {d, d, d, d};
        if constexpr (V == KvType::kQ8_0) {
          Signed(WordAt(row + lane * 4), scale, v);
        } else {
          Nibbles(WordAt(row + block * 16 + at % 16) >> (at >= 16 ? 4 : 0), scale, v);
        }
      }
    }

    const Cta& cta_;
    const Args& a_;
    const AttentionItem item_;
    Shared& shared_;
    const int head_, n_entries_, key_bytes_, value_bytes_;
    const int stage_keys_, n_key_stages_, n_stages_;
  };
};

}  // namespace longspec::kernels::gpu
