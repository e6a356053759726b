// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe_model.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <utility>

#include "tokenizer/bpe_alphabet.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

constexpr int32_t kGone = -1;

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

// Gives every string its symbol; needed only while the model is made. Keys are views of the spec's strings,
// or of `merged_` for what stands in no string of the spec.
class BpeModel::Builder {
 public:
  Builder(const TokenizerSpec& spec, BpeModel* model) : spec_(spec), model_(model) {
    ids_.reserve(spec.tokens.size());
    // Of tokens that are written alike the first is used; an empty one can never be.
    for (size_t id = 0; id < spec.tokens.size(); ++id) {
      if (!spec.tokens[id].empty()) ids_.emplace(spec.tokens[id], static_cast<int32_t>(id));
    }
  }

  void AddBytes() {
    for (size_t byte = 0; byte < 256; ++byte) {
      const int32_t symbol = OwnedSymbol(AlphabetCharacter(static_cast<uint8_t>(byte)));
      model_->byte_symbol_[byte] = symbol;
      model_->byte_token_[byte] = symbol < model_->vocab_size_ ? symbol : -1;
    }
    for (size_t id = 0; id < spec_.tokens.size(); ++id) {
      if (TypeOfToken(spec_, id) != TokenType::kByte) continue;
      const int byte = ParseByteToken(spec_.tokens[id]);
      if (byte < 0) continue;
      int32_t& token = model_->byte_token_[static_cast<size_t>(byte)];
      if (token < 0) token = static_cast<int32_t>(id);
    }
  }

  Status AddMerges() {
    model_->rules_.reserve(spec_.merges.size());
    for (size_t i = 0; i < spec_.merges.size(); ++i) {
      const std::string_view merge = spec_.merges[i];
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == merge.size()) {
        return Corrupt("tokenizer: merge " + std::to_string(i) + " ('" + std::string(merge) +
                       "') is not two pieces with a space between them");
      }
      const std::string_view left = merge.substr(0, space);
      const std::string_view right = merge.substr(space + 1);
      std::string merged(left);
      merged += right;
      const int32_t left_symbol = Symbol(left);
      const int32_t right_symbol = Symbol(right);
      model_->rules_.push_back({left_symbol, right_symbol, OwnedSymbol(std::move(merged))});
    }
    return {};
  }

  void AddWholePieces() {
    for (size_t id = 0; id < spec_.tokens.size(); ++id) {
      if (spec_.tokens[id].empty() || StandsForNoText(TypeOfToken(spec_, id))) continue;
      model_->whole_pieces_.emplace(BytesFromAlphabet(spec_.tokens[id]), static_cast<int32_t>(id));
    }
  }

 private:
  // REQUIRES: `text` outlives the builder
  int32_t Symbol(std::string_view text) {
    const auto next = model_->vocab_size_ + static_cast<int32_t>(model_->hidden_bytes_.size());
    const auto [it, is_new] = ids_.emplace(text, next);
    if (is_new) model_->hidden_bytes_.push_back(BytesFromAlphabet(text));
    return it->second;
  }

  int32_t OwnedSymbol(std::string text) {
    const auto it = ids_.find(text);
    return it != ids_.end() ? it->second : Symbol(merged_.emplace_back(std::move(text)));
  }

  const TokenizerSpec& spec_;
  BpeModel* model_;
  std::unordered_map<std::string_view, int32_t> ids_;
  std::deque<std::string> merged_;
};

Result<BpeModel> BpeModel::Create(const TokenizerSpec& spec, bool ignore_merges) {
  // Every merge adds at most three symbols and every byte one; all of them must be numbered in 31 bits.
  constexpr size_t kMost = size_t{1} << 28;
  if (spec.tokens.size() > kMost || spec.merges.size() > kMost) {
    return Unsupported("a tokenizer of more than 2^28 tokens or merges is not offered");
  }
  BpeModel model;
  model.vocab_size_ = static_cast<int32_t>(spec.tokens.size());
  // Some files name a control token such as <|endoftext|>, which must not turn up in the middle of a text.
  if (spec.unk >= 0 && TypeOfToken(spec, static_cast<size_t>(spec.unk)) == TokenType::kUnknown) {
    model.unknown_ = spec.unk;
  }
  Builder builder(spec, &model);
  builder.AddBytes();
  if (Status status = builder.AddMerges(); !status.ok()) return status;
  if (ignore_merges) builder.AddWholePieces();
  model.BuildTable();
  return model;
}

