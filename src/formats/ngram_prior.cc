// SPDX-License-Identifier: Apache-2.0
#include "formats/ngram_prior.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/status_macros.h"

namespace longspec {
namespace {

using ngram_format::Header;
using ngram_format::kMany;
using ngram_format::kMaxLevels;
using ngram_format::kSumNodes;

constexpr char kMakeAgain[] = "; make it again with 'longspec corpus --ngrams'";

Status Wrong(const std::string& path, const std::string& what) {
  return Corrupt(path + ": damaged n-gram table: " + what + kMakeAgain);
}

Result<Header> ReadHeader(const std::string& path, std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof(header.magic) ||
      std::memcmp(bytes.data(), ngram_format::kMagic, sizeof(header.magic)) != 0) {
    return Corrupt(path + ": not a table of n-grams; 'longspec corpus --ngrams' makes them");
  }
  if (bytes.size() < sizeof(header)) {
    return Wrong(path, std::to_string(bytes.size()) + " bytes are less than its header of " +
                           std::to_string(sizeof(header)));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.version != ngram_format::kVersion) {
    return Unsupported(path + ": n-gram table of version " + std::to_string(header.version) +
                       "; this program reads version " + std::to_string(ngram_format::kVersion) + kMakeAgain);
  }
  return header;
}

uint64_t Nodes(const Header& header) {
  uint64_t n = 0;
  for (const uint32_t level : header.n_level) n += level;
  return n;
}

Status CheckHeader(const std::string& path, const Header& header, size_t n_bytes) {
  const auto range = [&](const char* name, uint64_t value, uint64_t least, uint64_t most) -> Status {
    if (value >= least && value <= most) return {};
    return Wrong(path, std::string(name) + " is " + std::to_string(value) + ", not from " +
                           std::to_string(least) + " to " + std::to_string(most));
  };
  LS_TRY(range("a field of the header", header.zero, 0, 0));
  LS_TRY(range("its vocabulary", header.vocab_size, 1, ngram_format::kMaxVocab));
  LS_TRY(range("its order", header.order, 1, kMaxLevels - 1));
  LS_TRY(range("its number of ranked successors", header.ranked, 1, ngram_format::kMaxRanked));
  const uint64_t n = Nodes(header), n_inner = n - header.n_level[header.order];
  LS_TRY(range("its number of n-grams", n, 0, std::numeric_limits<int32_t>::max() - 1));
  for (size_t level = header.order + 1; level < kMaxLevels; ++level) {
    LS_TRY(range("the size of a level below its last", header.n_level[level], 0, 0));
  }
  LS_TRY(range("its number of totals", header.n_totals, 1, n_inner + 1));
  LS_TRY(range("its number of nodes of many children", header.n_many, 0, n_inner));
  const uint64_t token_bytes = header.vocab_size <= ngram_format::kNarrowVocab ? 2 : 4;
  const uint64_t n_sums = (n_inner + kSumNodes - 1) / kSumNodes;
  const uint64_t expected = sizeof(Header) + 8 * (uint64_t{header.n_totals} + header.n_many) + 4 * n_sums +
                            n * (token_bytes + 1) + n_inner;
  if (expected != n_bytes) {
    return Wrong(path, "its header promises " + std::to_string(expected) + " bytes, but it has " +
                           std::to_string(n_bytes));
  }
  return {};
}

bool Ascending(std::span<const uint32_t> values) {
  return std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end();
}

// Where the value is in an ascending array; its size if it is not there.
size_t Find(std::span<const uint32_t> values, uint32_t value) {
  const auto it = std::lower_bound(values.begin(), values.end(), value);
  return it != values.end() && *it == value ? static_cast<size_t>(it - values.begin()) : values.size();
}

// The first `n_ranked` siblings are in another order than the rest.
template <typename Token>
int32_t FindToken(const Token* tokens, int32_t n, int32_t n_ranked, int32_t token) {
  const auto wanted = static_cast<Token>(token);
  for (int32_t i = 0; i < n_ranked; ++i) {
    if (tokens[i] == wanted) return i;
  }
  const Token* const end = tokens + n;
  const Token* const it = std::lower_bound(tokens + n_ranked, end, wanted);
  return it != end && *it == wanted ? static_cast<int32_t>(it - tokens) : NgramPrior::kUnknown;
}

}  // namespace

