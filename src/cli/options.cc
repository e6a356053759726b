// SPDX-License-Identifier: Apache-2.0
#include "cli/options.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <set>
#include <type_traits>
#include <utility>
#include <variant>

#include "base/number_range.h"
#include "cli/exit_code.h"
#include "cli/model_choice.h"
#include "draft/portfolio_drafter.h"
#include "draft_model/option_use.h"
#include "draft_model/registry.h"

namespace longspec::cli {
namespace {

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(';', begin), list.size());
    names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

}  // namespace

Result<std::vector<std::string>> ApplySamplers(const std::string& list, SamplingOptions* options) {
  const auto left = api::KeepSamplers(Split(list), options);
  if (!left.ok()) return InvalidArgument("--samplers " + list + ": " + left.status().message());
  std::vector<std::string> warnings;
  std::string missing;
  for (const std::string& name : left->missing) missing += (missing.empty() ? "" : ", ") + name;
  if (!missing.empty()) warnings.push_back("--samplers: left out, not here: " + missing);
  if (!left->in_order) warnings.push_back("--samplers: they run in the order " + std::string(kAllSamplers));
  return warnings;
}

namespace {

CLI::Validator NumberIn(const NumberRange& range) {
  return CLI::Validator([range](std::string& text) { return range.Check(text); }, range.Describe());
}

template <typename T>
using Names = std::vector<std::pair<std::string, T>>;

// An option whose value is one of a few names.
template <typename T>
void AddChoice(CLI::App& app, const std::string& flags, T* target, const Names<T>& names,
               const std::string& description, const std::string& group) {
  std::vector<std::string> known;
  for (const auto& entry : names) known.push_back(entry.first);
  const auto set = [target, names](const std::string& value) {
    for (const auto& [name, meaning] : names) {
      if (name == value) *target = meaning;
    }
  };
  app.add_option_function<std::string>(flags, set, description)->check(CLI::IsMember(known))->group(group);
}

template <typename T>
CLI::Option* AddValue(CLI::App& app, const std::string& flags, T* target, const std::string& description,
                      const std::string& group) {
  return app.add_option(flags, *target, description)->capture_default_str()->group(group);
}

// A number of positions, or "paper", which the library calls 0.
std::string ParseRefresh(const std::string& text, int* refresh) {
  int n = 0;
  const char* end = text.data() + text.size();
  const auto [p, error] = std::from_chars(text.data(), end, n);
  const bool is_number = error == std::errc() && p == end && n > 0;
  if (!is_number && text != "paper") return "must be 1 or more, or paper";
  *refresh = n;
  return "";
}

// -1 (or any negative number) asks for a fresh seed.
std::string ParseSeed(const std::string& text, std::optional<uint64_t>* seed) {
  const char* end = text.data() + text.size();
  int64_t negative = 0;
  if (const auto [p, error] = std::from_chars(text.data(), end, negative);
      error == std::errc() && p == end && negative < 0) {
    seed->reset();
    return "";
  }
  uint64_t value = 0;
  if (const auto [p, error] = std::from_chars(text.data(), end, value); error != std::errc() || p != end) {
    return "must be a whole number below 2^64, or -1 for a fresh one";
  }
  *seed = value;
  return "";
}

void AddRopeOptions(CLI::App& app, RopeOptions* rope) {
  const std::string group = "Position encoding";
  using Scaling = RopeOptions::Scaling;
  AddChoice<Scaling>(app, "--rope-scaling", &rope->scaling,
                     {{"none", Scaling::kNone}, {"linear", Scaling::kLinear}, {"yarn", Scaling::kYarn}},
                     "RoPE scaling (default: from the model)", group);
  AddValue(app, "--rope-scale", &rope->scale, "Context extension factor; 0: from the model", group)
      ->check(NumberFrom(0));
  AddValue(app, "--rope-freq-base", &rope->freq_base, "RoPE base frequency; 0: from the model", group)
      ->check(NumberFrom(0));
  AddValue(app, "--yarn-orig-ctx", &rope->yarn_orig_ctx,
           "YaRN: positions the model was trained for before; 0: from the model", group)
      ->check(NumberFrom(0, kMaxInt));
  AddValue(app, "--yarn-ext-factor", &rope->yarn_ext_factor,
           "YaRN: share that fast rotations keep, 0 to 1; negative: from the model, else 1", group);
  AddValue(app, "--yarn-attn-factor", &rope->yarn_attn_factor,
           "YaRN: factor on the attention magnitude; negative: from the model, else 1", group);
  AddValue(app, "--yarn-beta-fast", &rope->yarn_beta_fast,
           "YaRN: more turns than this are fast; negative: from the model, else 32", group);
  AddValue(app, "--yarn-beta-slow", &rope->yarn_beta_slow,
           "YaRN: fewer turns than this are slow; negative: from the model, else 1", group);
}

// A line for each.
std::string DescribeDrafters() {
  std::string text = "What drafts, several separated by commas:";
  for (const DrafterEntry* entry : Drafters()) {
    text += "\n  " + std::string(entry->name);
    std::string aliases;
    for (const std::string_view alias : entry->aliases) {
      if (!alias.empty()) aliases += (aliases.empty() ? "" : ", ") + std::string(alias);
    }
    for (const DrafterPreset& preset : entry->presets) {
      aliases += (aliases.empty() ? "" : ", ") + std::string(preset.name) + " with " +
                 std::string(preset.of) + "'s settings";
    }
    if (!aliases.empty()) text += " (" + aliases + ")";
    text += ": " + std::string(entry->summary);
  }
  return text;
}

bool IsGivenTo(const CLI::App& app, const DrafterOption& option) {
  const CLI::Option* const declared = app.get_option_no_throw(std::string(option.name()));
  return declared != nullptr && declared->count() > 0;
}

// Names of what was given of drafters and how they draft.
std::vector<std::string> Given(const CLI::App& app) {
  std::vector<std::string> names;
  if (app.get_option("--spec-type")->count() > 0) names.emplace_back("--spec-type");
  for (const DrafterOption* option : SpeculationOptionTable()) {
    if (IsGivenTo(app, *option)) names.emplace_back(option->name());
  }
  return names;
}

// Whoever limits drafts limits those of the adaptive policy too. The name of a preset is replaced by what it
// stands for, where nothing else was given; and what was given is to have an effect.
Status Settle(const CLI::App& app, SpeculationIs use, SpeculationOptions* options) {
  const bool fixed_most = app.get_option("--spec-draft-n-max")->count() > 0;
  const bool adaptive_most = app.get_option("--spec-adaptive-n-max")->count() > 0;
  if (fixed_most && !adaptive_most) options->adaptive_n_max = options->draft_n_max;
  if (use == SpeculationIs::kOfOthers) return {};
  const auto given = [&](const DrafterOption& option) {
    return IsGivenTo(app, option) || !IsDefault(option, *options);
  };
  *options = WithPreset(*options, given);
  const bool adaptive = options->policy.empty() ? IsPortfolio(options->type) : options->policy == "adaptive";
  if (adaptive_most && !adaptive)
    return InvalidArgument("--spec-adaptive-n-max: has no effect without --spec-policy adaptive");
  if (adaptive_most && fixed_most)
    return InvalidArgument("--spec-draft-n-max: has no effect beside --spec-adaptive-n-max");
  if (EntryOf(options->type) == nullptr) return {};  // said when the drafter is to be made
  return CheckUse(*options, [&](const DrafterOption& option) { return IsGivenTo(app, option); });
}

// Of a draft model there is no such bound.
void SetLeastChance(const CLI::App& app, float chance, SpeculationOptions* options) {
  for (const ReadOption& read : DrafterOptions()) {
    for (const char* name : {"--spec-suffix-min-prob", "--spec-ppm-min-prob"}) {
      if (read.option->name() != name || IsGivenTo(app, *read.option) || !Reads(*options, *read.option))
        continue;
      std::get<OptionPlace<float>>(read.option->member).In(*options) = chance;
    }
  }
  Warn(
      "--spec-draft-p-min sets --spec-suffix-min-prob and --spec-ppm-min-prob where these are read; of a "
      "draft "
      "model the most probable tokens are taken, however probable");
}

}  // namespace

