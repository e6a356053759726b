// SPDX-License-Identifier: Apache-2.0
#include "bench/selfcheck.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "bench/forced_trees.h"
#include "bench/loaded_model.h"
#include "bench/trace.h"
#include "draft/drafter.h"
#include "draft_model/draft_models.h"
#include "draft_model/registry.h"
#include "draft_model/spec_extend.h"
#include "engine/gguf_tokenizer.h"
#include "formats/gguf.h"
#include "lab/replay_drafter.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

constexpr int kMaxRows = 512;
constexpr int kPrefillChunk = 512;
constexpr int kTogetherChunk = 100;  // rows of a prompt beside those of others
constexpr int kChunks[] = {1, 7, 64, 512};
constexpr int kThreadCounts[] = {1, 2, 3};
constexpr const char* kShapes[] = {"", "chain", "4"};  // values of --spec-tree
constexpr const char* kMerged[] = {"ngram,suffix", "suffix,recycling"};
// The reference loops take about a second a token on a small model.
constexpr size_t kReferencePrompt = 8;
constexpr int kReferencePredict = 3;
constexpr int kReferenceTree = 3;

SamplingOptions AtTemperature(float temperature) {
  SamplingOptions sampling;
  sampling.temperature = temperature;
  sampling.seed = 20240229;
  return sampling;
}

std::string Temperature(float t) {
  char text[32];
  std::snprintf(text, sizeof(text), ", temp %.1f", t);
  return text;
}

// One way of drafting.
struct Way {
  std::string name;
  SpeculationOptions speculation;
  bool adaptive = false;
};

class Selfcheck {
 public:
  Selfcheck(const SelfcheckOptions& options, const std::function<void(const CheckLine&)>& on_line)
      : options_(options), on_line_(on_line) {}

  Result<bool> Run() {
    LS_TRY(FindWays());
    LS_ASSIGN(LoadedModel model, Load(options_.tables.front(), options_.model.threads));
    LS_ASSIGN(tokens_, model.file->GetStrings("tokenizer.ggml.tokens"));
    draft_models_.SetVocabulary(&tokens_);
    draft_models_.SetWeightsCache(
        {.folder = options_.model.weights_cache, .on_warning = options_.model.on_warning});
    LS_ASSIGN(const TokenizerSpec tokenizer, TokenizerSpecFromGguf(*model.file));
    draft_models_.priors().SetSource(PriorsOf(*model.file, tokenizer, model.target->vocab_size()));
    LS_ASSIGN(const auto prior, draft_models_.priors().Get(""));
    if (prior != nullptr) ways_.push_back({"auto without a prior", WithoutPrior()});
    Recorder recorder(model, options_.prompt, options_.n_predict, kPrefillChunk);
    LS_ASSIGN(const std::vector<Trace> plain, PlainTraces(recorder));
    for (size_t i = 0; i < plain.size(); ++i) LS_TRY(CheckDrafters(recorder, model, i, plain[i]));
    LS_TRY(CheckPrefillChunks(model, plain));
    LS_TRY(CheckTogether(model, plain));
    LS_TRY(CheckAllTogether(model, plain));
    LS_TRY(CheckThreads(model, plain));
    LS_TRY(CheckTables(model, plain));
    LS_TRY(CheckDevice(plain));
    return all_identical_;
  }

 private:
  // Everything that can draft here; says what cannot.
  Status FindWays() {
    std::map<const DrafterEntry*, std::vector<std::string>> drafts;  // by who reads them
    for (const std::string& path : options_.draft_models) {
      LS_ASSIGN(const std::string architecture, draft_models_.Architecture(path));
      const DrafterEntry* reader = FindReader(architecture);
      if (reader == nullptr) return Unsupported(path + ": no drafter reads architecture " + architecture);
      drafts[reader].push_back(path);
    }
    for (const DrafterEntry* entry : Drafters()) {
      const std::string type(entry->name);
      SpeculationOptions speculation;
      speculation.type = type;
      if (entry->narrow != nullptr) entry->narrow(speculation, static_cast<int>(options_.prompt.size()));
      if (type == "none") {
        ways_.push_back({"none again", speculation});
        continue;
      }
      const Status usable = CheckDrafter(speculation);
      if (usable.ok()) {
        AddShapes(*entry, speculation);
        continue;
      }
      for (const std::string& path : drafts[entry]) {
        speculation.draft_model = path;
        LS_TRY(CheckDrafter(speculation));
        AddShapes(*entry, speculation);
        AddLessSeen(*entry, speculation);
        if (entry->in_auto != nullptr) AddAuto("auto with a draft model", speculation);
      }
      if (drafts[entry].empty()) on_line_({.name = type, .skipped = true, .detail = usable.message()});
    }
    for (const char* type : kMerged) {
      SpeculationOptions speculation;
      speculation.type = type;
      ways_.push_back({type, speculation});
    }
    AddAuto("auto", {});
    SpeculationOptions without_dice;
    without_dice.dice = false;
    ways_.push_back({"auto without dice", without_dice});
    return {};
  }

