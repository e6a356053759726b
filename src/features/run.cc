// SPDX-License-Identifier: Apache-2.0
#include "features/run.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "gzip/line_source.h"

namespace longspec {
namespace {

namespace fs = std::filesystem;

void Append(const std::vector<int32_t>& tokens, bool learn, LabelledTokens* to) {
  to->tokens.insert(to->tokens.end(), tokens.begin(), tokens.end());
  to->learn.insert(to->learn.end(), tokens.size(), learn ? 1 : 0);
}

std::string WriterText(const ContinuationOptions& options) {
  std::string text = " --write-seed " + std::to_string(options.seed) + " --write-temps ";
  for (const float t : options.temperatures) text += (text.ends_with(' ') ? "" : ",") + std::to_string(t);
  return text;
}

// What decides the sequences of a folder and what is kept of them, so that a run is not continued with
// others. What is as by default in `arithmetic` is not said: folders from before it was said go on as such.
std::string DescribeSource(const FeatureRunOptions& options, const ContinuationOptions& writer,
                           const std::string& arithmetic) {
  std::string text = "--length " + std::to_string(options.length) + " --min-length " +
                     std::to_string(options.min_length) + " --max-pieces " +
                     std::to_string(options.max_pieces) +
                     (options.learn_from == LearnFrom::kAnswers ? " --learn answers" : " --learn everything");
  if (options.write > 0) text += " --write " + std::to_string(options.write);
  if (options.write > 0) text += options.write_later ? " --write-later" : WriterText(writer);
  text += arithmetic;
  for (const std::string& input : options.inputs) {
    std::error_code error;
    const uintmax_t size = fs::file_size(input, error);
    text += ", " + fs::path(input).filename().string() + " of " + std::to_string(error ? 0 : size) + " bytes";
  }
  return ValidUtf8(text);
}

FeatureTensors<std::span<const uint16_t>> Views(const FeatureTensors<std::vector<uint16_t>>& of) {
  return {.keys = of.keys,
          .values = of.values,
          .final_hidden = of.final_hidden,
          .hidden = {of.hidden.begin(), of.hidden.end()}};
}

class Run {
 public:
  Run(const FeatureRunOptions& options, const FeatureTarget& target, const FeatureTokenizer& tokenizer,
      FeatureExtractor& extractor, const std::function<bool(const FeatureProgress&)>& on_progress,
      ContinuationWriter* writer)
      : options_(options),
        tokenizer_(tokenizer),
        extractor_(extractor),
        continuations_(writer),
        on_progress_(on_progress),
        documents_(options.inputs) {
    header_.target = target;
    header_.source = DescribeSource(options, writer == nullptr ? ContinuationOptions() : writer->options(),
                                    writer != nullptr ? writer->arithmetic() : extractor.arithmetic());
    header_.top_k = options.top_k;
    header_.keep = options.keep;
    most_tokens_ = options.shard_bytes / FeatureBytesPerToken(target, options.keep, options.top_k);
    const int64_t together = most_tokens_ / 4 / options.length;
    write_together_ = std::clamp<int64_t>(together, 1, std::max(options.write_together, 1));
  }

  Result<FeatureSummary> Make() {
    LS_TRY(Continue());
    const Status status = header_.last ? Status() : options_.write > 0 ? Beginnings() : Documents();
    // What was extracted before an interruption, or before a document that is wrong, is worth keeping.
    const bool keep = status.ok() || status.code() == StatusCode::kCancelled || document_failed_;
    if (keep && writer_.n_tokens() > 0) LS_TRY(Close());
    if (!status.ok()) return status;
    if (summary_.sequences > 0) return summary_;
    return InvalidArgument(options_.inputs.front() + ": no document has " +
                           std::to_string(options_.min_length) + " tokens and one to learn");
  }

  bool output_failed() const { return output_failed_; }