Result<std::pair<int32_t, float>> ParseLogitBias(const std::string& text) {
  const Status error = InvalidArgument("--logit-bias " + text +
                                       ": must be TOKEN+BIAS or TOKEN-BIAS, such as 15043+1.5 or 2-inf");
  const size_t sign = text.find_first_of("+-");
  if (sign == 0 || sign == std::string::npos || sign + 1 == text.size()) return error;
  int32_t token = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + sign, token);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + sign) return error;
  char* end = nullptr;
  const float bias = std::strtof(text.c_str() + sign + 1, &end);
  if (*end != '\0') return error;
  return std::pair(token, text[sign] == '-' ? -bias : bias);
}

void AddModelOptions(CLI::App& app, ModelOptions* options) {
  const std::string group = "Model";
  const Names<CacheType> cache_types = {{"f32", CacheType::kF32},   {"f16", CacheType::kF16},
                                        {"bf16", CacheType::kBF16}, {"q8_0", CacheType::kQ8_0},
                                        {"q4_0", CacheType::kQ4_0}, {"bf16-amx", CacheType::kBF16Amx},
                                        {"i8", CacheType::kI8}};
  AddModelFile(app, &options->path, "GGUF file; of a split model, its first shard")->group(group);
  AddValue(app, "-c,--ctx-size", &options->ctx_size, "Context size in tokens; 0: from the model", group)
      ->check(NumberFrom(0, kMaxInt));
  AddValue(app, "-b,--batch-size", &options->batch_size, "Prompt tokens per step; never changes output",
           group)
      ->check(NumberFrom(1, 65536));
  AddValue(app, "-t,--threads", &options->threads, "Threads; 0: one per core; never changes output", group)
      ->check(NumberFrom(0, 1024))
      ->transform(MinusOneIs("0"));
  AddValue(
      app, "--cache-ram", &options->cache_ram,
      "Most MiB of earlier prompts and answers kept beside the context, for those that begin alike (-cram); "
      "-1: no limit",
      group)
      ->check(NumberFrom(-1, kMaxInt));
  app.add_flag("!--no-cache-prompt", options->cache_prompt,
               "Keep nothing of earlier prompts, and share nothing between requests")
      ->group(group);
  CLI::Option* const offload =
      AddValue(app, "--kv-offload", &options->kv_offload,
               "Folder for keys and values that memory has no room for, or host, of a model on a card: host "
               "memory; never changes output",
               group)
          ->check(CheckNotEmpty);
  AddValue(app, "--kv-memory", &options->kv_memory,
           "With --kv-offload: MiB of keys and values in memory; -1: half of what is free", group)
      ->check(NumberFrom(-1, kMaxInt))
      ->needs(offload);
  app.add_flag("--kv-offload-anyway", options->kv_offload_anyway,
               "With --kv-offload: even where the disk is too slow and q8_0 would fit into memory")
      ->group(group)
      ->needs(offload);
  AddChoice(app, "--cache-type-k", &options->cache_type_k, cache_types,
            "KV cache: type of keys (-ctk; default f16)", group);
  AddChoice(app, "--cache-type-v", &options->cache_type_v, cache_types,
            "KV cache: type of values (-ctv; default f16)", group);
  AddChoice<Bf16Arithmetic>(app, "--bf16-weights", &options->bf16_weights,
                            {{"f32", Bf16Arithmetic::kF32},
                             {"bf16", Bf16Arithmetic::kBF16},
                             {"bf16-amx", Bf16Arithmetic::kBF16Amx}},
                            "Arithmetic of BF16 weights (default f32)", group);
  AddChoice<AttentionKind>(
      app, "--attn-implementation", &options->attention,
      {{"flash", AttentionKind::kFlash}, {"eager", AttentionKind::kEager}},
      "How attention goes over the keys (default flash); eager: copies all of them first, "
      "for measuring beside; never changes output",
      group);
  app.add_option(
         "--weights-cache", options->weights_cache,
         "Folder to keep repacked weights in, so that the next load of this model maps them (default: none)")
      ->type_name("DIR")
      ->check(CheckNotEmpty)
      ->group(group);
  // Said once: some commands load a model many times, each with a copy of these options.
  options->on_warning = [said = std::make_shared<std::set<std::string>>()](const std::string& warning) {
    if (said->insert(warning).second) Warn(warning);
  };
  AddValue(app, "--device", &options->device,
           "Where the model runs: cpu, cuda:N, or auto: a card if there is one for it, else the CPU; never "
           "changes output",
           group);
  app.add_option("--kernels", options->kernels,
                 "Kernel table (default: $LONGSPEC_KERNELS, else the best this CPU has)")
      ->group(group);
  app.add_flag("!--no-calibration-cache", options->calibration_cache,
               "Keep no costs of forward passes and of drafts, and use none that are kept")
      ->group(group);
  AddRopeOptions(app, &options->rope);
}

