// SPDX-License-Identifier: Apache-2.0
//
// Summaries of blocks of 16 keys, by which positions are chosen for retrieval: element-wise minimum, maximum
// and mean of a block's keys as attention reads them, rotation included, and the mean of their lengths. There
// is one for each layer and KV head; block b is positions [16 b, 16 b + 16). They grow with the cache, and
// none is computed twice. Whoever moves keys makes them (KvMover::NewSummaries), so that keys, summaries and
// queries are read where they lie, and what comes out is numbers of blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attention/kv_span.h"
#include "kv/kv_cache.h"
#include "longspec/status.h"
#include "tensor/state_rows.h"

namespace longspec {

// How a block is scored for a query q. All are without 1 / sqrt(head_dim), which ranks nothing.
enum class BlockScore : unsigned char {
  kMinMax,  // the larger one of q . max and q . min (SpecPV, arXiv 2512.02337)
  kQuest,   // sum of max(q_d max_d, q_d min_d), a bound of every key's score (Quest, arXiv 2406.10774)
  kMean,    // q . mean (TriForce, arXiv 2404.11912)
  kNorm,    // the mean length of the keys, whatever the query (as H2O's selector in SpecPV's code)
};

// "minmax", "quest", "mean", "norm"; the message of another name begins with `option`.
Result<BlockScore> ParseBlockScore(const std::string& name, const std::string& option);

// What the scores that several queries give a block are made to, head by head; of
// the query heads of a KV head then counts the mean. One query: all are the same.
enum class QueryReduction : unsigned char {
  kMean,
  kMax,
  kLast,  // the last verified token's query alone: the first row, which is the root of what is drafted
};

// "mean", "max", "last"; the message of another name begins with `option`.
Result<QueryReduction> ParseQueryReduction(const std::string& name, const std::string& option);

class BlockSummaries {
 public:
  virtual ~BlockSummaries() = default;

  // Takes in the whole blocks that `source` holds beyond those known.
  virtual void Follow(const KvCache& source) = 0;
  // Forgets blocks that hold a position from `length` on.
  virtual void Truncate(int length) = 0;

  virtual int n_blocks() const = 0;
  // So far; more than n_blocks() where some were forgotten.
  virtual int64_t n_summarised() const = 0;

  // The queries by which blocks are chosen from now on, as WorkingSet has them; zeros before the first call.
  virtual void SetQueries(std::span<const StateRows> by_layer) = 0;
  // The `n` best of blocks [first, end) for each layer and KV head, ascending: (n_layer, n_kv_head, n).
  // REQUIRES: there are so many.
  virtual void Choose(int first, int end, int n, QueryReduction reduce,
                      std::vector<int32_t>* blocks) const = 0;

  // What so many blocks take, with what is kept for those that follow.
  static size_t BytesOf(int n_blocks, const KvLayout& layout, int n_layer, BlockScore score);
  virtual size_t bytes() const = 0;
};

// Summaries of keys that the host can address.
class HostSummaries final : public BlockSummaries {
 public:
  // `score` decides what is kept. `n_head`: query heads.
  HostSummaries(const KvLayout& layout, int n_layer, int n_head, BlockScore score);

  void Follow(const KvCache& source) override;
  void Truncate(int length) override;
  int n_blocks() const override { return n_blocks_; }
  int64_t n_summarised() const override { return n_summarised_; }
  void SetQueries(std::span<const StateRows> by_layer) override;
  void Choose(int first, int end, int n, QueryReduction reduce, std::vector<int32_t>* blocks) const override;
  size_t bytes() const override { return (numbers_.capacity() + queries_.capacity()) * sizeof(float); }

  // Scores of as many blocks from `first` on of one layer and KV head for its query heads. `queries`:
  // (n_rows, group, head_dim) of that KV head. Exposed for tests.
  void Score(int layer, int kv_head, std::span<const float> queries, int first, std::span<float> scores,
             int n_rows = 1, QueryReduction reduce = QueryReduction::kMean) const;

 private:
  size_t n_numbers() const;  // of a block of one KV head
  float ScoreOf(std::span<const float> q, const float* numbers) const;
  size_t At(int block, int layer, int kv_head) const;

  const KvLayout layout_;
  const int n_layer_, n_head_;
  const BlockScore score_;
  int n_blocks_ = 0;
  int64_t n_summarised_ = 0;
  std::vector<float> numbers_;  // (n_blocks, n_layer, n_kv_head, n_numbers)
  int n_rows_ = 1;              // that choose
  std::vector<float> queries_;  // (n_layer, n_kv_head, n_rows, group, head_dim)
};

// The `n` blocks of the highest scores, ascending; of equal scores the earlier ones. scores[i] is that of
// block first + i. All of them if there are no more.
void BestBlocks(std::span<const float> scores, int first, int n, std::vector<int32_t>* blocks);

}  // namespace longspec
