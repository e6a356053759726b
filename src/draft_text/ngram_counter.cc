// SPDX-License-Identifier: Apache-2.0
#include "draft_text/ngram_counter.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/largest.h"
#include "base/status_macros.h"
#include "formats/atomic_file.h"
#include "formats/ngram_format.h"

namespace longspec {
namespace {

using ngram_format::Header;

// The tokens of an n-gram as one number, the first one highest: numbers in order are n-grams in order.
__extension__ using Wide = unsigned __int128;

constexpr size_t kLeastFresh = size_t{1} << 22;  // n-grams that are sorted at once

struct Node {
  Wide ngram;
  uint64_t count = 0;
  uint64_t followed = 0;                     // how often by something
  uint32_t first_child = 0, n_children = 0;  // in the next longer nodes
};

// An n-gram some of whose successors are kept.
struct Context {
  Wide ngram;
  uint64_t followed;
  uint32_t first_child, n_children;
};

bool MoreFrequent(const Node& a, const Node& b) {
  return a.count != b.count ? a.count > b.count : a.ngram < b.ngram;
}

}  // namespace

class NgramList {
 public:
  virtual ~NgramList() = default;
  virtual void AddText(std::span<const int32_t> tokens, std::span<const int8_t> learn, uint64_t weight) = 0;
  virtual void AddNgram(std::span<const int32_t> ngram, uint64_t count) = 0;
  // Of an n-gram less its last token: it was followed so much more often than its successors say.
  virtual void AddRest(std::span<const int32_t> context, uint64_t count) = 0;
  // Which n-grams are kept, in order: those that `options` ask for, and `contexts`, which keep successors
  // themselves; and the contexts that these are successors of.
  virtual void Prune(const NgramOptions& options, const std::vector<Context>& contexts,
                     std::vector<Node>& kept, std::vector<Context>& shorter) = 0;
};

namespace {

template <typename Key>
class KeyedNgrams final : public NgramList {
 public:
  KeyedNgrams(int length, int token_bits, int vocab_size)
      : length_(length),
        token_bits_(token_bits),
        vocab_size_(vocab_size),
        mask_(static_cast<Key>(~Key{0}) >> (8 * static_cast<int>(sizeof(Key)) - length * token_bits)) {}

