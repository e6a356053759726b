// SPDX-License-Identifier: Apache-2.0
//
// longspec-train: trains a draft model on the feature shards of `longspec features`.
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/number_range.h"
#include "train/program.h"
#include "train/train_log.h"
#include "train/trainer.h"

namespace longspec::train {
namespace {

constexpr char kProgram[] = "longspec-train";
constexpr char kExitCodeHelp[] =
    "Exit status: 0 done, 2 bad options, 3 features or model unreadable or loss not finite,\n"
    "4 out of memory or disk, 5 output cannot be written,\n"
    "130 interrupted (Ctrl-C saves; the same command goes on from there).";
constexpr double kTerminalIntervalMs = 200, kLogIntervalMs = 15000;

// LongSpec's three stages: what differs between them, with batches scaled to one machine.
struct Stage {
  double learning_rate;
  int batch;
};
const std::map<int, Stage>& Stages() {
  static const std::map<int, Stage> stages = {{1, {5e-4, 32}}, {2, {5e-6, 8}}, {3, {5e-6, 8}}};
  return stages;
}

// Numbers from the one to the other, both included.
CLI::Validator NumberFrom(double low, double high = std::numeric_limits<double>::infinity()) {
  const NumberRange range(low, high);
  return CLI::Validator([range](std::string& text) { return range.Check(text); }, range.Describe());
}

// One of these words. (CLI11's own shows values too, as characters where they are small numbers.)
template <typename Value>
CLI::Validator OneOf(const std::map<std::string, Value>& values) {
  std::string words;
  for (const auto& [word, value] : values) words += (words.empty() ? "" : ", ") + word;
  const auto to_number = [values, words](std::string& text) {
    const auto it = values.find(text);
    if (it == values.end()) return "must be one of " + words + ", not \"" + text + "\"";
    text = std::to_string(static_cast<int>(it->second));
    return std::string();
  };
  return {to_number, "(" + words + ")"};
}

// One line on stderr that is renewed on a terminal, a line now and then in a log.
class Display {
 public:
  explicit Display(bool enabled) : enabled_(enabled), terminal_(isatty(STDERR_FILENO) != 0) {}
  ~Display() { Finish(); }

  void Show(const TrainProgress& p) {
    const double now = NowMs();
    if (begun_ms_ == 0.0) {
      begun_ms_ = now;
      first_step_ = p.end_of_step ? p.step - 1 : p.step;
      first_tokens_ = p.tokens;
    }
    const bool last = p.end_of_step && p.step == p.steps;
    if (enabled_ && p.validation != nullptr) ShowValidation(p);
    if (!enabled_ || (!last && now - shown_ms_ < (terminal_ ? kTerminalIntervalMs : kLogIntervalMs))) return;
    shown_ms_ = now;
    std::fprintf(stderr, "%s%s%s", terminal_ ? "\r\033[K" : "", Line(p, now).c_str(), terminal_ ? "" : "\n");
    pending_ = terminal_;
  }

  void Finish() {
    if (pending_) std::fputs("\n", stderr);
    pending_ = false;
  }

 private:
  // Stays on the terminal.
  void ShowValidation(const TrainProgress& p) {
    Finish();
    const ValidationBucket& all = p.validation->all;
    std::string shares;
    for (size_t i = 0; i < all.agreement.size(); ++i) {
      char text[32];
      std::snprintf(text, sizeof(text), " %.3f/%.3f", all.agreement[i], all.top_4[i]);
      shares += text;
    }
    std::fprintf(
        stderr,
        "step %lld, %lld tokens: validation loss %.4f, top-1/top-4 by lag%s, accepted of a chain of %d "
        "%.2f, of trees of 8 and 16 %.2f and %.2f\n",
        static_cast<long long>(p.step), static_cast<long long>(p.tokens), all.loss, shares.c_str(),
        kValidatedLags, all.accepted.chain, all.accepted.tree_8, all.accepted.tree_16);
  }

