// SPDX-License-Identifier: Apache-2.0
//
// What a transformer block is made of: a workspace of activations and the operations on it, in any
// arithmetic. The target, and every draft model, is a composition of these. All functions are called by every
// worker of a team, with equal arguments; each says where it has barriers. Row results do not depend on the
// rows beside them.
#pragma once

#include <cstddef>
#include <span>

#include "attention/attention.h"
#include "attention/kv_span.h"
#include "base/aligned_buffer.h"
#include "base/thread_team.h"
#include "kernels/ops.h"
#include "model/linear.h"
#include "network/model_spec.h"

namespace longspec {

struct BlockShape {
  int n_embd = 0, n_head = 0, n_head_kv = 0, head_dim = 0, n_ff = 0;
  int n_rot = 0;        // rotated values of a head
  int n_rotations = 1;  // kinds of layers whose angles differ
  float rms_eps = 1e-5F;
  kernels::RopePairing pairing = kernels::RopePairing::kAdjacent;
  int n_other = 0;  // the widest input of a product besides those of the block itself

  int q_width() const { return n_head * head_dim; }
  int kv_width() const { return n_head_kv * head_dim; }
  int widest_input() const;
};
// A block as the layers of a model are.
BlockShape BlockOf(const ModelSizes& sizes);

// Which forms of its activations the weights of a model multiply besides f32.
struct InputForms {
  bool q8 = false, q8k = false, bf16 = false;
  void Add(const kernels::PackedMatrix& w);
  // Bytes of one row's forms besides f32.
  size_t RowBytes(int width) const;
};
inline constexpr InputForms kAllInputForms = {.q8 = true, .q8k = true, .bf16 = true};

// Activations of up to max_rows rows. Throws std::bad_alloc.
struct Workspace {
  Workspace(const BlockShape& of_shape, const kernels::KernelTable* table, int most_rows,
            InputForms input_forms);

  static size_t RowBytes(const BlockShape& of_shape, InputForms input_forms);
  size_t bytes() const;

  Activations Input(const float* of, int width) const;
  // The angles of a row in layers of this rotation: (n_rot / 2, 2).
  float* Angles(int rotation, int row);

  BlockShape shape;
  int max_rows;
  const kernels::KernelTable* kernels;
  InputForms forms;
  AlignedBuffer x;                    // (n_rows, n_embd): the residual stream
  AlignedBuffer normed;               // (n_rows, n_embd)
  AlignedBuffer q;                    // (n_rows, n_head * head_dim)
  AlignedBuffer q_by_head;            // (n_head_kv, n_rows, group, head_dim), rows by AttentionPlan::Place
  AlignedBuffer attended;             // (n_rows, n_head * head_dim)
  AlignedBuffer k, v;                 // (n_rows, n_head_kv * head_dim)
  AlignedBuffer gate, up, activated;  // (n_rows, n_ff)
  AlignedBuffer cos_sin;              // (n_rotations, max_rows, n_rot / 2, 2)
  AlignedBuffer q8, q8k, bf16;        // the input of the product that comes, as forms say
};

// One row: where its query lies for attention, and where its key and value go.
struct RowPlace {
  int query = 0;                 // AttentionPlan::Place
  const KvWriter* to = nullptr;  // of layer 0; null where nothing is stored
  int slot = 0;
};

// Views of a block's weights. Biases, and norms of heads and branches, are empty where there are none.
struct AttentionWeights {
  std::span<const float> norm;  // (n_embd), of the input
  const kernels::PackedMatrix* q = nullptr;
  const kernels::PackedMatrix* k = nullptr;  // null in cross-attention, as is v
  const kernels::PackedMatrix* v = nullptr;
  const kernels::PackedMatrix* output = nullptr;
  std::span<const float> q_bias, k_bias, v_bias;  // (n_head * head_dim), (n_head_kv * head_dim) twice
  std::span<const float> q_norm, k_norm;          // (head_dim), before rotation
  std::span<const float> branch_norm;             // (n_embd), of what is added to x
  int rotation = 0;
};

struct MlpWeights {
  std::span<const float> norm;  // (n_embd), of the input
  const kernels::PackedMatrix* gate = nullptr;
  const kernels::PackedMatrix* up = nullptr;
  const kernels::PackedMatrix* down = nullptr;
  std::span<const float> branch_norm;  // (n_embd), of what is added to x
  GateFunction function = GateFunction::kSilu;
};

// normed = rms_norm(x) * w, converted for the product that comes. `x`: (n_rows, n_embd). No barrier.
void Normalise(const ThreadTeam::Worker& worker, Workspace& ws, const float* x, std::span<const float> w,
               int n_rows);
// x converted for the product that comes. `x`: (n_rows, width). No barrier.
void Convert(const ThreadTeam::Worker& worker, Workspace& ws, const float* x, int width, int n_rows);
// Row `row` of x alone, converted by the worker that made it. `x`: (n_rows, width). No barrier.
void ConvertRow(Workspace& ws, const float* x, int width, int row);
// Products of one input, whose conversion is whole. `x`: (n_rows, width). No barrier.
void Project(ThreadTeam::Worker& worker, const Workspace& ws, std::span<const LinearJob> jobs, const float* x,
             int width, int n_rows);

// What queries, keys and values are products of where that is not norm(x). Whole and converted.
struct AttentionInput {
  const float* x = nullptr;  // (n_rows, width)
  int width = 0;
};

// Keys and values of normed x, rotated and stored: all a row needs that is only to be seen by others.
// REQUIRES: ws.x and the angles are whole. Barriers inside, none at the end.
void StoreKeys(ThreadTeam::Worker& worker, Workspace& ws, const AttentionWeights& w,
               std::span<const RowPlace> rows, int layer);
// The same from `input`, after a barrier.
void StoreKeysOf(ThreadTeam::Worker& worker, Workspace& ws, const AttentionInput& input,
                 const AttentionWeights& w, std::span<const RowPlace> rows, int layer);

// x += branch_norm(output(attention(norm(x)))); stores the rows' keys and values if w has them. REQUIRES: x
// and the angles are whole. Ends with a barrier.
void AddAttention(ThreadTeam::Worker& worker, Workspace& ws, const AttentionWeights& w,
                  std::span<const RowPlace> rows, int layer, Attention& attention);
// x += branch_norm(output(attention(input))), after a barrier.
void AddAttentionOf(ThreadTeam::Worker& worker, Workspace& ws, const AttentionInput& input,
                    const AttentionWeights& w, std::span<const RowPlace> rows, int layer,
                    Attention& attention);

// x += branch_norm(down(function(gate(norm(x))) * up(norm(x)))). REQUIRES: x is whole. Ends with a barrier.
void AddMlp(ThreadTeam::Worker& worker, Workspace& ws, const MlpWeights& w, int n_rows);

}  // namespace longspec
