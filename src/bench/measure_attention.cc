// SPDX-License-Identifier: Apache-2.0
#include "bench/measure_attention.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "attention/attention.h"
#include "attention/tree_rows.h"
#include "base/clock.h"
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
  Case(const LoadedModel& model, int rows, bool tree) : model_(model), rows_(rows), tree_(tree) {
    const AttentionShape shape = model.spec.attention();
    plan_ = std::make_unique<AttentionPlan>(model.kernels, shape, model.team->size());
    parents_ = tree ? BinaryTree(rows) : std::vector<int32_t>();
    q_.resize(static_cast<size_t>(rows) * static_cast<size_t>(shape.n_head) *
              static_cast<size_t>(shape.head_dim));
    for (size_t i = 0; i < q_.size(); ++i)
      q_[i] = 0.01F * static_cast<float>(static_cast<int>(i * 37 % 101) - 50);
    out_.resize(q_.size());
  }

  int rows() const { return rows_; }
  const char* name() const { return tree_ ? "tree" : "attention"; }

  // Of all layers.
  Result<double> Ms(KvCache& cache) {
    LS_ASSIGN(const KvTransaction rows, cache.Begin(rows_));
    TreeRows seen;
    seen.Add(cache.Span(0), rows.slot(), rows_, parents_);
    plan_->Plan(seen.Segments());
    const double start = NowMs();
    model_.team->Run([&](ThreadTeam::Worker& worker) {
      for (int layer = 0; layer < model_.spec.n_layer; ++layer) {
        plan_->Run(worker, layer, q_.data(), out_.data());
        worker.Barrier();
      }
    });
    return NowMs() - start;
  }

 private:
  const LoadedModel& model_;
  const int rows_;
  const bool tree_;
  std::unique_ptr<AttentionPlan> plan_;
  std::vector<int32_t> parents_;
  std::vector<float> q_, out_;
};

// Every row sees the context and, of the others, a few.
Work WorkOf(const LoadedModel& model, int rows, int depth) {
  const ModelSpec& spec = model.spec;
  Work work = {.bytes = static_cast<double>(model.layout.layer_bytes()) * spec.n_layer * depth / kKvChunk};
  work.AddAttention(model.layout, 1.0 * rows * depth * spec.n_layer * spec.n_head * spec.head_dim);
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
      cases.emplace_back(model, rows, false);
      if (rows > 1) cases.emplace_back(model, rows, true);
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
