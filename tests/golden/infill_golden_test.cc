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

#include "engine/gguf_tokenizer.h"
#include "golden_model.h"
#include "tokenizer/infill_prompt.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

class InfillGolden : public ::testing::TestWithParam<const char*> {};

InfillText TextOf(const nlohmann::json& request) {
  InfillText text = {.prefix = request["input_prefix"],
                     .suffix = request["input_suffix"],
                     .prompt = request.value("prompt", "")};
  for (const auto& chunk : request.value("input_extra", nlohmann::json::array()))
    text.chunks.push_back(
        {.filename = chunk.value("filename", InfillChunk().filename), .text = chunk["text"]});
  return text;
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
  int n_lines = 0, n_cut = 0;
  for (const auto& line : GoldenLines("infill.jsonl")) {
    const InfillText text = TextOf(line["request"]);
    const auto prompt = InfillPrompt(*tokenizer, text, {.window = line["batch"], .context = line["context"]});
    ASSERT_TRUE(prompt.ok()) << prompt.status().message();
    EXPECT_EQ(*prompt, line["tokens"].get<std::vector<int32_t>>()) << line["request"];
    n_cut += *prompt != *InfillPrompt(*tokenizer, text, {}) ? 1 : 0;
    ++n_lines;
  }
  EXPECT_GE(n_lines, 40);
  EXPECT_GT(n_cut, 10);
}

// What is new in a prompt beside the one before, typing a file from its middle on, key by key.
TEST_P(InfillGolden, AnAnchoredWindowLeavesLittleToEvaluateAtAKey) {
  const auto tokenizer = RealTokenizer(GetParam());
  if (tokenizer == nullptr)
    GTEST_SKIP() << GetParam() << " is not there, or LONGSPEC_REAL does not ask for it";
  std::ifstream file(testing::SourcePath("src/attention/attention.cc"));
  const std::string source((std::istreambuf_iterator<char>(file)), {});
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
