// SPDX-License-Identifier: Apache-2.0
//
// Prompt lookup (apoorvumang/prompt-lookup-decoding): the last tokens of the sequence are
// looked up in the sequence itself, and what followed them there is proposed. Needs no model, and costs a few
// hash look-ups. Scores grow with the length of the match and with the share of occurrences that went on
// alike.
#include "draft_text/ngram.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/check.h"
#include "base/status_macros.h"
#include "draft/tree_shape.h"
#include "draft_text/followed_text.h"
#include "draft_text/text_drafters.h"

namespace longspec {

namespace {

// Occurrences looked at per length when a tree needs more than one: bounds the time in text that repeats
// itself.
constexpr int kMaxVisits = 256;
constexpr int kMaxNgram = 64;
// A match is followed back this far, and its continuation compared with that of so many other occurrences.
constexpr int kMaxMatch = 32;
constexpr int kMaxWitnesses = 8;

// The chance that text which agreed for `length` tokens agrees for one more: 0.39 after 1, 0.66 after 4, 0.85
// after 8.
float GoesOn(int length) {
  return std::min(0.97F, 1.0F - 0.75F * std::pow(0.82F, static_cast<float>(length)));
}

// Which occurrence of which suffix a rule copies, longest suffix first.
struct Rule {
  int min_n = 0, max_n = 0;
  bool leftmost = false;  // the first occurrence, else the most recent
  bool whole = false;     // only if it is followed by as many tokens as the budget asks for
  bool cyclic = false;    // a copy that reaches the end of the sequence goes on reading what it has copied
};

std::optional<Rule> FindRule(const SpeculationOptions& o) {
  struct Named {
    std::string_view name;
    Rule rule;
  };
  const std::array<Named, 6> rules = {{
      {"recent", {.min_n = o.ngram.min, .max_n = o.ngram.max, .cyclic = true}},
      // The original and Hugging Face's know no shortest length but 1.
      {"pld", {.min_n = 1, .max_n = o.ngram.max, .leftmost = true, .whole = true}},
      {"hf", {.min_n = 1, .max_n = o.ngram.max, .leftmost = true}},
      {"vllm", {.min_n = o.ngram.min, .max_n = o.ngram.max, .leftmost = true}},
      {"tgi", {.min_n = 1, .max_n = 1, .leftmost = true}},
      {"llama", {.min_n = o.ngram.max, .max_n = o.ngram.max}},  // one key length
  }};
  const auto found =
      std::find_if(rules.begin(), rules.end(), [&](const Named& r) { return r.name == o.ngram.rule; });
  return found == rules.end() ? std::nullopt : std::optional(found->rule);
}

class NgramDrafter final : public Drafter {
 public:
  NgramDrafter(const Rule& rule, int width, const HoleTokens& hole)
      : rule_(rule), width_(width), order_(hole), index_(rule.min_n, rule.max_n) {}

  std::string_view name() const override { return "ngram"; }

  Status Follow(std::span<const int32_t> committed) override {
    index_.Assign(order_.Of(committed));
    return {};
  }

  Status Propose(const DraftBudget& budget, std::span<const int32_t> committed, TokenTree& tree) override {
    if (index_.tokens().size() != committed.size()) index_.Assign(order_.Of(committed));
    const int depth = std::min(budget.max_depth, budget.max_nodes);
    if (depth <= 0) return {};
    if (width_ > 1) {
      FindSeveral(depth);
    } else {
      FindOne(depth);
    }
    Grow(budget.max_nodes, depth, tree);
    return {};
  }

  Status Read(const CommittedRows& rows) override {
    const auto added = static_cast<size_t>(rows.n_new);
    if (index_.tokens().size() + added == rows.sequence.size()) {
      index_.Append(rows.sequence.last(added));
    } else {
      index_.Assign(order_.Of(rows.sequence));
    }
    return {};
  }

  size_t bytes() const override { return index_.bytes(); }

 private:
  int n_tokens() const { return static_cast<int>(index_.tokens().size()); }

