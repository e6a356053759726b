// SPDX-License-Identifier: Apache-2.0
//
// For tests: a tiny target, and LongSpec checkpoints with random weights that fit it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/counter_rng.h"
#include "base/testing/files.h"
#include "base/thread_team.h"
#include "draft_model/longspec.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/tiny_model.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "model/shared_parts.h"
#include "model/transformer.h"
#include "tensor/quantize.h"

namespace longspec::testing {

inline std::vector<int32_t> RandomTokens(int n, uint64_t seed, int vocab = 384) {
  const RngStream rng{.seed = seed, .purpose = RngPurpose::kTest};
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) {
    tokens.push_back(static_cast<int32_t>(rng.Uniform(static_cast<uint64_t>(i)) * vocab));
  }
  return tokens;
}

// Changes the keys and values of a slot of an f32 cache, whatever they are.
inline void Poke(const KvSpan& span, int slot) {
  for (int head = 0; head < span.layout.n_kv_head; ++head) {
    for (int d = 0; d < span.layout.head_dim; ++d) {
      const int offset = slot % kKvChunk;
      const int key = (offset / kKeyBlock * span.layout.head_dim + d) * kKeyBlock + offset % kKeyBlock;
      const_cast<float*>(reinterpret_cast<const float*>(span.keys(slot / kKvChunk, head)))[key] += 1.5F;
      const_cast<float*>(reinterpret_cast<const float*>(span.value_row(slot, head)))[d] += 1.5F;
    }
  }
}

class TinyTarget {
 public:
  // Of a tensor in f32, before the model is made of it.
  using Change = std::function<void(std::string_view name, std::span<float> values)>;

  explicit TinyTarget(const TinyModelOptions& options = {}, const RopeOptions& rope = {}, int n_threads = 1,
                      Bf16Arithmetic bf16_weights = Bf16Arithmetic::kF32, const Change& change = {})
      : team_(n_threads) {
    auto bytes = TinyModelBytes(options);
    EXPECT_TRUE(bytes.ok()) << bytes.status().message();
    bytes_ = std::move(*bytes);
    auto file = GgufFile::Parse(bytes_, "tiny.gguf");
    EXPECT_TRUE(file.ok()) << file.status().message();
    for (const TensorView& t : (*file)->tensors()) {  // views of bytes_
      if (!change || t.dtype != DType::kF32) continue;
      auto* values = reinterpret_cast<float*>(bytes_.data() + (t.data - bytes_.data()));
      change(t.name, {values, t.n_bytes / sizeof(float)});
    }
    auto read = ReadModelSpec(**file, rope, bf16_weights);
    EXPECT_TRUE(read.ok()) << read.status().message();
    spec = *read;
    auto loaded = LoadModel(*file, spec, {kernels::Available().front(), &team_});
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    target_ = std::move(*loaded);
  }

  Target& target() { return *target_; }
  const SharedParts& parts() const { return *target_->shared_parts(); }
  std::unique_ptr<KvCache> NewCache(int capacity, CacheType type = CacheType::kF32) const {
    return MakeFullCache(spec.kv_layout(type, type), spec.n_layer, capacity);
  }
  // Appends the tokens' keys and values to the cache.
  void Evaluate(std::span<const int32_t> tokens, KvCache& cache) {
    for (size_t begin = 0; begin < tokens.size(); begin += 512) {
      const auto part = tokens.subspan(begin, std::min<size_t>(512, tokens.size() - begin));
      auto rows = cache.Begin(static_cast<int>(part.size()));
      ASSERT_TRUE(rows.ok());
      const ForwardSegment segment = {
          .tokens = part, .parents = {}, .kv = &*rows, .logits = LogitsFor::kNone};
      ASSERT_TRUE(target_->Forward({&segment, 1}).ok());
      rows->CommitAll();
    }
  }

  ModelSpec spec;

 private:
  std::vector<std::byte> bytes_;
  ThreadTeam team_;
  std::unique_ptr<Target> target_;
};

// A checkpoint's tensors as f32 by name; matrices are (out, in).
struct DraftTensors {
  struct Tensor {
    std::vector<int64_t> shape;  // fastest first
    std::vector<float> values;
  };
  std::map<std::string, Tensor> tensors;

  std::vector<float>& operator[](const std::string& name) { return tensors.at(name).values; }
  const std::vector<float>& operator[](const std::string& name) const { return tensors.at(name).values; }
};

// Adds tensors of random values, each with a stream of its own.
class TensorMaker {
 public:
  TensorMaker(DraftTensors* draft, uint64_t seed) : draft_(draft), seed_(seed) {}

