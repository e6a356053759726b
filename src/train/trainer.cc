// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <ATen/Parallel.h>
#include <torch/cuda.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "train/adamw.h"
#include "train/draft_net.h"
#include "train/feature_set.h"
#include "train/files.h"
#include "train/parallel_passes.h"
#include "train/pass.h"
#include "train/schedule.h"

namespace longspec::train {
namespace {

namespace fs = std::filesystem;

constexpr double kMeanDecay = 0.98;  // of the running mean of the loss

Status CheckOptions(const TrainOptions& o) {
  const auto fail = [](const std::string& option, const std::string& right) {
    return InvalidArgument(option + ": must be " + right);
  };
  if (!(o.learning_rate > 0.0 && o.learning_rate <= 1.0)) return fail("--lr", "above 0 and at most 1");
  if (!(o.warmup >= 0.0 && o.warmup < 1.0)) return fail("--warmup", "from 0 to below 1");
  if (o.epochs < 1) return fail("--epochs", "at least 1");
  if (o.steps < 0) return fail("--steps", "0 (as many as the epochs have) or more");
  if (o.batch < 1) return fail("--batch", "at least 1");
  if (o.micro_batch < 1 || o.batch % o.micro_batch != 0) return fail("--micro-batch", "a divisor of --batch");
  if (o.most_lag < 1) return fail("--noise-max", "at least 1");
  if (o.window < 1) return fail("--window", "at least 1");
  if (o.n_ff < 0 || o.n_ff % 32 != 0) return fail("--ff", "a multiple of 32, or 0 (the target's)");
  if (o.vocab < 0) return fail("--draft-vocab", "0 (every token) or more");
  if (!(o.distill >= 0.0 && o.distill <= 1.0)) return fail("--distill", "from 0 to 1");
  if (o.init_from_target && !o.init.empty()) return fail("--init-from-target", "without --init");
  if (o.checkpoint_every < 1) return fail("--checkpoint-every", "at least 1");
  return {};
}

Result<at::Device> ParseDevice(const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  if (!name.starts_with("cuda")) return InvalidArgument("--device " + name + ": must be cpu, cuda or cuda:N");
  if (!torch::cuda::is_available()) {
    return Unsupported("--device " + name +
                       ": LibTorch finds no CUDA device, or this trainer was built without CUDA");
  }
  return at::Device(name);
}

std::vector<at::Tensor> Trained(const DraftNet& net) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : net.tensors()) {
    if (tensor.requires_grad()) tensors.push_back(tensor);
  }
  return tensors;
}

class Run {
 public:
  Run(const TrainOptions& options, FeatureSet features, std::optional<FeatureSet> validation,
      FrozenParts frozen, std::vector<int64_t> vocab, at::Device device, int threads)
      : options_(options),
        threads_(threads),
        features_(std::move(features)),
        validation_(std::move(validation)),
        device_(device),
        net_({.target = features_.target(),
              .n_ff = options.n_ff > 0 ? options.n_ff : features_.target().n_ff,
              .window = options.window},
             options.seed, device),
        optimiser_(Trained(net_), options.adamw),
        labels_{.distill = options.distill, .vocab = std::move(vocab)} {
    frozen_.embedding = frozen.embedding.to(device);
    const at::Tensor head =
        labels_.vocab.empty() ? frozen.head : frozen.head.index_select(0, at::tensor(labels_.vocab));
    frozen_.head = head.is_same(frozen.embedding) ? frozen_.embedding : head.to(device);
    steps_per_epoch_ = features_.n_sequences() / options.batch;
    progress_.steps = options.steps > 0 ? options.steps : steps_per_epoch_ * options.epochs;
    state_.run = Describe();
  }

  Result<TrainSummary> Go(const std::function<bool(const TrainProgress&)>& on_progress) {
    if (steps_per_epoch_ == 0) {
      return InvalidArgument("--batch " + std::to_string(options_.batch) + ": there are only " +
                             std::to_string(features_.n_sequences()) + " sequences in " +
                             options_.features.front());
    }
    LS_TRY(Begin());
    const double begun_ms = NowMs();
    while (state_.steps < progress_.steps) {
      LS_ASSIGN(const bool go_on, Step(on_progress));
      if (!go_on) {
        LS_TRY(Save());
        return Cancelled("interrupted");
      }
      if (state_.steps % options_.checkpoint_every == 0 && state_.steps < progress_.steps) {
        LS_TRY(Save());
        if (!Look(on_progress)) return Cancelled("interrupted");
      }
    }
    const double seconds = (NowMs() - begun_ms) / 1000.0;
    LS_TRY(Save());
    if (progress_.tokens > 0) Look(on_progress);
    return TrainSummary{
        .steps = state_.steps,
        .tokens = progress_.tokens,
        .padding =
            padded_ > 0 ? 1.0 - static_cast<double>(progress_.tokens) / static_cast<double>(padded_) : 0.0,
        .mean_loss = state_.mean_loss,
        .seconds = progress_.tokens > 0 ? seconds : 0.0,
        .giga_macs = macs_ / 1e9,
        .peak_giga_macs = device_.is_cpu() ? PeakGigaMacs(threads_) : 0.0};
  }