 private:
  // Takes up where the folder's last shard ends.
  Status Continue() {
    std::error_code error;
    if (!fs::exists(FeatureShardPath(options_.output, 0), error)) return {};
    LS_ASSIGN(const auto shards, OpenFeatureShards(options_.output));
    const FeatureHeader& before = shards.back()->header();
    if (before.target != header_.target || before.source != header_.source || before.top_k != header_.top_k ||
        before.keep != header_.keep) {
      return InvalidArgument(options_.output +
                             ": holds features of another model, text or options; give another folder, or "
                             "what it was begun with (" +
                             before.target.name + ", --keep " + FormatFeatureKeep(before.keep) + " --top-k " +
                             std::to_string(before.top_k) + " " + before.source + ")");
    }
    for (const auto& shard : shards) {
      summary_.tokens += shard->n_tokens();
      summary_.sequences += shard->n_sequences();
    }
    summary_.shards = static_cast<int64_t>(shards.size());
    header_ = before;
    for (int64_t i = 0; i < header_.next_document; ++i) {
      LS_ASSIGN(const bool more, documents_.Skip());
      if (!more) break;
    }
    return {};
  }

  // With `next` tokens that may come before it is asked again.
  bool IsShardFull(int64_t next) const {
    const int64_t n = writer_.n_tokens();
    return n >= options_.shard_tokens || (n > 0 && n + next > most_tokens_);
  }

  bool Full() const { return options_.max_tokens > 0 && summary_.tokens >= options_.max_tokens; }

  Result<bool> Next(TrainingDocument* document) {
    auto more = documents_.Next(document);
    document_failed_ = !more.ok();
    return more;
  }

  template <typename T>
  Result<T> Located(Result<T> result) {
    document_failed_ = !result.ok();
    return documents_.Located(std::move(result));
  }

  Status Documents() {
    TrainingDocument document;
    while (!Full()) {
      LS_ASSIGN(const bool more, Next(&document));
      if (!more) {
        header_.last = true;
        return {};
      }
      LS_ASSIGN(const LabelledTokens all,
                Located(TokenizeDocument(document, options_.learn_from, tokenizer_)));
      LS_TRY(Pieces(all, document.messages.empty()));
      if (header_.next_piece > 0) return {};  // full in the middle of it
      ++header_.next_document;
    }
    return {};
  }

  // As many beginnings as are written together, then a shard if it is full: a run goes on between these.
  Status Beginnings() {
    while (!Full() && !header_.last) {
      std::vector<std::vector<int32_t>> beginnings;
      const int64_t first = header_.next_document;
      int64_t n = 0;
      for (; n < write_together_; ++n) {
        TrainingDocument document;
        LS_ASSIGN(const bool more, Next(&document));
        if (!more) break;
        LS_ASSIGN(std::vector<int32_t> tokens, Located(TokenizeBeginning(document, tokenizer_)));
        if (FitBeginning(document, options_, &tokens)) beginnings.push_back(std::move(tokens));
      }
      summary_.cut += n - static_cast<int64_t>(beginnings.size());
      LS_TRY(options_.write_later ? AsTheyAre(beginnings) : Continuations(beginnings, first));
      header_.next_document += n;
      header_.last = n < write_together_;
      if (IsShardFull(write_together_ * options_.length)) LS_TRY(Close());
    }
    return {};
  }

  // All are added or none, as a run goes on behind all of them.
  Status AsTheyAre(std::span<const std::vector<int32_t>> beginnings) {
    const auto on_rows = [this](int rows) { return Report(rows); };
    std::vector<ExtractedFeatures> all;
    for (const std::vector<int32_t>& tokens : beginnings) {
      LS_ASSIGN(ExtractedFeatures f, extractor_.Extract(tokens, on_rows));
      all.push_back(std::move(f));
    }
    for (size_t i = 0; i < all.size(); ++i) {
      Add(beginnings[i], std::vector<int8_t>(beginnings[i].size(), 0), all[i]);
    }
    return {};
  }

  Status Continuations(std::span<const std::vector<int32_t>> beginnings, int64_t first_index) {
    const auto on_rows = [this](int rows) { return Report(rows); };
    LS_ASSIGN(std::vector<WrittenContinuation> all, continuations_->Write(beginnings, first_index, on_rows));
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<int8_t> learn(all[i].tokens.size(), 1);
      if (options_.learn_from == LearnFrom::kAnswers) std::fill_n(learn.begin(), beginnings[i].size(), 0);
      if (learn.size() >= Z(options_.min_length)) Add(all[i].tokens, learn, all[i].features);
      all[i] = {};  // not held twice
    }
    return {};
  }

