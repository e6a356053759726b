// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for a model that wants to break out of its grammar: it loves quotation marks, brackets,
// backslashes, line breaks, control characters and halves of characters. What it may not write the grammar
// must forbid.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/counter_rng.h"
#include "grammar/grammar.h"

namespace longspec::testing {

struct BreakoutLimits {
  int free_tokens = 40;      // then it tries to come to an end
  int most_tokens = 2500;    // then it gives up
  int tokens_each_look = 7;  // from one comparison of mask and acceptance to the next
};

struct Written {
  std::string text;
  bool whole = false;
  // Places where no token is allowed, or where the mask and what is accepted differ.
  std::vector<std::string> faults;
};

class BreakoutWriter {
 public:
  explicit BreakoutWriter(uint64_t seed, const BreakoutLimits& limits = {})
      : limits_(limits), rng_{.seed = seed, .purpose = RngPurpose::kTest} {
    constexpr double kRare = 1, kUsual = 3, kLoved = 10;
    for (int byte = 0; byte < 256; ++byte) Add(std::string(1, static_cast<char>(byte)), kRare);
    for (const std::string_view text : kHostile) Add(std::string(text), kLoved);
    for (const std::string_view text : kOrdinary) Add(std::string(text), kUsual);
    for (const size_t n : {20, 64, 129}) {
      Add(std::string(n, 'a'), kUsual);
      Add(std::string(n, ' '), kUsual);
      Add(std::string(n, 'a') + "\"", kUsual);
    }
    end_ = static_cast<int32_t>(vocabulary_.tokens.size());
    Add("", kLoved);
    vocabulary_.n_logits = end_ + 1;
    vocabulary_.end_tokens = {end_};
  }

  const GrammarVocabulary& vocabulary() const { return vocabulary_; }

  // Another text each time. The grammar is of this vocabulary.
  Written Write(const Grammar& grammar) {
    ++n_written_;
    Written written;
    auto constraint = grammar.NewConstraint();
    if (!constraint.ok()) {
      written.faults.push_back(constraint.status().message());
      return written;
    }
    for (int n = 0; n < limits_.most_tokens && !(*constraint)->ended(); ++n) {
      if (n % limits_.tokens_each_look == 0) CompareMask(**constraint, written);
      const auto token = Next(**constraint, n);
      if (!token) {
        written.faults.push_back("no token is allowed after " + written.text);
        break;
      }
      if (!(*constraint)->Accept(*token)) {
        written.faults.push_back("an allowed token is not accepted after " + written.text);
        break;
      }
      written.text += TextOf(*token);
    }
    written.whole = (*constraint)->ended();
    return written;
  }

 private:
  static constexpr std::string_view kNul{"\0", 1};
  static constexpr std::string_view kHostile[] = {"{\"",
                                                  "\":",
                                                  "\": \"",
                                                  "\", \"",
                                                  "\"}",
                                                  "\"]",
                                                  "\"\n",
                                                  "\"\n\"",
                                                  "\n\"",
                                                  "\"\"",
                                                  "\",\"a\":",
                                                  "\\\"",
                                                  "\\n",
                                                  "\\u",
                                                  "\\u00",
                                                  "\\u001f",
                                                  "\\ud83d",
                                                  "\\uDE00",
                                                  "\\ud83d\\ude00",
                                                  "\\\\",
                                                  "\\/",
                                                  "\\",
                                                  "\"",
                                                  "\n",
                                                  "\n\n",
                                                  "\r\n",
                                                  "\t",
                                                  kNul,
                                                  "\x1b",
                                                  "\x7f",
                                                  "\x1f",
                                                  "}}",
                                                  "]}",
                                                  "},{",
                                                  "{",
                                                  "}",
                                                  "[",
                                                  "]",
                                                  ":",
                                                  ",",
                                                  "\"a\"",
                                                  "\"a\": 1",
                                                  "{}",
                                                  "[]",
                                                  "\xF0\x9F",
                                                  "\x98\x80",
                                                  "\xC3",
                                                  "\xA9",
                                                  "\xED\xA0\x80",
                                                  "\xC0\x80",
                                                  "'",
                                                  "\xE2\x80\xA8",
                                                  "\xC2\x85",
                                                  "\xEF\xBB\xBF"};
  static constexpr std::string_view kOrdinary[] = {
      " ",   "  ", "name", "abc",      "ab",   "aaaaaaaa", " the", "true",  "false", "null", "12",   "123",
      "0.5", "-1", "e+",   "2024-02-", "-29",  "T12:",     ":00",  "00Z",   "://",   "a@b",  ".com", "~1",
      "~0",  "/a", "%4",   "été",      "日本", "😀",        "::",   "ffff:", "x=",    "A",    "Z9"};

  void Add(std::string text, double weight) {
    vocabulary_.tokens.push_back(std::move(text));
    weights_.push_back(weight);
  }
  const std::string& TextOf(int32_t token) const { return vocabulary_.tokens[static_cast<size_t>(token)]; }

  std::optional<int32_t> Next(Constraint& constraint, int n) {
    const auto mask = constraint.Mask();
    if (!mask.ok()) return std::nullopt;
    const bool is_free = n < limits_.free_tokens;
    if (!is_free && IsAllowed(*mask, end_)) return end_;
    std::vector<int32_t> allowed;
    std::vector<double> sums;
    double sum = 0;
    for (int32_t token = 0; token < vocabulary_.n_logits; ++token) {
      if (!IsAllowed(*mask, token)) continue;
      allowed.push_back(token);
      sums.push_back(sum += is_free ? weights_[static_cast<size_t>(token)] : Closing(TextOf(token)));
    }
    if (allowed.empty()) return std::nullopt;
    const double drawn = rng_.Uniform(n_written_, static_cast<uint32_t>(n)) * sum;
    const auto at = std::ranges::upper_bound(sums, drawn);
    return allowed[std::min(static_cast<size_t>(at - sums.begin()), allowed.size() - 1)];
  }

  // What brings a text to its end: signs that close, then any that are not one letter among many.
  static double Closing(const std::string& text) {
    constexpr double kCloses = 1000, kSign = 20, kMore = 0.01;
    if (text == "\"" || text == "]" || text == "}") return kCloses;
    if (text.size() != 1 || text == " " || text == "\n" || text == "\t" || text == "\r") return kMore;
    const auto c = static_cast<unsigned char>(text[0]);
    const bool letter =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c >= 0x80;
    return letter || c < ' ' ? 1 : kSign;
  }

  void CompareMask(Constraint& constraint, Written& written) const {
    const auto mask = constraint.Mask();
    if (!mask.ok()) {
      written.faults.push_back(mask.status().message() + " after " + written.text);
      return;
    }
    const std::vector<uint32_t> allowed(mask->begin(), mask->end());
    for (int32_t token = 0; token < vocabulary_.n_logits; ++token) {
      const bool accepted = constraint.Accept(token);
      if (accepted) constraint.Rollback(1);
      if (accepted == IsAllowed(allowed, token)) continue;
      written.faults.push_back(std::string(accepted ? "accepted" : "allowed") + " alone is " + TextOf(token) +
                               " after " + written.text);
      return;
    }
  }

  const BreakoutLimits limits_;
  const RngStream rng_;
  GrammarVocabulary vocabulary_;
  std::vector<double> weights_;  // by token
  int32_t end_ = 0;
  uint64_t n_written_ = 0;
};

}  // namespace longspec::testing
