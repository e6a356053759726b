// SPDX-License-Identifier: Apache-2.0
#include "bench/measure.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "base/counter_rng.h"
#include "base/median.h"
#include "base/status_macros.h"
#include "bench/loaded_model.h"
#include "bench/measure_attention.h"
#include "bench/repeated.h"
#include "kernels/packing.h"
#include "network/model_tensors.h"
#include "sampling/sampler.h"

namespace longspec {
namespace {

class Bench {
 public:
  Bench(const BenchOptions& options, LoadedModel model, const MachineLimits& limits,
        const std::function<void(const Measurement&)>& on_measurement,
        const std::function<void(const SamplingCost&)>& on_sampling)
      : options_(options),
        model_(std::move(model)),
        limits_(limits),
        on_measurement_(on_measurement),
        on_sampling_(on_sampling) {}

  Status Run() {
    LS_ASSIGN(Sampler greedy,
              Sampler::Create({.temperature = 0, .seed = 0}, model_.target->vocab_size(), 0, model_.kernels));
    greedy_.emplace(std::move(greedy));
    std::vector<int> depths = options_.depths;
    std::sort(depths.begin(), depths.end());
    const int widest = *std::max_element(options_.rows.begin(), options_.rows.end());
    for (const int depth : depths) {
      // A cache of its own for each depth: the prefill timed is the whole prompt's.
      const auto cache = model_.NewCache(depth + widest);
      LS_TRY(options_.made_up_context ? CommitMadeUp(*cache, model_.spec.n_layer, depth)
                                      : MeasurePrefill(*cache, depth));
      LS_TRY(MeasureSteps(*cache, depth));
      if (depth == depths.front()) LS_TRY(MeasureSampling(*cache, depth));
    }
    for (const SamplingCost& cost : sampling_) on_sampling_(cost);
    return {};
  }

 private:
  // Any tokens do: time does not depend on which.
  std::vector<int32_t> Tokens(int n) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < n; ++i)
      tokens.push_back(static_cast<int32_t>(rng_.Uniform(draws_++) * model_.spec.n_vocab));
    return tokens;
  }

  // Runs n rows after the committed ones and keeps them or not.
  Status Forward(KvCache& cache, int n, LogitsFor logits, bool keep) {
    const std::vector<int32_t> tokens = Tokens(n);
    LS_ASSIGN(KvTransaction rows, cache.Begin(n));
    const ForwardSegment segment{.tokens = tokens, .parents = {}, .kv = &rows, .logits = logits};
    LS_ASSIGN(const TargetOutput output, model_.target->Forward({&segment, 1}));
    if (logits != LogitsFor::kNone) {
      for (int i = 0; i < output.segments[0].logits.size(); ++i) {
        sink_ +=
            output.segments[0].logits[i].Choose(*greedy_, {.committed = tokens, .drafted = {}}, scratch_);
      }
    }
    if (keep) rows.CommitAll();
    return {};
  }

  Status MeasurePrefill(KvCache& cache, int depth) {
    const double start = NowMs();
    for (int done = 0; done < depth; done += options_.model.batch_size) {
      LS_TRY(Forward(cache, std::min(options_.model.batch_size, depth - done), LogitsFor::kNone, true));
    }
    const double ms = NowMs() - start;
    // Each row sees those before it, half the depth on average; nobody asks for logits.
    Work work = WorkOf(depth, depth / 2, 0);
    work.bytes = 0;  // weights are read once a chunk, which is never the limit
    Report({.test = "prefill", .depth = depth, .rows = depth, .ms = ms}, work);
    return {};
  }

  // A count's cost in steps of one row is the median over rounds of times that lie side by side.
  Status MeasureSteps(KvCache& cache, int depth) {
    const std::vector<int>& rows = options_.rows;
    const auto one_row = static_cast<size_t>(std::find(rows.begin(), rows.end(), 1) - rows.begin());
    LS_ASSIGN(const std::vector<Times> times,
              InTurn(rows.size(), options_.repetitions, [&](size_t i) -> Result<double> {
                const double start = NowMs();
                LS_TRY(Forward(cache, rows[i], LogitsFor::kAllRows, false));
                return NowMs() - start;
              }));
    for (size_t i = 0; i < rows.size(); ++i) {
      std::vector<double> ratios;
      for (size_t round = 0; one_row < rows.size() && round < times[i].ms.size(); ++round) {
        ratios.push_back(times[i].ms[round] / times[one_row].ms[round]);
      }
      if (rows[i] == 1 && one_row_ms_ == 0) one_row_ms_ = times[i].median;
      Report({.test = rows[i] == 1 ? "decode" : "rows",
              .depth = depth,
              .rows = rows[i],
              .ms = times[i].median,
              .least_ms = times[i].least,
              .times_one_row = ratios.empty() ? 0 : Median(ratios)},
             WorkOf(rows[i], depth, rows[i]));
    }
    return {};
  }