void BpeModel::BuildTable() {
  const size_t size = std::bit_ceil(std::max<size_t>(2 * rules_.size(), 16));
  table_shift_ = 64 - std::countr_zero(size);
  table_.assign(size, {});
  for (size_t rank = 0; rank < rules_.size(); ++rank) {
    const uint64_t pair = PairKey(rules_[rank].left, rules_[rank].right);
    size_t i = Bucket(pair);
    while (table_[i].pair != kEmptySlot && table_[i].pair != pair) i = (i + 1) & (size - 1);
    // Of a merge that is listed twice the better rank holds.
    if (table_[i].pair == kEmptySlot) table_[i] = {pair, static_cast<uint32_t>(rank)};
  }
}

uint32_t BpeModel::Rank(int32_t left, int32_t right) const {
  const uint64_t pair = PairKey(left, right);
  const size_t mask = table_.size() - 1;
  for (size_t i = Bucket(pair);; i = (i + 1) & mask) {
    if (table_[i].pair == pair) return table_[i].rank;
    if (table_[i].pair == kEmptySlot) return kNoRank;
  }
}

void BpeModel::EncodePiece(std::string_view bytes, Scratch* scratch, std::vector<int32_t>* tokens) const {
  if (!whole_pieces_.empty()) {
    const auto it = whole_pieces_.find(std::string(bytes));
    if (it != whole_pieces_.end()) {
      tokens->push_back(it->second);
      return;
    }
  }
  Start(bytes, scratch);
  Merge(scratch);
  for (const Scratch::Symbol& symbol : scratch->symbols_) {
    if (symbol.id != kGone) Emit(symbol.id, tokens);
  }
}

void BpeModel::Start(std::string_view bytes, Scratch* scratch) const {
  auto& symbols = scratch->symbols_;
  symbols.clear();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    symbols.push_back({byte_symbol_[static_cast<uint8_t>(bytes[i])], index - 1, index + 1});
  }
  if (!symbols.empty()) symbols.back().next = -1;
}

void BpeModel::Merge(Scratch* scratch) const {
  auto& symbols = scratch->symbols_;
  auto& queue = scratch->queue_;
  queue.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) Enqueue(static_cast<int32_t>(i), scratch);

  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const uint64_t best = queue.back();
    queue.pop_back();

    const Rule& rule = rules_[best >> 32];
    const auto left_index = static_cast<int32_t>(best & 0xFFFFFFFFu);
    Scratch::Symbol& left = symbols[static_cast<size_t>(left_index)];
    if (left.id != rule.left || left.next < 0) continue;  // an earlier merge has used it up
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != rule.right) continue;

    left.id = rule.merged;
    left.next = right.next;
    right.id = kGone;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = left_index;
    if (left.previous >= 0) Enqueue(left.previous, scratch);
    if (left.next >= 0) Enqueue(left_index, scratch);
  }
}

void BpeModel::Enqueue(int32_t left, Scratch* scratch) const {
  const Scratch::Symbol& symbol = scratch->symbols_[static_cast<size_t>(left)];
  const uint32_t rank = Rank(symbol.id, scratch->symbols_[static_cast<size_t>(symbol.next)].id);
  if (rank == kNoRank) return;
  scratch->queue_.push_back(uint64_t{rank} << 32 | static_cast<uint32_t>(left));
  std::push_heap(scratch->queue_.begin(), scratch->queue_.end(), std::greater<>());
}

void BpeModel::Emit(int32_t symbol, std::vector<int32_t>* tokens) const {
  if (symbol < vocab_size_) {
    tokens->push_back(symbol);
    return;
  }
  for (const char byte : hidden_bytes_[static_cast<size_t>(symbol - vocab_size_)]) {
    const int32_t token = byte_token_[static_cast<uint8_t>(byte)];
    const int32_t chosen = token >= 0 ? token : unknown_;
    if (chosen >= 0) tokens->push_back(chosen);
  }
}

}  // namespace longspec