  static SpeculationOptions WithoutPrior() {
    SpeculationOptions speculation;
    speculation.ppm.prior = kNoPrior;
    return speculation;
  }

  void AddShapes(const DrafterEntry& entry, SpeculationOptions speculation) {
    const std::string type(entry.name);
    if (!entry.reads_tree) {
      ways_.push_back({type, speculation});
      return;
    }
    for (const char* tree : kShapes) {
      if (*tree == '\0' && entry.chain_by_default) continue;
      speculation.tree = tree;
      const std::string shape = *tree == '\0'                 ? " default shape"
                                : speculation.tree == "chain" ? " chain"
                                                              : " tree of width 4";
      ways_.push_back({type + shape, speculation});
    }
  }

  // Of a draft with a cache of its own: on what SpecExtend shows it, and inside of what drafts for it in
  // turn.
  void AddLessSeen(const DrafterEntry& entry, SpeculationOptions speculation) {
    const auto n_prompt = static_cast<int>(options_.prompt.size());
    const std::string type(entry.name);
    if (std::ranges::any_of(entry.options,
                            [](const DrafterOption& o) { return o.flags == kSpecExtendOption.flags; })) {
      SpeculationOptions extended = speculation;
      extended.spec_extend.chunks = std::max(1, n_prompt / (2 * ReindexOptions().chunk));
      ways_.push_back({type + " with SpecExtend", extended});
    }
    if (&entry == &kLmDrafter) {
      SpeculationOptions nested = speculation;
      nested.type = kPartialDrafter.name;
      nested.partial.inner = type;
      kPartialDrafter.narrow(nested, n_prompt);
      ways_.push_back({nested.type + " with " + type + " inside", nested});
    }
  }

  void AddAuto(const char* name, SpeculationOptions speculation) {
    speculation.type = "auto";
    ways_.push_back({std::string(name) + ", adaptive policy", speculation, true});
  }

  Result<LoadedModel> Load(const kernels::KernelTable* table, int threads) const {
    ModelOptions model = options_.model;
    model.threads = threads;
    model.device = "cpu";
    return Load(model, table);
  }

  Result<LoadedModel> Load(const ModelOptions& model, const kernels::KernelTable* table) const {
    // All drafters share one cache, each prefill chunk size has its own, and so have five at once.
    return LoadForBench(
        model, table, kMaxRows,
        6 * (static_cast<int>(options_.prompt.size()) + options_.n_predict + Recorder::kMostDrafted + 1),
        options_.file);
  }

  TraceOptions Options(size_t i) const { return {.sampling = AtTemperature(options_.temperatures[i])}; }

  static DrafterFactory Registered(const SpeculationOptions& options) {
    return [options](const DraftContext& context) { return MakeDrafter(options, context); };
  }

  // Trees that know the answer.
  static DrafterFactory Forced(const Trace& answer, const LoadedModel& model, uint64_t seed) {
    return [answer = answer.tokens, n_vocab = model.target->vocab_size(), seed](const DraftContext&) {
      return Result<std::unique_ptr<Drafter>>(MakeForcedTreeDrafter(answer, n_vocab, seed));
    };
  }

  Result<Trace> Plain(Recorder& recorder, size_t i) {
    SpeculationOptions none;
    none.type = "none";
    return recorder.Record(Registered(none), Options(i));
  }

  // At every temperature.
  Result<std::vector<Trace>> PlainTraces(Recorder& recorder) {
    std::vector<Trace> traces;
    for (size_t i = 0; i < options_.temperatures.size(); ++i) {
      LS_ASSIGN(Trace trace, Plain(recorder, i));
      traces.push_back(std::move(trace));
    }
    return traces;
  }

  void Report(const std::string& name, size_t i, const Trace& expected, const Trace& actual) {
    CheckLine line{.name = name + Temperature(options_.temperatures[i]),
                   .identical = expected == actual,
                   .detail = FirstDifference(expected, actual)};
    if (line.identical) {
      char text[128];
      std::snprintf(text, sizeof(text), "%zu tokens and their logits, %lld drafted, %.2f tokens a step",
                    actual.tokens.size(), static_cast<long long>(actual.drafted),
                    actual.mean_acceptance_length);
      line.detail = text;
      for (const auto& [what, which] : actual.uses) line.detail += ", " + what + " " + which;
    }
    all_identical_ = all_identical_ && line.identical;
    on_line_(line);
  }