  void Add(std::span<const int32_t> tokens, std::span<const int8_t> learn, const ExtractedFeatures& f) {
    writer_.Add(header_, {.tokens = tokens,
                          .positions = f.positions,
                          .loss = learn,
                          .kept = Views(f.kept),
                          .top_ids = f.top_ids,
                          .top_log_probs = f.top_log_probs});
    summary_.tokens += static_cast<int64_t>(tokens.size());
    ++summary_.sequences;
  }

  // Texts are cut into sequences; of a conversation the beginning is kept. next_piece is 0 again at the end.
  Status Pieces(const LabelledTokens& all, bool is_text) {
    const auto n = static_cast<int64_t>(all.tokens.size());
    const int64_t n_pieces = CountPieces(n, is_text, options_);
    if (!is_text && n > options_.length) ++summary_.cut;
    while (header_.next_piece < n_pieces) {
      if (Full()) return {};
      const int64_t begin = header_.next_piece * options_.length;
      LS_TRY(Piece(all, Z(begin), Z(std::min<int64_t>(options_.length, n - begin))));
      ++header_.next_piece;
      if (IsShardFull(options_.length)) LS_TRY(Close());
    }
    header_.next_piece = 0;
    return {};
  }

  Status Piece(const LabelledTokens& all, size_t begin, size_t n) {
    const auto tokens = std::span(all.tokens).subspan(begin, n);
    const auto learn = std::span(all.learn).subspan(begin, n);
    if (!IsPieceKept(learn, options_)) return {};
    const auto on_rows = [this](int rows) { return Report(rows); };
    LS_ASSIGN(const ExtractedFeatures f, extractor_.Extract(tokens, on_rows));
    Add(tokens, learn, f);
    return {};
  }

  bool Report(int rows) {
    progress_.tokens += rows;
    progress_.share = documents_.share_read();
    if (options_.max_tokens > 0) {
      const double asked = static_cast<double>(summary_.tokens) / static_cast<double>(options_.max_tokens);
      progress_.share = std::max(progress_.share, asked);
    }
    return on_progress_(progress_);
  }

  Status Close() {
    const Status written =
        writer_.Write(header_, FeatureShardPath(options_.output, static_cast<int>(summary_.shards)));
    output_failed_ = !written.ok();
    LS_TRY(written);
    ++summary_.shards;
    return {};
  }

  const FeatureRunOptions& options_;
  const FeatureTokenizer& tokenizer_;
  FeatureExtractor& extractor_;
  ContinuationWriter* const continuations_;
  const std::function<bool(const FeatureProgress&)>& on_progress_;
  DocumentSource documents_;
  int64_t most_tokens_ = 0;  // of a shard, by its bytes
  int64_t write_together_ = 1;
  FeatureHeader header_;
  FeatureShardWriter writer_;
  FeatureProgress progress_;
  FeatureSummary summary_;
  bool document_failed_ = false;  // the last one
  bool output_failed_ = false;
};

// What depends on the model.
Status CheckAgainst(const FeatureTarget& target, const FeatureRunOptions& options) {
  if (options.length > target.n_ctx) {
    return InvalidArgument("--length " + std::to_string(options.length) +
                           ": must be from 2 to the model's context of " + std::to_string(target.n_ctx));
  }
  if (options.top_k > target.n_vocab) {
    return InvalidArgument("--top-k " + std::to_string(options.top_k) +
                           ": must be from 0 to the vocabulary of " + std::to_string(target.n_vocab));
  }
  return {};
}

}  // namespace

Result<LabelledTokens> TokenizeDocument(const TrainingDocument& document, LearnFrom learn_from,
                                        const FeatureTokenizer& tokenizer) {
  LabelledTokens all;
  if (document.messages.empty()) {
    Append(tokenizer.encode(document.text, true, false), true, &all);
    if (tokenizer.end_of_text >= 0 && !all.tokens.empty()) Append({tokenizer.end_of_text}, true, &all);
    return all;
  }
  // Cut where a generation begins and ends: that is how the pieces are tokenised when the model is used.
  std::vector<TrainingMessage> messages;
  std::string done;
  const auto next = [&](bool prompt, bool learn) -> Status {
    LS_ASSIGN(const std::string text, tokenizer.apply_template(messages, prompt));
    if (!text.starts_with(done)) {
      return Unsupported(
          "the model's chat template changes what it has shown before: conversations cannot be learned with "
          "it");
    }
    Append(tokenizer.encode(text.substr(done.size()), all.tokens.empty(), true), learn, &all);
    done = text;
    return {};
  };
  for (const TrainingMessage& message : document.messages) {
    const bool spoken = message.role == "assistant";
    if (spoken && !messages.empty()) LS_TRY(next(/*prompt=*/true, /*learn=*/false));
    messages.push_back(message);
    const bool learn = learn_from == LearnFrom::kEverything && message.role != "system";
    LS_TRY(next(/*prompt=*/false, spoken || learn));
  }
  return all;
}

