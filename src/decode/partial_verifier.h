// SPDX-License-Identifier: Apache-2.0
//
// Partial verification (SpecPV, arXiv 2512.02337): once a text is longer than a working
// set, its tokens are chosen from what the target sees of that set, and every `refresh` positions the whole
// cache takes in what was written since, and a new set is chosen. An APPROXIMATION: the text is not that of
// plain decoding. It is a function of prompt, options and seed all the same: sets are chosen at fixed
// positions, by the query of the position before, so neither drafts, threads, batches nor clocks change it.
//
// A refresh is a chunk of missing tokens like a prompt's, so rounds need no case for it. Its logits tell how
// many tokens the whole cache would have chosen otherwise.
//
// SpecPV's own way is another rule (lab/specpv.h): its refreshes depend on the drafts.
#pragma once

#include <cstdint>
#include <memory>

#include "decode/batch_decoder.h"
#include "decode/row_reader.h"
#include "kv/retrieval_cache.h"
#include "model/shared_parts.h"
#include "model/target.h"

namespace longspec {

struct PartialStats {
  int64_t tokens = 0;     // that a working set chose, as far as was checked
  int64_t differing = 0;  // of them, those that the whole cache would have chosen otherwise
  int64_t refreshes = 0;  // sets chosen
  uint64_t bytes = 0;     // of the set
};

class PartialVerifier : public RowReader {
 public:
  // What drafters may know of the sequence's cache: that it is not all of it.
  const KvCache& part() const { return *part_; }

  // Before each turn: gives the sequence the cache it goes on with. Afterwards n_missing() is of that cache.
  virtual Status Prepare(Sequence& sequence) = 0;
  // What the turn may do besides.
  virtual void Limit(Turn& turn) const = 0;

  PartialStats stats() const;

 protected:
  PartialVerifier(const RetrievalOptions& options, KvCache* whole, const Target& target,
                  const Sampler* sampler);

  // A set of what the whole cache holds, recent positions at least from `window` before `length` on.
  Status Choose(int length);
  // Takes the queries of so many rows of the pass, which have queries, for the next choice.
  void TakeQueries(const CommittedRows& rows, int first_row, int n_rows);
  // Counts tokens [partial_from_, end) that these rows would have chosen otherwise.
  void Compare(const CommittedRows& rows, int end);

  const RetrievalOptions options_;
  KvCache& whole_;
  const std::unique_ptr<RetrievalCache> part_;
  int partial_from_ = 1 << 30;  // tokens from this index on were chosen by a set

 private:
  const Sampler& sampler_;
  PartialStats stats_;
  Sampler::Scratch scratch_;
};

// All borrowed but what is returned. `whole` is the sequence's cache, which keeps every position; `n_prompt`:
// tokens of the prompt.

// Sets are chosen every `options.refresh` positions, as above; 0: by the other rule, which there has to be.
std::unique_ptr<PartialVerifier> MakePartialVerifier(const RetrievalOptions& options, KvCache* whole,
                                                     const Target& target, const Sampler* sampler,
                                                     int n_prompt);
// Another rule of when sets are chosen, which `options.refresh` 0 stands for. A program has one or none.
struct RefreshRule {
  int most_accepted = 0;  // tokens accepted between two choices, before the last tree
  std::unique_ptr<PartialVerifier> (*make)(const RetrievalOptions& options, KvCache* whole,
                                           const Target& target, const Sampler* sampler,
                                           int n_prompt) = nullptr;
};
const RefreshRule* OtherRefreshRule();  // null: none
// `rule` stays for good. Before there is an engine, from one thread.
void SetOtherRefreshRule(const RefreshRule* rule);

}  // namespace longspec
