// SPDX-License-Identifier: Apache-2.0
//
// Partial verification (SpecPV, arXiv 2512.02337; research: specpv.md): once a text is longer than a working
// set, its tokens are chosen from what the target sees of that set, and every `refresh` positions the whole
// cache takes in what was written since, and a new set is chosen. An APPROXIMATION: the text is not that of
// plain decoding. It is a function of prompt, options and seed all the same: sets are chosen at fixed
// positions, by the query of the position before, so neither drafts, threads, batches nor clocks change it.
//
// A refresh is a chunk of missing tokens like a prompt's, so rounds need no case for it. Its logits tell how
// many tokens the whole cache would have chosen otherwise.
#pragma once

#include <cstdint>
#include <memory>

#include "decode/batch_decoder.h"
#include "decode/row_reader.h"
#include "kv/retrieval_cache.h"
#include "model/shared_parts.h"

namespace longspec {

struct PartialStats {
  int64_t tokens = 0;     // that a working set chose, as far as was checked
  int64_t differing = 0;  // of them, those that the whole cache would have chosen otherwise
  int64_t refreshes = 0;  // sets chosen
  uint64_t bytes = 0;     // of the set
};

class PartialVerifier final : public RowReader {
 public:
  // All borrowed but the set. `whole` is the sequence's cache, which keeps every position; `n_prompt`: tokens
  // of the prompt. `options.refresh` is at least 1.
  PartialVerifier(const RetrievalOptions& options, KvCache* whole, const SharedParts& target,
                  const Sampler* sampler, int n_prompt);

  // What drafters may know of the sequence's cache: that it is not all of it.
  const KvCache& part() const { return *part_; }

  // Before each turn: gives the sequence the cache it goes on with. Afterwards n_missing() is of that cache.
  Status Prepare(Sequence& sequence);
  // What the turn may do besides: only tokens before the next refresh, or only its chunk.
  void Limit(Turn& turn) const;

  // The last cache that Prepare gave is the set, and no part of a refresh is under way.
  bool in_part() const { return state_ == State::kPart; }
  PartialStats stats() const;

  Taps taps() const override;
  void Read(const CommittedRows& rows) override;

 private:
  enum class State : uint8_t {
    kWhole,    // everything is seen
    kRefresh,  // the whole cache takes in what is missing up to boundary_
    kPart,
  };

  Status Choose(int length);
  void Compare(const CommittedRows& rows);

  const RetrievalOptions options_;
  KvCache& whole_;
  const LlamaConfig& target_;
  const Sampler& sampler_;
  const std::unique_ptr<RetrievalCache> part_;
  const int first_;  // positions before it are always seen whole
  State state_ = State::kWhole;
  int boundary_ = 0;            // kPart: where its set was chosen. kRefresh: where it will be
  int queries_of_ = -1;         // position whose queries the set has
  int partial_from_ = 1 << 30;  // tokens from this index on were chosen by a set
  PartialStats stats_;
  Sampler::Scratch scratch_;
};

}  // namespace longspec