  void AddText(std::span<const int32_t> tokens, std::span<const int8_t> learn, uint64_t weight) override {
    if (weight != fresh_weight_) Settle();
    fresh_weight_ = weight;
    Key key = 0;
    int n = 0;  // tokens in the key
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] < 0 || tokens[i] >= vocab_size_) {
        n = 0;
        continue;
      }
      key = Longer(key, tokens[i]) & mask_;
      n = std::min(n + 1, length_);
      if (n < length_ || (!learn.empty() && learn[i] == 0)) continue;
      fresh_.push_back(key);
      if (fresh_.size() >= std::max(kLeastFresh, counted_.size() / 2)) Settle();
    }
  }

  void AddNgram(std::span<const int32_t> ngram, uint64_t count) override {
    added_.push_back({.key = KeyOf(ngram), .count = count});
  }

  void AddRest(std::span<const int32_t> context, uint64_t count) override {
    rests_.push_back({.key = KeyOf(context), .count = count});
  }

  void Prune(const NgramOptions& options, const std::vector<Context>& contexts, std::vector<Node>& kept,
             std::vector<Context>& shorter) override {
    Settle();
    Sum(added_);
    counted_ = Merged(counted_, added_);
    added_.clear();
    Sum(rests_);
    size_t next = 0, next_context = 0, next_rest = 0;
    std::vector<Node> siblings;
    while (next < counted_.size() || next_context < contexts.size()) {
      const Wide ngram = std::min(next < counted_.size() ? Wide{counted_[next].key} : ~Wide{0},
                                  next_context < contexts.size() ? contexts[next_context].ngram : ~Wide{0});
      const Wide parent = ngram >> token_bits_;
      if (!siblings.empty() && siblings.back().ngram >> token_bits_ != parent) {
        KeepOf(siblings, options, next_rest, kept, shorter);
      }
      Node node = {.ngram = ngram};
      if (next < counted_.size() && counted_[next].key == ngram) node.count = counted_[next++].count;
      if (next_context < contexts.size() && contexts[next_context].ngram == ngram) {
        const Context& context = contexts[next_context++];
        node.followed = context.followed;
        node.first_child = context.first_child;
        node.n_children = context.n_children;
      }
      siblings.push_back(node);
    }
    if (!siblings.empty()) KeepOf(siblings, options, next_rest, kept, shorter);
  }

 private:
  struct Counted {
    Key key;
    uint64_t count;
  };
  using CountedList = std::vector<Counted>;

  Key Longer(Key key, int32_t token) const {
    return static_cast<Key>(key << token_bits_) | static_cast<Key>(token);
  }
  Key KeyOf(std::span<const int32_t> ngram) const {
    Key key = 0;
    for (const int32_t token : ngram) key = Longer(key, token);
    return key;
  }

  // Sorts, and makes one of equal ones.
  static void Sum(CountedList& list) {
    std::sort(list.begin(), list.end(), [](const Counted& a, const Counted& b) { return a.key < b.key; });
    size_t n = 0;
    for (const Counted& entry : list) {
      if (n > 0 && list[n - 1].key == entry.key) {
        list[n - 1].count += entry.count;
      } else {
        list[n++] = entry;
      }
    }
    list.resize(n);
  }

  static CountedList Merged(const CountedList& a, const CountedList& b) {
    CountedList all;
    all.reserve(a.size() + b.size());
    auto i = a.begin(), j = b.begin();
    while (i != a.end() || j != b.end()) {
      if (j == b.end() || (i != a.end() && i->key < j->key)) {
        all.push_back(*i++);
      } else if (i == a.end() || j->key < i->key) {
        all.push_back(*j++);
      } else {
        all.push_back({.key = i->key, .count = i++->count + j->count});
        ++j;
      }
    }
    return all;
  }

  // Sorts what was read since, and merges it with what was sorted before.
  void Settle() {
    if (fresh_.empty()) return;
    std::sort(fresh_.begin(), fresh_.end());
    size_t n_fresh = 0;
    for (size_t i = 0; i < fresh_.size(); ++i) n_fresh += i == 0 || fresh_[i] != fresh_[i - 1] ? 1 : 0;
    CountedList fresh;
    fresh.reserve(n_fresh);
    for (const Key key : fresh_) {
      if (fresh.empty() || fresh.back().key != key) fresh.push_back({.key = key, .count = 0});
      fresh.back().count += fresh_weight_;
    }
    counted_ = counted_.empty() ? std::move(fresh) : Merged(counted_, fresh);
    fresh_.clear();
  }

  // The siblings that are kept go to `kept`, and their context to `shorter` if there are any.
  void KeepOf(std::vector<Node>& siblings, const NgramOptions& options, size_t& next_rest,
              std::vector<Node>& kept, std::vector<Context>& shorter) {
    const Wide parent = siblings.front().ngram >> token_bits_;
    uint64_t followed = 0;
    for (const Node& node : siblings) followed += node.count;
    while (next_rest < rests_.size() && rests_[next_rest].key < parent) ++next_rest;
    if (next_rest < rests_.size() && rests_[next_rest].key == parent) followed += rests_[next_rest].count;
    // The least of those that are frequent enough.
    const auto most = static_cast<size_t>(options.successors);
    const Node* least = nullptr;
    by_count_ = siblings;
    if (by_count_.size() > most) {
      KeepFirst(by_count_, most, MoreFrequent);
      least = &by_count_.back();
    }
    const size_t first = kept.size();
    for (const Node& node : siblings) {
      const bool frequent = node.count >= static_cast<uint64_t>(options.min_count) &&
                            (least == nullptr || !MoreFrequent(*least, node));
      if (frequent || node.n_children > 0) kept.push_back(node);
    }
    const size_t n = kept.size() - first;
    if (n > 0) {
      shorter.push_back({.ngram = parent,
                         .followed = followed,
                         .first_child = static_cast<uint32_t>(first),
                         .n_children = static_cast<uint32_t>(n)});
    }
    siblings.clear();
  }

  const int length_, token_bits_;
  const int32_t vocab_size_;
  const Key mask_;
  uint64_t fresh_weight_ = 1;
  std::vector<Key> fresh_;  // as they came, each `fresh_weight_` times
  CountedList counted_;     // sorted, each once
  CountedList added_, rests_;
  std::vector<Node> by_count_;
};

// Puts the levels of a trie into the file's order.
class TableBytes {
 public:
  TableBytes(int vocab_size, uint32_t ranked) : narrow_(vocab_size <= 65536), ranked_(ranked) {}

  void AddTotal(uint32_t node, uint64_t followed) {
    total_nodes_.push_back(node);
    totals_.push_back(static_cast<uint32_t>(std::min<uint64_t>(followed, ~uint32_t{0})));
  }

