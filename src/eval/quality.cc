// SPDX-License-Identifier: Apache-2.0
#include "eval/quality.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace longspec {
namespace {

using Words = std::vector<std::string>;

bool IsWordByte(char c) {
  const auto b = static_cast<unsigned char>(c);
  return b >= 0x80 || (b >= '0' && b <= '9') || (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z');
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

Words SplitWords(std::string_view text) {
  Words words;
  std::string word;
  for (const char c : Lower(text)) {
    if (IsWordByte(c)) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  if (!word.empty()) words.push_back(word);
  return words;
}

double F1(double common, size_t n_text, size_t n_reference) {
  return common == 0 ? 0.0 : 2 * common / static_cast<double>(n_text + n_reference);
}

// n-grams of both, counted as often as they occur in the one that has fewer.
int64_t CommonNgrams(const Words& a, const Words& b, size_t n) {
  std::map<Words, int64_t> counts;
  const auto each = [n](const Words& words, const auto& f) {
    for (size_t i = 0; i + n <= words.size(); ++i) {
      f(Words(words.begin() + static_cast<std::ptrdiff_t>(i),
              words.begin() + static_cast<std::ptrdiff_t>(i + n)));
    }
  };
  each(b, [&](Words ngram) { ++counts[std::move(ngram)]; });
  int64_t common = 0;
  each(a, [&](const Words& ngram) {
    const auto left = counts.find(ngram);
    if (left == counts.end() || left->second == 0) return;
    --left->second;
    ++common;
  });
  return common;
}

// Length of the longest common subsequence.
size_t CommonSubsequence(const Words& a, const Words& b) {
  std::vector<size_t> row(b.size() + 1, 0);
  for (const std::string& word : a) {
    size_t diagonal = 0;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = word == b[j - 1] ? diagonal + 1 : std::max(row[j], row[j - 1]);
      diagonal = above;
    }
  }
  return row.back();
}

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row.back();
}

// The words of `part` in a row among those of `text`.
bool HasWords(const Words& text, const Words& part) {
  return !part.empty() && std::search(text.begin(), text.end(), part.begin(), part.end()) != text.end();
}

}  // namespace

double Rouge1(std::string_view text, std::string_view reference) {
  const Words a = SplitWords(text), b = SplitWords(reference);
  return F1(static_cast<double>(CommonNgrams(a, b, 1)), a.size(), b.size());
}

double RougeL(std::string_view text, std::string_view reference) {
  const Words a = SplitWords(text), b = SplitWords(reference);
  return F1(static_cast<double>(CommonSubsequence(a, b)), a.size(), b.size());
}

double Bleu(std::string_view text, std::string_view reference) {
  const Words a = SplitWords(text), b = SplitWords(reference);
  if (a.empty() || b.empty()) return 0.0;
  double log_precision = 0;
  for (size_t n = 1; n <= 4; ++n) {
    const double smooth = n > 1 ? 1.0 : 0.0;
    const double total = a.size() >= n ? static_cast<double>(a.size() - n + 1) : 0.0;
    const double common = static_cast<double>(CommonNgrams(a, b, n)) + smooth;
    if (common == 0) return 0.0;
    log_precision += std::log(common / (total + smooth)) / 4;
  }
  const double brevity = 1 - static_cast<double>(b.size()) / static_cast<double>(a.size());
  return std::exp(log_precision + std::min(0.0, brevity));
}

double AnswersFound(std::string_view text, std::string_view reference) {
  const Words words = SplitWords(text);
  int found = 0, answers = 0;
  for (size_t begin = 0; begin <= reference.size();) {
    const size_t end = std::min(reference.find(", ", begin), reference.size());
    ++answers;
    found += HasWords(words, SplitWords(reference.substr(begin, end - begin))) ? 1 : 0;
    begin = end + 2;
  }
  return static_cast<double>(found) / answers;
}

double FinalNumberFound(std::string_view text, std::string_view reference) {
  const size_t last = reference.find_last_of("0123456789");
  if (last == std::string_view::npos) return 0.0;
  const size_t before = reference.find_last_not_of("0123456789.,", last);
  const size_t first =
      reference.find_first_of("0123456789", before == std::string_view::npos ? 0 : before + 1);
  const auto digits = [](std::string_view number) {  // "1,200" and "1200" are the same
    std::string plain(number);
    plain.erase(std::remove(plain.begin(), plain.end(), ','), plain.end());
    return plain;
  };
  return HasWords(SplitWords(digits(text)), SplitWords(digits(reference.substr(first, last + 1 - first))))
             ? 1.0
             : 0.0;
}

double EditSimilarity(std::string_view text, std::string_view reference) {
  const std::string_view part = reference.substr(0, text.size());
  const size_t length = std::max(text.size(), part.size());
  return length == 0 ? 0.0
                     : 1.0 - static_cast<double>(EditDistance(text, part)) / static_cast<double>(length);
}

Quality MeasureQuality(std::string_view family, std::string_view text, std::string_view reference) {
  if (family.starts_with("needle") || family.starts_with("multihop") || family.starts_with("math")) {
    return {{"answer", AnswersFound(text, reference)}};
  }
  if (family.starts_with("gsm8k")) return {{"answer", FinalNumberFound(text, reference)}};
  if (family.starts_with("code")) return {{"edit_similarity", EditSimilarity(text, reference)}};
  if (family.ends_with("continuation")) return {{"bleu", Bleu(text, reference)}};
  return {{"rouge1", Rouge1(text, reference)}, {"rougeL", RougeL(text, reference)}};
}

}  // namespace longspec