void RefuseContextSize(CLI::App& app, const std::string& why) {
  // CLI11 does not name an option that its help leaves out.
  const auto refuse = [why](const std::string&) -> std::string {
    throw CLI::ValidationError("--ctx-size: has no effect here: " + why);
  };
  app.get_option("--ctx-size")->check(refuse)->group("");
}

void AddFilterOptions(CLI::App& app, SamplingOptions* options, const std::string& group) {
  AddValue(app, "--top-k", &options->top_k, "Keep the k most likely tokens; 0: off", group);
  AddValue(app, "--top-p", &options->top_p, "Keep the likeliest tokens of this total; 1: off", group)
      ->check(NumberFrom(0.0, 1.0));
  AddValue(app, "--min-p", &options->min_p, "Drop tokens below this share of the likeliest; 0: off", group)
      ->check(NumberFrom(0.0, 1.0));
}

void AddSamplingOptions(CLI::App& app, SamplingOptions* options) {
  const std::string group = "Sampling";
  app.add_option_function<std::string>(
         "-s,--seed",
         [options](const std::string& text) {
           const std::string error = ParseSeed(text, &options->seed);
           if (!error.empty()) throw CLI::ValidationError("--seed", text + " " + error);
         },
         "Seed; -1: a fresh one (default)")
      ->group(group);
  AddValue(app, "--temp,--temperature", &options->temperature, "Temperature; 0: greedy", group)
      ->check(NumberFrom(0));
  AddFilterOptions(app, options, group);
  AddValue(app, "--repeat-last-n", &options->repeat_last_n, "Tokens the penalties look back; 0: off, -1: all",
           group)
      ->check(NumberFrom(-1, kMaxInt));
  AddValue(app, "--repeat-penalty", &options->repeat_penalty, "Repetition penalty; 1: off", group)
      ->check(PositiveNumber());
  AddValue(app, "--presence-penalty", &options->presence_penalty, "Presence penalty; 0: off", group);
  AddValue(app, "--frequency-penalty", &options->frequency_penalty, "Frequency penalty; 0: off", group);
  app.add_option_function<std::vector<std::string>>(
         "--logit-bias",
         [options](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) {
             const auto bias = ParseLogitBias(text);
             if (!bias.ok()) throw CLI::ValidationError(bias.status().message());
             options->logit_bias.push_back(*bias);
           }
         },
         "TOKEN+BIAS or TOKEN-BIAS; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  // Declared last, so that it is applied after the options it turns off.
  app.add_option_function<std::string>(
         "--samplers",
         [options](const std::string& list) {
           const auto warnings = ApplySamplers(list, options);
           if (!warnings.ok()) throw CLI::ValidationError(warnings.status().message());
           for (const std::string& warning : *warnings) Warn(warning);
         },
         "Samplers that run, separated by semicolons, in their own order; those left out do nothing "
         "(default: " +
             std::string(kSamplers) + ")")
      ->group(group);
}

