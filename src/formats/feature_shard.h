// SPDX-License-Identifier: Apache-2.0
//
// Feature shards: what draft models are trained on. A shard is a safetensors file of some sequences of tokens
// and what the target computed for them, as far as the draft's kind asks for it; `longspec features` writes
// it and longspec-train reads it, so the layout is checkpoint layout (rotary halves split) and free of either
// program.
//
//   tokens (n) I32, loss (n) I8, positions (n) I32   n: tokens of all sequences, one after the other
//   sequence_ends (n_sequences) I64                  ascending, the last one is n
//   top_ids (n, top_k) I32, top_log_probs (n, top_k) F16   only if top_k > 0: of the token that follows
//
// and of FeatureKeep, F16 or BF16:
//
//   keys, values (n, n_kv_head * head_dim)           of the last layer, keys after RoPE at `positions`
//   final_hidden (n, n_embd)                         after the final norm: what the LM head sees
//   hidden.L (n, n_embd)                             the residual stream after layer L
//
// The metadata key "longspec.features" holds FeatureHeader as JSON. An open shard is immutable and may be
// shared between threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "longspec/status.h"

namespace longspec {

// What a draft model must know of its target.
struct FeatureTarget {
  std::string name;
  std::string fingerprint;  // TargetFingerprint of its file
  int n_embd = 0, n_head = 0, n_head_kv = 0, head_dim = 0, n_ff = 0, n_vocab = 0, n_ctx = 0;
  double rms_eps = 0.0;
  double rope_base = 0.0, rope_factor = 1.0;
  std::string rope_scaling;  // as config.json of a draft names it: "none", "linear", "yarn", "llama3"
  std::vector<double> rope_frequencies;  // radians a position, scaling applied; rotated values / 2 of them
  double rope_magnitude = 1.0;           // factor on cosines and sines

  bool operator==(const FeatureTarget&) const = default;
};

// What is kept of each row besides its token.
struct FeatureKeep {
  bool kv = true;
  bool final_hidden = false;
  std::vector<int> hidden_layers;  // whose output is kept, 0-based, ascending
  DType type = DType::kF16;        // or kBF16

  bool any() const { return kv || final_hidden || !hidden_layers.empty(); }
  bool operator==(const FeatureKeep&) const = default;
};
// "kv,final,hidden:4": any of "kv", "final" and "hidden:L", in any order, each once; or "none".
Result<FeatureKeep> ParseFeatureKeep(const std::string& list, DType type);
std::string FormatFeatureKeep(const FeatureKeep& keep);  // without the type

// What FeatureKeep names, of some rows; what was not asked for is empty. Numbers: 16 bits of
// FeatureKeep::type each, as a vector or a span.
template <typename Numbers>
struct FeatureTensors {
  Numbers keys, values;         // (n, n_head_kv * head_dim)
  Numbers final_hidden;         // (n, n_embd)
  std::vector<Numbers> hidden;  // by FeatureKeep::hidden_layers: (n, n_embd)
};

struct FeatureHeader {
  FeatureTarget target;
  FeatureKeep keep;
  std::string source;  // describes the texts and how they were cut; shards of one run agree
  int top_k = 0;
  int64_t next_document = 0, next_piece = 0;  // where the run goes on after this shard
  bool last = false;                          // nothing is left after this shard
};

struct FeatureSequence {
  std::span<const int32_t> tokens, positions;  // (n)
  std::span<const int8_t> loss;                // (n) 1: the draft learns to predict this token
  FeatureTensors<std::span<const uint16_t>> kept;
  std::span<const int32_t> top_ids;         // (n, top_k), most probable first
  std::span<const uint16_t> top_log_probs;  // (n, top_k) f16
};

// Of a shard's file, for each token.
int64_t FeatureBytesPerToken(const FeatureTarget& target, const FeatureKeep& keep, int top_k);

class FeatureShardWriter {
 public:
  // REQUIRES: the parts of `sequence` have the sizes that the header asks for.
  void Add(const FeatureHeader& header, const FeatureSequence& sequence);
  int64_t n_tokens() const { return ends_.empty() ? 0 : ends_.back(); }
  // Writes what was added, through a temporary file, and forgets it.
  Status Write(const FeatureHeader& header, const std::string& path);

 private:
  // Each takes what it needs: of vectors that grow a part stands empty, and growing one copies it.
  struct Owned {
    std::vector<int32_t> tokens, positions, top_ids;
    std::vector<int8_t> loss;
    FeatureTensors<std::vector<uint16_t>> kept;
    std::vector<uint16_t> top_log_probs;
  };

  std::vector<Owned> sequences_;
  std::vector<int64_t> ends_;
};

class FeatureShard {
 public:
  // Checks every shape, and that tokens are of the vocabulary.
  static Result<std::shared_ptr<const FeatureShard>> Open(const std::string& path);

  const std::string& path() const { return file_->path(); }
  const FeatureHeader& header() const { return header_; }
  int n_sequences() const { return static_cast<int>(ends_.size()); }
  int64_t n_tokens() const { return static_cast<int64_t>(all_.tokens.size()); }
  FeatureSequence sequence(int i) const;

 private:
  Status Read();

  std::shared_ptr<const SafetensorsFile> file_;
  FeatureHeader header_;
  FeatureSequence all_;
  std::span<const int64_t> ends_;
};

// "features-00012.safetensors" in that folder.
std::string FeatureShardPath(const std::string& folder, int index);
// All shards of a folder in order. kNotFound if there is none; shards of different runs are refused.
Result<std::vector<std::shared_ptr<const FeatureShard>>> OpenFeatureShards(const std::string& folder);

// 16 hexadecimal digits that tell models apart: of every tensor its name, type, shape and some of its bytes.
std::string TargetFingerprint(const GgufFile& file);

}  // namespace longspec
