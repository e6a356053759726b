// SPDX-License-Identifier: Apache-2.0
#include "bench/measure_draft.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <utility>

#include "base/clock.h"
#include "base/counter_rng.h"
#include "base/median.h"
#include "base/status_macros.h"
#include "bench/loaded_model.h"
#include "bench/repeated.h"
#include "decode/batch_decoder.h"
#include "decode/owned_sequence.h"
#include "draft/pass_meeting.h"
#include "draft_model/draft_models.h"
#include "draft_model/registry.h"
#include "policy/policy.h"
#include "sampling/sampler.h"

namespace longspec {
namespace {

constexpr int kMostLevels = 4;
constexpr int kWidths[] = {1, 8};
constexpr int kRoom = 64;  // positions behind the context
constexpr int kMostSequences = 64;

// Proposals of up to kMostLevels levels, a plain step of one sequence beside them.
class DraftBench {
 public:
  DraftBench(const DraftBenchOptions& options, LoadedModel model)
      : options_(options), model_(std::move(model)) {}

  Status Measure(int depth, int n_sequences, int width,
                 const std::function<void(const DraftMeasurement&)>& on_measurement) {
    SpeculationOptions speculation = options_.speculation;
    speculation.tree = width == 1 ? "chain" : std::to_string(width);
    std::vector<Writing> all(static_cast<size_t>(n_sequences));
    for (size_t i = 0; i < all.size(); ++i) LS_TRY(Begin(speculation, depth, i, &all[i]));
    const auto propose = [&](size_t which) -> Result<double> {
      KvCache& cache = *all[0].cache;
      if (which == 0) return PlainStep(cache);
      LS_TRY(PlainStep(cache).status());  // which leaves nothing of the draft's weights in the caches
      return Propose(static_cast<int>(which), width, all);
    };
    std::array<int, 1 + kMostLevels> barriers{};  // equal in each round
    const auto count = [&](size_t which) -> Result<double> {
      const uint32_t before = model_.team->barriers();
      LS_ASSIGN(const double ms, propose(which));
      barriers[which] = static_cast<int>(model_.team->barriers() - before);
      if (which > 0) barriers[which] -= barriers[0];
      return ms;
    };
    deepest_ = 0;
    LS_ASSIGN(const std::vector<Times> times, InTurn(1 + kMostLevels, options_.repetitions, count));
    for (int levels = 1; levels <= std::min(kMostLevels, deepest_); ++levels) {
      const auto at = static_cast<size_t>(levels);
      std::vector<double> whole, added;
      for (size_t round = 0; round < times[0].ms.size(); ++round) {
        whole.push_back(times[at].ms[round] / times[0].ms[round]);
        const double before = levels > 1 ? times[at - 1].ms[round] : 0;
        added.push_back((times[at].ms[round] - before) / times[0].ms[round]);
      }
      on_measurement({.draft = std::string(all[0].drafter->name()),
                      .depth = depth,
                      .sequences = n_sequences,
                      .width = width,
                      .levels = levels,
                      .ms = times[at].median,
                      .of_plain_step = Median(whole),
                      .level_of_plain_step = Median(added),
                      .level_barriers = barriers[at] - (levels > 1 ? barriers[at - 1] : 0),
                      .plain_step_barriers = barriers[0]});
    }
    return {};
  }

  Status Prepare() {
    LS_ASSIGN(tokens_, model_.file->GetStrings("tokenizer.ggml.tokens"));
    draft_models_.SetVocabulary(&tokens_);
    return {};
  }

 private:
  struct Writing {
    std::unique_ptr<KvCache> cache;
    std::unique_ptr<Drafter> drafter;
    std::unique_ptr<OwnedSequence> text;
  };