Result<std::vector<int32_t>> TokenizeBeginning(const TrainingDocument& document,
                                               const FeatureTokenizer& tokenizer) {
  if (document.messages.empty()) return tokenizer.encode(document.text, true, false);
  std::vector<TrainingMessage> messages = document.messages;
  while (!messages.empty() && messages.back().role == "assistant") messages.pop_back();
  if (messages.empty()) return InvalidArgument("a conversation has nothing to answer");
  LS_ASSIGN(const std::string text, tokenizer.apply_template(messages, /*prompt=*/true));
  return tokenizer.encode(text, true, true);
}

int64_t CountPieces(int64_t n, bool is_text, const FeatureRunOptions& options) {
  const int64_t all = (n + options.length - 1) / options.length;
  const int64_t most = is_text ? options.max_pieces : 1;
  return most > 0 ? std::min(most, all) : all;
}

bool IsPieceKept(std::span<const int8_t> learn, const FeatureRunOptions& options) {
  // The first token has nothing before it to predict it from.
  return learn.size() >= Z(std::max(2, options.min_length)) && std::ranges::count(learn.subspan(1), 1) > 0;
}

bool FitBeginning(const TrainingDocument& document, const FeatureRunOptions& options,
                  std::vector<int32_t>* tokens) {
  const size_t most = Z(options.length - options.write);
  if (tokens->size() > most && document.messages.empty()) tokens->resize(most);
  return tokens->size() <= most && !tokens->empty();
}

Status CheckFeatureOptions(const FeatureRunOptions& options) {
  if (options.inputs.empty()) return InvalidArgument("no file of documents given");
  if (options.length < 2) {
    return InvalidArgument("--length " + std::to_string(options.length) + ": must be at least 2");
  }
  if (options.write < 0 || options.write >= options.length) {
    return InvalidArgument("--write " + std::to_string(options.write) +
                           ": must be from 0 to less than --length " + std::to_string(options.length));
  }
  if (options.write_later && (options.write == 0 || options.keep.any() || options.top_k > 0)) {
    return InvalidArgument("--write-later: with --write N and --keep none, and without --top-k");
  }
  if (options.top_k < 0) {
    return InvalidArgument("--top-k " + std::to_string(options.top_k) + ": must be 0 or more");
  }
  if (options.shard_tokens < 1) return InvalidArgument("--shard-tokens must be at least 1");
  LS_CHECK(options.shard_bytes > 0);
  for (const std::string& input : options.inputs) {
    LS_ASSIGN([[maybe_unused]] const auto file, OpenLines(input));
  }
  return {};
}

Status CreateFeatureFolder(const FeatureRunOptions& options) {
  std::error_code error;
  fs::create_directories(options.output, error);
  return error ? IoError(options.output + ": cannot be made: " + error.message()) : Status();
}

Result<FeatureSummary> MakeFeatures(const FeatureRunOptions& options, const FeatureTarget& target,
                                    const FeatureTokenizer& tokenizer, FeatureExtractor& extractor,
                                    const std::function<bool(const FeatureProgress&)>& on_progress,
                                    ContinuationWriter* writer, bool* output_failed) {
  if (output_failed != nullptr) *output_failed = false;
  LS_TRY(CheckFeatureOptions(options));
  LS_TRY(CheckAgainst(target, options));
  const bool writes = options.write > 0 && !options.write_later;
  LS_CHECK(!writes || (writer != nullptr && writer->options().max_tokens == options.write));
  const Status created = CreateFeatureFolder(options);
  if (output_failed != nullptr) *output_failed = !created.ok();
  LS_TRY(created);
  Run run(options, target, tokenizer, extractor, on_progress, writer);
  auto made = run.Make();
  if (output_failed != nullptr) *output_failed = run.output_failed();
  return made;
}

}  // namespace longspec
