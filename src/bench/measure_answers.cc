// SPDX-License-Identifier: Apache-2.0
#include "bench/measure_answers.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/median.h"
#include "base/status_macros.h"
#include "engine/opened_model.h"
#include "longspec/engine.h"

namespace longspec {
namespace {

constexpr int kQuestion = 16;  // last tokens of a prompt, of each its own where the rest is one document

using Tokens = std::vector<int32_t>;

struct Ran {
  double ms = 0;
  SchedulerStats stats;
  std::vector<GenerationResult> results;  // by prompt
  double mean_acceptance_length() const {
    double steps = 0, tokens = 0;
    for (const GenerationResult& result : results) {
      steps += static_cast<double>(result.speculative.steps);
      tokens += static_cast<double>(result.tokens.size());
    }
    return steps > 0 ? tokens / steps : 0;
  }
};

class Answers {
 public:
  // `cache_bytes`: so many that no sequence ever gives way.
  Answers(const AnswersBenchOptions& options, Engine& engine, Tokens text, uint64_t cache_bytes)
      : options_(options), engine_(engine), text_(std::move(text)), cache_bytes_(cache_bytes) {}

  // What only the first generation of its kind pays for: costs of passes, loading a prior.
  Status WarmUp() {
    for (const SpeculationOptions& speculation : options_.speculation) {
      LS_TRY(Run(Prompts(1, kQuestion, false), 2, speculation).status());
    }
    return {};
  }

  Status Measure(int n, int depth, bool one_document,
                 const std::function<void(const AnswersMeasurement&)>& on_measurement) {
    const size_t n_kinds = options_.speculation.size();
    std::vector<double> prompt_ms;
    std::vector<std::vector<double>> ms(n_kinds), lengths(n_kinds);
    AnswersMeasurement m{.sequences = n, .depth = depth, .one_document = one_document, .speculation = {}};
    for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
      const std::vector<Tokens> prompts = Prompts(n, depth, one_document);
      // A prompt nothing is generated of is evaluated, and known to whoever asks next. A draft model knows
      // what it has read itself.
      LS_ASSIGN(const Ran read, Run(prompts, 0, Reader()));
      prompt_ms.push_back(read.ms);
      m.prompt_tokens = read.stats.prompt_tokens;
      m.prompt_tokens_read = read.stats.prompt_tokens - read.stats.prompt_tokens_known;
      Ran first;
      for (size_t i = 0; i < n_kinds; ++i) {
        // Each is the first as often as the others.
        const size_t kind = (i + static_cast<size_t>(repetition)) % n_kinds;
        LS_ASSIGN(Ran ran, Run(prompts, options_.answer, options_.speculation[kind]));
        ms[kind].push_back(ran.ms);
        lengths[kind].push_back(ran.mean_acceptance_length());
        m.tokens = ran.stats.tokens;
        if (i == 0) {
          first = std::move(ran);
        } else {
          LS_TRY(CheckSame(first, ran));
        }
      }
    }
    m.prompt_ms = Median(prompt_ms);
    for (size_t kind = 0; kind < n_kinds; ++kind) {
      m.speculation = options_.speculation[kind].type;
      m.ms = Median(ms[kind]);
      m.mean_acceptance_length = Median(lengths[kind]);
      on_measurement(m);
    }
    return {};
  }

 private:
  SpeculationOptions Reader() const {
    const auto has_model = [](const SpeculationOptions& s) {
      return s.type != "none" && !s.draft_model.empty();
    };
    const auto reader = std::ranges::find_if(options_.speculation, has_model);
    return reader == options_.speculation.end() ? SpeculationOptions{.type = "none"} : *reader;
  }

  // Other ones in every call, so that no keys are known of an earlier one.
  std::vector<Tokens> Prompts(int n, int depth, bool one_document) {
    std::vector<Tokens> prompts;
    size_t from = Place();
    for (int i = 0; i < n; ++i) {
      Tokens& prompt = prompts.emplace_back(one_document && i > 0 ? prompts.front() : Tokens());
      if (prompt.empty()) prompt = Cut(from, depth);
      if (one_document)
        std::ranges::copy(Cut(Place(), std::min(kQuestion, depth)),
                          prompt.end() - std::min(kQuestion, depth));
      from = Place();
    }
    return prompts;
  }
  // A step that is prime to most lengths: places do not come again soon.
  size_t Place() { return (++places_ * 7919) % text_.size(); }
  Tokens Cut(size_t from, int n) const {
    Tokens cut;
    for (int i = 0; i < n; ++i) cut.push_back(text_[(from + static_cast<size_t>(i)) % text_.size()]);
    return cut;
  }

