// SPDX-License-Identifier: Apache-2.0
#include "cli/ngrams.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "cli/exit_code.h"
#include "cli/feature_tokenizer.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/terminal.h"
#include "engine/gguf_tokenizer.h"
#include "engine/opened_model.h"
#include "features/documents.h"
#include "features/run.h"
#include "formats/feature_shard.h"
#include "formats/ngram_prior.h"
#include "gzip/line_source.h"
#include "longspec/engine.h"
#include "tokenizer/tokenizer_hash.h"

namespace longspec::cli {
namespace {

namespace fs = std::filesystem;

bool HoldsDocuments(const std::string& path) {
  return path.ends_with(".jsonl") || path.ends_with(".jsonl.gz");
}

double SizeOf(const std::string& path) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  return error ? 0.0 : static_cast<double>(size);
}

// Without a chat template a conversation is what is said, one thing after another.
Result<std::string> JoinMessages(const std::vector<TrainingMessage>& messages, bool /*prompt*/) {
  std::string text;
  for (const TrainingMessage& message : messages) text += message.content;
  return text;
}

// What is not there or does not fit is refused before the counting begins, which takes minutes.
class Counting {
 public:
  Counting(const std::vector<std::string>& texts, const NgramFlags& flags)
      : texts_(texts), flags_(flags), progress_("counting", Progress::StandardError(!flags.no_progress)) {}

  Status Open(const ModelOptions& model) {
    ModelFiles files;
    LS_ASSIGN(const ModelInfo info, InspectModel(model, files));
    ModelOptions vocabulary = model;
    vocabulary.vocab_only = true;
    LS_ASSIGN(engine_, LoadModelOf(vocabulary, files));
    LS_ASSIGN(const TokenizerSpec spec, TokenizerSpecFromGguf(*files.target));
    hash_ = TokenizerHash(spec);
    tokenizer_ = FeatureTokenizerOf(*engine_, *files.target);
    if (!info.has_chat_template) tokenizer_.apply_template = JoinMessages;
    // Of the tokenizer, not of the logits: models of one tokenizer may differ in these.
    const auto n_vocab = static_cast<int>(spec.tokens.size());
    counter_ = std::make_unique<NgramCounter>(flags_.order, n_vocab);
    for (const std::string& path : flags_.merge) {
      LS_ASSIGN(auto prior, NgramPrior::Open(path, n_vocab, hash_));
      priors_.push_back(std::move(prior));
    }
    for (const std::string& folder : flags_.shards) {
      LS_ASSIGN(const auto shards, OpenFeatureShards(folder));
      const int n_shard_vocab = shards.front()->header().target.n_vocab;
      if (n_shard_vocab != info.n_vocab) {
        return InvalidArgument(folder + ": written by a model with a vocabulary of " +
                               std::to_string(n_shard_vocab) + " tokens; this one has " +
                               std::to_string(info.n_vocab) + ": give the model that wrote it");
      }
      shards_.insert(shards_.end(), shards.begin(), shards.end());
    }
    for (const std::string& path : texts_) {
      if (HoldsDocuments(path)) {
        LS_ASSIGN([[maybe_unused]] const auto lines, OpenLines(path));
      }
      total_ += SizeOf(path);
    }
    for (const auto& shard : shards_) total_ += static_cast<double>(shard->n_tokens());
    return {};
  }

  // kCancelled after Ctrl-C.
  Status Count() {
    begun_ms_ = NowMs();
    for (const auto& prior : priors_) counter_->Add(*prior);
    for (const auto& shard : shards_) LS_TRY(CountShard(*shard));
    for (const std::string& path : texts_) {
      LS_TRY(HoldsDocuments(path) ? CountDocuments(path) : CountText(path));
      done_ += SizeOf(path);
    }
    progress_.Finish();
    if (counter_->tokens() > 0 || !priors_.empty()) return {};
    return InvalidArgument("the texts are empty: there is nothing to count");
  }

  Result<NgramSummary> Write(const std::string& path) { return counter_->Write(path, flags_.prune, hash_); }
  int64_t tokens() const { return counter_->tokens(); }

 private:
  Status CountShard(const FeatureShard& shard) {
    for (int i = 0; i < shard.n_sequences(); ++i) {
      const FeatureSequence sequence = shard.sequence(i);
      counter_->Add(sequence.tokens, sequence.loss, flags_.weight);
    }
    done_ += static_cast<double>(shard.n_tokens());
    return Show(0.0);
  }

  Status CountText(const std::string& path) {
    LS_ASSIGN(const std::string text, ReadInput(path));
    counter_->Add(engine_->Tokenize(text));
    return Show(0.0);
  }

