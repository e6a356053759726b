// SPDX-License-Identifier: Apache-2.0
#include "train/trainer.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "formats/ngram_prior.h"
#include "train/device.h"
#include "train/feature_set.h"
#include "train/files.h"
#include "train/optimiser.h"
#include "train/parallel_passes.h"
#include "train/pass.h"
#include "train/row_kernels.h"
#include "train/schedule.h"
#include "train/target_states.h"
#include "train/target_weights.h"
#include "train/trainee_kinds.h"
#include "train/validation.h"

namespace longspec::train {
namespace {

namespace fs = std::filesystem;

constexpr double kMeanDecay = 0.98;  // of the running mean of the loss

// How checkpoints name them; the default had no name before there were others.
const char* PositionsFlag(Positions positions) {
  switch (positions) {
    case Positions::kPlain:
      return " --no-anchor-offset";
    case Positions::kGaps:
      return " --positions gaps";
    case Positions::kAnchorOffset:
      return "";
  }
  return "";
}

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
  if (o.stable_decay.warmup < 0) return fail("--warmup-steps", "0 or more");
  if (!(o.stable_decay.decay_share > 0.0 && o.stable_decay.decay_share <= 1.0))
    return fail("--decay", "above 0 and at most 1");
  if (!(o.draft.regression >= 0.0)) return fail("--regression", "0 or more");
  if (!(o.draft.noise_scale >= 0.0)) return fail("--noise-scale", "0 or more");
  if (o.draft.n_ff < 0 || o.draft.n_ff % 32 != 0)
    return fail("--ff", "a multiple of 32, or 0 (the target's)");
  if (o.vocab < 0) return fail("--draft-vocab", "0 (every token) or more");
  if (!(o.distill >= 0.0 && o.distill <= 1.0)) return fail("--distill", "from 0 to 1");
  if (!o.prior.empty() && o.vocab == 0) return fail("--prior", "with --draft-vocab, which it fills up");
  if (!o.draft.sibling.empty() && o.vocab == 0 && o.init.empty())
    return fail("--sibling",
                "with --draft-vocab: of its embedding and head the draft has these tokens' rows");
  if (o.tokens_of_loss < 0) return fail("--sampled-softmax", "0 (every token) or more");
  if (o.init_from_target && !o.init.empty()) return fail("--init-from-target", "without --init");
  if (o.checkpoint_every < 1) return fail("--checkpoint-every", "at least 1");
  return {};
}

Status CheckPrecision(Precision precision, at::Device device) {
  if (precision == Precision::kF32 || !device.is_cpu()) return {};
  if (HasRowKernels()) return {};  // with amx too
  return Unsupported("--precision bf16: this CPU has no avx512_bf16; f32 is faster on it");
}

OptimiserOptions OptimiserOf(const TrainOptions& o) {
  OptimiserOptions options = o.optimiser;
  options.muon_in_bf16 = o.draft.precision == Precision::kBf16;
  return options;
}

// What a run trains on, and what it does not change.
struct Data {
  FeatureSet features;
  std::optional<FeatureSet> validation;
  ShardNeeds needs;
  std::shared_ptr<const GgufFile> model;
  std::shared_ptr<const GgufFile> sibling = {};  // null: none is asked for
};

class Run {
 public:
  Run(const TrainOptions& options, Data data, std::unique_ptr<Trainee> trainee, int threads)
      : options_(options),
        threads_(threads),
        data_(std::move(data)),
        trainee_(std::move(trainee)),
        optimiser_(trainee_->parameters().Trained(), OptimiserOf(options),
                   trainee_->parameters().TrainedHidden()),
        labels_{.distill = options.distill, .vocab = trainee_->setup().vocab} {
    steps_per_epoch_ = data_.features.n_sequences() / options.batch;
    progress_.steps = options.steps > 0 ? options.steps : steps_per_epoch_ * options.epochs;
    if (data_.validation) validator_.emplace(*data_.validation, data_.needs, labels_);
    state_.run = Describe();
    state_.total = progress_.steps;
  }