  Result<Ran> Run(const std::vector<Tokens>& prompts, int n_predict, const SpeculationOptions& speculation) {
    LS_ASSIGN(
        const std::unique_ptr<Scheduler> scheduler,
        engine_.NewScheduler({.parallel = static_cast<int>(prompts.size()), .cache_bytes = cache_bytes_}));
    Ran ran;
    ran.results.resize(prompts.size());
    Status failed;
    const double start = NowMs();
    for (size_t i = 0; i < prompts.size(); ++i) {
      GenerationRequest request;
      request.tokens = prompts[i];
      request.n_predict = n_predict;
      request.ignore_eos = true;
      request.sampling.temperature = 0;
      request.speculation = speculation;
      const auto on_end = [&, i](int, Result<GenerationResult> result) {
        if (!result.ok()) failed = result.status();
        if (result.ok()) ran.results[i] = std::move(*result);
      };
      LS_TRY(scheduler
                 ->Submit({.request = std::make_shared<const GenerationRequest>(std::move(request)),
                           .n = 1,
                           .on_end = on_end})
                 .status());
    }
    for (bool more = true; more;) {
      LS_ASSIGN(more, scheduler->RunRound());
    }
    ran.ms = NowMs() - start;
    ran.stats = scheduler->stats();
    LS_TRY(failed);
    return ran;
  }

  static Status CheckSame(const Ran& a, const Ran& b) {
    for (size_t i = 0; i < a.results.size(); ++i) {
      if (a.results[i].tokens == b.results[i].tokens) continue;
      return Corrupt("sequence " + std::to_string(i) +
                     " has other tokens with other speculation: please report this");
    }
    return {};
  }

  const AnswersBenchOptions& options_;
  Engine& engine_;
  const Tokens text_;
  const uint64_t cache_bytes_;
  size_t places_ = 0;
};

Status Check(const AnswersBenchOptions& options) {
  const auto bad = [](const std::vector<int>& numbers, int most) {
    return numbers.empty() || *std::ranges::min_element(numbers) < 1 ||
           *std::ranges::max_element(numbers) > most;
  };
  if (bad(options.sequences, 64)) return InvalidArgument("--parallel: must be from 1 to 64 for answers");
  if (bad(options.depths, 1 << 24)) return InvalidArgument("--depth: must be at least 1");
  if (options.answer < 1) return InvalidArgument("--answers: must be at least 1");
  if (options.repetitions < 1) return InvalidArgument("--repetitions: must be at least 1");
  if (options.speculation.empty()) return InvalidArgument("no speculation to measure");
  return {};
}

// An engine that still knows what was evaluated of all prompts when their answers are written, which takes
// `cache_bytes` at most.
Result<std::unique_ptr<Engine>> LoadFor(const AnswersBenchOptions& options, uint64_t* cache_bytes) {
  const int most = *std::ranges::max_element(options.sequences);
  ModelOptions model = options.model;
  if (model.ctx_size == 0) {
    model.ctx_size = *std::ranges::max_element(options.depths) + options.answer + 1;
  }
  ModelFiles files;
  LS_ASSIGN(const ModelInfo plan, InspectModel(model, files));
  const uint64_t one = plan.memory.kv_at_context + plan.memory.kv_at_context / 4;
  const uint64_t known = static_cast<uint64_t>(most) * one, all = 2 * known;
  if (plan.memory.available > 0 && plan.memory.total() + all > plan.memory.available) {
    return ResourceExhausted(
        std::to_string(most) + " sequences of " + std::to_string(model.ctx_size) + " positions need up to " +
        std::to_string(all >> 20) + " MiB of keys and values, and there are " +
        std::to_string(plan.memory.available >> 20) + " MiB: fewer --parallel or a smaller --depth");
  }
  *cache_bytes = all;
  model.cache_ram = static_cast<int>((known >> 20) + 1);
  return LoadModelOf(model, files);
}

}  // namespace

Status MeasureAnswers(const AnswersBenchOptions& options,
                      const std::function<void(const AnswersMeasurement&)>& on_measurement) {
  LS_TRY(Check(options));
  uint64_t cache_bytes = 0;
  LS_ASSIGN(const std::unique_ptr<Engine> engine, LoadFor(options, &cache_bytes));
  Tokens text = engine->Tokenize(options.text);
  if (text.size() < 2 * kQuestion) {
    return InvalidArgument("--text: has " + std::to_string(text.size()) +
                           " tokens; prompts are cut from at least " + std::to_string(2 * kQuestion));
  }
  engine->MeasureCosts();
  Answers answers(options, *engine, std::move(text), cache_bytes);
  LS_TRY(answers.WarmUp());
  for (const int depth : options.depths) {
    for (const int n : options.sequences) {
      if (options.unrelated) LS_TRY(answers.Measure(n, depth, false, on_measurement));
      // One alone is both.
      if (options.one_document && (n > 1 || !options.unrelated))
        LS_TRY(answers.Measure(n, depth, true, on_measurement));
    }
  }
  return {};
}

}  // namespace longspec