Result<std::shared_ptr<const NgramPrior>> NgramPrior::Open(const std::string& path, int vocab_size,
                                                           const Hash128& tokenizer) {
  LS_ASSIGN(MappedFile file, MappedFile::Open(path));
  const std::span<const std::byte> bytes = file.bytes();
  LS_ASSIGN(const Header header, ReadHeader(path, bytes));
  LS_TRY(CheckHeader(path, header, bytes.size()));
  const Hash128 checksum = {.high = header.checksum_high, .low = header.checksum_low};
  if (HashOf(bytes.subspan(ngram_format::kHashedFrom)) != checksum) {
    return Wrong(path, "its checksum is not that of its contents");
  }
  if (Hash128{.high = header.tokenizer_high, .low = header.tokenizer_low} != tokenizer) {
    return InvalidArgument(path + ": made for another tokenizer than this model's" + kMakeAgain +
                           " and this model");
  }
  if (header.vocab_size > static_cast<uint32_t>(std::max(vocab_size, 0))) {
    return InvalidArgument(path + ": made for a vocabulary of " + std::to_string(header.vocab_size) +
                           " tokens; this model has " + std::to_string(vocab_size) + kMakeAgain +
                           " and this model");
  }
  std::shared_ptr<NgramPrior> prior(new NgramPrior(path));
  LS_TRY(prior->Read(bytes, header));
  prior->file_.emplace(std::move(file));
  return std::shared_ptr<const NgramPrior>(std::move(prior));
}

Result<Hash128> NgramPrior::TokenizerOf(const std::string& path) {
  LS_ASSIGN(const MappedFile file, MappedFile::Open(path));
  LS_ASSIGN(const Header header, ReadHeader(path, file.bytes()));
  return Hash128{.high = header.tokenizer_high, .low = header.tokenizer_low};
}

Result<std::shared_ptr<const NgramPrior>> NgramPrior::ParseUnsealed(std::span<const std::byte> bytes,
                                                                    const std::string& name) {
  LS_ASSIGN(const Header header, ReadHeader(name, bytes));
  LS_TRY(CheckHeader(name, header, bytes.size()));
  std::shared_ptr<NgramPrior> prior(new NgramPrior(name));
  LS_TRY(prior->Read(bytes, header));
  return std::shared_ptr<const NgramPrior>(std::move(prior));
}

Status NgramPrior::Damaged(const std::string& what) const { return Wrong(path_, what); }

Status NgramPrior::Read(std::span<const std::byte> bytes, const Header& header) {
  n_bytes_ = bytes.size();
  order_ = static_cast<int>(header.order);
  vocab_size_ = static_cast<int32_t>(header.vocab_size);
  ranked_ = static_cast<int32_t>(header.ranked);
  n_ = static_cast<int32_t>(Nodes(header));
  n_inner_ = n_ - static_cast<int32_t>(header.n_level[header.order]);
  n_roots_ = static_cast<int32_t>(header.n_level[0]);
  const auto n = static_cast<size_t>(n_), n_inner = static_cast<size_t>(n_inner_);
  // The sizes add up to the file's (CheckHeader), and whatever needs alignment comes first.
  const std::byte* at = bytes.data() + sizeof(Header);
  const auto take = [&at]<typename T>(size_t size, T) {
    const std::span values(reinterpret_cast<const T*>(at), size);
    at += values.size_bytes();
    return values;
  };
  total_nodes_ = take(header.n_totals, uint32_t{});
  totals_ = take(header.n_totals, uint32_t{});
  many_nodes_ = take(header.n_many, uint32_t{});
  many_ = take(header.n_many, uint32_t{});
  sums_ = take((n_inner + kSumNodes - 1) / kSumNodes, uint32_t{});
  if (header.vocab_size <= ngram_format::kNarrowVocab) {
    narrow_ = take(n, uint16_t{}).data();
  } else {
    wide_ = take(n, uint32_t{}).data();
  }
  counts_ = take(n, uint8_t{});
  children_ = take(n_inner, uint8_t{});
  LS_TRY(CheckTotals());
  LS_TRY(CheckChildren(header));
  return CheckTokens();
}

