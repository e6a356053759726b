// SPDX-License-Identifier: Apache-2.0
//
// Prompts of texts with holes against those of llama.cpp's server (tools/make_infill_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/print.h"
#include "base/testing/files.h"
#include "engine/gguf_tokenizer.h"
#include "golden_model.h"
#include "tokenizer/infill_prompt.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

class InfillGolden : public ::testing::TestWithParam<const char*> {};

// Letters as the file's first line spells them; null spells nothing.
std::string Spelled(const nlohmann::json& pieces, const nlohmann::json& letters) {
  std::string text;
  if (letters.is_null()) return text;
  for (const char letter : letters.get<std::string>()) text += pieces[std::string(1, letter)];
  return text;
}

// What is on record of one request.
struct Recorded {
  InfillText text;
  InfillLayout layout;
  size_t n_tokens = 0;
  std::string hash;
};

Recorded RecordedOf(const nlohmann::json& spelling, const nlohmann::json& line) {
  const nlohmann::json& pieces = spelling["pieces"];
  Recorded recorded = {.text = {.prefix = Spelled(pieces, line[2]),
                                .suffix = Spelled(pieces, line[3]),
                                .prompt = Spelled(pieces, line[4])},
                       .layout = {.window = line[0], .context = line[1]},
                       .n_tokens = line[6],
                       .hash = line[7]};
  for (const auto& chunk : line[5]) {
    recorded.text.chunks.push_back({.text = Spelled(pieces, chunk[1])});
    if (!chunk[0].is_null()) recorded.text.chunks.back().filename = Spelled(spelling["names"], chunk[0]);
  }
  return recorded;
}

// FNV-1a of their bytes.
std::string HashOf(const std::vector<int32_t>& tokens) {
  uint64_t value = 0xcbf29ce484222325;
  for (const int32_t token : tokens) {
    for (int shift = 0; shift < 32; shift += 8)
      value = (value ^ (static_cast<uint32_t>(token) >> shift & 0xff)) * 0x100000001b3;
  }
  return Print("%016llx", static_cast<unsigned long long>(value));
}

// The tokenizer of the test's model; null: it is not there or not asked for.
std::shared_ptr<const Tokenizer> RealTokenizer(const char* model) {
  if (std::getenv("LONGSPEC_REAL") == nullptr) return nullptr;
  const std::string path = testing::SourcePath(std::string("models/") + model);
  if (!std::filesystem::exists(path)) return nullptr;
  const auto file = GgufFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status().message();
  auto spec = TokenizerSpecFromGguf(**file);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  auto tokenizer = Tokenizer::Create(std::move(spec).value());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

TEST_P(InfillGolden, PromptsAreTheServersTokenForToken) {
  const auto tokenizer = RealTokenizer(GetParam());
  if (tokenizer == nullptr)
    GTEST_SKIP() << GetParam() << " is not there, or LONGSPEC_REAL does not ask for it";
  const auto lines = GoldenLines("infill.jsonl");
  ASSERT_EQ(lines.size(), 1001U);
  int n_cut = 0;
  for (size_t i = 1; i < lines.size(); ++i) {
    const Recorded recorded = RecordedOf(lines[0], lines[i]);
    const auto prompt = InfillPrompt(*tokenizer, recorded.text, recorded.layout);
    ASSERT_TRUE(prompt.ok()) << prompt.status().message();
    EXPECT_EQ(prompt->size(), recorded.n_tokens) << lines[i];
    EXPECT_EQ(HashOf(*prompt), recorded.hash) << lines[i];
    n_cut += *prompt != *InfillPrompt(*tokenizer, recorded.text, {}) ? 1 : 0;
  }
  EXPECT_GT(n_cut, 200);
}

// What is new in a prompt beside the one before, typing a file from its middle on, key by key.
TEST_P(InfillGolden, AnAnchoredWindowLeavesLittleToEvaluateAtAKey) {
  const auto tokenizer = RealTokenizer(GetParam());
  if (tokenizer == nullptr)
    GTEST_SKIP() << GetParam() << " is not there, or LONGSPEC_REAL does not ask for it";
  const std::string source = testing::ReadText(testing::SourcePath("src/attention/attention.cc"));
  const size_t hole = source.find('\n', source.size() / 2) + 1, begin = source.find('\n', hole - 1500) + 1;
  const auto evaluated = [&](const InfillLayout& layout) {
    std::vector<size_t> counts;
    std::vector<int32_t> before;
    for (size_t end = begin; end < hole; ++end) {
      const size_t line = source.rfind('\n', end - 1) + 1;
      const InfillText text = {.prefix = source.substr(0, line),
                               .suffix = source.substr(hole),
                               .prompt = source.substr(line, end - line)};
      auto prompt = *InfillPrompt(*tokenizer, text, layout);
      const auto known = std::ranges::mismatch(prompt, before).in1 - prompt.begin();
      counts.push_back(prompt.size() - static_cast<size_t>(known));
      before = std::move(prompt);
    }
    std::ranges::sort(counts);
    return counts;
  };
  const auto sliding = evaluated({.window = 1024});
  const auto anchored = evaluated({.window = 1024, .anchored = true, .suffix = 64});
  const auto share = [](const std::vector<size_t>& counts, size_t percent) {
    return counts[(counts.size() - 1) * percent / 100];
  };
  std::cout << "tokens to evaluate at a key, median, 90 %, 99 %, most: " << share(sliding, 50) << ", "
            << share(sliding, 90) << ", " << share(sliding, 99) << ", " << sliding.back()
            << "; anchored, 64 behind: " << share(anchored, 50) << ", " << share(anchored, 90) << ", "
            << share(anchored, 99) << ", " << anchored.back() << "\n";
  EXPECT_LE(share(anchored, 50), 100U);
  EXPECT_LE(share(anchored, 90), 260U);
  EXPECT_GT(share(sliding, 50), 200U);
}

INSTANTIATE_TEST_SUITE_P(Real, InfillGolden,
                         ::testing::Values("Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf",
                                           "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"),
                         [](const auto& chosen) { return chosen.index == 0 ? "Coder" : "SmallCoder"; });

}  // namespace
}  // namespace longspec
