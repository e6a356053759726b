// SPDX-License-Identifier: Apache-2.0
#include "decode/partial_verifier.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"

namespace longspec {
namespace {

class SteadyVerifier final : public PartialVerifier {
 public:
  SteadyVerifier(const RetrievalOptions& options, KvCache* whole, const Target& target,
                 const Sampler* sampler, int n_prompt)
      : PartialVerifier(options, whole, target, sampler),
        // With less before the window there is nothing to choose from.
        first_(std::max(n_prompt - 1, options.sink + options.budget + options.window + kKeyBlock)) {
    LS_CHECK(options.refresh >= 1);
  }

  // With n tokens there are to be keys of n - 1 positions.
  Status Prepare(Sequence& sequence) override {
    const auto length = static_cast<int>(sequence.tokens->size()) - 1;
    if (state_ == State::kWhole && length >= first_) {
      state_ = State::kRefresh;
      boundary_ = length;
      partial_from_ = length + 1;
      // The queries of the last position are wanted: it is computed once more if they were not tapped.
      if (whole_.length() == length && queries_of_ != length - 1) whole_.Truncate(length - 1);
    } else if (state_ == State::kPart && length - boundary_ >= options_.refresh) {
      state_ = State::kRefresh;
      boundary_ = length;
    }
    if (state_ == State::kRefresh && whole_.length() == boundary_) {
      LS_CHECK(queries_of_ == boundary_ - 1);
      LS_TRY(Choose(boundary_));
      state_ = State::kPart;
    }
    sequence.cache = state_ == State::kPart ? static_cast<KvCache*>(part_.get()) : &whole_;
    return {};
  }

  // Only tokens before the next refresh, or only its chunk.
  void Limit(Turn& turn) const override {
    const Sequence& s = *turn.sequence;
    const auto length = static_cast<int>(s.tokens->size()) - 1;
    switch (state_) {
      case State::kWhole:
        // The prompt's last chunk decodes too, so this is of what comes after all missing tokens.
        turn.max_tokens = std::min(turn.max_tokens, std::max(1, first_ - length));
        break;
      case State::kRefresh:
        turn.max_rows = std::min({turn.max_rows, s.n_missing() - 1, kMostRefreshRows});
        break;
      case State::kPart:
        turn.max_tokens = std::min(turn.max_tokens, boundary_ + options_.refresh - length);
        break;
    }
  }

  // Of a chunk the last row is the last position; of a tree any row may be, and nobody asks for its queries.
  Taps taps() const override {
    Taps taps;
    if (state_ == State::kPart) return taps;
    taps.query_rows = 1;
    taps.logits = whole_.length() + 1 >= partial_from_;
    return taps;
  }

  void Read(const CommittedRows& rows) override {
    if (state_ == State::kPart || rows.rows.empty()) return;
    if (state_ == State::kRefresh) Compare(rows, boundary_ + 1);
    const int last = rows.rows.back();
    if (!rows.HasQueries(last)) return;
    TakeQueries(rows, last, 1);
    queries_of_ = rows.first + static_cast<int>(rows.rows.size()) - 1;
  }

 private:
  static constexpr int kMostRefreshRows = 256;  // that give logits: memory is planned for so many

  enum class State : uint8_t {
    kWhole,    // everything is seen
    kRefresh,  // the whole cache takes in what is missing up to boundary_
    kPart,
  };

  const int first_;  // positions before it are always seen whole
  State state_ = State::kWhole;
  int boundary_ = 0;     // kPart: where its set was chosen. kRefresh: where it will be
  int queries_of_ = -1;  // position whose queries the set has
};

std::unique_ptr<PartialVerifier> MakeSteady(const RetrievalOptions& options, KvCache* whole,
                                            const Target& target, const Sampler* sampler, int n_prompt) {
  return std::make_unique<SteadyVerifier>(options, whole, target, sampler, n_prompt);
}

const RefreshRule* other_rule = nullptr;

}  // namespace

PartialVerifier::PartialVerifier(const RetrievalOptions& options, KvCache* whole, const Target& target,
                                 const Sampler* sampler)
    : options_(options),
      whole_(*whole),
      part_(
          MakeRetrievalCache(target.NewPool(whole->Span(0).layout, target.shared_parts()->sizes->n_layer, {}),
                             target.shared_parts()->sizes->n_head, options)),
      sampler_(*sampler) {}

Status PartialVerifier::Choose(int length) {
  const int recent = std::max(0, length - options_.window) / kKeyBlock * kKeyBlock;
  LS_TRY(part_->Choose(whole_, recent));
  ++stats_.refreshes;
  return {};
}

void PartialVerifier::TakeQueries(const CommittedRows& rows, int first_row, int n_rows) {
  part_->SetQueries(rows.QueriesOf(first_row, n_rows));
}

// What would have been chosen after each of these positions.
void PartialVerifier::Compare(const CommittedRows& rows, int end) {
  for (size_t i = 0; i < rows.rows.size(); ++i) {
    const int next = rows.first + static_cast<int>(i) + 1;
    if (next < partial_from_ || next >= end) continue;
    // A sequence that gave way computes its prompt again: a chunk of it that reaches beyond has no logits.
    if (!rows.HasLogits(rows.rows[i])) continue;
    const auto at = static_cast<size_t>(next);
    const TokenHistory history = {.committed = rows.sequence.first(at), .drafted = {}};
    const int32_t token = rows.LogitsOf(rows.rows[i]).Choose(sampler_, history, scratch_);
    ++stats_.tokens;
    stats_.differing += token != rows.sequence[at];
  }
}

PartialStats PartialVerifier::stats() const {
  PartialStats stats = stats_;
  stats.bytes = part_->bytes();
  return stats;
}

std::unique_ptr<PartialVerifier> MakePartialVerifier(const RetrievalOptions& options, KvCache* whole,
                                                     const Target& target, const Sampler* sampler,
                                                     int n_prompt) {
  const auto make = options.refresh == 0 ? OtherRefreshRule()->make : MakeSteady;
  return make(options, whole, target, sampler, n_prompt);
}

const RefreshRule* OtherRefreshRule() { return other_rule; }

void SetOtherRefreshRule(const RefreshRule* rule) { other_rule = rule; }

}  // namespace longspec
