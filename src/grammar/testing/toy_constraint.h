// SPDX-License-Identifier: Apache-2.0
//
// A constraint for tests that need no text: what may come next is a function of the tokens so far.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "grammar/constraint.h"

namespace longspec::testing {

class ToyConstraint final : public Constraint {
 public:
  // `allows(answer, token)`; `end`: the token that ends an answer, where `allows` says so. -1: none.
  using Rule = std::function<bool(std::span<const int32_t> answer, int32_t token)>;
  ToyConstraint(Rule allows, int vocab, int32_t end = -1)
      : allows_(std::move(allows)), vocab_(vocab), end_(end) {}

  Result<std::span<const uint32_t>> Mask() override {
    ++n_masks;
    mask_.assign(static_cast<size_t>(vocab_ + 31) / 32, 0);
    for (int32_t token = 0; token < vocab_; ++token) {
      if (allows_(accepted, token))
        mask_[static_cast<size_t>(token) / 32] |= 1U << (static_cast<uint32_t>(token) % 32);
    }
    return std::span<const uint32_t>(mask_);
  }
  bool Accept(int32_t token) override {
    if (ended() || token < 0 || token >= vocab_ || !allows_(accepted, token)) return false;
    accepted.push_back(token);
    return true;
  }
  void Rollback(int n) override { accepted.resize(accepted.size() - static_cast<size_t>(n)); }
  std::unique_ptr<Constraint> Fork() const override { return std::make_unique<ToyConstraint>(*this); }
  bool complete() const override { return ended() || (end_ >= 0 && allows_(accepted, end_)); }
  bool ended() const override { return !accepted.empty() && accepted.back() == end_; }
  // As long as one token is left.
  std::vector<int32_t> Forced(int most) override {
    std::vector<int32_t> forced;
    while (static_cast<int>(forced.size()) < most && !ended()) {
      int n = 0;
      int32_t only = -1;
      for (int32_t token = 0; token < vocab_; ++token) {
        if (allows_(accepted, token)) ++n, only = token;
      }
      if (n != 1) break;
      Accept(only);
      forced.push_back(only);
    }
    Rollback(static_cast<int>(forced.size()));
    return forced;
  }

  std::vector<int32_t> accepted;
  int n_masks = 0;

 private:
  Rule allows_;
  int vocab_;
  int32_t end_;
  std::vector<uint32_t> mask_;
};

}  // namespace longspec::testing
