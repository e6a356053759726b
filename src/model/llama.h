// SPDX-License-Identifier: Apache-2.0
//
// Models of the Llama family (architecture.h): configuration from GGUF metadata, memory before loading, and
// the loaded model as a Target.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/attention.h"
#include "base/thread_team.h"
#include "formats/gguf.h"
#include "kernels/ops.h"
#include "longspec/options.h"
#include "longspec/status.h"
#include "model/block.h"
#include "model/rope.h"
#include "model/target.h"

namespace longspec {

struct LlamaConfig {
  std::string architecture, name;
  int n_layer = 0, n_embd = 0, n_head = 0, n_head_kv = 0, head_dim = 0, n_ff = 0, n_vocab = 0;
  int n_logits = 0;  // rows of the LM head: n_vocab, but in a draft that chooses among fewer tokens
  int n_ctx_train = 0;
  float rms_eps = 1e-5F;
  RopeConfig rope;
  bool tied_embeddings = false;  // the LM head is the embedding matrix
  bool qkv_bias = false;         // q, k and v have biases
  bool qk_norm = false;          // each head of q and k is normalised before it is rotated
  AttentionKind attention_kind = AttentionKind::kFlash;
  // What BF16 matrices are multiplied as.
  kernels::WeightFormat bf16_format = kernels::WeightFormat::kBF16;

  AttentionShape attention() const;
  BlockShape block() const;
  int context_length() const;  // Target::context_length
  KvLayout kv_layout(CacheType k, CacheType v) const;
};

// Reads and checks the metadata, and every tensor's presence, shape and type. An unsupported architecture is
// named.
Result<LlamaConfig> ReadLlamaConfig(const GgufFile& file, const RopeOptions& rope,
                                    Bf16Arithmetic bf16_weights = Bf16Arithmetic::kF32,
                                    AttentionKind attention = AttentionKind::kFlash);

struct LlamaMemory {
  uint64_t weights = 0;  // repacked, bytes
  uint64_t scratch = 0;  // activations for `max_rows` rows, their attention, logits of the largest tree
};
LlamaMemory PlanLlamaMemory(const LlamaConfig& config, const GgufFile& file, int max_rows, int n_threads = 1);

// Where packed weights are kept on disk (model/weights_cache.h).
struct WeightsCacheOptions {
  std::string folder;  // empty: nowhere
  std::function<void(const std::string&)>
      on_warning;  // one line for what could not be read or kept; may be empty
};

struct LlamaLoadOptions {
  const kernels::KernelTable* kernels = nullptr;
  ThreadTeam* team = nullptr;               // borrowed for the model's life
  int max_rows = 512;                       // most rows of one Forward
  std::function<bool(double)> on_progress;  // share done; false cancels
  WeightsCacheOptions weights_cache;
  std::string* origin = nullptr;  // set to where the packed weights came from: "packed now", "read from FILE"
};

// Repacks the weights, or maps them as they were packed before. REQUIRES: config came from this file.
Result<std::unique_ptr<Target>> LoadLlama(std::shared_ptr<const GgufFile> file, const LlamaConfig& config,
                                          const LlamaLoadOptions& options);

// Operation -> arithmetic, as `longspec info` shows it ("matmul Q4_1" -> "q8"), but for
// attention's, which is the cache's.
std::vector<std::pair<std::string, std::string>> DescribeArithmetic(const LlamaConfig& config,
                                                                    const GgufFile& file);

}  // namespace longspec
