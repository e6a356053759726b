// SPDX-License-Identifier: Apache-2.0
//
// Prompts of texts with holes against those of llama.cpp's server (tools/make_infill_golden.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
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

TEST_P(InfillGolden, PromptsAreTheServersTokenForToken) {
  if (std::getenv("LONGSPEC_REAL") == nullptr) GTEST_SKIP() << "LONGSPEC_REAL does not ask for it";
  const std::string path = testing::SourcePath(std::string("models/") + GetParam());
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  auto spec = TokenizerSpecFromGguf(**file);
  ASSERT_TRUE(spec.ok()) << spec.status().message();
  const auto tokenizer = Tokenizer::Create(std::move(spec).value());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  int n_lines = 0, n_cut = 0;
  for (const auto& line : GoldenLines("infill.jsonl")) {
    const InfillText text = TextOf(line["request"]);
    const auto prompt =
        InfillPrompt(**tokenizer, text, {.window = line["batch"], .context = line["context"]});
    ASSERT_TRUE(prompt.ok()) << prompt.status().message();
    EXPECT_EQ(*prompt, line["tokens"].get<std::vector<int32_t>>()) << line["request"];
    n_cut += *prompt != *InfillPrompt(**tokenizer, text, {}) ? 1 : 0;
    ++n_lines;
  }
  EXPECT_GE(n_lines, 40);
  EXPECT_GT(n_cut, 10);
}

INSTANTIATE_TEST_SUITE_P(Real, InfillGolden,
                         ::testing::Values("Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf",
                                           "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf"),
                         [](const auto& chosen) { return chosen.index == 0 ? "Coder" : "SmallCoder"; });

}  // namespace
}  // namespace longspec