std::function<std::vector<std::string>()> AddSpeculationOptions(CLI::App& app, SpeculationOptions* options,
                                                                SpeculationIs use) {
  const std::string group = "Speculation (never changes output)";
  AddValue(app, "--spec-type", &options->type, DescribeDrafters(), group);
  AddValue(app, "--spec-policy", &options->policy,
           "How much is drafted: fixed, or adaptive (what pays at this context length on this machine; "
           "default for "
           "auto and lists)",
           group);
  AddValue(app, "--spec-draft-n-max", &options->draft_n_max, "Most drafted tokens per step", group);
  AddValue(app, "--spec-adaptive-n-max", &options->adaptive_n_max,
           "adaptive: most drafted tokens per step, if --spec-draft-n-max does not say", group);
  AddValue(app, "--spec-draft-n-min", &options->draft_n_min,
           "Fewer drafted tokens than this are not verified", group);
  app.add_option(
         "--spec-tree", options->tree,
         "Shape of drafts: chain (default), or the number of continuations to merge; with a draft model (its "
         "kind decides the default): chain, beam, widths such as 4,16,16, best[:DEPTH], "
         "opt[:THRESHOLD[:DEPTH]], eagle2[:K[:DEPTH[:TOTAL]]], or a fixed tree by ranks such as "
         "[[0],[1],[0,0]]")
      ->group(group);
  app.add_option_function<std::string>(
         "--spec-dice", [options](const std::string& value) { options->dice = value == "on"; },
         "Draft with the random numbers that will choose the tokens: on (default) or off")
      ->check(CLI::IsMember({"on", "off"}))
      ->group(group);
  for (const ReadOption& read : DrafterOptions()) {
    const std::string help = read.readers + ": " + std::string(read.option->help);
    std::visit(
        [&](auto member) {
          const std::string flags(read.option->flags);
          if constexpr (std::is_same_v<decltype(member), OptionPlace<bool>>) {
            app.add_flag(flags, member.In(*options), help)->group(group);
          } else {
            AddValue(app, flags, &member.In(*options), help, group);
          }
        },
        read.option->member);
  }
  // llama.cpp's option for all that has such a bound.
  const auto least = std::make_shared<float>();
  const CLI::Option* const least_chance =
      app.add_option("--spec-draft-p-min,--draft-p-min", *least)->group("");
  app.parse_complete_callback([&app, options, use, least, least_chance] {
    if (least_chance->count() > 0) SetLeastChance(app, *least, options);
    const Status status = Settle(app, use, options);
    if (!status.ok()) throw CLI::ValidationError(status.message());
  });
  return [&app] { return Given(app); };
}