  Status Begin(const SpeculationOptions& speculation, int depth, size_t sequence, Writing* one) {
    one->cache = model_.NewCache(depth + kRoom);
    LS_ASSIGN(one->drafter, MakeDrafter(speculation, {.target = model_.target.get(),
                                                      .cache = one->cache.get(),
                                                      .models = &draft_models_}));
    LS_ASSIGN(Sampler sampler,
              Sampler::Create({.temperature = 0, .seed = 1}, model_.target->vocab_size(), 0, model_.kernels));
    one->text = std::make_unique<OwnedSequence>(Text(depth, sequence), one->cache.get(), one->drafter.get(),
                                                MakeFixedPolicy(speculation), std::move(sampler));
    return Read(one->text->sequence);
  }

  // Of all of them, in ms.
  Result<double> Propose(int levels, int width, std::vector<Writing>& all) {
    const DraftBudget budget = {.max_nodes = levels * width, .max_depth = levels};
    std::vector<TokenTree> trees;
    for (const Writing& one : all) trees.emplace_back(one.text->tokens.back());
    Status proposed;
    const double start = NowMs();
    meeting_.Run(
        static_cast<int>(all.size()),
        [&](int i) {
          const auto at = static_cast<size_t>(i);
          return all[at].drafter->Draft(budget, all[at].text->tokens, trees[at], meeting_);
        },
        [&](int, DraftTask& task, double) {
          if (Status status = task.Result(); proposed.ok()) proposed = std::move(status);
        });
    const double ms = NowMs() - start;
    LS_TRY(proposed);
    for (size_t i = 0; i < all.size(); ++i) {
      if (trees[i].size() == 1) {
        const std::string notice = all[i].drafter->notice();
        return InvalidArgument(options_.speculation.draft_model + ": proposes nothing after " +
                               std::to_string(all[i].text->tokens.size() - 1) + " tokens" +
                               (notice.empty() ? "" : ": " + notice));
      }
      deepest_ = std::max(deepest_, trees[i].max_depth());
    }
    return ms;
  }

  // Any tokens do: time does not depend on which.
  std::vector<int32_t> Text(int n, uint64_t sequence) const {
    const RngStream rng = {.seed = 1, .sequence = sequence, .purpose = RngPurpose::kTest};
    std::vector<int32_t> text;
    for (int i = 0; i < n; ++i) {
      text.push_back(
          static_cast<int32_t>(rng.Uniform(static_cast<uint64_t>(i)) * model_.target->vocab_size()));
    }
    return text;
  }

  // As a prompt, and one round, after which a drafter has read all it will have read when it is asked.
  Status Read(Sequence& sequence) {
    sequence.Follow();
    BatchDecoder rounds(model_.target.get());
    for (const size_t n = sequence.tokens->size(); sequence.tokens->size() == n;) {
      Turn turn{.sequence = &sequence, .max_rows = sequence.NextRows(options_.model.batch_size)};
      LS_TRY(rounds.Run({&turn, 1}));
      LS_TRY(turn.status);
    }
    return {};
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
  PassMeeting meeting_;
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
  for (const int n : options.sequences) {
    if (n < 1 || n > kMostSequences) {
      return InvalidArgument("--parallel " + std::to_string(n) + ": must be from 1 to " +
                             std::to_string(kMostSequences) + " for drafts");
    }
  }
  if (options.sequences.empty() || options.depths.empty())
    return InvalidArgument("--parallel and --depth need at least one number");
  const int most = *std::max_element(options.sequences.begin(), options.sequences.end());
  LS_ASSIGN(const int positions, PositionsOf(options.depths, 2, most));  // a draft needs two tokens before it
  LS_ASSIGN(LoadedModel model, LoadForBench(options.model, nullptr, options.model.batch_size, positions));
  DraftBench bench(named, std::move(model));
  LS_TRY(bench.Prepare());
  for (const int depth : options.depths) {
    for (const int n : options.sequences) {
      for (const int width : kWidths) LS_TRY(bench.Measure(depth, n, width, on_measurement));
    }
  }
  return {};
}

}  // namespace longspec