 private:
  // What decides the weights. Threads and device may change between calls.
  std::string Describe() const {
    const TrainOptions& o = options_;
    char numbers[256];
    std::snprintf(
        numbers, sizeof(numbers),
        "--lr %g --warmup %g --batch %d --micro-batch %d --noise-max %d --window %d --ff %d --draft-vocab %d "
        "--distill %g --weight-decay %g --clip %g --seed %llu",
        o.learning_rate, o.warmup, o.batch, o.micro_batch, o.most_lag, o.window, net_.shape().n_ff, o.vocab,
        o.distill, o.adamw.weight_decay, o.adamw.max_norm, static_cast<unsigned long long>(o.seed));
    return std::string(numbers) + (o.anchor_offset ? "" : " --no-anchor-offset") + " --steps " +
           std::to_string(progress_.steps) + (o.init.empty() ? "" : " --init " + o.init) +
           (o.init_from_target ? " --init-from-target" : "") + ", features of " +
           std::to_string(features_.n_sequences()) + " sequences, " + std::to_string(features_.n_tokens()) +
           " tokens, model " + features_.target().fingerprint;
  }

  Status Begin() {
    std::error_code error;
    fs::create_directories(options_.output, error);
    if (error) return IoError(options_.output + ": " + error.message());
    const std::string checkpoint = CheckpointPath(options_.output);
    if (fs::exists(checkpoint, error)) return LoadCheckpoint(checkpoint, &state_, net_, optimiser_);
    if (options_.init_from_target) return InitFromTarget(options_.model, net_);
    if (options_.init.empty()) return {};
    LS_ASSIGN(state_.trained_positions, LoadDraft(options_.init, net_));
    return {};
  }

  // False: stopped in the middle of the step, of which nothing is left.
  Result<bool> Step(const std::function<bool(const TrainProgress&)>& on_progress) {
    const int passes = options_.batch / options_.micro_batch;
    std::vector<std::vector<int>> sequences;
    for (int i = 0; i < passes; ++i) sequences.push_back(SequencesOf(state_.steps * passes + i));
    progress_.step = state_.steps;
    progress_.end_of_step = false;
    const int64_t tokens_before = progress_.tokens;
    const auto pass = [&](int i) {
      return Pass(state_.steps * passes + i, sequences[static_cast<size_t>(i)]);
    };
    const auto on_pass = [&](const PassSum& sum) {
      progress_.tokens = tokens_before + sum.tokens;
      return on_progress(progress_);
    };
    PassSum sum;
    LS_ASSIGN(const bool complete, RunPasses(passes, threads_, pass, on_pass, &sum));
    if (!complete) return false;
    progress_.tokens = tokens_before + sum.tokens;
    padded_ += sum.padded;
    macs_ += sum.macs;
    // The mean over all tokens of the step that are to be predicted, however they lie in passes.
    const auto rows = static_cast<double>(std::max<int64_t>(1, sum.rows));
    const double loss = sum.loss / rows;
    for (size_t i = 0; i < sum.gradients.size(); ++i) {
      at::Tensor parameter = optimiser_.parameters()[i];
      if (sum.gradients[i].defined()) parameter.mutable_grad() = sum.gradients[i].div_(rows);
    }
    progress_.learning_rate =
        LearningRate(state_.steps, progress_.steps, options_.learning_rate, options_.warmup);
    progress_.gradient_norm = optimiser_.Step(state_.steps, progress_.learning_rate);
    if (!std::isfinite(progress_.gradient_norm)) return NotANumber("the gradients are");
    state_.mean_loss = state_.steps == 0 ? loss : kMeanDecay * state_.mean_loss + (1.0 - kMeanDecay) * loss;
    ++state_.steps;
    progress_.step = state_.steps;
    progress_.loss = loss;
    progress_.mean_loss = state_.mean_loss;
    progress_.end_of_step = true;
    return on_progress(progress_);
  }

  // One forward and backward pass. From any thread.
  Result<PassSum> Pass(int64_t pass, std::span<const int> sequences) const {
    const Batch batch = MakeBatch(features_, sequences, labels_);
    PassDraw draw{.lag = DrawLag(options_.seed, pass, options_.most_lag), .positions = {}};
    if (options_.anchor_offset) {
      draw.positions = DrawPositions(options_.seed, pass, batch.tokens.size(1), features_.target().n_ctx);
    }
    PassSum sum = RunPass(net_, optimiser_.parameters(), frozen_, batch, draw);
    if (!std::isfinite(sum.loss)) return NotANumber("the loss is");
    return sum;
  }

  // The micro-batch of that forward pass, counted from the beginning of the run.
  std::vector<int> SequencesOf(int64_t pass) {
    const int64_t passes_per_epoch = steps_per_epoch_ * (options_.batch / options_.micro_batch);
    const int64_t epoch = pass / passes_per_epoch;
    if (epoch != epoch_) {
      order_ = SequenceOrder(options_.seed, epoch_ = epoch, features_.n_sequences());
      SortBatchesByLength(options_.batch, features_.lengths(), &order_);
    }
    const auto begin = order_.begin() + pass % passes_per_epoch * options_.micro_batch;
    return {begin, begin + options_.micro_batch};
  }

