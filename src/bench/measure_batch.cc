// SPDX-License-Identifier: Apache-2.0
#include "bench/measure_batch.h"

#include <algorithm>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/median.h"
#include "base/status_macros.h"
#include "bench/loaded_model.h"
#include "bench/repeated.h"
#include "kv/full_cache.h"

namespace longspec {
namespace {

using Caches = std::vector<std::unique_ptr<FullCache>>;

class Batches {
 public:
  explicit Batches(LoadedModel model) : model_(std::move(model)) {}

  Result<BatchMeasurement> Measure(int n, int depth, int repetitions) {
    const auto pool = model_.target->NewPool(model_.layout, model_.spec.n_layer, {});
    Caches unrelated, one_document;
    for (int i = 0; i < n; ++i) {
      unrelated.push_back(MakeFullCache(pool, depth + 1));
      LS_TRY(CommitMadeUp(*unrelated.back(), model_.spec.n_layer, depth));
    }
    for (int i = 0; i < n; ++i) one_document.push_back(unrelated[0]->Fork());
    const auto shallow = MakeFullCache(pool, n + 1);
    LS_TRY(CommitMadeUp(*shallow, model_.spec.n_layer, 1));

    enum { kBatch, kOneDocument, kProducts, kEach, kOneRow, kCases };
    const auto step = [&](size_t which) -> Result<double> {
      switch (which) {
        case kBatch:
          return Step(unrelated);
        case kOneDocument:
          return Step(one_document);
        case kProducts:
          return Step(*shallow, n);
        case kOneRow:
          return Step(*shallow, 1);
        default:
          break;
      }
      double ms = 0;
      for (const auto& cache : unrelated) {
        LS_ASSIGN(const double one, Step(*cache, 1));
        ms += one;
      }
      return ms;
    };
    LS_ASSIGN(const std::vector<Times> times, InTurn(kCases, repetitions, step));
    std::vector<double> ratios;
    for (size_t i = 0; i < times[kBatch].ms.size(); ++i) {
      const double attention = times[kEach].ms[i] - n * times[kOneRow].median;
      ratios.push_back(times[kBatch].ms[i] / (times[kProducts].ms[i] + attention));
    }
    return BatchMeasurement{.sequences = n,
                            .depth = depth,
                            .ms = times[kBatch].median,
                            .products_ms = times[kProducts].median,
                            .attention_ms = times[kEach].median - n * times[kOneRow].median,
                            .times_parts = Median(ratios),
                            .one_document_ms = times[kOneDocument].median,
                            .times_one = times[kBatch].median / (times[kEach].median / n)};
  }

 private:
  // One row of each sequence, or several of one; nothing is kept.
  Result<double> Step(const Caches& caches) {
    std::vector<KvTransaction> rows;
    rows.reserve(caches.size());
    std::vector<ForwardSegment> segments;
    for (const auto& cache : caches) {
      LS_ASSIGN(KvTransaction row, cache->Begin(1));
      rows.push_back(std::move(row));
      segments.push_back({.tokens = {&kToken, 1}, .kv = &rows.back(), .logits = LogitsFor::kAllRows});
    }
    return Run(segments);
  }
  Result<double> Step(KvCache& cache, int n) {
    const std::vector<int32_t> tokens(static_cast<size_t>(n), kToken);
    LS_ASSIGN(KvTransaction rows, cache.Begin(n));
    const ForwardSegment segment = {.tokens = tokens, .kv = &rows, .logits = LogitsFor::kAllRows};
    return Run({&segment, 1});
  }
  Result<double> Run(std::span<const ForwardSegment> segments) {
    const double start = NowMs();
    LS_TRY(model_.target->Forward(segments).status());
    return NowMs() - start;
  }

  static constexpr int32_t kToken = 5;  // any does
  LoadedModel model_;
};

}  // namespace

Status MeasureBatches(const BatchBenchOptions& options,
                      const std::function<void(const BatchMeasurement&)>& on_measurement) {
  constexpr int kMostSequences = 512;
  for (const int n : options.sequences) {
    if (n < 1 || n > kMostSequences) {
      return InvalidArgument("--parallel " + std::to_string(n) + ": must be from 1 to " +
                             std::to_string(kMostSequences));
    }
  }
  if (options.sequences.empty() || options.depths.empty())
    return InvalidArgument("--parallel and --depth need at least one number");
  const int most = *std::max_element(options.sequences.begin(), options.sequences.end());
  LS_ASSIGN(const int positions, PositionsOf(options.depths, 1, most));
  LS_ASSIGN(LoadedModel model,
            LoadForBench(options.model, nullptr, std::max(options.model.batch_size, most), positions));
  Batches batches(std::move(model));
  for (const int depth : options.depths) {
    for (const int n : options.sequences) {
      LS_ASSIGN(const BatchMeasurement m, batches.Measure(n, depth, options.repetitions));
      on_measurement(m);
    }
  }
  return {};
}

}  // namespace longspec