  Result<TrainSummary> Go(const std::function<bool(const TrainProgress&)>& on_progress) {
    if (steps_per_epoch_ == 0) {
      return InvalidArgument("--batch " + std::to_string(options_.batch) + ": there are only " +
                             std::to_string(data_.features.n_sequences()) + " sequences in " +
                             options_.features.front());
    }
    LS_TRY(Begin());
    progress_.step = state_.steps;
    const double begun_ms = NowMs();
    while (state_.steps < progress_.steps) {
      // Before the first step that decays, wherever this call began.
      if (options_.schedule == Schedule::kStableDecay &&
          state_.steps == DecayBegin(progress_.steps, options_.stable_decay)) {
        LS_TRY(SaveCheckpoint(state_, trainee_->parameters(), optimiser_,
                              StableCheckpointPath(options_.output)));
      }
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
    Look(on_progress);  // a finished run too, that is called again with other texts
    return TrainSummary{.steps = state_.steps,
                        .tokens = progress_.tokens,
                        .mean_loss = state_.mean_loss,
                        .seconds = progress_.tokens > 0 ? seconds : 0.0,
                        .giga_macs = macs_ / 1e9,
                        .peak_giga_macs = trainee_->setup().device.is_cpu() ? PeakGigaMacs(threads_) : 0.0};
  }

 private:
  // What decides the weights. Threads and device may change between calls, and the number of steps where the
  // weights do not depend on it.
  std::string Describe() const {
    const TrainOptions& o = options_;
    const bool cosine = o.schedule == Schedule::kCosine;
    char numbers[320];
    std::snprintf(numbers, sizeof(numbers),
                  "--kind %s --lr %g %s %g --batch %d --micro-batch %d --ff %d --draft-vocab %d --distill %g "
                  "--weight-decay %g --clip %g --seed %llu ",
                  o.draft.kind.c_str(), o.learning_rate, cosine ? "--warmup" : "--schedule wsd --decay",
                  cosine ? o.warmup : o.stable_decay.decay_share, o.batch, o.micro_batch,
                  trainee_->setup().options.n_ff, o.vocab, o.distill, o.optimiser.weight_decay,
                  o.optimiser.max_norm, static_cast<unsigned long long>(o.seed));
    const std::string text =
        numbers + trainee_->Describe() + PositionsFlag(*o.positions) +
        (cosine ? " --steps " + std::to_string(progress_.steps)
                : " --warmup-steps " + std::to_string(o.stable_decay.warmup)) +
        (o.optimiser.muon ? " --optimiser muon" : "") +
        (o.draft.precision == Precision::kBf16 ? " --precision bf16" : "") +
        (o.prior.empty() ? "" : " --prior " + o.prior) +
        (o.tokens_of_loss > 0 ? " --sampled-softmax " + std::to_string(o.tokens_of_loss) : "") +
        (o.init.empty() ? "" : " --init " + o.init) + (o.init_from_target ? " --init-from-target" : "") +
        ", features of " + std::to_string(data_.features.n_sequences()) + " sequences, " +
        std::to_string(data_.features.n_tokens()) + " tokens (" + data_.features.Digest() + "), model " +
        data_.features.target().fingerprint;
    return ValidUtf8(text);
  }

  Status Begin() {
    std::error_code error;
    fs::create_directories(options_.output, error);
    if (error) return IoError(options_.output + ": " + error.message());
    const std::string last = CheckpointPath(options_.output), stable = StableCheckpointPath(options_.output);
    if (fs::exists(last, error)) {
      LS_TRY(Load(last));
      if (GoesOn()) return {};
      if (fs::exists(stable, error)) {
        LS_TRY(Load(stable));
        if (GoesOn()) return {};
      }
      return InvalidArgument("--steps " + std::to_string(progress_.steps) + ": the run in " +
                             options_.output + " decays from step " + std::to_string(state_.steps) +
                             " on at the earliest; ask for more steps");
    }
    const bool from_target = options_.init_from_target || trainee_->BeginsWithTarget();
    if (options_.init.empty()) return from_target ? trainee_->InitFromTarget() : Status();
    LS_ASSIGN(state_.trained_positions, LoadDraft(options_.init, *trainee_));
    return {};
  }

  Status Load(const std::string& path) {
    return LoadCheckpoint(path, &state_, trainee_->parameters(), optimiser_);
  }

  // Whether the checkpoint that was read is on the way to this number of steps. One that has not decayed is
  // on the way to any number that it does not decay before.
  bool GoesOn() {
    const int64_t its_total = std::exchange(state_.total, progress_.steps);
    if (its_total == progress_.steps) return true;
    return state_.steps <= DecayBegin(std::min(its_total, progress_.steps), options_.stable_decay);
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
    macs_ += sum.macs;
    // The mean over all tokens of the step that are to be predicted, however they lie in passes.
    const auto rows = static_cast<double>(std::max<int64_t>(1, sum.rows));
    const double loss = sum.loss / rows;
    for (size_t i = 0; i < sum.gradients.size(); ++i) {
      at::Tensor parameter = optimiser_.parameters()[i];
      if (sum.gradients[i].defined()) parameter.mutable_grad() = sum.gradients[i].div_(rows);
    }
    progress_.learning_rate =
        options_.schedule == Schedule::kCosine
            ? LearningRate(state_.steps, progress_.steps, options_.learning_rate, options_.warmup)
            : StableDecayRate(state_.steps, progress_.steps, options_.learning_rate, options_.stable_decay);
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
    int64_t longest = 0;
    for (const int i : sequences) {
      longest = std::max(longest, static_cast<int64_t>(data_.features.sequence(i).tokens.size()));
    }
    PassDraw draw{.lag = DrawLag(options_.seed, pass, options_.draft.most_lag),
                  .positions = {},
                  .seed = DrawSeed(options_.seed, pass),
                  .tokens_of_loss = options_.tokens_of_loss};
    draw.positions =
        DrawPositions(*options_.positions, options_.seed, pass, longest, data_.features.target().n_ctx);
    PassSum sum = RunPass(*trainee_, MakeBatch(data_.features, sequences, data_.needs, labels_), draw);
    if (!std::isfinite(sum.loss)) return NotANumber("the loss is");
    return sum;
  }

  // The micro-batch of that forward pass, counted from the beginning of the run.
  std::vector<int> SequencesOf(int64_t pass) {
    const int64_t passes_per_epoch = steps_per_epoch_ * (options_.batch / options_.micro_batch);
    const int64_t epoch = pass / passes_per_epoch;
    if (epoch != epoch_) {
      order_ = SequenceOrder(options_.seed, epoch_ = epoch, data_.features.n_sequences());
      SortBatchesByLength(options_.batch, data_.features.lengths(), &order_);
    }
    const auto begin = order_.begin() + pass % passes_per_epoch * options_.micro_batch;
    return {begin, begin + options_.micro_batch};
  }

  // Checkpoint and draft. Gradients of an unfinished step are not part of either.
  Status Save() {
    LS_TRY(SaveCheckpoint(state_, trainee_->parameters(), optimiser_, CheckpointPath(options_.output)));
    const int64_t offsets = options_.positions != Positions::kPlain && data_.features.has_short()
                                ? int64_t{data_.features.target().n_ctx}
                                : int64_t{0};
    return ExportDraft(*trainee_, std::max({state_.trained_positions, offsets, data_.features.longest()}),
                       options_.output);
  }

  // Shows the weights as they are what they were not trained on. False: stop.
  bool Look(const std::function<bool(const TrainProgress&)>& on_progress) {
    if (!validator_) return true;
    const Validation seen = validator_->Look(*trainee_);
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
  const Data data_;
  const std::unique_ptr<Trainee> trainee_;
  Optimiser optimiser_;
  const LabelOptions labels_;
  std::optional<Validator> validator_;
  int64_t steps_per_epoch_ = 0;
  TrainState state_;
  TrainProgress progress_;
  double macs_ = 0.0;  // of this call
  int64_t epoch_ = -1;
  std::vector<int32_t> order_;
};

// The tokens that are to be predicted most often; where these are too few, those that a prior has most often.
Result<std::vector<int64_t>> FrequentTokens(const TrainOptions& options, const Data& data) {
  std::vector<int32_t> further;
  if (!options.prior.empty()) {
    LS_ASSIGN(const Hash128 made_for, NgramPrior::TokenizerOf(options.prior));
    LS_ASSIGN(const auto prior, NgramPrior::Open(options.prior, data.features.target().n_vocab, made_for));
    further = prior->FrequentTokens(options.vocab);
  }
  return data.features.FrequentTokens(options.vocab, options.distill, further);
}

// What the head is reduced to. A draft that goes on keeps the tokens it chooses among, whatever it is shown
// next.
Result<std::vector<int64_t>> DraftVocab(const TrainOptions& options, const Data& data) {
  const FeatureSet& features = data.features;
  std::vector<int64_t> vocab;
  if (!options.init.empty()) {
    LS_ASSIGN(vocab, LoadDraftVocab(options.init, features.target().n_vocab));
  }
  if (vocab.empty()) {
    if (options.vocab > 0) {
      LS_ASSIGN(vocab, FrequentTokens(options, data));
    }
  } else if (options.vocab > 0 && options.vocab != static_cast<int>(vocab.size())) {
    return InvalidArgument("--draft-vocab " + std::to_string(options.vocab) +
                           ": the draft of --init chooses among " + std::to_string(vocab.size()) +
                           " tokens; leave it out to keep these");
  }
  return vocab;
}

// A draft as its kind, features and target make it.
Result<std::unique_ptr<Trainee>> MakeTrainee(const TrainOptions& options, const TraineeKind& kind,
                                             const Data& data, at::Device device) {
  const FeatureTarget& target = data.features.target();
  LS_ASSIGN(const FrozenParts parts, LoadFrozenParts(*data.model, target));
  LS_ASSIGN(std::vector<int64_t> vocab, DraftVocab(options, data));
  FrozenHeads frozen;
  frozen.embedding = parts.embedding.to(device);
  frozen.whole_head = parts.head.is_same(parts.embedding) ? frozen.embedding : parts.head.to(device);
  frozen.head =
      vocab.empty() ? frozen.whole_head : frozen.whole_head.index_select(0, at::tensor(vocab).to(device));
  frozen.loss_head =
      options.draft.precision == Precision::kBf16 ? frozen.head.to(at::kBFloat16) : frozen.head;
  LS_ASSIGN(const int n_layer, CountLayers(*data.model));
  std::shared_ptr<const Sibling> sibling;
  if (data.sibling != nullptr) {
    LS_ASSIGN(sibling,
              LoadSibling(data.sibling, *data.model, target, vocab, device, frozen.loss_head.scalar_type()));
  }
  return kind.make({.target = target,
                    .n_layer = n_layer,
                    .model = data.model,
                    .sibling = std::move(sibling),
                    .frozen = std::move(frozen),
                    .vocab = std::move(vocab),
                    .options = options.draft,
                    .seed = options.seed,
                    .device = device});
}

// `option` is that of these features. Labels of one kind are learned, so what is validated has that kind too.
Status CheckDistillation(const TrainOptions& options, const FeatureSet& features, const char* option,
                         bool needs_final) {
  if (options.distill == 0.0 || (features.top_k() > 0 && !needs_final)) return {};
  const Status has = features.Has({.final_hidden = true});
  if (has.ok()) return {};
  return InvalidArgument("--distill: these features of " + std::string(option) +
                         " tell nothing of what the target expects: " + has.message());
}

// What shards of tokens alone leave out is computed, if it is read.
Status ComputeStates(const TrainOptions& options, at::Device device, Data* data) {
  const bool trained = data->features.only_tokens() && (options.distill > 0.0 || data->needs.any());
  if (!trained && !(data->validation && data->validation->only_tokens())) return {};
  const at::ScalarType type = options.draft.precision == Precision::kBf16 ? at::kBFloat16 : at::kFloat;
  LS_ASSIGN(TargetStates loaded, TargetStates::Load(*data->model, data->features.target(), device, type));
  const auto states = std::make_shared<const TargetStates>(std::move(loaded));
  data->features.ComputeWith(states);
  if (data->validation) data->validation->ComputeWith(states);
  return {};
}

Result<Data> OpenData(const TrainOptions& options) {
  LS_ASSIGN(FeatureSet features, FeatureSet::Open(options.features));
  LS_TRY(CheckDistillation(options, features, "--features", /*needs_final=*/false));
  Data data = {.features = std::move(features), .validation = {}, .needs = {}, .model = {}};
  LS_ASSIGN(data.model, GgufFile::Open(options.model));
  if (options.validation.empty()) return data;
  LS_ASSIGN(data.validation, FeatureSet::Open(options.validation));
  LS_TRY(CheckDistillation(options, *data.validation, "--validate", data.features.has_final_hidden()));
  if (data.validation->target() == data.features.target()) return data;
  return InvalidArgument("--validate: " + options.validation.front() +
                         " holds features of another model than " + options.features.front());
}

// What a draft is cut out of; one that was goes on from itself. Null: out of the target.
Result<std::shared_ptr<const GgufFile>> OpenSibling(const TrainOptions& options) {
  if (!options.draft.sibling.empty()) return GgufFile::Open(options.draft.sibling);
  std::shared_ptr<const GgufFile> none;
  if (options.draft.kind != "lm" || options.init.empty() || !BeginsAsGguf(options.init)) return none;
  LS_ASSIGN(auto before, GgufFile::Open(options.init));
  return IsCut(*before) ? before : none;
}

Result<TrainSummary> TrainUnguarded(TrainOptions options,
                                    const std::function<bool(const TrainProgress&)>& on_progress) {
  LS_TRY(CheckOptions(options));
  LS_ASSIGN(const TraineeKind* const kind, FindTraineeKind(options.draft.kind));
  LS_ASSIGN(const at::Device device, ParseDevice(options.device));
  LS_TRY(CheckPrecision(options.draft.precision, device));
  LS_ASSIGN(Data data, OpenData(options));
  LS_ASSIGN(data.sibling, OpenSibling(options));
  LS_ASSIGN(const int n_layer, CountLayers(data.sibling != nullptr ? *data.sibling : *data.model));
  LS_TRY(kind->resolve(&options.draft, data.features.target(), n_layer));
  if (const int n_ff = data.features.target().n_ff;
      options.init_from_target && options.draft.n_ff > 0 && options.draft.n_ff != n_ff) {
    return InvalidArgument("--ff " + std::to_string(options.draft.n_ff) +
                           ": with --init-from-target it is the target's, " + std::to_string(n_ff));
  }
  if (!options.positions) options.positions = kind->positions;
  data.needs = kind->needs(options.draft);
  LS_TRY(data.features.Has(data.needs));
  if (data.validation) LS_TRY(data.validation->Has(data.needs));
  LS_TRY(ComputeStates(options, device, &data));
  LS_ASSIGN(std::unique_ptr<Trainee> trainee, MakeTrainee(options, *kind, data, device));
  const int threads = options.threads > 0 ? options.threads : device.is_cpu() ? at::get_num_threads() : 1;
  if (device.is_cpu()) {
    at::set_num_threads(1);
  } else {
    at::globalContext().setAllowTF32CuBLAS(true);  // what is f32 in one precision and in the other
  }
  return Run(options, std::move(data), std::move(trainee), threads).Go(on_progress);
}

}  // namespace

// A safetensors file by another name: the engine reads all *.safetensors of a draft's folder.
std::string CheckpointPath(const std::string& output) {
  return (fs::path(output) / "checkpoint.bin").string();
}

std::string StableCheckpointPath(const std::string& output) {
  return (fs::path(output) / "stable.bin").string();
}

// LibTorch reports by exceptions: out of memory above all.
Result<TrainSummary> Train(const TrainOptions& options,
                           const std::function<bool(const TrainProgress&)>& on_progress) {
  try {
    return TrainUnguarded(options, on_progress);
  } catch (const c10::Error& error) {
    return StatusOf(error);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory; a smaller --micro-batch needs less");
  } catch (const std::system_error& error) {  // a thread that the system does not give
    return ResourceExhausted(std::string("--threads: ") + error.what());
  }
}

}  // namespace longspec::train
