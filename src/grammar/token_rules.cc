// SPDX-License-Identifier: Apache-2.0
#include "grammar/token_rules.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace longspec {
namespace {

constexpr uint32_t kBits = 32;

using Words = std::vector<uint32_t>;

void Put(Words& words, int32_t token) {
  const auto t = static_cast<uint32_t>(token);
  words[t / kBits] |= 1U << (t % kBits);
}
void Remove(Words& words, int32_t token) {
  const auto t = static_cast<uint32_t>(token);
  if (t / kBits < words.size()) words[t / kBits] &= ~(1U << (t % kBits));
}

class TokenConstraint final : public Constraint {
 public:
  TokenConstraint(std::shared_ptr<const TokenRules> rules, int n_logits, std::unique_ptr<Constraint> inner)
      : rules_(std::move(rules)), n_logits_(n_logits), inner_(std::move(inner)) {
    auto always = std::make_shared<Words>((static_cast<size_t>(n_logits) + kBits - 1) / kBits,
                                          rules_->allowed.empty() ? ~0U : 0U);
    for (const int32_t token : rules_->allowed) Put(*always, token);
    for (const auto& sequence : rules_->forbidden) {
      LS_CHECK(!sequence.empty());
      if (sequence.size() == 1) Remove(*always, sequence[0]);
    }
    always_ = std::move(always);
  }

  Result<std::span<const uint32_t>> Mask() override {
    if (Begins()) {
      mask_.assign(always_->size(), 0);
      Put(mask_, rules_->begin[accepted_.size()]);
      return std::span<const uint32_t>(mask_);
    }
    mask_ = *always_;
    if (inner_ != nullptr) {
      LS_ASSIGN(const std::span<const uint32_t> inner, inner_->Mask());
      for (size_t i = 0; i < mask_.size(); ++i) mask_[i] &= i < inner.size() ? inner[i] : 0U;
    }
    for (const auto& sequence : rules_->forbidden) {
      if (Ends(sequence)) Remove(mask_, sequence.back());
    }
    if (MayNotEnd()) {
      for (const int32_t token : rules_->ends) Remove(mask_, token);
    }
    return std::span<const uint32_t>(mask_);
  }

  bool Accept(int32_t token) override {
    if (Begins()) {
      if (token != rules_->begin[accepted_.size()]) return false;
      accepted_.push_back(token);
      return true;
    }
    if (ended() || token < 0 || token >= n_logits_ || !IsAllowed(*always_, token)) return false;
    if (MayNotEnd() && IsEnd(token)) return false;
    for (const auto& sequence : rules_->forbidden) {
      if (sequence.back() == token && Ends(sequence)) return false;
    }
    if (inner_ != nullptr && !inner_->Accept(token)) return false;
    accepted_.push_back(token);
    return true;
  }

  void Rollback(int n) override {
    LS_CHECK(n >= 0 && static_cast<size_t>(n) <= accepted_.size());
    if (inner_ != nullptr) inner_->Rollback(std::min(n, n_behind()));
    accepted_.resize(accepted_.size() - static_cast<size_t>(n));
  }

  std::unique_ptr<Constraint> Fork() const override {
    auto fork = std::unique_ptr<TokenConstraint>(new TokenConstraint(*this));
    return fork;
  }

  bool complete() const override {
    return !Begins() && !MayNotEnd() && (inner_ == nullptr || inner_->complete());
  }
  bool ended() const override {
    if (inner_ != nullptr) return inner_->ended();
    return n_behind() > 0 && IsEnd(accepted_.back());
  }

  std::vector<int32_t> Forced(int most) override {
    if (Begins()) {
      const auto left = std::span(rules_->begin).subspan(accepted_.size());
      const auto n = std::min(left.size(), static_cast<size_t>(std::max(most, 0)));
      return {left.begin(), left.begin() + static_cast<std::ptrdiff_t>(n)};
    }
    if (inner_ == nullptr) return {};
    std::vector<int32_t> forced = inner_->Forced(most);
    int n = 0;
    for (const int32_t token : forced) {
      if (!Accept(token)) break;
      ++n;
    }
    Rollback(n);
    forced.resize(static_cast<size_t>(n));
    return forced;
  }

 private:
  TokenConstraint(const TokenConstraint& other)
      : rules_(other.rules_),
        n_logits_(other.n_logits_),
        inner_(other.inner_ == nullptr ? nullptr : other.inner_->Fork()),
        always_(other.always_),
        accepted_(other.accepted_) {}

  bool Begins() const { return accepted_.size() < rules_->begin.size(); }
  // Tokens behind what the answer begins with.
  int n_behind() const { return Begins() ? 0 : static_cast<int>(accepted_.size() - rules_->begin.size()); }
  bool MayNotEnd() const { return n_behind() < rules_->min_tokens; }
  bool IsEnd(int32_t token) const { return std::ranges::find(rules_->ends, token) != rules_->ends.end(); }
  // Whether what was accepted ends with all of the sequence but its last token.
  bool Ends(const std::vector<int32_t>& sequence) const {
    const size_t n = sequence.size() - 1;
    return n <= accepted_.size() &&
           std::equal(sequence.begin(), sequence.end() - 1, accepted_.end() - static_cast<std::ptrdiff_t>(n));
  }

  const std::shared_ptr<const TokenRules> rules_;
  const int n_logits_;
  const std::unique_ptr<Constraint> inner_;
  std::shared_ptr<const Words> always_;  // what may be anywhere
  std::vector<int32_t> accepted_;
  Words mask_;
};

}  // namespace

std::unique_ptr<Constraint> MakeTokenConstraint(std::shared_ptr<const TokenRules> rules, int n_logits,
                                                std::unique_ptr<Constraint> inner) {
  return std::make_unique<TokenConstraint>(std::move(rules), n_logits, std::move(inner));
}

}  // namespace longspec
