// SPDX-License-Identifier: Apache-2.0
#include "features/run.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "base/status_macros.h"

namespace longspec {
namespace {

namespace fs = std::filesystem;

size_t Z(int64_t n) { return static_cast<size_t>(n); }

void Append(const std::vector<int32_t>& tokens, bool learn, LabelledTokens* to) {
  to->tokens.insert(to->tokens.end(), tokens.begin(), tokens.end());
  to->learn.insert(to->learn.end(), tokens.size(), learn ? 1 : 0);
}

// What decides the sequences of a folder, so that a run is not continued with others.
std::string DescribeSource(const FeatureRunOptions& options) {
  std::string text = "--length " + std::to_string(options.length) + " --min-length " +
                     std::to_string(options.min_length) + " --max-pieces " +
                     std::to_string(options.max_pieces) +
                     (options.learn_from == LearnFrom::kAnswers ? " --learn answers" : " --learn everything");
  for (const std::string& input : options.inputs) {
    std::error_code error;
    const uintmax_t size = fs::file_size(input, error);
    text += ", " + fs::path(input).filename().string() + " of " + std::to_string(error ? 0 : size) + " bytes";
  }
  return text;
}

class Run {
 public:
  Run(const FeatureRunOptions& options, const FeatureTarget& target, const FeatureTokenizer& tokenizer,
      FeatureExtractor& extractor, const std::function<bool(const FeatureProgress&)>& on_progress)
      : options_(options),
        tokenizer_(tokenizer),
        extractor_(extractor),
        on_progress_(on_progress),
        documents_(options.inputs) {
    header_.target = target;
    header_.source = DescribeSource(options);
    header_.top_k = options.top_k;
  }

  Result<FeatureSummary> Make() {
    LS_TRY(Continue());
    const Status status = header_.last ? Status() : Documents();
    // What was extracted before an interruption is worth keeping.
    const bool keep = status.ok() || status.code() == StatusCode::kCancelled;
    if (keep && writer_.n_tokens() > 0) LS_TRY(Close());
    if (!status.ok()) return status;
    if (summary_.sequences > 0) return summary_;
    return InvalidArgument(options_.inputs.front() + ": no document has " +
                           std::to_string(options_.min_length) + " tokens and one to learn");
  }

 private:
  // Takes up where the folder's last shard ends.
  Status Continue() {
    std::error_code error;
    fs::create_directories(options_.output, error);
    if (error) return IoError(options_.output + ": " + error.message());
    if (!fs::exists(FeatureShardPath(options_.output, 0), error)) return {};
    LS_ASSIGN(const auto shards, OpenFeatureShards(options_.output));
    const FeatureHeader& before = shards.back()->header();
    if (before.target != header_.target || before.source != header_.source || before.top_k != header_.top_k) {
      return InvalidArgument(options_.output +
                             ": holds features of another model, text or options; give another folder, or "
                             "what it was begun with (" +
                             before.target.name + ", --top-k " + std::to_string(before.top_k) + " " +
                             before.source + ")");
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

  bool Full() const { return options_.max_tokens > 0 && summary_.tokens >= options_.max_tokens; }

  Status Documents() {
    TrainingDocument document;
    while (!Full()) {
      LS_ASSIGN(const bool more, documents_.Next(&document));
      if (!more) {
        header_.last = true;
        return {};
      }
      LS_ASSIGN(const LabelledTokens all, TokenizeDocument(document, options_.learn_from, tokenizer_));
      LS_TRY(Pieces(all, document.messages.empty()));
      if (header_.next_piece > 0) return {};  // full in the middle of it
      ++header_.next_document;
    }
    return {};
  }

  // Texts are cut into sequences; of a conversation the beginning is kept. next_piece is 0 again at the end.
  Status Pieces(const LabelledTokens& all, bool is_text) {
    const auto n = static_cast<int64_t>(all.tokens.size());
    const int64_t n_all = (n + options_.length - 1) / options_.length;
    const int64_t most = is_text ? options_.max_pieces : 1;
    const int64_t n_pieces = most > 0 ? std::min(most, n_all) : n_all;
    if (!is_text && n_all > 1) ++summary_.cut;
    while (header_.next_piece < n_pieces) {
      if (Full()) return {};
      const int64_t begin = header_.next_piece * options_.length;
      LS_TRY(Piece(all, Z(begin), Z(std::min<int64_t>(options_.length, n - begin))));
      ++header_.next_piece;
      if (writer_.n_tokens() >= options_.shard_tokens) LS_TRY(Close());
    }
    header_.next_piece = 0;
    return {};
  }

  Status Piece(const LabelledTokens& all, size_t begin, size_t n) {
    const auto tokens = std::span(all.tokens).subspan(begin, n);
    const auto learn = std::span(all.learn).subspan(begin, n);
    // The first token has nothing before it to predict it from.
    if (n < Z(std::max(2, options_.min_length)) || std::ranges::count(learn.subspan(1), 1) == 0) return {};
    const auto on_rows = [this](int rows) { return Report(rows); };
    LS_ASSIGN(const ExtractedFeatures f, extractor_.Extract(tokens, on_rows));
    writer_.Add(header_, {.tokens = tokens,
                          .positions = f.positions,
                          .loss = learn,
                          .keys = f.keys,
                          .values = f.values,
                          .top_ids = f.top_ids,
                          .top_log_probs = f.top_log_probs});
    summary_.tokens += static_cast<int64_t>(n);
    ++summary_.sequences;
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
    LS_TRY(writer_.Write(header_, FeatureShardPath(options_.output, static_cast<int>(summary_.shards))));
    ++summary_.shards;
    return {};
  }

  const FeatureRunOptions& options_;
  const FeatureTokenizer& tokenizer_;
  FeatureExtractor& extractor_;
  const std::function<bool(const FeatureProgress&)>& on_progress_;
  DocumentSource documents_;
  FeatureHeader header_;
  FeatureShardWriter writer_;
  FeatureProgress progress_;
  FeatureSummary summary_;
};

Status CheckOptions(const FeatureRunOptions& options, const FeatureTarget& target) {
  if (options.inputs.empty()) return InvalidArgument("no file of documents given");
  if (options.length < 2 || options.length > target.n_ctx) {
    return InvalidArgument("--length " + std::to_string(options.length) +
                           ": must be from 2 to the model's context of " + std::to_string(target.n_ctx));
  }
  if (options.top_k < 0 || options.top_k > target.n_vocab) {
    return InvalidArgument("--top-k " + std::to_string(options.top_k) +
                           ": must be from 0 to the vocabulary of " + std::to_string(target.n_vocab));
  }
  if (options.shard_tokens < 1) return InvalidArgument("--shard-tokens must be at least 1");
  for (const std::string& input : options.inputs) {
    LS_ASSIGN([[maybe_unused]] const auto file, OpenLines(input));
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

Result<FeatureSummary> MakeFeatures(const FeatureRunOptions& options, const FeatureTarget& target,
                                    const FeatureTokenizer& tokenizer, FeatureExtractor& extractor,
                                    const std::function<bool(const FeatureProgress&)>& on_progress) {
  LS_TRY(CheckOptions(options, target));
  return Run(options, target, tokenizer, extractor, on_progress).Make();
}

}  // namespace longspec