  Status CheckDrafters(Recorder& recorder, const LoadedModel& model, size_t i, const Trace& plain) {
    for (const Way& way : ways_) {
      SpeculationOptions speculation = way.speculation;
      if (!speculation.dice && options_.temperatures[i] <= 0) continue;  // there are none
      speculation.added = Replay({.tokens = plain.tokens});
      TraceOptions options = Options(i);
      options.adaptive = way.adaptive;
      options.dice = speculation.dice;
      // What a draft model makes of the prompt is kept for those after it.
      const std::string& draft = speculation.draft_model;
      options.reads_prompt = !draft.empty() && have_read_.insert(draft).second;
      LS_ASSIGN(const Trace actual, recorder.Record(Registered(speculation), options, &draft_models_));
      Report(way.name, i, plain, actual);
    }
    // Random trees: rounds cycle through every accepted length from 0 to the budget.
    for (const int budget : {3, 8, 16, Recorder::kMostDrafted}) {
      TraceOptions options = Options(i);
      options.draft_n_max = budget;
      LS_ASSIGN(const Trace actual,
                recorder.Record(Forced(plain, model, static_cast<uint64_t>(budget)), options));
      Report("random trees of " + std::to_string(budget) + " nodes, every accepted length", i, plain, actual);
    }
    return {};
  }

  Status CheckPrefillChunks(LoadedModel& model, const std::vector<Trace>& plain) {
    for (const int chunk : kChunks) {
      Recorder recorder(model, options_.prompt, options_.n_predict, chunk);
      for (size_t i = 0; i < plain.size(); ++i) {
        LS_ASSIGN(const Trace actual, Plain(recorder, i));
        Report("prefill in chunks of " + std::to_string(chunk), i, plain[i], actual);
      }
    }
    return {};
  }

  // Several generations at once, long and short, with and without drafts, of which some hold the same keys.
  Status CheckTogether(LoadedModel& model, const std::vector<Trace>& plain) {
    std::vector<int32_t> half(
        options_.prompt.begin(),
        options_.prompt.begin() + static_cast<std::ptrdiff_t>((options_.prompt.size() + 1) / 2));
    Recorder of_half(model, half, options_.n_predict, kPrefillChunk);
    SpeculationOptions none, automatic;
    none.type = "none";
    for (size_t i = 0; i < plain.size(); ++i) {
      LS_ASSIGN(const Trace half_plain, Plain(of_half, i));
      TraceOptions adaptive = Options(i);
      adaptive.adaptive = true;
      const std::vector<TogetherItem> items = {
          {.prompt = options_.prompt, .make_drafter = Registered(none), .options = Options(i)},
          {.prompt = half, .make_drafter = Registered(automatic), .options = adaptive, .first_round = 1},
          {.prompt = options_.prompt,
           .make_drafter = Forced(plain[i], model, 5),
           .options = Options(i),
           .first_round = 2,
           .shares_first = true},
          {.prompt = half,
           .make_drafter = Registered(none),
           .options = Options(i),
           .first_round = 3,
           .shares_first = true},
          {.prompt = options_.prompt,
           .make_drafter = Registered(automatic),
           .options = adaptive,
           .first_round = 3},
      };
      LS_ASSIGN(const std::vector<Trace> traces,
                RecordTogether(model, items, options_.n_predict, kTogetherChunk, &draft_models_));
      const char* names[] = {"plain", "half the prompt, guessing", "random trees, shared keys",
                             "half the prompt, plain, shared keys", "guessing"};
      for (size_t k = 0; k < items.size(); ++k) {
        Report(std::string("five at once: ") + names[k], i, items[k].prompt == half ? half_plain : plain[i],
               traces[k]);
      }
    }
    return {};
  }

