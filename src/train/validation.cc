// SPDX-License-Identifier: Apache-2.0
#include "train/validation.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "train/fused_loss.h"

namespace longspec::train {
namespace {

constexpr int64_t kFirstBucket = 512;
constexpr int64_t kRowsAtOnce = 256;

size_t Z(int64_t n) { return static_cast<size_t>(n); }

// 0 for positions below 512, 1 below 1024, 2 below 2048, ...
size_t BucketOf(int64_t position) {
  size_t bucket = 0;
  for (int64_t end = kFirstBucket; position >= end; end *= 2) ++bucket;
  return bucket;
}

// Sums while rows are added, means after Finish.
class Counts {
 public:
  void Add(int64_t position, int lag, double loss, bool agrees) {
    const size_t bucket = BucketOf(position);
    while (buckets_.size() <= bucket) {
      const int64_t begin = buckets_.empty() ? 0 : buckets_.back().end;
      buckets_.push_back({.begin = begin,
                          .end = begin == 0 ? kFirstBucket : 2 * begin,
                          .agreement = std::vector<double>(kValidatedLags)});
    }
    for (ValidationBucket* to : {&all_, &buckets_[bucket]}) {
      if (lag == 1) {
        ++to->rows;
        to->loss += loss;
      }
      to->agreement[Z(lag - 1)] += agrees ? 1.0 : 0.0;
    }
  }

  Validation Finish() {
    if (!buckets_.empty()) all_.end = buckets_.back().end;
    std::erase_if(buckets_, [](const ValidationBucket& b) { return b.rows == 0; });
    const auto divide = [](ValidationBucket& b) {
      const double rows = std::max(1.0, static_cast<double>(b.rows));
      b.loss /= rows;
      for (double& share : b.agreement) share /= rows;
    };
    divide(all_);
    std::ranges::for_each(buckets_, divide);
    return {.all = all_, .buckets = buckets_};
  }

 private:
  ValidationBucket all_{.agreement = std::vector<double>(kValidatedLags)};
  std::vector<ValidationBucket> buckets_;
};

// The token that a row's draft should choose.
int32_t Expected(const FeatureSet& set, const FeatureSequence& s, int64_t row) {
  return set.top_k() > 0 ? s.top_ids[Z(row) * Z(set.top_k())] : s.tokens[Z(row + 1)];
}

void AddSequence(const DraftNet& net, const at::Tensor& embedding, const at::Tensor& head,
                 const FeatureSet& set, int sequence, const LabelOptions& labels, int lag, Counts* counts) {
  const Batch batch = MakeBatch(set, std::span(&sequence, 1), labels);
  if (batch.rows.numel() == 0) return;
  const at::Device device = embedding.device();
  const int64_t length = batch.tokens.size(1);
  const DraftNet::Input input = {
      .embedded = embedding.index_select(0, batch.tokens[0].to(device)).unsqueeze(0),
      .positions = at::arange(length, at::TensorOptions(at::kLong).device(device)),
      .keys = batch.keys.to(device),
      .values = batch.values.to(device),
      .lag = lag};
  const at::Tensor hidden = net.Forward(input)[0].index_select(0, batch.rows.to(device));
  for (int64_t begin = 0; begin < batch.rows.numel(); begin += kRowsAtOnce) {
    const int64_t end = std::min(batch.rows.numel(), begin + kRowsAtOnce);
    const at::Tensor logits = at::matmul(hidden.slice(0, begin, end), head.t());
    const at::Tensor ids = batch.targets.ids.slice(0, begin, end).to(device);
    const at::Tensor weights = batch.targets.weights.slice(0, begin, end).to(device);
    const at::Tensor loss =
        (logits.logsumexp(1) - (logits.gather(1, ids) * weights).sum(1)).to(at::kCPU, at::kDouble);
    const at::Tensor best = logits.argmax(1).to(at::kCPU);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = batch.rows.const_data_ptr<int64_t>()[i];
      const int64_t choice = best.const_data_ptr<int64_t>()[i - begin];
      const int64_t token = labels.vocab.empty() ? choice : labels.vocab[Z(choice)];
      counts->Add(row, lag, loss.const_data_ptr<double>()[i - begin],
                  token == Expected(set, set.sequence(sequence), row));
    }
  }
}

}  // namespace

double ExpectedAccepted(const ValidationBucket& bucket) {
  double all = 1.0, sum = 0.0;
  for (const double share : bucket.agreement) sum += all *= share;
  return sum;
}

Validation Validate(const DraftNet& net, const at::Tensor& embedding, const at::Tensor& head,
                    const FeatureSet& set, const LabelOptions& labels) {
  const at::NoGradGuard no_grad;
  Counts counts;
  for (int i = 0; i < set.n_sequences(); ++i) {
    for (int lag = 1; lag <= kValidatedLags; ++lag)
      AddSequence(net, embedding, head, set, i, labels, lag, &counts);
  }
  return counts.Finish();
}

}  // namespace longspec::train