Status NgramPrior::CheckTotals() const {
  if (!Ascending(total_nodes_) || total_nodes_.front() != 0 ||
      total_nodes_.back() > static_cast<uint32_t>(n_inner_)) {
    return Damaged("its totals are not of ascending contexts");
  }
  return {};
}

// The children of each level are the next one, and the sums say where each node's are.
Status NgramPrior::CheckChildren(const Header& header) const {
  size_t node = 0, next_many = 0;
  uint64_t sum = 0;
  for (uint32_t level = 0; level < header.order; ++level) {
    const uint64_t before = sum;
    for (const size_t end = node + header.n_level[level]; node < end; ++node) {
      if (node % kSumNodes == 0 && sums_[node / kSumNodes] != sum) {
        return Damaged("sum " + std::to_string(node / kSumNodes) + " of children is wrong");
      }
      uint32_t n = children_[node];
      if (n == kMany) {
        if (next_many >= many_.size() || many_nodes_[next_many] != node + 1 || many_[next_many] < kMany) {
          return Damaged("n-gram " + std::to_string(node + 1) + " does not say how many children it has");
        }
        n = many_[next_many++];
      }
      sum += n;
    }
    if (sum - before != header.n_level[level + 1]) {
      return Damaged("level " + std::to_string(level + 2) + " has " +
                     std::to_string(header.n_level[level + 1]) + " n-grams, but the one above it " +
                     std::to_string(sum - before) + " children");
    }
  }
  if (next_many != many_.size()) return Damaged("nodes of many children that have few");
  return {};
}

Status NgramPrior::CheckTokens() const {
  for (int32_t node = 1; node <= n_; ++node) {
    // As unsigned numbers, so that no token of 32 bits becomes a negative one.
    const auto token = static_cast<uint32_t>(TokenOf(node));
    if (token >= static_cast<uint32_t>(vocab_size_)) {
      return Damaged("n-gram " + std::to_string(node) + " ends in token " + std::to_string(token) +
                     ", outside its vocabulary of " + std::to_string(vocab_size_));
    }
  }
  int32_t first = 1;
  for (int32_t node = 0; node <= n_inner_; ++node) {
    const int32_t n = NumberOfChildren(node);
    if (n > 0) LS_TRY(CheckSiblings({.first = first, .n = n}));
    first += n;
  }
  return {};
}

Status NgramPrior::CheckSiblings(Range range) const {
  const int32_t n_ranked = std::min(range.n, ranked_), end = range.first + range.n;
  const int32_t rest = range.first + n_ranked;
  bool ordered = true;
  for (int32_t i = rest + 1; i < end; ++i) ordered &= TokenOf(i - 1) < TokenOf(i);
  for (int32_t i = range.first; i + 1 < rest; ++i) ordered &= CountOf(i) >= CountOf(i + 1);
  // No token twice: look-ups would be safe, but drafters may rely on it.
  for (int32_t i = range.first; i < rest; ++i) {
    for (int32_t j = range.first; j < i; ++j) ordered &= TokenOf(i) != TokenOf(j);
  }
  for (int32_t i = range.first; ordered && rest < end && i < rest; ++i) {
    const int32_t n_rest = end - rest;
    const auto at = static_cast<size_t>(rest) - 1;
    ordered &= (narrow_ != nullptr ? FindToken(narrow_ + at, n_rest, 0, TokenOf(i))
                                   : FindToken(wide_ + at, n_rest, 0, TokenOf(i))) == kUnknown;
  }
  if (ordered) return {};
  return Damaged("n-grams " + std::to_string(range.first) + " to " + std::to_string(end - 1) +
                 " are not in order");
}

int32_t NgramPrior::NumberOfChildren(int32_t node) const {
  if (node == 0) return n_roots_;
  const uint32_t n = children_[static_cast<size_t>(node) - 1];
  return static_cast<int32_t>(n < kMany ? n : many_[Find(many_nodes_, static_cast<uint32_t>(node))]);
}

