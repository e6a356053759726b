// SPDX-License-Identifier: Apache-2.0
//
// A refresh is one pass: the tokens that only a set has verified as missing rows, and a tree under the last
// of them, which the whole cache judges.
#include "lab/specpv.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace longspec {
namespace {

constexpr int kMostTreeRows = 256;  // whose queries choose

class PaperVerifier final : public PartialVerifier {
 public:
  PaperVerifier(const RetrievalOptions& options, KvCache* whole, const Target& target, const Sampler* sampler,
                int n_prompt)
      : PartialVerifier(options, whole, target, sampler),
        n_prompt_(n_prompt),
        set_size_(options.sink + options.budget / kKeyBlock * kKeyBlock + options.window) {}

  Status Prepare(Sequence& sequence) override {
    const auto length = static_cast<int>(sequence.tokens->size()) - 1;
    if (std::exchange(has_queries_, false) && whole_.length() == length) {
      LS_TRY(Choose(n_));
      refreshed_at_ = n_;
      partial_from_ = length + 1;
    }
    n_ = length;
    // Verification begins behind the first generated token.
    mode_ = length < n_prompt_ ? PartialMode::kFull : PaperMode(length, set_size_, refreshed_at_);
    sequence.cache = mode_ == PartialMode::kPartial ? static_cast<KvCache*>(part_.get()) : &whole_;
    return {};
  }

  void Limit(Turn&) const override {}

  Taps taps() const override {
    Taps taps;
    if (mode_ != PartialMode::kRefresh) return taps;
    taps.query_rows = kMostTreeRows;
    taps.logits = refreshed_at_ >= 0;
    return taps;
  }

  void Read(const CommittedRows& rows) override {
    if (mode_ != PartialMode::kRefresh) return;
    Compare(rows, n_ + 1);
    if (rows.tree == nullptr || rows.output == nullptr) return;  // not all missing tokens were in the pass
    const int first = std::max(rows.root_row, rows.n_output_rows - rows.output->n_query_rows());
    TakeQueries(rows, first, rows.n_output_rows - first);
    has_queries_ = true;
  }

 private:
  const int n_prompt_, set_size_;
  PartialMode mode_ = PartialMode::kFull;
  int n_ = 0;  // committed tokens before the verification, the root not counted
  int refreshed_at_ = -1;
  bool has_queries_ = false;  // of the refresh that was
};

}  // namespace

PartialMode PaperMode(int n, int set_size, int refreshed_at, int margin) {
  if (n <= set_size) return PartialMode::kFull;
  const bool buffer_has_room = refreshed_at >= 0 && n - refreshed_at <= margin;
  return buffer_has_room ? PartialMode::kPartial : PartialMode::kRefresh;
}

std::unique_ptr<PartialVerifier> MakePaperVerifier(const RetrievalOptions& options, KvCache* whole,
                                                   const Target& target, const Sampler* sampler,
                                                   int n_prompt) {
  return std::make_unique<PaperVerifier>(options, whole, target, sampler, n_prompt);
}

}  // namespace longspec