  // One of each way to draft, all in the same passes, on keys that they share.
  Status CheckAllTogether(LoadedModel& model, const std::vector<Trace>& plain) {
    SpeculationOptions none;
    none.type = "none";
    const int rounds_of_prompt = (static_cast<int>(options_.prompt.size()) - 1) / kTogetherChunk + 1;
    for (size_t i = 0; i < plain.size(); ++i) {
      std::vector<TogetherItem> items = {
          {.prompt = options_.prompt, .make_drafter = Registered(none), .options = Options(i)}};
      std::vector<std::string> names = {"plain"};
      std::set<std::string> seen;
      for (const Way& way : ways_) {
        SpeculationOptions speculation = way.speculation;
        const bool extended = AsksForSpecExtend(speculation);
        if (way.adaptive || !speculation.dice ||
            !seen.insert(speculation.type + speculation.draft_model + speculation.partial.inner +
                         (extended ? " extended" : ""))
                 .second) {
          continue;
        }
        speculation.added = Replay({.tokens = plain[i].tokens});
        items.push_back({.prompt = options_.prompt,
                         .make_drafter = Registered(speculation),
                         .options = Options(i),
                         .first_round = rounds_of_prompt + 1,
                         .shares_first = true});
        names.push_back(way.name);
      }
      LS_ASSIGN(const std::vector<Trace> traces,
                RecordTogether(model, items, options_.n_predict, kTogetherChunk, &draft_models_));
      for (size_t k = 0; k < items.size(); ++k) Report("all at once: " + names[k], i, plain[i], traces[k]);
    }
    return {};
  }

  // The same plain and speculative generations on another model object.
  Status CompareModels(const std::string& name, Recorder recorder, const LoadedModel& other, int budget,
                       const std::vector<Trace>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      LS_ASSIGN(const Trace plain, Plain(recorder, i));
      Report(name + ", plain", i, expected[i], plain);
      TraceOptions options = Options(i);
      options.draft_n_max = budget;
      LS_ASSIGN(const Trace trees, recorder.Record(Forced(expected[i], other, 7), options));
      Report(name + ", random trees", i, expected[i], trees);
    }
    return {};
  }

  Status CheckThreads(const LoadedModel& model, const std::vector<Trace>& plain) {
    for (const int threads : kThreadCounts) {
      if (threads == model.team->size()) continue;
      LS_ASSIGN(LoadedModel other, Load(options_.tables.front(), threads));
      LS_TRY(CompareModels(
          "threads " + std::to_string(threads) + " against " + std::to_string(model.team->size()),
          Recorder(other, options_.prompt, options_.n_predict, kPrefillChunk), other,
          TraceOptions().draft_n_max, plain));
    }
    return {};
  }

  Status CheckTables(LoadedModel& model, const std::vector<Trace>& plain) {
    for (const kernels::KernelTable* table : options_.tables) {
      if (table == options_.tables.front()) continue;
      LS_ASSIGN(LoadedModel other, Load(table, options_.model.threads));
      const std::string name =
          "kernels " + std::string(table->name) + " against " + options_.tables.front()->name;
      if (std::string_view(table->name) != "reference") {
        LS_TRY(CompareModels(name, Recorder(other, options_.prompt, options_.n_predict, kPrefillChunk), other,
                             TraceOptions().draft_n_max, plain));
        continue;
      }
      std::vector<int32_t> prompt = options_.prompt;
      prompt.resize(std::min(prompt.size(), kReferencePrompt));
      const int n_predict = std::min(options_.n_predict, kReferencePredict);
      Recorder chosen(model, prompt, n_predict, kPrefillChunk);
      LS_ASSIGN(const std::vector<Trace> expected, PlainTraces(chosen));
      LS_TRY(CompareModels(name, Recorder(other, prompt, n_predict, kPrefillChunk), other, kReferenceTree,
                           expected));
    }
    return {};
  }

  // What ran on the CPU, on the device that the options name: in pieces of prompts, with trees, and together.
  Status CheckDevice(const std::vector<Trace>& plain) {
    if (options_.model.device == "cpu") return {};
    LS_ASSIGN(LoadedModel other, Load(options_.model, options_.tables.front()));
    if (other.card == nullptr) return {};
    const std::string name = "device " + other.card->facts().device + " against cpu";
    for (const int chunk : kChunks) {
      LS_TRY(CompareModels(name + ", prefill in chunks of " + std::to_string(chunk),
                           Recorder(other, options_.prompt, options_.n_predict, chunk), other,
                           TraceOptions().draft_n_max, plain));
    }
    return CheckTogether(other, plain);
  }

  const SelfcheckOptions& options_;
  const std::function<void(const CheckLine&)>& on_line_;
  std::vector<Way> ways_;
  std::vector<std::string> tokens_;  // the target's
  DraftModels draft_models_;
  bool all_identical_ = true;
  std::set<std::string> have_read_;  // draft models that have read the prompt
};

}  // namespace

Result<bool> RunSelfcheck(const SelfcheckOptions& options,
                          const std::function<void(const CheckLine&)>& on_line) {
  if (options.tables.empty()) return InvalidArgument("selfcheck needs at least one kernel table");
  if (options.prompt.empty()) return InvalidArgument("selfcheck needs a prompt");
  if (options.temperatures.empty()) return InvalidArgument("selfcheck needs at least one temperature");
  return Selfcheck(options, on_line).Run();
}

}  // namespace longspec