NgramPrior::Range NgramPrior::Children(int32_t node) const {
  if (node == 0) return {.first = 1, .n = n_roots_};
  if (node > n_inner_) return {.first = 1, .n = 0};
  const auto end = static_cast<size_t>(node) - 1, begin = end - end % kSumNodes;
  uint32_t sum = sums_[begin / kSumNodes];
  bool many = false;
  for (size_t i = begin; i < end; ++i) {
    sum += children_[i];
    many |= children_[i] == kMany;
  }
  if (many) [[unlikely]] {
    const auto from = std::upper_bound(many_nodes_.begin(), many_nodes_.end(), static_cast<uint32_t>(begin));
    for (auto it = from; it != many_nodes_.end() && *it <= end; ++it) {
      sum += many_[static_cast<size_t>(it - many_nodes_.begin())] - kMany;
    }
  }
  const int32_t first = 1 + n_roots_ + static_cast<int32_t>(sum);
  return {.first = first, .n = NumberOfChildren(node)};
}

int32_t NgramPrior::Child(int32_t node, int32_t token) const {
  if (token < 0 || token >= vocab_size_) return kUnknown;
  const Range range = Children(node);
  const auto at = static_cast<size_t>(range.first) - 1;
  const int32_t n_ranked = std::min(range.n, ranked_);
  const int32_t i = narrow_ != nullptr ? FindToken(narrow_ + at, range.n, n_ranked, token)
                                       : FindToken(wide_ + at, range.n, n_ranked, token);
  return i == kUnknown ? kUnknown : range.first + i;
}

void NgramPrior::Start(std::span<const int32_t> text, Contexts& contexts) const {
  contexts.node.fill(kUnknown);
  contexts.node[0] = HasChildren(0) ? 0 : kUnknown;
  for (const int32_t token : text.last(std::min(text.size(), static_cast<size_t>(order_)))) {
    Extend(contexts, token, contexts);
  }
}

void NgramPrior::Extend(const Contexts& contexts, int32_t token, Contexts& extended) const {
  for (size_t k = kMaxOrder; k > 0; --k) {
    const int32_t node = contexts.node[k - 1];
    const int32_t child = node == kUnknown ? kUnknown : Child(node, token);
    extended.node[k] = child != kUnknown && HasChildren(child) ? child : kUnknown;
  }
  extended.node[0] = contexts.node[0];
}

int64_t NgramPrior::Count(int32_t node) const {
  const size_t i = Find(total_nodes_, static_cast<uint32_t>(node));
  return i < totals_.size() ? totals_[i] : CountOf(node);
}

std::vector<int32_t> NgramPrior::FrequentTokens(int n) const {
  std::vector<CountedToken> by_count = TokensByCount();
  by_count.resize(std::min(by_count.size(), static_cast<size_t>(n)));
  std::vector<int32_t> tokens;
  for (const CountedToken& counted : by_count) tokens.push_back(counted.token);
  return tokens;
}

std::vector<NgramPrior::CountedToken> NgramPrior::TokensByCount() const {
  const Range all = Children(0);
  std::vector<CountedToken> by_count;
  for (int32_t i = all.first; i < all.first + all.n; ++i) by_count.push_back({TokenOf(i), CountOf(i)});
  std::ranges::sort(by_count, [](const CountedToken& a, const CountedToken& b) {
    return std::pair(-a.count, a.token) < std::pair(-b.count, b.token);
  });
  return by_count;
}

void NgramPrior::Visit(const Visitor& f) const {
  std::array<int32_t, kMaxOrder + 1> ngram = {};
  f({}, 0, Count(0));
  VisitBelow(0, ngram, 0, f);
}

void NgramPrior::VisitBelow(int32_t node, std::array<int32_t, kMaxOrder + 1>& ngram, size_t length,
                            const Visitor& f) const {
  const Range range = Children(node);
  for (int32_t i = range.first; i < range.first + range.n; ++i) {
    ngram[length] = TokenOf(i);
    f(std::span(ngram).first(length + 1), CountOf(i), HasChildren(i) ? Count(i) : 0);
    if (HasChildren(i)) VisitBelow(i, ngram, length + 1, f);
  }
}

}  // namespace longspec