  Status CountDocuments(const std::string& path) {
    const double size = SizeOf(path);
    DocumentSource documents({path});
    TrainingDocument document;
    while (true) {
      LS_ASSIGN(const bool more, documents.Next(&document));
      if (!more) return {};
      LS_ASSIGN(const LabelledTokens all,
                documents.Located(TokenizeDocument(document, LearnFrom::kAnswers, tokenizer_)));
      counter_->Add(all.tokens, all.learn);
      LS_TRY(Show(size * documents.share_read()));
    }
  }

  // `begun`: how much of the present file is done.
  Status Show(double begun) {
    char detail[96];
    const double seconds = (NowMs() - begun_ms_) / 1000.0;
    std::snprintf(detail, sizeof(detail), "%lld tokens, %.0f tokens/s", static_cast<long long>(tokens()),
                  static_cast<double>(tokens()) / seconds);
    progress_.Update(total_ > 0.0 ? (done_ + begun) / total_ : 0.0, detail);
    if (!Interrupted()) return {};
    progress_.Finish();
    return Cancelled("interrupted");
  }

  const std::vector<std::string>& texts_;
  const NgramFlags& flags_;
  Progress progress_;
  std::unique_ptr<Engine> engine_;
  FeatureTokenizer tokenizer_;
  Hash128 hash_;
  std::vector<std::shared_ptr<const NgramPrior>> priors_;
  std::vector<std::shared_ptr<const FeatureShard>> shards_;
  std::unique_ptr<NgramCounter> counter_;
  double total_ = 0.0, done_ = 0.0;  // bytes of files and tokens of shards
  double begun_ms_ = 0.0;
};

std::string Summary(const std::string& path, int64_t tokens, int order, const NgramSummary& written) {
  int64_t pairs = 0;
  for (const int64_t n : written.pairs) pairs += n;
  std::string text = path + ": " + std::to_string(tokens) + " tokens counted; " +
                     std::to_string(written.pairs[0]) + " single tokens";
  for (size_t length = 1; length <= static_cast<size_t>(order); ++length) {
    text += ", " + std::to_string(written.contexts[length]) + " contexts of " + std::to_string(length) +
            " with " + std::to_string(written.pairs[length]) + " successors";
  }
  return text + "; " + std::to_string(pairs) + " pairs in " + std::to_string(written.bytes) + " bytes\n";
}

}  // namespace

void AddNgramOptions(CLI::App& app, NgramFlags* flags) {
  const std::string group = "N-grams";
  auto* const ngrams =
      app.add_flag(
             "--ngrams", flags->ngrams,
             "Count which token follows which, for --spec-type ppm, instead of indexing the texts; files "
             "named *.jsonl or *.jsonl.gz are training documents: of conversations the answers count")
          ->group(group);
  const auto add = [&](const char* name, auto& value, const char* description) {
    return app.add_option(name, value, description)->group(group)->needs(ngrams);
  };
  add("--shards", flags->shards, "Folder of feature shards to count (longspec features); may be repeated");
  add("--merge", flags->merge, "Earlier table to add; may be repeated");
  add("--weight", flags->weight, "How often each n-gram of the shards counts")
      ->capture_default_str()
      ->check(NumberFrom(1, 1000));
  add("--ngram-order", flags->order, "Tokens of the longest contexts")
      ->capture_default_str()
      ->check(NumberFrom(1, NgramPrior::kMaxOrder));
  add("--ngram-min-count", flags->prune.min_count, "Leave out what occurs less often")
      ->capture_default_str()
      ->check(NumberFrom(1, kMaxInt));
  add("--ngram-successors", flags->prune.successors,
      "Most successors of a context, without ways to longer ones")
      ->capture_default_str()
      ->check(NumberFrom(1, kMaxInt));
  app.add_flag("--no-progress", flags->no_progress, "No progress on stderr")->group(group);
}

int CountNgrams(const ModelOptions& model, const std::vector<std::string>& texts, const std::string& output,
                const NgramFlags& flags) {
  if (texts.empty() && flags.shards.empty() && flags.merge.empty()) {
    return Fail(kExitUsage, "nothing to count: give texts with --file, or --shards or --merge");
  }
  CatchInterrupt();
  Counting counting(texts, flags);
  if (const Status opened = counting.Open(model); !opened.ok()) return Fail(opened, Stage::kLoad);
  if (const Status counted = counting.Count(); !counted.ok()) {
    if (counted.code() != StatusCode::kCancelled) return Fail(counted, Stage::kLoad);
    return Fail(kExitInterrupted, "interrupted; " + output + " was not written");
  }
  const auto written = counting.Write(output);
  if (written.ok()) return WriteOutput(Summary(output, counting.tokens(), flags.order, *written));
  return Fail(written.status(), Stage::kWrite);
}

}  // namespace longspec::cli