  // How many tokens a copy from this continuation yields, and which.
  int Length(int continuation, int depth) const {
    return rule_.cyclic ? depth : std::min(depth, n_tokens() - continuation);
  }
  int32_t Copied(int continuation, int i) const {
    return index_.tokens()[static_cast<size_t>(continuation + i % (n_tokens() - continuation))];
  }

  void FindOne(int depth) {
    found_.clear();
    for (int n = rule_.max_n; n >= rule_.min_n && found_.empty(); --n) {
      const int continuation = rule_.leftmost ? index_.First(n) : index_.Last(n);
      if (continuation < 0) continue;
      // The leftmost occurrence is followed by the most tokens: if its copy is too short, so is every other.
      if (rule_.whole && n_tokens() - continuation < depth) continue;
      found_.push_back(Match(continuation, n));
    }
  }

  // Up to width_ occurrences with distinct copies, longest suffix first, then most recent first.
  void FindSeveral(int depth) {
    found_.clear();
    for (int n = rule_.max_n; n >= rule_.min_n; --n) {
      int visits = 0;
      for (int c = index_.Last(n); c >= 0 && visits < kMaxVisits; c = index_.Previous(n, c), ++visits) {
        if (static_cast<int>(found_.size()) == width_) return;
        const bool known = std::any_of(found_.begin(), found_.end(), [&](const Found& other) {
          return SameCopy(c, other.continuation, depth);
        });
        if (!known) found_.push_back(Match(c, n));
      }
    }
  }

  struct Found {
    int continuation;
    int match;  // tokens before it that equal the end of the sequence
    float
        agree;  // share of the occurrences looked at that went on with the same token, this one counted twice
  };

  // What is known of the occurrence of the last n tokens before `continuation`.
  Found Match(int continuation, int n) const {
    const auto tokens = index_.tokens();
    const auto before = [&](int end, int back) { return tokens[static_cast<size_t>(end - 1 - back)]; };
    int match = n;
    while (match < std::min(kMaxMatch, continuation) &&
           before(continuation, match) == before(n_tokens(), match)) {
      ++match;
    }
    int witnesses = 0, agreeing = 0;
    for (int c = index_.Last(n); c >= 0 && witnesses < kMaxWitnesses; c = index_.Previous(n, c)) {
      ++witnesses;
      agreeing += Copied(c, 0) == Copied(continuation, 0) ? 1 : 0;
    }
    const float agree = static_cast<float>(agreeing + 1) / static_cast<float>(witnesses + 1);
    return {.continuation = continuation, .match = match, .agree = std::min(agree, 1.0F)};
  }

  // The chance that token i of the copy follows those before it.
  static float Chance(const Found& found, int i) {
    return i == 0 ? found.agree * GoesOn(found.match) : GoesOn(found.match + i);
  }

  bool SameCopy(int a, int b, int depth) const {
    for (int i = 0; i < depth; ++i) {
      if (Copied(a, i) != Copied(b, i)) return false;
    }
    return true;
  }

  // Merges the copies into the tree: equal shares of the nodes, better copies first, then what is left over
  // to the better copies.
  void Grow(int max_nodes, int depth, TokenTree& tree) {
    int room = max_nodes;
    tips_.assign(found_.size(), {.node = 0, .length = 0, .score = 1.0F});
    for (size_t i = 0; i < found_.size(); ++i) {
      const int sharers = static_cast<int>(found_.size() - i);
      room -= Extend(i, (room + sharers - 1) / sharers, depth, tree);
    }
    for (size_t i = 0; i < found_.size(); ++i) room -= Extend(i, room, depth, tree);
  }

  // Follows copy i from where it stopped and adds at most `nodes` nodes; returns how many.
  int Extend(size_t i, int nodes, int depth, TokenTree& tree) {
    Tip& tip = tips_[i];
    const Found& found = found_[i];
    const int length = Length(found.continuation, depth);
    const int before = tree.size();
    for (; tip.length < length; ++tip.length) {
      const int32_t token = Copied(found.continuation, tip.length);
      if (tree.size() - before == nodes && tree.FindChild(tip.node, token) < 0) break;
      tip.score *= Chance(found, tip.length);
      tip.node = tree.AddChild(tip.node, token, tip.score);
    }
    return tree.size() - before;
  }

