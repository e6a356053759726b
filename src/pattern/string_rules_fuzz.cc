// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a pattern, with lengths: what its automaton reads as a whole is what may stand between
// quotation marks, has a right length and is described by the pattern alone; and no way ends where no end is.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "pattern/regex.h"
#include "pattern/string_rules.h"

namespace {

using longspec::StringAutomaton;
using longspec::StringRules;

constexpr size_t kMostPatternBytes = 200;

void Require(bool condition) {
  if (!condition) __builtin_trap();
}

// Numbers from a seed: splitmix64.
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  size_t Below(size_t n) {
    uint64_t x = state_ += 0x9E3779B97F4A7C15ULL;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
    return static_cast<size_t>((x ^ (x >> 31)) % n);
  }

 private:
  uint64_t state_;
};

struct Place {
  int32_t state = 0;
  int64_t length = 0;
};

void Walk(const StringAutomaton& automaton, const StringAutomaton& alone, Dice& dice) {
  constexpr int kMostSteps = 300;
  Place at;
  std::string bytes = "\"";
  for (int step = 0; step < kMostSteps; ++step) {
    const bool may_end = automaton.Accepts(at.state) && automaton.IsRightLength(at.length);
    if (may_end && dice.Below(4) == 0) {
      const auto text = nlohmann::json::parse(bytes + "\"", nullptr, false);
      Require(text.is_string());
      Require(automaton.Describes(text.get_ref<const std::string&>()));
      Require(alone.Describes(text.get_ref<const std::string&>()));
      return;
    }
    std::vector<std::pair<uint8_t, Place>> ways;
    for (const auto& edge : automaton.edges()[static_cast<size_t>(at.state)]) {
      const int64_t length = at.length + (automaton.BeginsCharacter(at.state) ? 1 : 0);
      if (!automaton.CanEnd(edge.target, length)) continue;
      const auto width = static_cast<size_t>(edge.last - edge.first) + 1;
      ways.emplace_back(static_cast<uint8_t>(edge.first + dice.Below(width)), Place{edge.target, length});
    }
    Require(may_end || !ways.empty());
    if (ways.empty()) continue;
    const auto& [byte, next] = ways[dice.Below(ways.size())];
    bytes += static_cast<char>(byte);
    at = next;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3 || size > kMostPatternBytes) return 0;
  const std::string pattern(reinterpret_cast<const char*>(data + 2), size - 2);
  try {
    (void)nlohmann::json(pattern).dump();
  } catch (const nlohmann::json::exception&) {
    return 0;  // not UTF-8, which no schema is
  }
  longspec::PatternWork work(1'000'000), work_alone(1'000'000);
  const StringRules rules = {
      .patterns = {pattern},
      .min_length = data[0] % 16 * (data[0] % 3),
      .max_length = data[1] == 0 ? StringRules::kNoMost : data[1] % 40 * (data[1] % 4 + 1)};
  const auto automaton = longspec::CompileStringRules(rules, work);
  if (!automaton.ok()) {
    Require(!automaton.status().message().empty() && automaton.status().message().size() < 300);
    return 0;
  }
  const auto alone = longspec::CompileStringRules({.patterns = {pattern}}, work_alone);
  if (!alone.ok()) return 0;
  Dice dice(std::hash<std::string>()(pattern) + data[0] + data[1]);
  for (int i = 0; i < 4; ++i) Walk(*automaton, *alone, dice);
  return 0;
}
