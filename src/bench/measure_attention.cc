// SPDX-License-Identifier: Apache-2.0
#include "bench/measure_attention.h"

#include <algorithm>
#include <vector>

#include "base/status_macros.h"
#include "bench/repeated.h"

namespace longspec {
namespace {

// Each node has two children, as far as there are nodes.
std::vector<int32_t> BinaryTree(int n) {
  std::vector<int32_t> parents;
  for (int i = 0; i < n; ++i) parents.push_back(i == 0 ? -1 : (i - 1) / 2);
  return parents;
}

class Case {
 public:
  Case(Target& target, int rows, bool tree)
      : target_(target), tree_(tree), tokens_(static_cast<size_t>(rows)) {
    if (tree) parents_ = BinaryTree(rows);
  }

  int rows() const { return static_cast<int>(tokens_.size()); }
  const char* name() const { return tree_ ? "tree" : "attention"; }

  // Of all layers.
  Result<double> Ms(KvCache& cache) const {
    LS_ASSIGN(KvTransaction kv, cache.Begin(rows()));
    const ForwardSegment segment = {
        .tokens = tokens_, .parents = parents_, .kv = &kv, .logits = LogitsFor::kNone};
    return target_.AttentionMs({&segment, 1});
  }

 private:
  Target& target_;
  const bool tree_;
  const std::vector<int32_t> tokens_;  // any
  std::vector<int32_t> parents_;
};

// Every row sees the context, or what of it lies in a layer's window, and, of the others, a few.
Work WorkOf(const LoadedModel& model, int rows, int depth) {
  const ModelSpec& spec = model.spec;
  double keys = 0;  // of all layers
  for (int layer = 0; layer < spec.n_layer; ++layer) {
    const int window = spec.attention_of(layer).window;
    keys += window > 0 ? std::min(depth, window) : depth;
  }
  Work work = {.bytes = static_cast<double>(model.layout.layer_bytes()) * keys / kKvChunk};
  work.AddAttention(model.layout, 1.0 * rows * keys * spec.n_head * spec.head_dim);
  return work;
}

}  // namespace

Status MeasureAttention(const BenchOptions& options, LoadedModel& model, const MachineLimits& limits,
                        const std::function<void(const Measurement&)>& on_measurement) {
  const int widest = *std::max_element(options.rows.begin(), options.rows.end());
  std::vector<int> depths = options.depths;
  std::sort(depths.begin(), depths.end());
  for (const int depth : depths) {
    const auto cache = model.NewCache(depth + widest);
    // All that a step may read has been written before: speculated keys and values too.
    LS_TRY(CommitMadeUp(*cache, model.spec.n_layer, depth + widest));
    cache->Truncate(depth);
    std::vector<Case> cases;
    for (const int rows : options.rows) {
      cases.emplace_back(*model.target, rows, false);
      if (rows > 1) cases.emplace_back(*model.target, rows, true);
    }
    LS_ASSIGN(const std::vector<Times> times,
              InTurn(cases.size(), options.repetitions, [&](size_t i) { return cases[i].Ms(*cache); }));
    for (size_t i = 0; i < cases.size(); ++i) {
      const int rows = cases[i].rows();
      const Work work = WorkOf(model, rows, depth);
      const double ms = times[i].median;
      on_measurement({.test = cases[i].name(),
                      .depth = depth,
                      .rows = rows,
                      .ms = ms,
                      .least_ms = times[i].least,
                      .tokens_per_second = 1e3 * rows / ms,
                      .gb_per_second = work.bytes / ms * 1e-6,
                      .gmac_per_second = work.macs() / ms * 1e-6,
                      .roofline_share = LeastMs(work, limits) / ms});
    }
  }
  return {};
}

}  // namespace longspec