  struct Tip {
    int node;    // of the tree, where a copy stopped
    int length;  // tokens of the copy that are in the tree
    float score;
  };

  Rule rule_;
  int width_;
  ReadingOrder order_;
  NgramIndex index_;
  std::vector<Found> found_;  // copies, best first
  std::vector<Tip> tips_;
};

constexpr DrafterOption kNgramOptions[] = {
    {.flags = "--spec-ngram-max,--ngram-max",
     .member = At<&SpeculationOptions::ngram, &NgramDraftOptions::max>,
     .help = "longest suffix looked up",
     .least = 1,
     .most = kMaxNgram,
     .lacks = [](const SpeculationOptions& o) -> std::string_view {
       return o.ngram.rule == "tgi" ? "a --spec-ngram-rule other than tgi" : "";
     }},
    {.flags = "--spec-ngram-min,--ngram-min",
     .member = At<&SpeculationOptions::ngram, &NgramDraftOptions::min>,
     .help = "shortest suffix looked up",
     .least = 1,
     .most = kMaxNgram,
     .lacks = [](const SpeculationOptions& o) -> std::string_view {
       return o.ngram.rule == "recent" || o.ngram.rule == "vllm" ? "" : "--spec-ngram-rule recent or vllm";
     }},
    {.flags = "--spec-ngram-rule,--ngram-rule",
     .member = At<&SpeculationOptions::ngram, &NgramDraftOptions::rule>,
     .help = "which occurrence is copied: recent, pld, hf, vllm, tgi, llama"},
};

constexpr DrafterPreset kNgramPresets[] = {
    {.name = "pld",
     .of = "prompt lookup decoding",
     .set =
         [](SpeculationOptions& o) {
           o.ngram.rule = "pld";
           o.ngram.max = 3;
           SetNodes(10, &o);
         }},
    {.name = "prompt_lookup",
     .of = "Hugging Face's prompt lookup",
     .set =
         [](SpeculationOptions& o) {
           o.ngram.rule = "hf";
           o.ngram.max = 2;
           SetNodes(10, &o);
         }},
    {.name = "ngram-simple",
     .of = "llama.cpp",
     .set =
         [](SpeculationOptions& o) {
           o.ngram.rule = "llama";
           o.ngram.max = 12;
           SetNodes(48, &o);
         }},
};

Status CheckNgram(const SpeculationOptions& options) {
  const bool has_shortest = options.ngram.rule == "recent" || options.ngram.rule == "vllm";
  if (has_shortest && options.ngram.min > options.ngram.max) {
    return InvalidArgument("--spec-ngram-min " + std::to_string(options.ngram.min) +
                           ": must be from 1 to --spec-ngram-max (" + std::to_string(options.ngram.max) +
                           ")");
  }
  LS_ASSIGN(const int width, ParseTreeWidth(options.tree));
  if (!FindRule(options)) {
    return InvalidArgument("--spec-ngram-rule " + options.ngram.rule +
                           ": unknown; known are recent, pld, hf, vllm, tgi, llama");
  }
  if (width > 1 && options.ngram.rule != "recent") {
    return InvalidArgument("--spec-tree " + options.tree + ": --spec-ngram-rule " + options.ngram.rule +
                           " proposes chains; trees need --spec-ngram-rule recent");
  }
  return {};
}

DrafterResult MakeNgram(const SpeculationOptions& options, const DraftContext& context) {
  LS_ASSIGN(const int width, ParseTreeWidth(options.tree));
  return std::unique_ptr<Drafter>(std::make_unique<NgramDrafter>(*FindRule(options), width, context.hole));
}

// If --spec-tree does not say, several continuations are merged: the policy cuts what is not worth verifying.
void MergeAsMember(SpeculationOptions& options) {
  if (options.tree.empty() && options.ngram.rule == "recent") options.tree = "4";
}

}  // namespace

constexpr DrafterEntry kNgramDrafter = {
    .name = "ngram",
    .presets = kNgramPresets,
    .summary = "what followed the last tokens where they occurred before",
    .options = kNgramOptions,
    .check = CheckNgram,
    .make = MakeNgram,
    .as_member = MergeAsMember,
    .chain_by_default = true,
};

namespace {

uint64_t Hash(std::span<const int32_t> ngram) {
  uint64_t h = 0x9E3779B97F4A7C15;
  for (const int32_t token : ngram) {
    h = (h ^ static_cast<uint32_t>(token)) * 0xBF58476D1CE4E5B9;
    h ^= h >> 29;
  }
  return h;
}

}  // namespace

NgramIndex::NgramIndex(int min_n, int max_n) {
  LS_CHECK(min_n >= 1 && min_n <= max_n);
  for (int n = min_n; n <= max_n; ++n) levels_.emplace_back(n);
}

void NgramIndex::Assign(std::span<const int32_t> tokens) {
  const bool extends =
      tokens.size() >= tokens_.size() && std::equal(tokens_.begin(), tokens_.end(), tokens.begin());
  if (!extends) {
    tokens_.clear();
    for (Level& level : levels_) level = Level(level.n);
  }
  Append(tokens.subspan(tokens_.size()));
}

void NgramIndex::Append(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    tokens_.push_back(token);
    // The new token is what follows the n-grams that end before it.
    const auto continuation = static_cast<int32_t>(tokens_.size()) - 1;
    for (Level& level : levels_) {
      if (continuation >= level.n) Insert(level, continuation);
    }
  }
}

