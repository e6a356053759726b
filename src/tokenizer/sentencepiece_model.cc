// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <queue>
#include <unordered_map>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/text_model.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581
// Bytes of text that are merged at once: positions must fit in 31 bits.
constexpr size_t kMostMergedBytes = size_t{1} << 29;

// Neighbouring bytes that are one symbol now. length 0: merged into the one before it.
struct Symbol {
  int32_t begin, length;
  int32_t previous, next;  // -1: none
};

// Two neighbours whose union is a token. Of equal scores the leftmost is merged first.
struct Pair {
  float score;
  int32_t left, right;  // symbols
  int32_t length;       // of both, in bytes: another one means that either was merged meanwhile

  bool operator<(const Pair& other) const {
    return score != other.score ? score < other.score : left > other.left;
  }
};

class SentencePieceModel final : public TextModel {
 public:
  explicit SentencePieceModel(const TokenizerSpec& spec)
      : add_space_prefix_(spec.add_space_prefix), scores_(spec.scores), unknown_(spec.unk) {
    bytes_.fill(-1);
    ids_.reserve(spec.tokens.size());
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      const std::string& text = spec.tokens[id];
      const TokenType type = TypeOfToken(spec, id);
      if (type == TokenType::kByte) {
        if (const int byte = ParseByteToken(text); byte >= 0) {
          bytes_[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
        }
        continue;
      }
      if (StandsForNoText(type) || text.empty()) continue;
      ids_.emplace(text, static_cast<int32_t>(id));
      longest_ = std::max(longest_, text.size());
    }
  }

  void Encode(std::string_view text, bool begins, std::vector<int32_t>* tokens) const override {
    if (text.empty()) return;
    std::string escaped;
    escaped.reserve(text.size() + text.size() / 4);
    if (begins && add_space_prefix_) escaped += kSpace;
    for (const char c : text) {
      if (c == ' ') {
        escaped += kSpace;
      } else {
        escaped += c;
      }
    }
    for (std::string_view rest = escaped; !rest.empty();) {
      size_t run = std::min(rest.size(), kMostMergedBytes);
      // Not in the middle of a character.
      while (run < rest.size() && (static_cast<unsigned char>(rest[run]) & 0xC0) == 0x80 &&
             run > kMostMergedBytes - 4) {
        --run;
      }
      EncodeRun(rest.substr(0, run), tokens);
      rest.remove_prefix(run);
    }
  }

  std::string BytesOf(const std::string& token) const override {
    std::string bytes;
    for (size_t at = 0; at < token.size();) {
      const bool space = token.compare(at, kSpace.size(), kSpace) == 0;
      bytes += space ? ' ' : token[at];
      at += space ? kSpace.size() : 1;
    }
    return bytes;
  }

 private:
  int32_t IdOf(std::string_view text) const {
    if (text.size() > longest_) return -1;
    const auto it = ids_.find(text);
    return it == ids_.end() ? -1 : it->second;
  }

  void EncodeRun(std::string_view text, std::vector<int32_t>* tokens) const {
    std::vector<Symbol> symbols;
    for (size_t at = 0; at < text.size();) {
      const Utf8Step step = ScanUtf8(text.substr(at));
      const size_t length = step.kind == Utf8Kind::kCharacter ? step.length : 1;
      const auto index = static_cast<int32_t>(symbols.size());
      symbols.push_back({static_cast<int32_t>(at), static_cast<int32_t>(length), index - 1, index + 1});
      at += length;
    }
    symbols.back().next = -1;
    Merge(text, &symbols);
    for (const Symbol& symbol : symbols) {
      if (symbol.length > 0) {
        Emit(text.substr(static_cast<size_t>(symbol.begin), static_cast<size_t>(symbol.length)), tokens);
      }
    }
  }

  void Merge(std::string_view text, std::vector<Symbol>* all) const {
    std::vector<Symbol>& symbols = *all;
    std::priority_queue<Pair> pairs;
    const auto at = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
    const auto add = [&](int32_t left, int32_t right) {
      if (left < 0 || right < 0) return;
      const int32_t length = at(left).length + at(right).length;
      const int32_t id = IdOf(text.substr(static_cast<size_t>(at(left).begin), static_cast<size_t>(length)));
      if (id >= 0) pairs.push({ScoreOf(id), left, right, length});
    };
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      add(static_cast<int32_t>(i), static_cast<int32_t>(i) + 1);
    }
    while (!pairs.empty()) {
      const Pair best = pairs.top();
      pairs.pop();
      Symbol& left = at(best.left);
      Symbol& right = at(best.right);
      if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) continue;
      left.length = best.length;
      left.next = right.next;
      right.length = 0;
      if (left.next >= 0) at(left.next).previous = best.left;
      add(left.previous, best.left);
      add(best.left, left.next);
    }
  }

  float ScoreOf(int32_t id) const { return scores_.empty() ? 0.0F : scores_[static_cast<size_t>(id)]; }

  void Emit(std::string_view symbol, std::vector<int32_t>* tokens) const {
    if (const int32_t id = IdOf(symbol); id >= 0) {
      tokens->push_back(id);
      return;
    }
    // A vocabulary without a token for spaces spells the space itself, so that it comes back as one.
    for (const char c : symbol == kSpace ? std::string_view(" ") : symbol) {
      const int32_t byte = bytes_[static_cast<unsigned char>(c)];
      const int32_t id = byte >= 0 ? byte : unknown_;
      if (id >= 0) tokens->push_back(id);
    }
  }

  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };

  const bool add_space_prefix_;
  const std::vector<float> scores_;
  const int32_t unknown_;
  size_t longest_ = 0;  // bytes of a token
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
  std::array<int32_t, 256> bytes_;  // -1: the vocabulary has no token for it
};

}  // namespace

Result<std::unique_ptr<const TextModel>> MakeSentencePieceModel(const TokenizerSpec& spec) {
  if (!spec.scores.empty() && spec.scores.size() != spec.tokens.size()) {
    return Corrupt("tokenizer: " + std::to_string(spec.scores.size()) + " scores for " +
                   std::to_string(spec.tokens.size()) + " tokens; each token needs one");
  }
  if (std::ranges::any_of(spec.scores, [](float score) { return std::isnan(score); })) {
    return Corrupt("tokenizer: a score is not a number");
  }
  return std::unique_ptr<const TextModel>(std::make_unique<SentencePieceModel>(spec));
}

}  // namespace longspec
