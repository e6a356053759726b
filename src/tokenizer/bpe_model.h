// SPDX-License-Identifier: Apache-2.0
//
// The merges of a byte-pair encoding: turns one piece of text (a word, as the pre-tokeniser cut it) into
// tokens by applying the best-ranked merge, leftmost first, until none applies. O(n log n) in the piece's
// length. Immutable once made; may be shared between threads, each with its own Scratch.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "longspec/status.h"

namespace longspec {

struct TokenizerSpec;

class BpeModel {
 public:
  // Buffers that EncodePiece reuses from piece to piece.
  class Scratch {
    friend class BpeModel;
    struct Symbol {
      int32_t id;  // kGone once merged into its left neighbour
      int32_t previous, next;
    };
    std::vector<Symbol> symbols_;
    std::vector<uint64_t> queue_;  // min-heap of (rank, index of the left symbol)
  };

  // `ignore_merges`: a piece that is a token as a whole becomes that token, whatever the merges say.
  static Result<BpeModel> Create(const TokenizerSpec& spec, bool ignore_merges);

  // Appends the tokens of `bytes`. A byte the vocabulary has no token for becomes the unknown token if there
  // is one (a token of that type), and is left out otherwise. REQUIRES: bytes.size() < 2^31
  void EncodePiece(std::string_view bytes, Scratch* scratch, std::vector<int32_t>* tokens) const;

 private:
  // Symbols are token ids, and beyond them strings that occur in merges only: the vocabulary need not hold
  // every intermediate result.
  struct Rule {
    int32_t left, right, merged;
  };
  struct Slot {
    uint64_t pair = kEmptySlot;
    uint32_t rank = 0;
  };
  class Builder;
  static constexpr uint64_t kEmptySlot = ~uint64_t{0};
  static constexpr uint32_t kNoRank = ~uint32_t{0};

  BpeModel() = default;
  void BuildTable();
  size_t Bucket(uint64_t pair) const {
    return static_cast<size_t>((pair * 0x9E3779B97F4A7C15u) >> table_shift_);
  }
  uint32_t Rank(int32_t left, int32_t right) const;
  void Start(std::string_view bytes, Scratch* scratch) const;
  void Merge(Scratch* scratch) const;
  void Enqueue(int32_t left, Scratch* scratch) const;
  void Emit(int32_t symbol, std::vector<int32_t>* tokens) const;

  int32_t vocab_size_ = 0;
  int32_t unknown_ = -1;
  std::array<int32_t, 256> byte_symbol_{};
  std::array<int32_t, 256> byte_token_{};  // -1: the vocabulary lacks this byte
  std::vector<std::string> hidden_bytes_;  // of symbol vocab_size_ + i
  std::vector<Rule> rules_;                // by rank
  std::vector<Slot> table_;                // (left, right) to rank; open addressing, at most half full
  int table_shift_ = 0;
  std::unordered_map<std::string, int32_t> whole_pieces_;  // by bytes; only with ignore_merges
};

}  // namespace longspec
