// SPDX-License-Identifier: Apache-2.0
//
// A suggestion for an editor's next edit: a window of 21 lines, written again with three edits. The prompt
// says which window that is, and it is followed.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdio>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "playback.h"
#include "recordings.h"
#include "server/predictions.h"

namespace longspec::testing {
namespace {

constexpr std::string_view kWindow = R"(// The last `n` lines of a file, oldest first.
std::vector<std::string> LastLines(std::istream& in, size_t n) {
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    lines.push_back(line);
    if (lines.size() > n) lines.pop_front();
  }
  return {lines.begin(), lines.end()};
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::cerr << "usage: last FILE [N]\n";
    return 2;
  }
  std::ifstream in(argv[1]);
  const size_t n = argc > 2 ? std::stoul(argv[2]) : 10;
  for (const std::string& line : LastLines(in, n)) std::cout << line << "\n";
  return in.bad() ? 1 : 0;
})";

std::string Replaced(std::string text, std::string_view old, std::string_view by) {
  const size_t at = text.find(old);
  EXPECT_NE(at, std::string::npos) << old;
  return text.replace(at, old.size(), by);
}

// As plugins put them before the window: they resemble it.
std::string OtherFiles(const std::string& file) {
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"line", "row"}, {"size_t n", "int count"}, {"lines", "kept"}, {"in", "input"}};
  std::string files;
  for (const auto& [old, by] : kNames) {
    std::string other = file;
    for (size_t at = 0; (at = other.find(old, at)) != std::string::npos; at += by.size())
      other.replace(at, old.size(), by);
    files += "<|file_sep|>other.cc\n" + other + "\n";
  }
  return files;
}

// Words with the space before them, runs of spaces, and signs: about what a model's vocabulary makes of code.
class Vocabulary {
 public:
  std::vector<int32_t> Tokens(std::string_view text) {
    std::vector<int32_t> tokens;
    for (size_t begin = 0; begin < text.size();) {
      size_t end = begin + 1;
      if (text[begin] == ' ' && end < text.size() && text[end] == ' ') {
        while (end < text.size() && text[end] == ' ') ++end;
      } else if (IsLetter(text[begin]) || (text[begin] == ' ' && end < text.size() && IsLetter(text[end]))) {
        while (end < text.size() && IsLetter(text[end])) ++end;
      }
      const std::string piece(text.substr(begin, end - begin));
      tokens.push_back(ids_.try_emplace(piece, static_cast<int32_t>(ids_.size())).first->second);
      begin = end;
    }
    return tokens;
  }

 private:
  static bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
  std::map<std::string, int32_t> ids_;
};

TEST(NextEdit, TheWindowThatIsRewrittenIsFollowed) {
  const std::string current(kWindow);
  std::string updated = Replaced(current, "if (line.empty()) continue;", "if (line.empty()) break;");
  updated = Replaced(updated, "usage: last FILE [N]", "usage: last FILE [COUNT]");
  updated = Replaced(updated, "return in.bad() ? 1 : 0;", "return in.bad() || !std::cout ? 1 : 0;");
  const std::string prompt =
      "<|file_sep|>last.cc.diff\noriginal:\n    if (line.empty()) return {};\nupdated:\n    if "
      "(line.empty()) "
      "continue;\n<|file_sep|>original/last.cc\n" +
      Replaced(current, "continue;", "return {};") + "\n<|file_sep|>current/last.cc\n" + current +
      "\n<|file_sep|>updated/last.cc\n";
  const auto region = server::UneditedRegion(prompt);
  ASSERT_TRUE(region.has_value());
  EXPECT_EQ(*region, current + "\n");

  Vocabulary vocabulary;
  const Recording recording = {.name = "next edit",
                               .prompt = vocabulary.Tokens(OtherFiles(current) + prompt),
                               .answer = vocabulary.Tokens(updated + "\n"),
                               .sampling = {.temperature = 0, .seed = 1}};
  const std::pair<CostTable, int> machines[] = {{Measured(), 40}, {MeasuredAvx512(), 28}};
  for (const auto& [table, most_rounds] : machines) {
    AdaptiveMemory memory{.costs = CostModel(table), .drafters = {}};
    AdaptiveMemory other{.costs = CostModel(table), .drafters = {}};
    SpeculationOptions options{.type = "auto"};
    const Played without = Play(recording, options, CostModel(table), &other);
    options.prediction.tokens = vocabulary.Tokens(*region);
    const Played with = Play(recording, options, CostModel(table), &memory);
    std::printf("  %zu tokens in %d rounds, %.2f times as fast; without the window's place %d, %.2f\n",
                recording.answer.size(), static_cast<int>(with.rounds), with.speedup(),
                static_cast<int>(without.rounds), without.speedup());
    EXPECT_LE(with.rounds, most_rounds);
    EXPECT_LE(with.rounds, without.rounds);
    EXPECT_LE(with.ms, 1.02 * without.ms);
  }
}

}  // namespace
}  // namespace longspec::testing
