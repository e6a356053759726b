// SPDX-License-Identifier: Apache-2.0
#include "grammar/xgrammar_constraint.h"

#include <dlpack/dlpack.h>

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "grammar/xgrammar_guard.h"
#include "xgrammar/matcher.h"

namespace longspec {
namespace {

constexpr double kMostStepMs = 2000;      // of one mask or one token: others wait for it
constexpr size_t kMostForcedBytes = 256;  // looked ahead at once
constexpr std::string_view kWhiteSpace = " \n\t\r";

class XgrammarConstraint final : public Constraint {
 public:
  XgrammarConstraint(xgrammar::GrammarMatcher matcher, std::shared_ptr<const GrammarVocabulary> vocabulary,
                     double look_ahead_ms)
      : matcher_(std::move(matcher)),
        vocabulary_(std::move(vocabulary)),
        look_ahead_ms_(look_ahead_ms),
        mask_(static_cast<size_t>(xgrammar::GetBitmaskSize(vocabulary_->n_logits))) {}

  Result<std::span<const uint32_t>> Mask() override {
    LS_CHECK(!ended());
    if (!mask_is_of_here_ && failure_.ok()) FillMask();
    if (!failure_.ok()) return failure_;
    return std::span<const uint32_t>(mask_);
  }

  bool Accept(int32_t token) override {
    if (!failure_.ok() || ended() || token < 0 || token >= vocabulary_->n_logits) return false;
    const bool accepted = Guarded([&] { return matcher_.AcceptToken(token); });
    if (!accepted) return false;
    mask_is_of_here_ = false;
    lengths_.push_back(written_.size());
    if (static_cast<size_t>(token) < vocabulary_->tokens.size())
      written_ += vocabulary_->tokens[static_cast<size_t>(token)];
    return true;
  }

  void Rollback(int n) override {
    LS_CHECK(n >= 0 && static_cast<size_t>(n) <= lengths_.size());
    if (n == 0) return;
    mask_is_of_here_ = false;
    written_.resize(lengths_[lengths_.size() - static_cast<size_t>(n)]);
    lengths_.resize(lengths_.size() - static_cast<size_t>(n));
    if (failure_.ok()) matcher_.Rollback(n);
  }

  std::unique_ptr<Constraint> Fork() const override { return Copy(); }

  bool complete() const override { return failure_.ok() && matcher_.IsCompleted(); }
  bool ended() const override { return failure_.ok() && matcher_.IsTerminated(); }

  std::vector<int32_t> Forced(int most) override {
    if (most <= 0 || !looks_ahead_ || !failure_.ok() || ended() || vocabulary_->tokenize == nullptr)
      return {};
    // A copy looks ahead: what is not written yet, and may never be, cannot be this answer's failure.
    const auto ahead = Copy();
    const std::string text = ahead->ForcedText();
    std::vector<int32_t> forced;
    if (!text.empty()) {
      for (const int32_t token : vocabulary_->tokenize(text)) {
        if (static_cast<int>(forced.size()) == most || !ahead->Accept(token)) break;
        forced.push_back(token);
      }
    }
    looks_ahead_ = ahead->failure_.ok();
    return forced;
  }

 private:
  std::unique_ptr<XgrammarConstraint> Copy() const {
    auto copy = std::make_unique<XgrammarConstraint>(matcher_.Fork(), vocabulary_, look_ahead_ms_);
    copy->written_ = written_;
    copy->lengths_ = lengths_;
    copy->failure_ = failure_;
    copy->looks_ahead_ = looks_ahead_;
    return copy;
  }

  // Runs what may throw. A matcher that threw is not used any more.
  template <typename Step>
  bool Guarded(const Step& step, double most_ms = kMostStepMs) {
    try {
      const XgrammarGuard guard(most_ms);
      return step();
    } catch (const XgrammarTimeout&) {
      failure_ = ResourceExhausted("the grammar is too ambiguous: a token took more than " +
                                   std::to_string(static_cast<int>(kMostStepMs)) + " ms");
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception& error) {
      failure_ = InvalidArgument("the grammar failed: " + XgrammarMessage(error));
    }
    return false;
  }