  // Checkpoint and draft. Gradients of an unfinished step are not part of either.
  Status Save() {
    LS_TRY(SaveCheckpoint(state_, net_, optimiser_, CheckpointPath(options_.output)));
    const int64_t offsets = options_.anchor_offset && features_.has_short()
                                ? AnchorOffsetReach(features_.target().n_ctx)
                                : int64_t{0};
    return ExportDraft(
        net_,
        {.trained_positions = std::max({state_.trained_positions, offsets, features_.longest()}),
         .vocab = labels_.vocab},
        options_.output);
  }

  // Shows the weights as they are what they were not trained on. False: stop.
  bool Look(const std::function<bool(const TrainProgress&)>& on_progress) {
    if (!validation_) return true;
    const Validation seen = Validate(net_, frozen_.embedding, frozen_.head, *validation_, labels_);
    progress_.validation = &seen;
    progress_.end_of_step = false;
    const bool go_on = on_progress(progress_);
    progress_.validation = nullptr;
    return go_on;
  }

  Status NotANumber(const std::string& what) const {
    return Corrupt("step " + std::to_string(state_.steps + 1) + ": " + what +
                   " no finite number; the last checkpoint is kept, a lower --lr may help");
  }

  const TrainOptions& options_;
  const int threads_;
  const FeatureSet features_;
  const std::optional<FeatureSet> validation_;
  const at::Device device_;
  const DraftNet net_;
  AdamW optimiser_;
  LabelOptions labels_;
  FrozenParts frozen_;  // on the device, the head reduced
  int64_t steps_per_epoch_ = 0;
  TrainState state_;
  TrainProgress progress_;
  int64_t padded_ = 0;  // tokens of this call, with padding
  double macs_ = 0.0;   // of this call
  int64_t epoch_ = -1;
  std::vector<int32_t> order_;
};

// What the head is reduced to. A draft that goes on keeps the tokens it chooses among, whatever it is shown
// next.
Result<std::vector<int64_t>> DraftVocab(const TrainOptions& options, const FeatureSet& features) {
  std::vector<int64_t> vocab;
  if (!options.init.empty()) {
    LS_ASSIGN(vocab, LoadDraftVocab(options.init, features.target().n_vocab));
  }
  if (vocab.empty()) {
    if (options.vocab > 0) vocab = features.FrequentTokens(options.vocab, options.distill);
  } else if (options.vocab > 0 && options.vocab != static_cast<int>(vocab.size())) {
    return InvalidArgument("--draft-vocab " + std::to_string(options.vocab) +
                           ": the draft of --init chooses among " + std::to_string(vocab.size()) +
                           " tokens; leave it out to keep these");
  }
  return vocab;
}

Result<TrainSummary> TrainUnguarded(const TrainOptions& options,
                                    const std::function<bool(const TrainProgress&)>& on_progress) {
  LS_TRY(CheckOptions(options));
  LS_ASSIGN(const at::Device device, ParseDevice(options.device));
  LS_ASSIGN(FeatureSet features, FeatureSet::Open(options.features));
  if (options.distill > 0.0 && features.top_k() == 0) {
    return InvalidArgument("--distill: " + options.features.front() +
                           " holds no probabilities of the target; make the features with --top-k");
  }
  LS_ASSIGN(FrozenParts frozen, LoadFrozenParts(options.model, features.target()));
  std::optional<FeatureSet> validation;
  if (!options.validation.empty()) {
    LS_ASSIGN(validation, FeatureSet::Open(options.validation));
    if (validation->target() != features.target()) {
      return InvalidArgument("--validate: " + options.validation.front() +
                             " holds features of another model than " + options.features.front());
    }
  }
  LS_ASSIGN(std::vector<int64_t> vocab, DraftVocab(options, features));
  int threads = 1;
  if (device.is_cpu()) {
    threads = options.threads > 0 ? options.threads : at::get_num_threads();
    at::set_num_threads(1);
  }
  return Run(options, std::move(features), std::move(validation), std::move(frozen), std::move(vocab), device,
             threads)
      .Go(on_progress);
}

}  // namespace

// A safetensors file by another name: the engine reads all *.safetensors of a draft's folder.
std::string CheckpointPath(const std::string& output) {
  return (fs::path(output) / "checkpoint.bin").string();
}

// LibTorch reports by exceptions: out of memory above all.
Result<TrainSummary> Train(const TrainOptions& options,
                           const std::function<bool(const TrainProgress&)>& on_progress) {
  try {
    return TrainUnguarded(options, on_progress);
  } catch (const c10::Error& error) {
    const std::string message = error.what_without_backtrace();
    return ResourceExhausted("LibTorch: " + message.substr(0, message.find('\n')));
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory; a smaller --micro-batch needs less");
  }
}

}  // namespace longspec::train