size_t NgramIndex::bytes() const {
  size_t total = tokens_.capacity() * sizeof(int32_t);
  for (const Level& level : levels_) {
    total += level.slots.capacity() * sizeof(Slot) + level.previous.capacity() * sizeof(int32_t);
  }
  return total;
}

int NgramIndex::First(int n) const {
  const Slot* slot = Suffix(n);
  return slot == nullptr ? -1 : slot->first;
}

int NgramIndex::Last(int n) const {
  const Slot* slot = Suffix(n);
  return slot == nullptr ? -1 : slot->last;
}

int NgramIndex::Previous(int n, int continuation) const {
  LS_CHECK(continuation >= n && static_cast<size_t>(continuation) < tokens_.size());
  return level(n).previous[static_cast<size_t>(continuation - n)];
}

const NgramIndex::Level& NgramIndex::level(int n) const {
  LS_CHECK(n >= levels_.front().n && n <= levels_.back().n);
  return levels_[static_cast<size_t>(n - levels_.front().n)];
}

// The slot of an n-gram, or the empty one where it would go.
size_t NgramIndex::Find(const Level& level, std::span<const int32_t> ngram) const {
  const size_t mask = level.slots.size() - 1;
  for (size_t i = Hash(ngram) & mask;; i = (i + 1) & mask) {
    const Slot& slot = level.slots[i];
    if (slot.last < 0) return i;
    const int32_t* known = tokens_.data() + slot.last - level.n;
    if (std::equal(ngram.begin(), ngram.end(), known)) return i;
  }
}

const NgramIndex::Slot* NgramIndex::Suffix(int n) const {
  const Level& known = level(n);
  if (tokens_.size() < static_cast<size_t>(n)) return nullptr;
  const Slot& slot = known.slots[Find(known, tokens().last(static_cast<size_t>(n)))];
  return slot.last < 0 ? nullptr : &slot;
}

void NgramIndex::Insert(Level& level, int32_t continuation) {
  const auto n = static_cast<size_t>(level.n);
  const auto ngram = tokens().subspan(static_cast<size_t>(continuation) - n, n);
  Slot& slot = level.slots[Find(level, ngram)];
  level.previous.push_back(slot.last);
  if (slot.last < 0) {
    slot.first = continuation;
    ++level.used;
  }
  slot.last = continuation;
  if (2 * level.used > level.slots.size()) Grow(level);
}

void NgramIndex::Grow(Level& level) {
  std::vector<Slot> old(2 * level.slots.size());
  old.swap(level.slots);
  const auto n = static_cast<size_t>(level.n);
  for (const Slot& slot : old) {
    if (slot.last < 0) continue;
    level.slots[Find(level, tokens().subspan(static_cast<size_t>(slot.last) - n, n))] = slot;
  }
}

}  // namespace longspec
