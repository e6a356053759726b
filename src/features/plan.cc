// SPDX-License-Identifier: Apache-2.0
#include "features/plan.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "features/documents.h"

namespace longspec {
namespace {

constexpr double kSureShare = 0.8;  // of an estimate

class Count {
 public:
  Count(const FeatureRunOptions& options, const FeatureTokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer) {}

  const FeaturePlan& plan() const { return plan_; }

  // False: the run ends before this document, or in it.
  bool Add(const TrainingDocument& document) {
    const Status added = options_.write > 0 ? AddBeginning(document) : AddPieces(document);
    // Where the target writes, the run looks how much it has behind some documents only.
    const bool looks = options_.write == 0 || ++n_documents_ % std::max(options_.write_together, 1) == 0;
    return added.ok() && !(looks && Full());
  }

  // What was added since `before` was that share of a file.
  void Extrapolate(const FeaturePlan& before, double share) {
    const auto whole = [&](int64_t from, int64_t to) {
      return from + static_cast<int64_t>(static_cast<double>(to - from) / share);
    };
    plan_.tokens = whole(before.tokens, plan_.tokens);
    plan_.least_tokens = whole(before.least_tokens, plan_.least_tokens);
    plan_.estimated = true;
    if (options_.max_tokens == 0) return;
    plan_.tokens = std::min(plan_.tokens, options_.max_tokens);
    plan_.least_tokens = std::min(plan_.least_tokens, options_.max_tokens);
  }

  bool Full() const { return options_.max_tokens > 0 && plan_.tokens >= options_.max_tokens; }

 private:
  void AddTokens(int64_t most, int64_t least) {
    plan_.tokens += most;
    plan_.least_tokens += least;
  }

  Status AddPieces(const TrainingDocument& document) {
    LS_ASSIGN(const LabelledTokens all, TokenizeDocument(document, options_.learn_from, tokenizer_));
    const int64_t n = std::ssize(all.tokens), n_pieces = CountPieces(n, document.messages.empty(), options_);
    for (int64_t i = 0; i < n_pieces && !Full(); ++i) {
      const int64_t begin = i * options_.length, size = std::min<int64_t>(options_.length, n - begin);
      if (IsPieceKept(std::span(all.learn).subspan(Z(begin), Z(size)), options_)) AddTokens(size, size);
    }
    return {};
  }

  Status AddBeginning(const TrainingDocument& document) {
    LS_ASSIGN(std::vector<int32_t> tokens, TokenizeBeginning(document, tokenizer_));
    if (!FitBeginning(document, options_, &tokens)) return {};
    const int64_t n = std::ssize(tokens);
    if (options_.write_later) {
      AddTokens(n, n);
    } else {
      AddTokens(n + options_.write, n >= options_.min_length ? n : 0);
    }
    return {};
  }

  const FeatureRunOptions& options_;
  const FeatureTokenizer& tokenizer_;
  FeaturePlan plan_;
  int64_t n_documents_ = 0;
};

}  // namespace

std::optional<FeaturePlan> PlanFeatures(const FeatureRunOptions& options, const FeatureTokenizer& tokenizer,
                                        double most_ms) {
  std::error_code error;
  for (const std::string& input : options.inputs) {
    if (!std::filesystem::is_regular_file(input, error)) return std::nullopt;
  }
  Count count(options, tokenizer);
  const double begun_ms = NowMs();
  double n_files = 0;
  for (const std::string& input : options.inputs) {
    // Time that a file does not need is left to the next ones.
    const double end_ms = begun_ms + most_ms * ++n_files / static_cast<double>(options.inputs.size());
    const FeaturePlan before = count.plan();
    DocumentSource documents({input});
    TrainingDocument document;
    while (true) {
      const auto more = documents.Next(&document);
      if (more.ok() && !*more) break;
      if (!more.ok() || !count.Add(document)) return count.plan();
      if (NowMs() < end_ms) continue;
      const double share = documents.share_read();
      if (share > 0.0 && share < 1.0) count.Extrapolate(before, share);
      if (share < 1.0) break;
    }
    if (count.Full()) break;
  }
  return count.plan();
}

bool HasRoom(const FeaturePlan& plan, int64_t bytes_per_token, uint64_t there, uint64_t free) {
  const double planned = static_cast<double>(plan.least_tokens) * static_cast<double>(bytes_per_token);
  return planned * (plan.estimated ? kSureShare : 1.0) <=
         static_cast<double>(there) + static_cast<double>(free);
}

}  // namespace longspec
