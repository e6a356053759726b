// SPDX-License-Identifier: Apache-2.0
#include "kv/block_summaries.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "base/check.h"
#include "base/largest.h"
#include "base/size.h"
#include "kv/readable_span.h"

namespace longspec {
namespace {

float Dot(std::span<const float> a, const float* b) {
  float sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum += a[d] * b[d];
  return sum;
}

size_t WithSpare(size_t n) { return n + n / 8; }

// Of a block of one KV head.
size_t Numbers(const KvLayout& layout, BlockScore score) {
  switch (score) {
    case BlockScore::kMean:
      return Z(layout.head_dim);
    case BlockScore::kNorm:
      return 1;
    default:
      return 2 * Z(layout.head_dim);  // least, most
  }
}

float Bound(std::span<const float> q, const float* least, const float* most) {
  float sum = 0;
  for (size_t d = 0; d < q.size(); ++d) sum += std::max(q[d] * least[d], q[d] * most[d]);
  return sum;
}

}  // namespace

Result<BlockScore> ParseBlockScore(const std::string& name, const std::string& option) {
  if (name == "minmax") return BlockScore::kMinMax;
  if (name == "quest") return BlockScore::kQuest;
  if (name == "mean") return BlockScore::kMean;
  if (name == "norm") return BlockScore::kNorm;
  return InvalidArgument(option + " " + name + ": must be minmax, quest, mean or norm");
}

Result<QueryReduction> ParseQueryReduction(const std::string& name, const std::string& option) {
  if (name == "mean") return QueryReduction::kMean;
  if (name == "max") return QueryReduction::kMax;
  if (name == "last") return QueryReduction::kLast;
  return InvalidArgument(option + " " + name + ": must be mean, max or last");
}

size_t BlockSummaries::BytesOf(int n_blocks, const KvLayout& layout, int n_layer, BlockScore score) {
  return WithSpare(Z(int64_t{n_blocks} * n_layer * layout.n_kv_head) * Numbers(layout, score)) *
         sizeof(float);
}

HostSummaries::HostSummaries(const KvLayout& layout, int n_layer, int n_head, BlockScore score)
    : layout_(layout),
      n_layer_(n_layer),
      n_head_(n_head),
      score_(score),
      queries_(Z(int64_t{n_layer} * n_head * layout.head_dim)) {}

size_t HostSummaries::n_numbers() const { return Numbers(layout_, score_); }

size_t HostSummaries::At(int block, int layer, int kv_head) const {
  const int64_t heads = (int64_t{block} * n_layer_ + layer) * layout_.n_kv_head + kv_head;
  return Z(heads) * n_numbers();
}

void HostSummaries::Follow(const KvCache& source) {
  LS_CHECK(source.n_slots() == source.length());
  const int n_blocks = source.length() / kKeyBlock;
  if (n_blocks <= n_blocks_) return;
  // Most of the memory is that of one long context: it is not doubled for a few blocks more.
  const size_t needed = At(n_blocks, 0, 0);
  if (numbers_.capacity() < needed) numbers_.reserve(WithSpare(needed));
  numbers_.resize(needed);
  const int dim = layout_.head_dim;
  std::vector<float> keys(Z(int64_t{kKeyBlock} * dim));
  for (int layer = 0; layer < n_layer_; ++layer) {
    const ReadableSpan readable(source.Span(layer), source.mover(), n_blocks_ * kKeyBlock,
                                n_blocks * kKeyBlock);
    const KvSpan& span = readable.span();
    for (int block = n_blocks_; block < n_blocks; ++block) {
      for (int head = 0; head < layout_.n_kv_head; ++head) {
        for (int i = 0; i < kKeyBlock; ++i) {
          for (int d = 0; d < dim; ++d) keys[Z(i * dim + d)] = span.KeyAt(block * kKeyBlock + i, head, d);
        }
        float* to = numbers_.data() + At(block, layer, head);
        if (score_ == BlockScore::kNorm) {
          float sum = 0;
          for (int i = 0; i < kKeyBlock; ++i) {
            const auto key = std::span(keys).subspan(Z(i * dim), Z(dim));
            sum += std::sqrt(Dot(key, key.data()));
          }
          *to = sum / kKeyBlock;
          continue;
        }
        for (int d = 0; d < dim; ++d) {
          float least = keys[Z(d)], most = least, sum = 0;
          for (int i = 0; i < kKeyBlock; ++i) {
            const float key = keys[Z(i * dim + d)];
            least = std::min(least, key);
            most = std::max(most, key);
            sum += key;
          }
          if (score_ == BlockScore::kMean) {
            to[d] = sum / kKeyBlock;
          } else {
            to[d] = least;
            to[dim + d] = most;
          }
        }
      }
    }
  }
  n_summarised_ += n_blocks - n_blocks_;
  n_blocks_ = n_blocks;
}

void HostSummaries::Truncate(int length) {
  n_blocks_ = std::min(n_blocks_, length / kKeyBlock);
  numbers_.resize(At(n_blocks_, 0, 0));
}

void HostSummaries::SetQueries(std::span<const StateRows> by_layer) {
  LS_CHECK(std::ssize(by_layer) == n_layer_ && by_layer.front().width() == n_head_ * layout_.head_dim);
  const size_t of_head = Z(int64_t{n_head_ / layout_.n_kv_head} * layout_.head_dim);
  queries_.clear();
  n_rows_ = by_layer.front().size();
  LS_CHECK(n_rows_ >= 1);
  std::vector<float> room;
  for (const StateRows& rows : by_layer) {
    const float* const q = rows.Read(&room).data();
    for (size_t head = 0; head < Z(layout_.n_kv_head); ++head) {
      for (size_t row = 0; row < Z(n_rows_); ++row) {
        const float* of_row = q + (row * Z(layout_.n_kv_head) + head) * of_head;
        queries_.insert(queries_.end(), of_row, of_row + of_head);
      }
    }
  }
}

void HostSummaries::Choose(int first, int end, int n, QueryReduction reduce,
                           std::vector<int32_t>* blocks) const {
  LS_CHECK(n <= end - first);
  blocks->clear();
  std::vector<float> scores(Z(end - first));
  std::vector<int32_t> best;
  const size_t of_head = queries_.size() / Z(int64_t{n_layer_} * layout_.n_kv_head);
  for (int layer = 0; layer < n_layer_ && n > 0; ++layer) {
    for (int head = 0; head < layout_.n_kv_head; ++head) {
      const size_t at = (Z(layer) * Z(layout_.n_kv_head) + Z(head)) * of_head;
      Score(layer, head, std::span(queries_).subspan(at, of_head), first, scores, n_rows_, reduce);
      BestBlocks(scores, first, n, &best);
      blocks->insert(blocks->end(), best.begin(), best.end());
    }
  }
}

float HostSummaries::ScoreOf(std::span<const float> q, const float* numbers) const {
  switch (score_) {
    case BlockScore::kMinMax:
      return std::max(Dot(q, numbers + q.size()), Dot(q, numbers));
    case BlockScore::kQuest:
      return Bound(q, numbers, numbers + q.size());
    case BlockScore::kMean:
      return Dot(q, numbers);
    case BlockScore::kNorm:
      return *numbers;
  }
  return 0;
}

void HostSummaries::Score(int layer, int kv_head, std::span<const float> queries, int first,
                          std::span<float> scores, int n_rows, QueryReduction reduce) const {
  const auto dim = Z(layout_.head_dim);
  const int end = first + static_cast<int>(scores.size());
  LS_CHECK(n_rows > 0 && queries.size() % (Z(n_rows) * dim) == 0 && end <= n_blocks_);
  const size_t group = queries.size() / (Z(n_rows) * dim);
  const size_t n_counted = reduce == QueryReduction::kLast ? 1 : Z(n_rows);
  const size_t n_summed = reduce == QueryReduction::kMean ? n_counted * group : group;
  for (int block = first; block < end; ++block) {
    const float* numbers = numbers_.data() + At(block, layer, kv_head);
    const auto score_of = [&](size_t row, size_t head) {
      return ScoreOf(queries.subspan((row * group + head) * dim, dim), numbers);
    };
    float sum = 0;
    for (size_t i = 0; i < n_summed; ++i) {
      float score = score_of(i / group, i % group);
      for (size_t row = 1; row < n_counted && reduce == QueryReduction::kMax; ++row) {
        score = std::max(score, score_of(row, i));
      }
      sum += score;
    }
    scores[Z(block - first)] = sum / static_cast<float>(n_summed);
  }
}

void BestBlocks(std::span<const float> scores, int first, int n, std::vector<int32_t>* blocks) {
  blocks->resize(scores.size());
  std::iota(blocks->begin(), blocks->end(), 0);
  const auto better = [&](int32_t a, int32_t b) {
    return scores[Z(a)] != scores[Z(b)] ? scores[Z(a)] > scores[Z(b)] : a < b;
  };
  if (Z(n) < blocks->size()) {
    KeepFirst(*blocks, Z(n), better);
    std::ranges::sort(*blocks);
  }
  for (int32_t& block : *blocks) block += first;
}

}  // namespace longspec
