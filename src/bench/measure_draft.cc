// SPDX-License-Identifier: Apache-2.0
#include "bench/measure_draft.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/counter_rng.h"
#include "base/median.h"
#include "base/status_macros.h"
#include "bench/loaded_model.h"
#include "bench/repeated.h"
#include "decode/decoder.h"
#include "decode/policy.h"
#include "draft/draft_models.h"
#include "draft/registry.h"
#include "sampling/sampler.h"

namespace longspec {
namespace {

constexpr int kMostLevels = 4;
constexpr int kWidths[] = {1, 8};
constexpr int kRoom = 64;  // positions behind the context

// Proposals of up to kMostLevels levels for one text, a plain step beside each.
class DraftBench {
 public:
  DraftBench(const DraftBenchOptions& options, LoadedModel model)
      : options_(options), model_(std::move(model)) {}

  Status Measure(int depth, int width, const std::function<void(const DraftMeasurement&)>& on_measurement) {
    SpeculationOptions speculation = options_.speculation;
    speculation.tree = width == 1 ? "chain" : std::to_string(width);
    const auto cache = model_.NewCache(depth + kRoom);
    LS_ASSIGN(const auto drafter,
              MakeDrafter(speculation,
                          {.target = model_.target.get(), .cache = cache.get(), .models = &draft_models_}));
    std::vector<int32_t> text = Text(depth);
    LS_TRY(Read(speculation, *cache, *drafter, text));
    const auto propose = [&](size_t which) -> Result<double> {
      if (which == 0) return PlainStep(*cache);
      const int levels = static_cast<int>(which);
      TokenTree tree(text.back());
      LS_TRY(PlainStep(*cache).status());  // which leaves nothing of the draft's weights in the caches
      const double start = NowMs();
      LS_TRY(drafter->Propose({.max_nodes = levels * width, .max_depth = levels}, text, tree));
      const double ms = NowMs() - start;
      if (tree.size() == 1) {
        return InvalidArgument(options_.speculation.draft_model + ": proposes nothing after " +
                               std::to_string(depth) + " tokens" +
                               (drafter->notice().empty() ? "" : ": " + drafter->notice()));
      }
      deepest_ = std::max(deepest_, tree.max_depth());
      return ms;
    };
    deepest_ = 0;
    LS_ASSIGN(const std::vector<Times> times, InTurn(1 + kMostLevels, options_.repetitions, propose));
    for (int levels = 1; levels <= std::min(kMostLevels, deepest_); ++levels) {
      const auto at = static_cast<size_t>(levels);
      std::vector<double> all, added;
      for (size_t round = 0; round < times[0].ms.size(); ++round) {
        all.push_back(times[at].ms[round] / times[0].ms[round]);
        const double before = levels > 1 ? times[at - 1].ms[round] : 0;
        added.push_back((times[at].ms[round] - before) / times[0].ms[round]);
      }
      on_measurement({.draft = std::string(drafter->name()),
                      .depth = depth,
                      .width = width,
                      .levels = levels,
                      .ms = times[at].median,
                      .of_plain_step = Median(all),
                      .level_of_plain_step = Median(added)});
    }
    return {};
  }

  Status Prepare() {
    LS_ASSIGN(tokens_, model_.file->GetStrings("tokenizer.ggml.tokens"));
    draft_models_.SetVocabulary(&tokens_);
    return {};
  }

 private:
  // Any tokens do: time does not depend on which.
  std::vector<int32_t> Text(int n) const {
    const RngStream rng = {.seed = 1, .sequence = 0, .purpose = RngPurpose::kTest};
    std::vector<int32_t> text;
    for (int i = 0; i < n; ++i) {
      text.push_back(
          static_cast<int32_t>(rng.Uniform(static_cast<uint64_t>(i)) * model_.target->vocab_size()));
    }
    return text;
  }

  // As a prompt, and one round, after which a drafter has read all it will have read when it is asked.
  Status Read(const SpeculationOptions& speculation, KvCache& cache, Drafter& drafter,
              std::vector<int32_t>& text) {
    LS_ASSIGN(const Sampler sampler,
              Sampler::Create({.temperature = 0, .seed = 1}, model_.target->vocab_size(), 0, model_.kernels));
    const auto policy = MakeFixedPolicy(speculation);
    Decoder decoder({.target = model_.target.get(),
                     .cache = &cache,
                     .drafter = &drafter,
                     .policy = policy.get(),
                     .sampler = &sampler,
                     .prefill_chunk = options_.model.batch_size},
                    &text);
    LS_TRY(decoder.Prefill());
    return decoder.Step(1, {}).status();
  }

  Result<double> PlainStep(KvCache& cache) {
    constexpr int32_t kToken = 5;  // any does
    const double start = NowMs();
    LS_ASSIGN(KvTransaction row, cache.Begin(1));
    const ForwardSegment segment{
        .tokens = {&kToken, 1}, .parents = {}, .kv = &row, .logits = LogitsFor::kAllRows};
    LS_TRY(model_.target->Forward({&segment, 1}).status());
    return NowMs() - start;
  }

  const DraftBenchOptions& options_;
  LoadedModel model_;
  std::vector<std::string> tokens_;  // the target's
  DraftModels draft_models_;
  int deepest_ = 0;  // level that was proposed
};

}  // namespace

Status MeasureDraft(const DraftBenchOptions& options,
                    const std::function<void(const DraftMeasurement&)>& on_measurement) {
  DraftBenchOptions named = options;
  DraftFiles files;
  LS_ASSIGN(const std::string architecture, files.Architecture(options.speculation.draft_model));
  const DrafterEntry* const reader = FindReader(architecture);
  if (reader == nullptr) {
    return Unsupported(options.speculation.draft_model + ": no drafter reads architecture " + architecture);
  }
  named.speculation.type = reader->name;
  LS_TRY(CheckDrafter(named.speculation));
  if (options.depths.empty() || *std::min_element(options.depths.begin(), options.depths.end()) < 2)
    return InvalidArgument("--depth: a draft needs at least 2 tokens before it");
  const int deepest = *std::max_element(options.depths.begin(), options.depths.end());
  LS_ASSIGN(LoadedModel model,
            LoadForBench(options.model, nullptr, options.model.batch_size, deepest + kRoom));
  DraftBench bench(named, std::move(model));
  LS_TRY(bench.Prepare());
  for (const int depth : options.depths) {
    for (const int width : kWidths) LS_TRY(bench.Measure(depth, width, on_measurement));
  }
  return {};
}

}  // namespace longspec