  std::string Line(const TrainProgress& p, double now) const {
    const double seconds = std::max(1e-3, (now - begun_ms_) / 1000.0);
    const auto done = static_cast<double>(p.step - first_step_);
    const double left = done > 0 ? seconds / done * static_cast<double>(p.steps - p.step) : 0.0;
    char text[200];
    std::snprintf(
        text, sizeof(text),
        "step %lld/%lld, loss %.4f (mean %.4f), lr %.3g, |g| %.3g, %.0f tokens/s, %d:%02d:%02d left",
        static_cast<long long>(p.step), static_cast<long long>(p.steps), p.loss, p.mean_loss, p.learning_rate,
        p.gradient_norm, static_cast<double>(p.tokens - first_tokens_) / seconds,
        static_cast<int>(left / 3600), static_cast<int>(left / 60) % 60, static_cast<int>(left) % 60);
    return text;
  }

  const bool enabled_, terminal_;
  double begun_ms_ = 0.0, shown_ms_ = 0.0;
  int64_t first_step_ = 0, first_tokens_ = 0;
  bool pending_ = false;
};

struct Flags {
  TrainOptions train;
  int stage = 1;
  std::string log;
  bool no_anchor_offset = false, no_progress = false;
};

void AddRunOptions(CLI::App& app, Flags* flags) {
  TrainOptions& t = flags->train;
  app.add_option("-f,--features", t.features, "Folders of feature shards, from `longspec features`")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-m,--model", t.model, "GGUF file they were made with: its embedding and LM head are used")
      ->required();
  app.add_option("-o,--output", t.output,
                 "Folder for the draft model and the checkpoint; a run that was stopped goes on there")
      ->required();
  app.add_option("--init", t.init,
                 "Draft model to begin with, a folder or a GGUF file: stage 2 begins with what stage 1 made");
  app.add_flag("--init-from-target", t.init_from_target,
               "Begin with weights of the target's first and last layer rather than random ones");
  app.add_option("--seed", t.seed, "Decides weights, order, positions and lags")->capture_default_str();
  app.add_option("--device", t.device, "cpu, cuda or cuda:N")->capture_default_str();
  app.add_option("-t,--threads", t.threads,
                 "Forward passes at the same time; 0: LibTorch's choice; never changes the draft")
      ->capture_default_str()
      ->check(NumberFrom(0, 1024));
  app.add_option("--checkpoint-every", t.checkpoint_every, "Save the state after as many steps")
      ->capture_default_str();
  app.add_option(
         "--validate", t.validation,
         "Folders of other features: with every checkpoint, loss and agreement with the target on them")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--log", flags->log, "Append a JSON line for each step to this file");
  app.add_flag("--no-progress", flags->no_progress, "Show no progress on stderr");
}

void AddTrainingOptions(CLI::App& app, Flags* flags) {
  TrainOptions& t = flags->train;
  app.add_option("--stage", flags->stage, "1: short texts, 2: long texts, 3: answers; sets --lr and --batch")
      ->capture_default_str()
      ->check(NumberFrom(1, 3));
  app.add_option("--lr", t.learning_rate,
                 "Peak learning rate (default: 5e-4 in stage 1, 5e-6 in stages 2 and 3)");
  app.add_option("--kind", t.draft.kind, "Kind of draft: " + TraineeKindNames())->capture_default_str();
  app.add_option("--schedule", t.schedule,
                 "cosine, or wsd: warm-up, stable, decay, which can be continued with more --steps")
      ->transform(OneOf(
          std::map<std::string, Schedule>{{"cosine", Schedule::kCosine}, {"wsd", Schedule::kStableDecay}}))
      ->default_str("cosine");
  app.add_option("--warmup", t.warmup, "Share of the steps to reach it in; then a cosine")
      ->capture_default_str();
  app.add_option("--warmup-steps", t.stable_decay.warmup, "Steps to reach it in, of wsd")
      ->capture_default_str();
  app.add_option("--decay", t.stable_decay.decay_share, "Share of the steps in which wsd falls to 0")
      ->capture_default_str();
  app.add_option("--epochs", t.epochs, "Times that each sequence is seen")
      ->capture_default_str()
      ->check(NumberFrom(1, 1'000'000));
  app.add_option("--steps", t.steps, "Optimiser steps; 0: as many as the epochs have")->capture_default_str();
  app.add_option("--batch", t.batch,
                 "Sequences of an optimiser step (default: 32 in stage 1, 8 in stages 2 and 3)");
  app.add_option("--micro-batch", t.micro_batch, "Sequences of a forward pass; memory grows with it")
      ->capture_default_str();
  app.add_option("--optimiser", t.optimiser.muon, "adamw, or muon: that for matrices of the block")
      ->transform(OneOf(std::map<std::string, bool>{{"adamw", false}, {"muon", true}}))
      ->default_str("adamw");
  app.add_option("--weight-decay", t.optimiser.weight_decay, "The optimiser's weight decay")
      ->capture_default_str()
      ->check(NumberFrom(0));
  app.add_option("--clip", t.optimiser.max_norm, "Largest norm of the gradients; 0: any")
      ->capture_default_str()
      ->check(NumberFrom(0));
  app.add_option("--positions", t.positions,
                 "Where tokens of short sequences stand: anchor-offset (LongSpec's), gaps (up to 4, anywhere "
                 "inside), or plain")
      ->transform(OneOf(std::map<std::string, Positions>{{"anchor-offset", Positions::kAnchorOffset},
                                                         {"gaps", Positions::kGaps},
                                                         {"plain", Positions::kPlain}}))
      ->default_str("anchor-offset, lm plain");
  app.add_flag("--no-anchor-offset", flags->no_anchor_offset, "The same as --positions plain")
      ->excludes("--positions");
  app.add_option("--distill", t.distill,
                 "Share of the target's own probabilities in the labels; needs features of --keep final, or "
                 "with --top-k")
      ->capture_default_str();
  app.add_option("--draft-vocab", t.vocab,
                 "Reduce the draft's head to the most frequent tokens; 0: all tokens")
      ->capture_default_str();
  app.add_option(
      "--prior", t.prior,
      "Table of n-grams of the target's tokenizer, whose most frequent tokens fill up --draft-vocab");
  app.add_option(
         "--sampled-softmax", t.tokens_of_loss,
         "Losses over so many tokens of the draft's head, those of the texts among them, others in each "
         "pass: faster; 0: all")
      ->capture_default_str()
      ->check(NumberFrom(0));
  app.add_option("--precision", t.draft.precision,
                 "f32, or bf16: products of weights and of attention, where the CPU has them")
      ->transform(
          OneOf(std::map<std::string, Precision>{{"f32", Precision::kF32}, {"bf16", Precision::kBf16}}))
      ->default_str("f32");
}

constexpr char kKindGroup[] = "Options of some kinds";

// What is drafted. These are options of some kinds only.
void AddKindOptions(CLI::App& app, Flags* flags) {
  TraineeOptions& d = flags->train.draft;
  const size_t n_before = app.get_options().size();
  app.add_option("--ff", d.n_ff, "Width of the MLP; 0: the target's")->capture_default_str();
  app.add_option("--window", d.window, "longspec: tokens that self-attention sees back")
      ->capture_default_str();
  app.add_option("--noise-max", d.most_lag,
                 "longspec: flash noisy training, cross-attention lags 1 to this many tokens")
      ->capture_default_str();
  app.add_flag("--own-keys", d.own_keys,
               "longspec: keys and values of its own from the final hidden state, not the target's");
  app.add_option("--simulate", d.simulate,
                 "eagle, eagle3, beagle: steps that the draft takes with states of its own in training; "
                 "exit: more than 0: it reads the final state of the token before as well")
      ->check(NumberFrom(0, 64))
      ->default_str("as the kind's paper");
  app.add_option("--block-window", d.block_window,
                 "beagle with --simulate 0: tokens that are predicted from the same states")
      ->capture_default_str();
  app.add_option("--regression", d.regression,
                 "eagle, beagle: weight of SmoothL1 to the target's state; the cross-entropy has 1")
      ->capture_default_str();
  app.add_option("--noise", d.noise, "eagle, beagle: none, uniform or gauss noise on the target's states")
      ->transform(OneOf(std::map<std::string, StateNoise>{
          {"none", StateNoise::kNone}, {"uniform", StateNoise::kUniform}, {"gauss", StateNoise::kGaussian}}))
      ->default_str("uniform");
  app.add_option("--layers", d.layers,
                 "exit: the layer of the target that it reads, from 0; eagle3: the three that it reads; lm: "
                 "those that it begins with")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->default_str("chosen by the kind");
  app.add_option(
      "--sibling", d.sibling,
      "lm: GGUF file of a smaller model of the same vocabulary, whose --layers these are, with rows of "
      "its embedding and head");
  app.add_option("--heads", d.n_heads, "medusa, tokenswift: heads")
      ->check(NumberFrom(1, 64))
      ->default_str("4, tokenswift 3");
  app.add_option("--noise-scale", d.noise_scale,
                 "Deviation of gauss noise; uniform noise reaches 256 / length of it")
      ->capture_default_str();
  const std::vector<CLI::Option*> options = app.get_options();
  for (size_t i = n_before; i < options.size(); ++i) options[i]->group(kKindGroup);
}

// Empty if there was nothing left to do.
std::string Speed(const TrainSummary& t) {
  if (t.seconds <= 0.0 || t.peak_giga_macs <= 0.0) return "";
  const double rate = t.giga_macs / t.seconds;
  char text[200];
  std::snprintf(text, sizeof(text),
                "%lld tokens, %.0f tokens/s; %.1f of the %.1f GMAC/s of matrix products alone (%.0f %%)\n",
                static_cast<long long>(t.tokens), static_cast<double>(t.tokens) / t.seconds, rate,
                t.peak_giga_macs, 100.0 * rate / t.peak_giga_macs);
  return text;
}

// Options that would have no effect beside others.
Status CheckGiven(const Flags& flags, const CLI::App& app) {
  const bool cosine = flags.train.schedule == Schedule::kCosine;
  if (!cosine && app.count("--warmup") > 0)
    return InvalidArgument("--warmup: of --schedule cosine; wsd has --warmup-steps");
  for (const char* option : {"--warmup-steps", "--decay"}) {
    if (cosine && app.count(option) > 0) return InvalidArgument(std::string(option) + ": of --schedule wsd");
  }
  std::vector<std::string> given;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group() == kKindGroup && option->count() > 0) given.push_back(option->get_name());
  }
  return CheckTraineeOptions(flags.train.draft.kind, given);
}

