// SPDX-License-Identifier: Apache-2.0
//
// A fixed text in a file, indexed by its sorted suffixes, mapped into memory: nothing is
// built when it is opened, and every process that uses it shares the pages.
//
// The file, little-endian: "LSCORPUS", u32 version 1, u32 vocabulary size, u64 n, then i32 tokens[n]
// (-1 between two texts) and u32 order[n]: the places of the text sorted by the 128 tokens that begin there.
// Thread-safe: immutable.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "draft_text/suffix_growth.h"
#include "longspec/status.h"

namespace longspec {

class SuffixCorpus final : public SuffixIndex {
 public:
  // Between two texts: no context goes across it.
  static constexpr int32_t kSeparator = -1;

  // Sorts and writes; the file appears when it is complete.
  static Status Write(const std::string& path, int vocab_size, std::span<const int32_t> tokens);

  // `vocab_size`: of the model that is to be drafted for. Checks every number in the file.
  static Result<std::unique_ptr<SuffixCorpus>> Open(const std::string& path, int vocab_size);

  // The same in memory. REQUIRES: tokens are 0 or more, or kSeparator.
  static std::unique_ptr<SuffixCorpus> Make(std::vector<int32_t> tokens);

  // Contexts that are suffixes of `sequence`, of up to max_context tokens: the longest that occurs, then
  // shorter ones that occur more often, at most `most`; replaces `out`.
  void Matches(std::span<const int32_t> sequence, int max_context, int most,
               std::vector<SuffixContext>& out) const;
  int64_t Count(const SuffixContext& context) const { return context.last - context.first; }

  // Of contexts that occur very often, what follows is looked up at a sample of their places.
  void Continuations(const SuffixContext& context, int most, std::vector<Continuation>& out) const override;

  size_t size() const { return tokens_.size(); }
  size_t bytes() const {  // mapped or held
    return file_ ? file_->bytes().size() : tokens_.size_bytes() + order_.size_bytes();
  }

 private:
  SuffixCorpus(MappedFile file, std::span<const int32_t> tokens, std::span<const uint32_t> order)
      : file_(std::move(file)), tokens_(tokens), order_(order) {}
  SuffixCorpus(std::vector<int32_t> tokens, std::vector<uint32_t> order)
      : own_tokens_(std::move(tokens)),
        own_order_(std::move(order)),
        tokens_(own_tokens_),
        order_(own_order_) {}

  int32_t TokenAt(uint32_t place, int32_t offset) const;
  SuffixContext Find(std::span<const int32_t> context) const;
  SuffixContext Extend(const SuffixContext& context, int32_t token) const;

  const std::optional<MappedFile> file_;  // null: in memory
  const std::vector<int32_t> own_tokens_;
  const std::vector<uint32_t> own_order_;
  std::span<const int32_t> tokens_;
  std::span<const uint32_t> order_;
};

}  // namespace longspec