  // `order`: a level's nodes in the file's order, replaced by that of their children.
  void AddLevel(const std::vector<Node>& nodes, bool inner, uint32_t token_mask, std::vector<uint32_t>& order,
                const std::vector<Node>& below) {
    std::vector<uint32_t> next;
    for (const uint32_t i : order) {
      const Node& node = nodes[i];
      const auto token = static_cast<uint32_t>(node.ngram) & token_mask;
      if (narrow_) {
        narrow_tokens_.push_back(static_cast<uint16_t>(token));
      } else {
        wide_tokens_.push_back(token);
      }
      const uint8_t code = ngram_format::CodeOfCount(node.count);
      counts_.push_back(code);
      if (!inner) continue;
      const auto id = static_cast<uint32_t>(counts_.size());
      if (children_.size() % ngram_format::kSumNodes == 0) sums_.push_back(n_children_);
      children_.push_back(static_cast<uint8_t>(std::min(node.n_children, ngram_format::kMany)));
      n_children_ += node.n_children;
      if (node.n_children >= ngram_format::kMany) {
        many_nodes_.push_back(id);
        many_.push_back(node.n_children);
      }
      if (node.n_children > 0) {
        const bool saturated = node.followed > ngram_format::CountOfCode(255);
        if (saturated || ngram_format::CodeOfCount(node.followed) != code) AddTotal(id, node.followed);
        Arrange(below, node.first_child, node.n_children, next);
      }
    }
    order = std::move(next);
  }

  // The most frequent siblings first, the others by token, which is the order they come in.
  void Arrange(const std::vector<Node>& nodes, uint32_t first, uint32_t n,
               std::vector<uint32_t>& order) const {
    const auto begin = static_cast<std::ptrdiff_t>(order.size());
    for (uint32_t i = 0; i < n; ++i) order.push_back(first + i);
    const auto ranked = order.begin() + begin + static_cast<std::ptrdiff_t>(std::min(n, ranked_));
    std::partial_sort(order.begin() + begin, ranked, order.end(),
                      [&](uint32_t a, uint32_t b) { return MoreFrequent(nodes[a], nodes[b]); });
    std::sort(ranked, order.end());
  }

  // Fills in what the header says of the arrays, and the checksum.
  std::vector<std::byte> Finish(Header header) const {
    header.n_totals = static_cast<uint32_t>(totals_.size());
    header.n_many = static_cast<uint32_t>(many_.size());
    std::vector<std::byte> bytes(sizeof(header));
    const auto append = [&bytes](const auto& values) {
      const auto added = std::as_bytes(std::span(values));
      const size_t at = bytes.size();
      bytes.resize(at + added.size());
      std::copy(added.begin(), added.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    };
    append(total_nodes_);
    append(totals_);
    append(many_nodes_);
    append(many_);
    append(sums_);
    append(narrow_tokens_);
    append(wide_tokens_);
    append(counts_);
    append(children_);
    std::memcpy(bytes.data(), &header, sizeof(header));
    const Hash128 checksum = HashOf(std::span(bytes).subspan(ngram_format::kHashedFrom));
    header.checksum_high = checksum.high;
    header.checksum_low = checksum.low;
    std::memcpy(bytes.data(), &header, sizeof(header));
    return bytes;
  }

 private:
  const bool narrow_;
  const uint32_t ranked_;
  uint32_t n_children_ = 0;
  std::vector<uint32_t> total_nodes_, totals_, many_nodes_, many_, sums_, wide_tokens_;
  std::vector<uint16_t> narrow_tokens_;
  std::vector<uint8_t> counts_, children_;
};

int TokenBits(int vocab_size) {
  return std::max(1, static_cast<int>(std::bit_width(static_cast<uint32_t>(vocab_size) - 1U)));
}

}  // namespace

NgramCounter::NgramCounter(int order, int vocab_size) : order_(order), vocab_size_(vocab_size) {
  LS_CHECK(order >= 1 && order <= NgramPrior::kMaxOrder);
  LS_CHECK(vocab_size >= 1 && static_cast<uint32_t>(vocab_size) <= ngram_format::kMaxVocab);
  const int bits = TokenBits(vocab_size);
  for (int length = 1; length <= order + 1; ++length) {
    if (length * bits <= 64) {
      lists_.push_back(std::make_unique<KeyedNgrams<uint64_t>>(length, bits, vocab_size));
    } else {
      lists_.push_back(std::make_unique<KeyedNgrams<Wide>>(length, bits, vocab_size));
    }
  }
}

NgramCounter::~NgramCounter() = default;

