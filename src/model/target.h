// SPDX-License-Identifier: Apache-2.0
//
// The target model as decoding sees it: rows of tokens in, rows of logits out. It never hears of drafting;
// what a drafter needs of it is asked for as taps. Row results do not depend on which other rows are in the
// call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kv/chunk_pool.h"
#include "kv/kv_cache.h"
#include "longspec/status.h"
#include "model/layer_prefix.h"
#include "sampling/logit_rows.h"
#include "tensor/state_rows.h"

namespace longspec {

// Hidden states a caller wants besides logits.
struct Taps {
  std::vector<int> hidden_layers;  // outputs of these layers (residual stream), 0-based
  bool final_hidden = false;       // after the final norm, what the LM head sees
  int query_rows = 0;              // rotated queries, of all layers, of the segment's last so many rows
  bool logits = false;             // of all rows, where a round would ask for fewer
  bool empty() const { return hidden_layers.empty() && !final_hidden && query_rows == 0; }
};

enum class LogitsFor : uint8_t { kNone, kLastRow, kAllRows };

// The rows of one sequence. Row i has position kv->base() + depth(i).
struct ForwardSegment {
  std::span<const int32_t> tokens;  // (n_rows)
  // (n_rows) index of each row's parent row, -1 for row 0; empty: a chain, row i's parent is i - 1.
  // A row sees the committed positions, then its ancestors in depth order, then itself.
  std::span<const int32_t> parents;
  KvTransaction* kv = nullptr;  // n_rows() == tokens.size()
  LogitsFor logits = LogitsFor::kAllRows;
  int first_logits = 0;        // of kAllRows: rows before this one get none
  const Taps* taps = nullptr;  // null: none; borrowed until Forward returns
  // Rows that were run through the first layers ahead. A row that is found among them, by position and
  // tokens, goes on from there. They must have been run over what the cache holds now. They are not used
  // where a layer before their last one is tapped. Null: no rows were run.
  const LayerPrefix* prefix = nullptr;
};

// Views into the target's own buffers, wherever they lie: valid until its next Forward.
struct TargetOutput {
  struct Segment {
    LogitRows logits;               // of the segment's last rows, as many as were asked for
    std::vector<StateRows> hidden;  // per Taps::hidden_layers: (n_rows, width)
    StateRows final_hidden;         // (n_rows, width); empty: not asked for
    // Per layer, if Taps::query_rows > 0: (n_query_rows(), n_head * head_dim), of the segment's last rows.
    std::vector<StateRows> queries;

    int n_query_rows() const { return queries.empty() ? 0 : queries.front().size(); }
  };
  std::vector<Segment> segments;
  int vocab = 0;
};

struct SharedParts;

// Rows of one sequence to add to a prefix of it: these tokens below its rows `parents` (n; -1: right after
// the committed positions of `cache`, which is read and not changed).
struct PrefixSegment {
  const KvCache* cache = nullptr;
  std::span<const int32_t> tokens;
  std::span<const int32_t> parents;
  LayerPrefix* prefix = nullptr;
};

class Target {
 public:
  virtual ~Target() = default;
  virtual int vocab_size() const = 0;
  virtual int context_length() const = 0;  // positions it was trained for, RoPE scaling applied
  // For drafts that use the target's own matrices; null if it has none to share.
  virtual const SharedParts* shared_parts() const { return nullptr; }

  // Chunks where it computes, for caches of its sequences and of parts of them: their memory, and who moves
  // what lies there. In host memory, unless it says otherwise.
  virtual std::shared_ptr<ChunkPool> NewPool(const KvLayout& layout, int n_layer,
                                             const KvOffload& offload) const;
  // For RunPrefix through the first `n_layers` layers, beside caches of this layout. REQUIRES: it has parts
  // to share.
  virtual std::unique_ptr<LayerPrefix> NewPrefix(const KvLayout& layout, int n_layers) const;

  // How much a query looks at each position that the cache holds in this layer (attention/attention_mass.h).
  // `query`: one row of those that a pass gave of the layer. REQUIRES: it has parts to share.
  virtual void AttentionMass(const KvCache& cache, int layer, const StateRows& query,
                             std::vector<float>* mass) const;

  // Milliseconds that attention alone takes in a pass over these rows, in all layers, for who measures.
  // Queries are made up; of keys and values the caches' and those that the transactions' slots hold already
  // are read, and none is written.
  virtual Result<double> AttentionMs(std::span<const ForwardSegment> segments) {
    (void)segments;
    return Unsupported("this target does not measure its attention alone");
  }

  // Writes the rows' keys and values into each segment's transaction; committing is the caller's.
  virtual Result<TargetOutput> Forward(std::span<const ForwardSegment> segments) = 0;

  // Adds rows to prefixes of several sequences, all equally deep, run through their layers. An error leaves
  // the prefixes as they were. REQUIRES: of each, prefix->base() == cache->length(), no transaction is open,
  // parents are earlier rows, prefix->n_layers() is not more than the target has.
  virtual Status RunPrefix(std::span<const PrefixSegment> segments) {
    (void)segments;
    return Unsupported("this target has no first layers that could be run apart");
  }
};

}  // namespace longspec