  // Choices at many positions, the samplers in turn, from the logits of one row after the context.
  Status MeasureSampling(KvCache& cache, int depth) {
    if (options_.made_up_context || !on_sampling_) return {};
    constexpr uint64_t kChoices = 300, kWarmUp = 10;
    SamplingOptions filtered;
    filtered.temperature = 1;
    filtered.seed = 1;
    SamplingOptions unfiltered = filtered;
    unfiltered.top_k = 0;
    unfiltered.top_p = 1;
    unfiltered.min_p = 0;
    std::vector<Sampler> samplers;
    for (const SamplingOptions& sampling : {unfiltered, filtered}) {
      LS_ASSIGN(Sampler sampler, Sampler::Create(sampling, model_.target->vocab_size(), 0, model_.kernels));
      samplers.push_back(std::move(sampler));
    }
    const std::vector<int32_t> tokens = Tokens(1);
    LS_ASSIGN(KvTransaction row, cache.Begin(1));
    const ForwardSegment segment{.tokens = tokens, .parents = {}, .kv = &row, .logits = LogitsFor::kLastRow};
    LS_ASSIGN(const TargetOutput output, model_.target->Forward({&segment, 1}));
    const LogitRow logits = output.segments[0].logits[0];
    const std::vector<int32_t> text = Tokens(static_cast<int>(kWarmUp + kChoices));  // before the choices
    std::vector<std::vector<double>> us(samplers.size());
    for (uint64_t choice = 0; choice < kWarmUp + kChoices; ++choice) {
      for (size_t i = 0; i < samplers.size(); ++i) {
        const double start = NowMs();
        sink_ +=
            logits.Choose(samplers[i], {.committed = std::span(text).first(choice), .drafted = {}}, scratch_);
        if (choice >= kWarmUp) us[i].push_back(1e3 * (NowMs() - start));
      }
    }
    for (size_t i = 0; i < samplers.size(); ++i) {
      const double median = Median(us[i]);
      sampling_.push_back({.filters = i == 0 ? "none" : "default",
                           .vocab = output.vocab,
                           .depth = depth,
                           .us = median,
                           .share_of_step = one_row_ms_ > 0 ? 1e-3 * median / one_row_ms_ : 0});
    }
    return {};
  }

  void Report(Measurement m, const Work& work) {
    m.tokens_per_second = 1e3 * m.rows / m.ms;
    m.gb_per_second = work.bytes / m.ms * 1e-6;
    m.gmac_per_second = work.macs() / m.ms * 1e-6;
    m.roofline_share = LeastMs(work, limits_) / m.ms;
    on_measurement_(m);
  }

  // Of `rows` rows that see `keys` keys each, `n_logits` of which pass the LM head.
  Work WorkOf(int rows, int keys, int n_logits) const {
    const ModelSpec& spec = model_.spec;
    Work work;
    work.bytes = static_cast<double>(PlanModelMemory(spec, *model_.file, 1).weights) +
                 static_cast<double>(model_.layout.layer_bytes()) * spec.n_layer * keys / kKvChunk;
    for (const TensorSpec& tensor : ProductsOf(spec)) {
      const TensorView& t = TensorIn(*model_.file, tensor);
      const double macs =
          static_cast<double>(t.n_elements()) * (tensor.role == TensorRole::kHead ? n_logits : rows);
      work.Add(kernels::ArithmeticName(kernels::PackedFormat(t.dtype, spec.bf16_format)), macs);
    }
    work.AddAttention(model_.layout, 1.0 * rows * keys * spec.n_layer * spec.n_head * spec.head_dim);
    return work;
  }

  const BenchOptions& options_;
  LoadedModel model_;
  const MachineLimits limits_;
  const std::function<void(const Measurement&)>& on_measurement_;
  const std::function<void(const SamplingCost&)>& on_sampling_;
  std::vector<SamplingCost> sampling_;
  double one_row_ms_ = 0;  // a step of one row after the shortest context; 0: none is measured
  RngStream rng_{1, 0, RngPurpose::kTest};
  uint64_t draws_ = 0;
  std::optional<Sampler> greedy_;  // chooses after measured steps
  Sampler::Scratch scratch_;
  int64_t sink_ = 0;  // what was computed, so that it had to be
};

}  // namespace

Status RunBench(const BenchOptions& options, const std::function<void(const MachineLimits&)>& on_machine,
                const std::function<void(const Measurement&)>& on_measurement,
                const std::function<void(const SamplingCost&)>& on_sampling) {
  LS_TRY(PositionsOf(options.depths, 1, 1).status());
  for (const int rows : options.rows) {
    if (rows < 1 || rows > 512)
      return InvalidArgument("--rows " + std::to_string(rows) + ": must be from 1 to 512");
  }
  if (options.depths.empty() || options.rows.empty())
    return InvalidArgument("--depth and --rows need at least one number");
  if (options.repetitions < 1) return InvalidArgument("--repetitions must be at least 1");
  const int widest =
      std::max(options.model.batch_size, *std::max_element(options.rows.begin(), options.rows.end()));
  const int deepest = *std::max_element(options.depths.begin(), options.depths.end());
  LS_ASSIGN(LoadedModel model, LoadForBench(options.model, nullptr, widest, deepest + widest, options.file));
  LS_ASSIGN(const MachineLimits limits, MeasureMachine(*model.kernels, *model.team));
  on_machine(limits);
  if (options.attention_only) return MeasureAttention(options, model, limits, on_measurement);
  return Bench(options, std::move(model), limits, on_measurement, on_sampling).Run();
}

}  // namespace longspec
