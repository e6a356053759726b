// SPDX-License-Identifier: Apache-2.0
//
// How often which token followed the last 0, 1, ... order tokens in some texts: a table made once by
// NgramCounter ("longspec corpus --ngrams"), pruned, mapped into memory from its file (ngram_format.h). What
// a drafter knows before the text at hand says anything. Thread-safe: immutable.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/mapped_file.h"
#include "formats/ngram_format.h"
#include "longspec/status.h"

namespace longspec {

class NgramPrior {
 public:
  static constexpr int kMaxOrder = ngram_format::kMaxLevels - 1;
  static constexpr int32_t kUnknown = -1;

  // The contexts at a place: the node of the last 0, 1, ... kMaxOrder tokens; kUnknown where the table knows
  // nothing that followed them.
  struct Contexts {
    std::array<int32_t, kMaxOrder + 1> node;
  };

  // Checks every number that look-ups rely on. A table made for another tokenizer is kInvalidArgument.
  static Result<std::shared_ptr<const NgramPrior>> Open(const std::string& path, int vocab_size,
                                                        const Hash128& tokenizer);
  // Reads the header only: which of several files fits a model?
  static Result<Hash128> TokenizerOf(const std::string& path);
  // For tests: neither the checksum nor the tokenizer is looked at. The bytes must outlive the table and
  // begin at a multiple of 8.
  static Result<std::shared_ptr<const NgramPrior>> ParseUnsealed(std::span<const std::byte> bytes,
                                                                 const std::string& name);

  // After a text, whose last tokens count.
  void Start(std::span<const int32_t> text, Contexts& contexts) const;
  // One token further: at most one search per length. `extended` may be `contexts`.
  void Extend(const Contexts& contexts, int32_t token, Contexts& extended) const;

  // How often a context (a node of Contexts, not kUnknown) was followed by something, pruned or not. Counts
  // are rounded (ngram_format.h): those of the successors may add up to 1/32 more. 0 of a context that is
  // only the way to longer ones.
  int64_t Count(int32_t node) const;
  // Calls f(token, count) for what followed a context, most frequent first, at most `ranked` of them.
  template <typename F>
  void ForSuccessors(int32_t node, F&& f) const {
    const Range range = Children(node);
    const int32_t end = range.first + std::min(range.n, ranked_);
    for (int32_t i = range.first; i < end; ++i) {
      const int64_t count = CountOf(i);
      if (count == 0) break;  // a path to longer contexts, which itself was not learned
      f(TokenOf(i), count);
    }
  }

  // Calls f for every n-gram, parents before their children, siblings in no order: its count, and how often
  // it was followed by something if the table knows what, else 0. The first one is empty.
  using Visitor = std::function<void(std::span<const int32_t> ngram, int64_t count, int64_t followed)>;
  void Visit(const Visitor& f) const;

  // All tokens that it has seen and how often, the most frequent first, equal ones by number.
  struct CountedToken {
    int32_t token;
    int64_t count;
  };
  std::vector<CountedToken> TokensByCount() const;
  // The first n of these, or fewer if it has no more.
  std::vector<int32_t> FrequentTokens(int n) const;

  int order() const { return order_; }
  int ranked() const { return ranked_; }
  int vocab_size() const { return vocab_size_; }
  int64_t n_pairs() const { return n_; }  // contexts with a successor, those of the empty context included
  size_t bytes() const { return n_bytes_; }
  const std::string& path() const { return path_; }

 private:
  struct Range {
    int32_t first, n;
  };

  explicit NgramPrior(std::string path) : path_(std::move(path)) {}
  // Takes the arrays from the bytes of a file, and checks what is in them.
  Status Read(std::span<const std::byte> bytes, const ngram_format::Header& header);
  Status CheckTotals() const;
  Status CheckChildren(const ngram_format::Header& header) const;
  Status CheckTokens() const;
  Status CheckSiblings(Range range) const;
  Status Damaged(const std::string& what) const;

  int32_t TokenOf(int32_t node) const {
    const auto i = static_cast<size_t>(node) - 1;
    return narrow_ != nullptr ? narrow_[i] : static_cast<int32_t>(wide_[i]);
  }
  int64_t CountOf(int32_t node) const {
    return ngram_format::CountOfCode(counts_[static_cast<size_t>(node) - 1]);
  }
  int32_t NumberOfChildren(int32_t node) const;
  bool HasChildren(int32_t node) const {
    return node == 0 ? n_roots_ > 0 : node <= n_inner_ && children_[static_cast<size_t>(node) - 1] > 0;
  }
  Range Children(int32_t node) const;
  int32_t Child(int32_t node, int32_t token) const;  // kUnknown if there is none
  void VisitBelow(int32_t node, std::array<int32_t, kMaxOrder + 1>& ngram, size_t length,
                  const Visitor& f) const;

  std::string path_;
  std::optional<MappedFile> file_;
  size_t n_bytes_ = 0;
  int order_ = 0;
  int32_t vocab_size_ = 0, ranked_ = 0;
  int32_t n_ = 0, n_inner_ = 0, n_roots_ = 0;  // nodes, those that may have children, those of the root
  std::span<const uint32_t> total_nodes_, totals_, many_nodes_, many_, sums_;
  const uint16_t* narrow_ = nullptr;  // tokens: one of these
  const uint32_t* wide_ = nullptr;
  std::span<const uint8_t> counts_, children_;
};

}  // namespace longspec
