// SPDX-License-Identifier: Apache-2.0
//
// longspec features: runs the model over text and keeps what training a draft model needs of it.
#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "base/to_int.h"
#include "bench/loaded_model.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/feature_tokenizer.h"
#include "cli/interrupt.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "engine/memory_plan.h"
#include "engine/opened_model.h"
#include "features/plan.h"
#include "features/run.h"
#include "longspec/engine.h"
#include "model/shared_parts.h"
#include "network/describe_target.h"

namespace longspec::cli {
namespace {

constexpr double kMostCountingMs = 3000;  // of the tokens that will be written

struct FeatureFlags {
  ModelOptions model;
  OutputFlags output;
  FeatureRunOptions run;
  ContinuationOptions write;
  std::string keep = "kv", keep_type = "f16";
};

std::string TokenRate(const FeatureProgress& progress, double begun_ms) {
  const double seconds = (NowMs() - begun_ms) / 1000.0;
  const double rate = static_cast<double>(progress.tokens) / seconds;
  char text[96];
  std::snprintf(text, sizeof(text), "%lld tokens, %.0f tokens/s", static_cast<long long>(progress.tokens),
                rate);
  return text;
}

Result<LoadedModel> LoadTarget(const FeatureFlags& flags, const ModelFiles& files) {
  const auto progress =
      std::make_shared<Progress>("loading", Progress::StandardError(!flags.output.no_progress));
  const int64_t positions = (int64_t{flags.run.length} + kKvChunk) *
                            (flags.run.write > 0 && !flags.run.write_later ? flags.write.at_once + 1 : 1);
  return LoadForBench(WithProgress(flags.model, progress), nullptr, flags.model.batch_size,
                      static_cast<int>(std::min<int64_t>(positions, kMaxInt)), files.target);
}

// Each sequence that is written has a cache: fewer at once where memory has no room for so many. That changes
// nothing of what is written.
Result<LoadedModel> LoadTargetThatFits(FeatureFlags& flags, const ModelFiles& files) {
  auto model = LoadTarget(flags, files);
  while (model.status().code() == StatusCode::kResourceExhausted && flags.run.write > 0 &&
         flags.write.at_once > 1) {
    flags.write.at_once /= 2;
    model = LoadTarget(flags, files);
  }
  return model;
}

std::unique_ptr<ContinuationWriter> WriterOf(const FeatureFlags& flags, const LoadedModel& model,
                                             const Engine& engine) {
  if (flags.run.write <= 0 || flags.run.write_later) return nullptr;
  ContinuationOptions options = flags.write;
  options.max_tokens = flags.run.write;
  options.ends = [&engine](int32_t token) { return engine.EndsAnswer(token); };
  options.top_k = flags.run.top_k;
  options.beginning_logits = flags.run.top_k > 0 && flags.run.learn_from == LearnFrom::kEverything;
  options.rows = flags.model.batch_size;
  options.keep = flags.run.keep;
  const auto new_cache = [&] { return model.NewCache(flags.run.length + kKvChunk); };
  return std::make_unique<ContinuationWriter>(model.target.get(), new_cache, std::move(options));
}

Status CheckLayers(const FeatureKeep& keep, int n_layer) {
  if (keep.hidden_layers.empty() || keep.hidden_layers.back() < n_layer) return {};
  return InvalidArgument("--keep hidden:" + std::to_string(keep.hidden_layers.back()) +
                         ": the model has layers 0 to " + std::to_string(n_layer - 1));
}

struct Disk {
  uint64_t there = 0;            // bytes of shards that the folder has
  std::optional<uint64_t> free;  // where it is known
};

Disk DiskOf(const std::string& output) {
  Disk disk;
  std::error_code error;
  for (int i = 0;; ++i) {
    const auto size = std::filesystem::file_size(FeatureShardPath(output, i), error);
    if (error) break;
    disk.there += size;
  }
  const auto space = std::filesystem::space(output, error);
  if (!error) disk.free = space.available;
  return disk;
}

// An estimate to two digits.
std::string TokensText(const FeaturePlan& plan, int64_t tokens) {
  if (!plan.estimated) return std::to_string(tokens);
  int64_t unit = 1;
  while (tokens / unit >= 100) unit *= 10;
  return "about " + std::to_string((tokens + unit / 2) / unit * unit);
}

std::string PlanText(const FeaturePlan& plan, int64_t bytes_per_token, double took_ms) {
  const double bytes = static_cast<double>(plan.tokens) * static_cast<double>(bytes_per_token);
  const char* how = plan.least_tokens < plan.tokens ? "at most " : "";
  char took[48];
  std::snprintf(took, sizeof(took), " tokens (counted in %.1f s)", took_ms / 1000.0);
  return std::string(", ") + how + (plan.estimated ? "about " : "") +
         FormatBytes(static_cast<uint64_t>(bytes)) + " for " + TokensText(plan, plan.tokens) + took;
}

// What the folder will take, and what there is: it is better known beforehand.
Status CheckDisk(const FeatureFlags& flags, const FeatureTarget& target, const FeatureTokenizer& tokenizer) {
  const FeatureRunOptions& run = flags.run;
  const int64_t bytes = FeatureBytesPerToken(target, run.keep, run.top_k);
  const Disk disk = DiskOf(run.output);
  const double begun_ms = NowMs();
  const auto plan = PlanFeatures(run, tokenizer, kMostCountingMs);
  std::string text = "disk: " + std::to_string(bytes) + " bytes a token";
  if (plan && plan->tokens > 0) text += PlanText(*plan, bytes, NowMs() - begun_ms);
  if (disk.free) text += "; " + FormatBytes(*disk.free) + " free";
  if (!flags.output.no_progress) std::fputs((text + "\n").c_str(), stderr);
  if (!plan || !disk.free || HasRoom(*plan, bytes, disk.there, *disk.free)) return {};
  const uint64_t fit = (disk.there + *disk.free) / static_cast<uint64_t>(bytes);
  return ResourceExhausted(
      run.output + ": " + std::to_string(bytes) + " bytes for each of " +
      TokensText(*plan, plan->least_tokens) + " tokens are more than is free, " + FormatBytes(*disk.free) +
      "; keep less of each (--keep, --top-k) or ask for fewer: --max-tokens " + std::to_string(fit));
}

Result<std::string> Make(FeatureFlags flags, bool* output_failed) {
  ModelOptions vocabulary = flags.model;
  vocabulary.vocab_only = true;
  ModelFiles files;
  LS_ASSIGN(const std::unique_ptr<Engine> engine, LoadModelOf(vocabulary, files));
  LS_ASSIGN(const LoadedModel model, LoadTargetThatFits(flags, files));
  const FeatureTarget target = DescribeTarget(*model.target->shared_parts()->sizes, *model.file);
  LS_TRY(CheckLayers(flags.run.keep, model.target->shared_parts()->sizes->n_layer));
  FeatureExtractor extractor(model.target.get(), model.NewCache(flags.run.length + kKvChunk),
                             flags.model.batch_size, flags.run.top_k, flags.run.keep);
  const FeatureTokenizer tokenizer = FeatureTokenizerOf(*engine, *model.file);
  const Status room = CheckDisk(flags, target, tokenizer);
  *output_failed = !room.ok();
  LS_TRY(room);
  Progress progress("features", Progress::StandardError(!flags.output.no_progress));
  const double begun_ms = NowMs();
  double first_share = -1.0;
  const auto show = [&](const FeatureProgress& p) {
    if (first_share < 0.0) first_share = p.share;
    progress.Update(p.share,
                    TokenRate(p, begun_ms) + FormatTimeLeft(p.share, first_share, NowMs() - begun_ms));
    return !Interrupted();
  };
  const auto writer = WriterOf(flags, model, *engine);
  const auto made = MakeFeatures(flags.run, target, tokenizer, extractor, show, writer.get(), output_failed);
  progress.Finish();
  if (!made.ok()) return made.status();
  if (made->cut > 0) {
    Warn(std::to_string(made->cut) + " conversations are longer than --length " +
         std::to_string(flags.run.length) +
         (flags.run.write > 0 ? " less --write; they were left out" : "; their ends were left out"));
  }
  return flags.run.output + ": " + std::to_string(made->tokens) + " tokens in " +
         std::to_string(made->sequences) + " sequences, " + std::to_string(made->shards) + " shards\n";
}

int RunFeatures(FeatureFlags flags) {
  CatchInterrupt();
  // All that needs no model before one is loaded.
  auto keep = ParseFeatureKeep(flags.keep, flags.keep_type == "bf16" ? DType::kBF16 : DType::kF16);
  if (!keep.ok()) return Fail(keep.status(), Stage::kLoad);
  flags.run.keep = *std::move(keep);
  if (const Status checked = CheckFeatureOptions(flags.run); !checked.ok())
    return Fail(checked, Stage::kLoad);
  if (const Status created = CreateFeatureFolder(flags.run); !created.ok())
    return Fail(created, Stage::kWrite);
  bool output_failed = false;
  const auto made = Make(flags, &output_failed);
  if (made.ok()) return WriteOutput(*made);
  if (made.status().code() != StatusCode::kCancelled)
    return Fail(made.status(), output_failed ? Stage::kWrite : Stage::kLoad);
  return Fail(
      kExitInterrupted,
      flags.run.output + ": interrupted; what is complete was kept, and the same command goes on from there");
}

}  // namespace

Runner SetUpFeatures(CLI::App& app) {
  auto flags = std::make_shared<FeatureFlags>();
  FeatureRunOptions& run = flags->run;
  AddModelOptions(app, &flags->model);
  RefuseContextSize(app, "--length says how many positions a sequence has");
  app.add_option("-i,--input", run.inputs,
                 "Files of JSON lines, plain or gzip: objects with \"text\", \"prompt\" and \"answer\", or "
                 "\"messages\"; with --write, \"prompt\" alone")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-o,--output", run.output, "Folder for the shards; a run that was stopped goes on there")
      ->required();
  app.add_option("--length", run.length, "Tokens of a sequence; longer texts are cut into several")
      ->capture_default_str();
  app.add_option("--min-length", run.min_length, "Leave out pieces shorter than this")
      ->capture_default_str()
      ->check(NumberFrom(2, kMaxInt));
  app.add_option("--max-pieces", run.max_pieces, "Sequences of one text; 0: all of it")
      ->capture_default_str()
      ->check(NumberFrom(0));
  app.add_option("--max-tokens", run.max_tokens, "Stop after about as many tokens; 0: at the end of the text")
      ->capture_default_str()
      ->check(NumberFrom(0));
  app.add_option("--shard-tokens", run.shard_tokens, "Tokens of a shard")->capture_default_str();
  app.add_option(
         "--keep", flags->keep,
         "What is kept of each token, separated by commas: kv (the last layer's keys and values), final "
         "(the hidden state that the LM head sees), hidden:L (what layer L puts out, counted from 0); or "
         "none: "
         "tokens alone, and longspec-train computes the rest")
      ->capture_default_str();
  app.add_option("--keep-type", flags->keep_type, "Type of what is kept")
      ->capture_default_str()
      ->check(CLI::IsMember({"f16", "bf16"}));
  app.add_option("--top-k", run.top_k, "Also keep the target's most probable next tokens, for distillation")
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--learn",
         [&run](const std::string& name) {
           run.learn_from = name == "everything" ? LearnFrom::kEverything : LearnFrom::kAnswers;
         },
         "What is learned of conversations: \"answers\" (default) or \"everything\" but system messages")
      ->check(CLI::IsMember({"answers", "everything"}));
  app.add_option("--write", run.write,
                 "Let the target write this many tokens at most after each document, or answer it; 0: no")
      ->capture_default_str()
      ->check(NumberFrom(0));
  app.add_option("--write-temps", flags->write.temperatures, "Temperatures it writes at, in turn")
      ->capture_default_str()
      ->delimiter(',')
      ->check(NumberFrom(0));
  app.add_flag("--write-later", run.write_later,
               "With --write and --keep none: keep the documents only, for longspec-write to end them");
  app.add_option("--write-seed", flags->write.seed, "Decides what is written")->capture_default_str();
  AddOutputOptions(app, &flags->output);
  return [flags] { return RunFeatures(*flags); };
}

}  // namespace longspec::cli
