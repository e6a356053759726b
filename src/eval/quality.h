// SPDX-License-Identifier: Apache-2.0
//
// How near a text is to its reference, from 0 to 1. Words are runs of ASCII letters and digits, in lower
// case; bytes outside ASCII count as letters. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longspec {

double Rouge1(std::string_view text, std::string_view reference);  // F1 of single words
double RougeL(std::string_view text, std::string_view reference);  // F1 of the longest common subsequence
// BLEU-4 of one sentence, counts of bigrams and longer plus one, with brevity penalty.
double Bleu(std::string_view text, std::string_view reference);
// The share of the reference's answers (separated by ", ") that occur in the text.
double AnswersFound(std::string_view text, std::string_view reference);
// The same for the last number of a worked solution.
double FinalNumberFound(std::string_view text, std::string_view reference);
// 1 - edit distance / length, against as many bytes of the reference as the text has.
double EditSimilarity(std::string_view text, std::string_view reference);

using Quality = std::vector<std::pair<std::string, double>>;
// The measures that suit a family of tasks.
Quality MeasureQuality(std::string_view family, std::string_view text, std::string_view reference);

}  // namespace longspec