void NgramCounter::Add(std::span<const int32_t> tokens, std::span<const int8_t> learn, int weight) {
  LS_CHECK(learn.empty() || learn.size() == tokens.size());
  LS_CHECK(weight >= 1);
  for (const auto& list : lists_) list->AddText(tokens, learn, static_cast<uint64_t>(weight));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool known = tokens[i] >= 0 && tokens[i] < vocab_size_;
    tokens_ += known && (learn.empty() || learn[i] != 0) ? 1 : 0;
  }
}

void NgramCounter::Add(const NgramPrior& prior) {
  // The n-grams above the one visited, and how often those were followed by what the table does not say.
  std::array<int32_t, NgramPrior::kMaxOrder + 1> path = {};
  std::array<int64_t, NgramPrior::kMaxOrder + 2> rest = {};
  size_t depth = 0;
  const auto leave = [&](size_t length) {
    for (; depth > length; --depth) {
      const size_t context = depth - 1;
      if (rest[context] > 0 && context < lists_.size()) {
        lists_[context]->AddRest(std::span(path).first(context), static_cast<uint64_t>(rest[context]));
      }
    }
  };
  prior.Visit([&](std::span<const int32_t> ngram, int64_t count, int64_t followed) {
    // rest[k] is of the context path[0, k), which has been entered: depth is one more than its length.
    leave(ngram.size());
    if (!ngram.empty()) {
      rest[ngram.size() - 1] -= count;
      path[ngram.size() - 1] = ngram.back();
      const bool known = std::all_of(ngram.begin(), ngram.end(), [&](int32_t t) { return t < vocab_size_; });
      if (known && count > 0 && ngram.size() <= lists_.size()) {
        lists_[ngram.size() - 1]->AddNgram(ngram, static_cast<uint64_t>(count));
      }
    }
    rest[ngram.size()] = followed;
    depth = ngram.size() + 1;
  });
  leave(0);
}

Result<NgramSummary> NgramCounter::Write(const std::string& path, const NgramOptions& options,
                                         const Hash128& tokenizer) {
  LS_CHECK(options.min_count >= 1 && options.successors >= 1);
  // The longest first: what they leave of an n-gram keeps it.
  std::vector<std::vector<Node>> levels(lists_.size() + 1);
  std::vector<Context> contexts;
  for (size_t i = lists_.size(); i > 0; --i) {
    std::vector<Context> shorter;
    lists_[i - 1]->Prune(options, contexts, levels[i - 1], shorter);
    contexts = std::move(shorter);
  }
  uint64_t n = 0;
  for (const auto& level : levels) n += level.size();
  if (n == 0) {
    return InvalidArgument(path + ": nothing to write: no token occurs " + std::to_string(options.min_count) +
                           " times; give more text");
  }
  if (n >= uint64_t{std::numeric_limits<int32_t>::max()}) {
    return InvalidArgument(path + ": " + std::to_string(n) +
                           " n-grams are too many for a table; leave out more with --ngram-min-count");
  }
  Header header = {};
  std::memcpy(header.magic, ngram_format::kMagic, sizeof(header.magic));
  header.version = ngram_format::kVersion;
  header.tokenizer_high = tokenizer.high;
  header.tokenizer_low = tokenizer.low;
  header.vocab_size = static_cast<uint32_t>(vocab_size_);
  header.order = static_cast<uint32_t>(order_);
  header.ranked = std::min(static_cast<uint32_t>(options.successors), ngram_format::kMaxRanked);
  NgramSummary summary;
  TableBytes table(vocab_size_, header.ranked);
  const Context& root = contexts.front();
  std::vector<uint32_t> order;
  table.AddTotal(0, root.followed);
  table.Arrange(levels[0], root.first_child, root.n_children, order);
  summary.contexts[0] = 1;
  const uint32_t token_mask = (1U << TokenBits(vocab_size_)) - 1U;
  for (size_t i = 0; i < lists_.size(); ++i) {
    header.n_level[i] = static_cast<uint32_t>(levels[i].size());
    summary.pairs[i] = static_cast<int64_t>(levels[i].size());
    const bool inner = i + 1 < lists_.size();
    if (inner) {
      summary.contexts[i + 1] = std::count_if(levels[i].begin(), levels[i].end(),
                                              [](const Node& node) { return node.n_children > 0; });
    }
    table.AddLevel(levels[i], inner, token_mask, order, levels[i + 1]);
  }
  const std::vector<std::byte> bytes = table.Finish(header);
  summary.bytes = static_cast<int64_t>(bytes.size());
  LS_ASSIGN(AtomicFile file, AtomicFile::Create(path));
  LS_TRY(file.Write(bytes));
  LS_TRY(file.Commit());
  return summary;
}

}  // namespace longspec
