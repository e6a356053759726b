// SPDX-License-Identifier: Apache-2.0
//
// Where the passes of draft models run: what they work in, and the operations that they are composed of. A
// draft's file knows no threads, no kernels and no packed matrices; those are here and, for its weights, in
// draft_weights.h.
//
// This lane is the CPU's: the target's kernels and threads, which are free between its passes. One on a card
// is a second implementation of what is marked [lane], and of DraftMatrix with what loads it. Rows that are
// filled before a pass and read after it are there copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/attention.h"
#include "base/aligned_buffer.h"
#include "base/thread_team.h"
#include "draft_model/draft_block.h"
#include "draft_model/draft_weights.h"
#include "kv/rotary.h"
#include "model/block.h"
#include "model/shared_parts.h"
#include "model/transformer.h"
#include "network/rope.h"
#include "sampling/logit_rows.h"
#include "sampling/top_tokens.h"

namespace longspec {

class DraftLane;

// A pass while it runs: its operations, in their order. Each sees all that those before it have written.
// Inputs and outputs that are not the lane's own are in host memory, (n_rows, ...).
class DraftPass {
 public:
  // What products are of: rows made ready to be multiplied. Valid until the next ones are made.
  using Input = AttentionInput;

  // Rows of `width` values as they are. [lane]
  Input Of(const float* x, int width);
  // Norms of rows of n_embd values, or these as they are where `norm` is empty. [lane]
  Input Norm(const float* x, std::span<const float> norm);
  // [norm(a); norm(x)] of each row, which goes to `joined`, (n_rows, 2 * n_embd). `a`: (n_rows, n_embd).
  // x = norm(x) if `x_too`. [lane]
  Input NormBoth(const float* a, std::span<const float> norm_a, float* x, std::span<const float> norm_x,
                 bool x_too, float* joined);
  // x = norm(x), of rows as wide as the norm; no norm: nothing is done. [lane]
  void NormInPlace(float* x, std::span<const float> norm);

  // y = W input, or y += W input. `y`: (n_rows, n_out). [lane]
  void Multiply(const DraftMatrix& w, const Input& input, float* y, bool add = false);
  // x += silu(y). `x`, `y`: (n_rows, n_embd). REQUIRES: the lane's rows of an MLP are as wide. [lane]
  void AddSilu(const float* y, float* x);

  // To the lane's x. Its keys and values are stored where the rows' places say. [lane]
  void AddAttention(const Input& input, const DraftAttention& w, std::span<const RowPlace> places,
                    Attention& attention);
  // The same of queries alone: keys and values are there. [lane]
  void AddCrossAttention(const Input& input, const DraftAttention& w, std::span<const RowPlace> places,
                         Attention& attention);
  // x += mlp(norm(x)). [lane]
  void AddMlp(const DraftMlp& w, std::span<const float> norm);

  // The last operation of a pass is one of these.
  // Rows that are only to be seen by others: their keys and values. [lane]
  void StoreKeys(const Input& input, const DraftAttention& w, std::span<const RowPlace> places);
  // The head: next[r] are the k most probable tokens after row r. [lane]
  void Top(const Input& input, const DraftHead& head, int k, std::span<std::vector<TokenScore>> next);

 private:
  friend DraftLane;
  DraftPass(DraftLane& lane, ThreadTeam::Worker& worker, int n_rows)
      : lane_(lane), worker_(worker), n_rows_(n_rows) {}

  DraftLane& lane_;
  ThreadTeam::Worker& worker_;
  const int n_rows_;
};

// What passes of a model need room for.
struct LaneSize {
  BlockShape shape;
  int max_rows = 0;
  int64_t n_logits = 0;         // of a row, at most; 0: there is no head
  std::vector<int> extra = {};  // widths of rows besides those of a block
  struct Attending {
    AttentionShape shape;
    size_t state_bytes = 0;  // of partial states, whatever the context; 0: as many as a pass needs
  };
  std::vector<Attending> attentions = {};
};

// One for all sequences that draft with a model, as one pass runs at a time. What a pass leaves in it is
// there until the next one. One thread; the target's threads must be free.
class DraftLane {
 public:
  // `matrices`: all that its passes multiply. Throws std::bad_alloc.
  DraftLane(const SharedParts& target, const LaneSize& size, const std::vector<const DraftMatrix*>& matrices);
  // What bytes() will be at most, whatever the types of the matrices: with one thread.
  static size_t Bytes(const LaneSize& size);
  size_t bytes() const;

  // --- Rows, (max_rows, ...). Before a pass who runs it fills what its operations read.

  // What the target's embedding holds of a token, (n_embd), not scaled. kInvalidArgument if it has no such
  // token.
  Status Embed(int32_t token, float* row) const { return target_.Embed(token, row); }
  float* x(int row = 0) { return work_.x.as<float>() + At(row, work_.shape.n_embd); }  // (n_embd)
  float* hidden() { return work_.gate.as<float>(); }                                   // (n_ff), until AddMlp
  float* extra(int i) { return extra_[static_cast<size_t>(i)].as<float>(); }
  void SetAngles(int row, const RopeTable& rope, int position) { rope.Row(position, work_.Angles(0, row)); }
  // Planned before a pass that runs it.
  Attention& attention(int i = 0) { return *attentions_[static_cast<size_t>(i)]; }
  // What the last norm made of a row, (n_embd).
  const float* normed(int row) const { return work_.normed.as<float>() + At(row, work_.shape.n_embd); }
  // For tests: of the last pass with a head, (n_rows, its n_out).
  const float* logits() const { return logits_.as<float>(); }

  // Runs a pass. `body` calls its operations and does nothing else: every thread calls it. [lane]
  template <typename Body>
  void Run(int n_rows, const Body& body) {
    target_.lane.team->Run([&](ThreadTeam::Worker& worker) {
      DraftPass pass(*this, worker, n_rows);
      body(pass);
    });
  }

 private:
  friend DraftPass;
  static size_t At(int row, int width) { return static_cast<size_t>(row) * static_cast<size_t>(width); }

  const SharedParts target_;
  Workspace work_;
  AlignedBuffer logits_;
  std::vector<AlignedBuffer> extra_;
  std::vector<std::unique_ptr<AttentionPlan>> attentions_;
};

// The k most probable of the first n tokens after a row of a whole model's pass, which `names` names
// (TopTokens). [lane]
void TopOfRow(const SharedParts& target, const LogitRow& row, int n, int k, std::span<const int32_t> names,
              std::vector<TokenScore>& out);

// A whole model that runs where the target's drafts do, which outlives it. `spec` came from the file. [lane]
Result<std::unique_ptr<Target>> LoadInLane(const SharedParts& target, std::shared_ptr<const GgufFile> file,
                                           const ModelSpec& spec, const ModelLoadOptions& options);

// How keys of a model that rotates like this are turned. [lane]
Rotary RotaryOf(const RopeConfig& config, const SharedParts& target);

}  // namespace longspec