int RunTraining(Flags flags, const CLI::App& app) {
  if (const Status status = CheckGiven(flags, app); !status.ok())
    return Fail(kProgram, kExitUsage, status.message());
  const Stage& stage = Stages().at(flags.stage);
  if (app.count("--lr") == 0) flags.train.learning_rate = stage.learning_rate;
  if (app.count("--batch") == 0) flags.train.batch = stage.batch;
  if (flags.no_anchor_offset) flags.train.positions = Positions::kPlain;
  TrainLog log;
  if (const Status status = log.Open(flags.log); !status.ok())
    return Fail(kProgram, kExitOutput, status.message());
  Display display(!flags.no_progress);
  Status logged;
  const auto trained = Train(flags.train, [&](const TrainProgress& progress) {
    display.Show(progress);
    if (logged.ok()) logged = log.Add(progress);
    return logged.ok() && !Interrupted();
  });
  display.Finish();
  const bool stopped = !trained.ok() && trained.status().code() == StatusCode::kCancelled;
  if (!trained.ok() && !stopped)
    return Fail(kProgram, ExitCodeOf(trained.status()), trained.status().message());
  const std::string saved =
      "; the state is saved in " + flags.train.output + ", and the same command goes on from there";
  if (!logged.ok()) return Fail(kProgram, ExitCodeOf(logged), logged.message() + saved);
  if (stopped) return Fail(kProgram, kExitInterrupted, "interrupted" + saved);
  std::printf("%s: draft model after %lld steps, mean loss %.4f\n%s", flags.train.output.c_str(),
              static_cast<long long>(trained->steps), trained->mean_loss, Speed(*trained).c_str());
  return FlushOutput(kProgram);
}

// A pass takes as much memory as the one before. Given back in between, it costs a good part of the time: the
// system clears each page before it gives it again.
void KeepFreedMemory() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that is allowed
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
#endif
}

int Main(int argc, char** argv) {
  KeepFreedMemory();
  CatchSignals();
  CommandLine app("Trains a draft model on features of its target.", kProgram, kExitCodeHelp);
  Flags flags;
  AddRunOptions(app, &flags);
  AddTrainingOptions(app, &flags);
  AddKindOptions(app, &flags);
  if (const auto status = app.Parse(argc, argv)) return *status;
  return RunTraining(std::move(flags), app);
}

}  // namespace
}  // namespace longspec::train

int main(int argc, char** argv) { return longspec::train::Main(argc, argv); }