void AddLimitOptions(CLI::App& app, GenerationRequest* request) {
  const std::string group = "Generation";
  AddValue(app, "-n,--predict", &request->n_predict, "Most tokens to generate; -1: until the end", group)
      ->check(NumberFrom(-1, kMaxInt));
  app.add_option("-r,--reverse-prompt,--stop", request->stop, "Stop string; may be repeated")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  PartialVerificationOptions& partial = request->partial_verification;
  CLI::Option* const by_part =
      app.add_flag("--partial-verification", partial.enabled,
                   "APPROXIMATE: choose tokens by a part of a long cache; the text is another one")
          ->group(group);
  app.add_option("--partial-budget", partial.budget, "Positions that it retrieves, in blocks of 16")
      ->capture_default_str()
      ->group(group);
  app.add_option("--partial-sink", partial.sink, "First positions that it sees, a multiple of 16")
      ->capture_default_str()
      ->group(group);
  app.add_option("--partial-window", partial.window, "Last positions that it sees, at least")
      ->capture_default_str()
      ->group(group);
  app.add_option_function<std::string>(
         "--partial-refresh",
         [&partial](const std::string& text) {
           const std::string error = ParseRefresh(text, &partial.refresh);
           if (!error.empty()) throw CLI::ValidationError("--partial-refresh", text + " " + error);
         },
         "Positions after which it retrieves anew; paper: when SpecPV does (THE TEXT DEPENDS ON THE DRAFTS)")
      ->default_str(std::to_string(partial.refresh))
      ->group(group);
  app.add_option("--partial-score", partial.score, "How blocks are scored: minmax, quest, mean, norm")
      ->capture_default_str()
      ->group(group);
  app.add_option("--partial-reduce", partial.reduce,
                 "With --partial-refresh paper: what queries' scores are made to: mean, max, last")
      ->capture_default_str()
      ->group(group);
  for (const char* of_part : {"--partial-budget", "--partial-sink", "--partial-window", "--partial-refresh",
                              "--partial-score", "--partial-reduce"})
    app.get_option(of_part)->needs(by_part);
  app.add_flag("--ignore-eos", request->ignore_eos, "Never choose an end token")->group(group);
}

void AddOutputOptions(CLI::App& app, OutputFlags* flags) {
  app.add_flag("-v,--verbose", flags->verbose, "Show model facts and details on standard error")
      ->group("Output");
  app.add_flag("--no-progress", flags->no_progress, "No memory plan and no progress on standard error")
      ->group("Output");
}

CLI::Validator NumberFrom(double low, double high) { return NumberIn(NumberRange(low, high)); }
CLI::Validator PositiveNumber() { return NumberIn(NumberRange::Positive()); }

std::string CheckNotEmpty(const std::string& value) {
  return value.empty() ? "is empty: give a value, or leave the option out" : "";
}

CLI::Validator MinusOneIs(const std::string& value) {
  return {[value](std::string& text) {
            if (text == "-1") text = value;
            return std::string();
          },
          ""};
}

void RefuseEmptyNumbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    const std::string type = option->get_type_name();
    if (type.starts_with("INT") || type.starts_with("UINT") || type.starts_with("FLOAT")) {
      option->check(CheckNotEmpty);
    }
  }
}

}  // namespace longspec::cli
