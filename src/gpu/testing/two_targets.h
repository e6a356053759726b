// SPDX-License-Identifier: Apache-2.0
//
// For tests: one model on the CPU and on a card, and the same passes on both.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/files.h"
#include "formats/tiny_model.h"
#include "gpu/gpu_device.h"
#include "kernels/testing/card_under_test.h"
#include "kv/full_cache.h"
#include "kv/kv_mover.h"
#include "model/device.h"

namespace longspec::testing {

using Row = std::vector<float>;
using Tokens = std::vector<int32_t>;

inline Tokens RandomTokens(int n, unsigned seed = 1) {
  std::mt19937 rng(seed);
  Tokens tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>(rng() % 380));
  return tokens;
}

inline Row RowOf(const LogitRow& logits) {
  Row room;
  const std::span<const float> row = logits.Read(&room);
  return {row.begin(), row.end()};
}

inline Row ValuesOf(const StateRows& rows) {
  Row values(static_cast<size_t>(rows.size()) * static_cast<size_t>(rows.width()));
  rows.Copy(values.data());
  return values;
}

inline bool SameBits(const Row& a, const Row& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

inline Tokens Part(const Tokens& of, int begin, int end) { return {of.begin() + begin, of.begin() + end}; }

struct ModelFile {
  explicit ModelFile(std::string of_path) : path(std::move(of_path)) {}
  std::string path;
};

struct TwoTargets {
  static constexpr int kMostRows = 64;

  explicit TwoTargets(const TinyModelOptions& tiny) {
    const Folder folder;
    const std::string path = folder.File("tiny.gguf");
    EXPECT_TRUE(WriteTinyModel(tiny, path).ok());
    Load(path);
  }
  explicit TwoTargets(const ModelFile& of) { Load(of.path); }

  void Load(const std::string& path) {
    file = *GgufFile::Open(path);
    spec = *ReadModelSpec(*file, {});
    ModelLoadOptions options;
    options.max_rows = kMostRows;
    on_cpu = *cpu->Load(file, spec, options);
    auto loaded = gpu->Load(file, spec, options);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    if (loaded.ok()) on_gpu = *std::move(loaded);
  }

  std::shared_ptr<ChunkPool> NewPool(const Target& target, CacheType type,
                                     const KvOffload& offload = {}) const {
    return target.NewPool(spec.kv_layout(type, type), spec.n_layer, offload);
  }

  const std::unique_ptr<Device> cpu = *MakeCpuDevice("", 2);
  const std::shared_ptr<kernels::gpu::Runtime> card = kernels::testing::CardUnderTest();
  const std::unique_ptr<Device> gpu = *MakeGpuDevice(card, "", 2);
  std::shared_ptr<const GgufFile> file;
  ModelSpec spec;
  std::unique_ptr<Target> on_cpu, on_gpu;
};

// What a pass gave of a segment, copied.
struct Given {
  std::vector<Row> logits, hidden, queries;
  Row final_hidden;
};

inline void ExpectSame(const Given& expected, const Given& actual) {
  ASSERT_EQ(expected.logits.size(), actual.logits.size());
  for (size_t i = 0; i < expected.logits.size(); ++i)
    EXPECT_TRUE(SameBits(expected.logits[i], actual.logits[i])) << "logits of row " << i;
  ASSERT_EQ(expected.hidden.size(), actual.hidden.size());
  for (size_t i = 0; i < expected.hidden.size(); ++i)
    EXPECT_TRUE(SameBits(expected.hidden[i], actual.hidden[i])) << "hidden states " << i;
  ASSERT_EQ(expected.queries.size(), actual.queries.size());
  for (size_t i = 0; i < expected.queries.size(); ++i)
    EXPECT_TRUE(SameBits(expected.queries[i], actual.queries[i])) << "queries of layer " << i;
  EXPECT_TRUE(SameBits(expected.final_hidden, actual.final_hidden)) << "what the head sees";
}

inline Given Copied(const TargetOutput::Segment& of) {
  Given given;
  for (int i = 0; i < of.logits.size(); ++i) given.logits.push_back(RowOf(of.logits[i]));
  for (const StateRows& rows : of.hidden) given.hidden.push_back(ValuesOf(rows));
  for (const StateRows& rows : of.queries) given.queries.push_back(ValuesOf(rows));
  if (!of.final_hidden.empty()) given.final_hidden = ValuesOf(of.final_hidden);
  return given;
}

// Rows of one sequence in a pass, and which of them are kept.
struct Rows {
  KvCache* cache = nullptr;
  Tokens tokens;
  std::vector<int32_t> parents = {};
  std::vector<int32_t> kept = {};  // empty: all
  LogitsFor logits = LogitsFor::kAllRows;
  const Taps* taps = nullptr;
  const LayerPrefix* prefix = nullptr;
};

inline std::vector<Given> Pass(Target& target, const std::vector<Rows>& all) {
  std::vector<KvTransaction> open;
  std::vector<ForwardSegment> segments;
  for (const Rows& rows : all) {
    auto transaction = rows.cache->Begin(static_cast<int>(rows.tokens.size()));
    EXPECT_TRUE(transaction.ok()) << transaction.status().message();
    open.push_back(*std::move(transaction));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    segments.push_back({.tokens = all[i].tokens,
                        .parents = all[i].parents,
                        .kv = &open[i],
                        .logits = all[i].logits,
                        .taps = all[i].taps,
                        .prefix = all[i].prefix});
  }
  const auto output = target.Forward(segments);
  EXPECT_TRUE(output.ok()) << output.status().message();
  std::vector<Given> given;
  if (!output.ok()) return given;
  for (size_t i = 0; i < all.size(); ++i) {
    given.push_back(Copied(output->segments[i]));
    if (all[i].kept.empty()) {
      open[i].CommitAll();
    } else {
      open[i].Commit(all[i].kept);
    }
  }
  return given;
}

// The bytes of a cache's chunks, as a session's file has them.
inline std::vector<std::vector<std::byte>> BytesOf(const FullCache& cache) {
  std::vector<std::vector<std::byte>> all;
  for (const KvChunkRef& chunk : cache.chunks()) {
    std::vector<std::byte> room;
    const auto bytes = cache.mover().Read(chunk->data(), cache.pool().chunk_bytes(), &room);
    all.emplace_back(bytes.begin(), bytes.end());
  }
  return all;
}

// The same positions in another pool.
inline std::unique_ptr<FullCache> Moved(const FullCache& cache, const std::shared_ptr<ChunkPool>& pool) {
  std::vector<KvChunkRef> chunks;
  for (const std::vector<std::byte>& bytes : BytesOf(cache)) {
    chunks.push_back(*pool->Take());
    pool->mover().Write(bytes, chunks.back()->data());
  }
  auto moved = MakeFullCache(pool, cache.capacity());
  moved->Adopt(chunks, cache.length());
  return moved;
}

inline constexpr int kCapacity = 1024;

// The same passes on both.
class OnBoth {
 public:
  // `offload`: of the card's chunks.
  explicit OnBoth(TwoTargets& both, CacheType type = CacheType::kF16, const KvOffload& offload = {})
      : both_(both),
        cpu_pool_(both.NewPool(*both.on_cpu, type)),
        gpu_pool_(both.NewPool(*both.on_gpu, type, offload)) {}

  struct Sequence {
    std::unique_ptr<FullCache> on_cpu, on_gpu;

    Sequence Fork() const { return {on_cpu->Fork(), on_gpu->Fork()}; }
    void Truncate(int length) const {
      on_cpu->Truncate(length);
      on_gpu->Truncate(length);
    }
  };
  Sequence New() const { return {MakeFullCache(cpu_pool_, kCapacity), MakeFullCache(gpu_pool_, kCapacity)}; }
  // These tokens were evaluated, on the CPU.
  Sequence Begun(const Tokens& tokens) const {
    auto on_cpu = MakeFullCache(cpu_pool_, kCapacity);
    const auto n = static_cast<int>(tokens.size());
    for (int at = 0; at < n; at += TwoTargets::kMostRows) {
      testing::Pass(*both_.on_cpu, {{.cache = on_cpu.get(),
                                     .tokens = Part(tokens, at, std::min(n, at + TwoTargets::kMostRows)),
                                     .logits = LogitsFor::kNone}});
    }
    auto on_gpu = Moved(*on_cpu, gpu_pool_);
    return {std::move(on_cpu), std::move(on_gpu)};
  }

  // `rows` without caches, of these sequences.
  void Pass(const std::vector<const Sequence*>& sequences, std::vector<Rows> rows) {
    std::vector<Rows> on_gpu = rows;
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].cache = sequences[i]->on_cpu.get();
      on_gpu[i].cache = sequences[i]->on_gpu.get();
    }
    const std::vector<Given> expected = testing::Pass(*both_.on_cpu, rows);
    const std::vector<Given> actual = testing::Pass(*both_.on_gpu, on_gpu);
    ASSERT_EQ(expected.size(), actual.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE("segment " + std::to_string(i));
      ExpectSame(expected[i], actual[i]);
    }
  }

  const std::shared_ptr<ChunkPool>& cpu_pool() const { return cpu_pool_; }
  const std::shared_ptr<ChunkPool>& gpu_pool() const { return gpu_pool_; }

 private:
  TwoTargets& both_;
  const std::shared_ptr<ChunkPool> cpu_pool_, gpu_pool_;
};

// A tree of seven rows, of which a path goes on where the committed positions end.
inline const std::vector<int32_t> kTree = {-1, 0, 0, 1, 2, 4, 4};

}  // namespace longspec::testing