  void FillMask() {
    auto size = static_cast<int64_t>(mask_.size());
    DLTensor tensor{.data = mask_.data(),
                    .device = {kDLCPU, 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &size,
                    .strides = nullptr,
                    .byte_offset = 0};
    mask_is_of_here_ = Guarded([&] {
      matcher_.FillNextTokenBitmask(&tensor);
      return true;
    });
  }

  // What must come next. White space that may be anything is taken to be what this answer wrote in such a
  // place before: JSON has it nearly everywhere, and little would be forced without.
  std::string ForcedText() {
    std::string text;
    int steps = 0;
    const auto look = [&] {
      while (text.size() < kMostForcedBytes) {
        std::string piece = matcher_.FindJumpForwardString();
        if (piece.empty()) piece = AfterWhiteSpace(text);
        if (piece.empty() || !matcher_.AcceptString(piece)) break;
        ++steps;
        text += piece;
      }
      if (steps > 0) matcher_.Rollback(steps);
      return true;
    };
    Guarded(look, look_ahead_ms_);
    return failure_.ok() ? text : std::string();
  }

  bool MayBeNext(std::string_view text) {
    if (!matcher_.AcceptString(std::string(text))) return false;
    matcher_.Rollback(1);
    return true;
  }

  // White space and the one character that may follow it; nothing if there are several or none.
  std::string AfterWhiteSpace(const std::string& ahead) {
    if (!MayBeNext(" ")) return {};
    char next = '\0';
    for (char c = '!'; c <= '~'; ++c) {
      if (!MayBeNext({&c, 1})) continue;
      if (next != '\0') return {};
      next = c;
    }
    for (const std::string_view beyond_ascii : {"\xC3\xA9", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80"}) {
      if (MayBeNext(beyond_ascii)) return {};
    }
    if (next == '\0') return {};
    const std::string piece = UsualWhiteSpace(ahead) + next;
    return MayBeNext(piece) ? piece : std::string(1, next);
  }

  // What followed the character before, the last time.
  std::string UsualWhiteSpace(const std::string& ahead) const {
    const std::string text = written_ + ahead;
    if (text.empty()) return {};
    const char before = text.back();
    if (before != ':' && before != ',' && before != '{' && before != '[') return {};
    const size_t last = text.size() < 2 ? std::string::npos : text.rfind(before, text.size() - 2);
    if (last == std::string::npos) return before == ':' || before == ',' ? " " : "";
    const size_t begin = last + 1;
    const size_t end = std::min(text.find_first_not_of(kWhiteSpace, begin), text.size());
    return text.substr(begin, end - begin);
  }

  xgrammar::GrammarMatcher matcher_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  double look_ahead_ms_;
  bool looks_ahead_ = true;  // it has not failed yet
  std::vector<uint32_t> mask_;
  bool mask_is_of_here_ = false;
  std::string written_;          // the text of the accepted tokens
  std::vector<size_t> lengths_;  // [i]: its length before token i
  Status failure_;
};

}  // namespace

std::unique_ptr<Constraint> MakeXgrammarConstraint(const xgrammar::CompiledGrammar& grammar,
                                                   std::shared_ptr<const GrammarVocabulary> vocabulary,
                                                   double look_ahead_ms) {
  return std::make_unique<XgrammarConstraint>(xgrammar::GrammarMatcher(grammar), std::move(vocabulary),
                                              look_ahead_ms);
}

std::string XgrammarMessage(const std::exception& error) {
  constexpr size_t kMostBytes = 300;
  constexpr std::string_view kCheck = "is false: ";
  std::string message = error.what();
  if (const size_t check = message.find(kCheck);
      message.starts_with("Check failed") && check != std::string::npos)
    message.erase(0, check + kCheck.size());
  message = message.substr(0, std::min(message.find('\n'), kMostBytes));
  // What was cut in the middle of a character, and what was none.
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7E) c = '?';
  }
  return message;
}

}  // namespace longspec