  // About normal. n_out 1: a vector.
  void Add(const std::string& name, int64_t n_in, int64_t n_out, float mean, float deviation) {
    const RngStream rng{.seed = seed_, .sequence = n_tensors_++, .purpose = RngPurpose::kTest};
    DraftTensors::Tensor& t = draft_->tensors[name];
    t.shape = n_out == 1 ? std::vector<int64_t>{n_in} : std::vector<int64_t>{n_in, n_out};
    for (int64_t i = 0; i < n_in * n_out; ++i) {
      const double u =
          rng.Uniform(static_cast<uint64_t>(i), 0) + rng.Uniform(static_cast<uint64_t>(i), 1) - 1.0;
      t.values.push_back(mean + deviation * 2.45F * static_cast<float>(u));
    }
  }
  // A matrix whose products are about as large as what it multiplies.
  void AddMatrix(const std::string& name, int64_t n_in, int64_t n_out) {
    Add(name, n_in, n_out, 0, 1.0F / std::sqrt(static_cast<float>(n_in)));
  }
  void AddNorm(const std::string& name, int64_t n) { Add(name, n, 1, 1.0F, 0.1F); }

 private:
  DraftTensors* draft_;
  const uint64_t seed_;
  uint64_t n_tensors_ = 0;
};

inline DraftTensors RandomDraft(const ModelSizes& c, int n_ff, uint64_t seed) {
  DraftTensors draft;
  TensorMaker make(&draft, seed);
  const int64_t h = c.n_embd, q = int64_t{c.n_head} * c.head_dim, kv = int64_t{c.n_head_kv} * c.head_dim;
  for (const std::string attention : {"self_attn.", "cross_attn."}) {
    make.AddMatrix(attention + "q_proj.weight", h, q);
    make.Add(attention + "q_proj.bias", q, 1, 0, 0.3F);
    for (const char* name : {"k_proj", "v_proj"}) {
      make.AddMatrix(attention + name + ".weight", h, kv);
      make.Add(attention + name + ".bias", kv, 1, 0, 0.3F);
    }
    make.AddMatrix(attention + "o_proj.weight", q, h);
  }
  make.AddMatrix("mlp.gate_proj.weight", h, n_ff);
  make.AddMatrix("mlp.up_proj.weight", h, n_ff);
  make.AddMatrix("mlp.down_proj.weight", n_ff, h);
  for (const char* name : {"input", "post_self_attention", "post_cross_attention"}) {
    make.AddNorm(std::string(name) + "_layernorm.weight", h);
  }
  return draft;
}

inline void WriteDraft(const DraftTensors& draft, const std::string& path, const std::string& prefix = "",
                       DType dtype = DType::kF32, const std::vector<int64_t>& vocab = {}) {
  SafetensorsWriter writer;
  writer.SetMetadata("format", "pt");
  for (const auto& [name, t] : draft.tensors) {
    const auto n = static_cast<int64_t>(t.values.size());
    std::vector<std::byte> bytes(RowBytes(dtype, n));
    QuantizeRow(dtype, t.values.data(), n, bytes.data());
    writer.AddTensor(prefix + name, dtype, t.shape, bytes);
  }
  if (!vocab.empty()) {
    writer.AddTensor(kDraftVocabTensor, DType::kI64, {static_cast<int64_t>(vocab.size())},
                     std::as_bytes(std::span(vocab)));
  }
  const Status status = writer.Write(path);
  EXPECT_TRUE(status.ok()) << status.message();
}

inline std::string ConfigJson(const ModelSizes& c, const std::string& more = "") {
  const auto n = [](const char* key, int value) {
    return "\"" + std::string(key) + "\": " + std::to_string(value);
  };
  return "{" + n("hidden_size", c.n_embd) + ", " + n("num_attention_heads", c.n_head) + ", " +
         n("num_key_value_heads", c.n_head_kv) + ", " + n("vocab_size", c.n_vocab) + ", " +
         "\"rope_theta\": " + std::to_string(c.rope.freq_base) + more + "}\n";
}

// A folder as Hugging Face has it. Returns its path.
inline std::string WriteDraftFolder(const Folder& folder, const ModelSizes& c, const DraftTensors& draft,
                                    const std::string& more_config = "") {
  std::filesystem::create_directories(folder.File("draft"));
  WriteDraft(draft, folder.File("draft/model.safetensors"));
  std::ofstream(folder.File("draft/config.json")) << ConfigJson(c, more_config);
  return folder.File("draft");
}

inline Result<std::shared_ptr<const LongspecModel>> OpenAndLoad(const std::string& path,
                                                                const std::string& weights,
                                                                const SharedParts& target) {
  const auto checkpoint = OpenDraftCheckpoint(path);
  if (!checkpoint.ok()) return checkpoint.status();
  return LongspecModel::Load(*checkpoint, weights, target);
}

}  // namespace longspec::testing
