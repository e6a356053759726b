// SPDX-License-Identifier: Apache-2.0
//
// The tools of an agent as a grammar for the vocabulary of the coder models: what it allows, and what
// compiling takes.
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/testing/source_path.h"
#include "chat/tool_form.h"
#include "engine/model_text.h"
#include "formats/gguf.h"
#include "grammar/grammar.h"

namespace longspec {
namespace {

using OrderedJson = nlohmann::ordered_json;

double ThreadMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

// In the manner of programs that write code: paths, texts, numbers with bounds, choices, lists of objects.
chat::ToolUse ThirtyTools(const std::string& name) {
  static const OrderedJson parameters[] = {
      OrderedJson::parse(
          R"({"type": "object", "properties": {"command": {"type": "string"}, "timeout": {"type": "number"},
                      "run_in_background": {"type": "boolean"}}, "required": ["command"],
                      "additionalProperties": false})"),
      OrderedJson::parse(R"({"type": "object", "properties": {"file_path": {"type": "string"},
                      "offset": {"type": "integer", "minimum": 0, "maximum": 9007199254740991},
                      "limit": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991}},
                      "required": ["file_path"], "additionalProperties": false})"),
      OrderedJson::parse(R"({"type": "object", "properties": {"file_path": {"type": "string"},
                      "old_string": {"type": "string"}, "new_string": {"type": "string"},
                      "replace_all": {"type": "boolean"}}, "required": ["file_path", "old_string", "new_string"],
                      "additionalProperties": false})"),
      OrderedJson::parse(
          R"({"type": "object", "properties": {"level": {"type": "string", "enum": ["low", "medium", "high"]},
                      "findings": {"type": "array", "maxItems": 32, "items": {"type": "object", "properties": {
                        "file": {"type": "string"}, "summary": {"type": "string", "maxLength": 60},
                        "line": {"type": "integer", "minimum": 0}}, "required": ["file", "summary"],
                      "additionalProperties": false}}}, "required": ["findings"], "additionalProperties": false})"),
      OrderedJson::parse(
          R"({"type": "object", "properties": {"script": {"type": "string", "maxLength": 524288},
                      "resume": {"type": "string", "pattern": "^wf_[a-z0-9-]{6,}$"}},
                      "additionalProperties": false})"),
      OrderedJson::parse(R"({"type": "object", "properties": {"url": {"type": "string", "format": "uri"},
                      "prompt": {"type": "string"}}, "required": ["url", "prompt"],
                      "additionalProperties": false})")};
  chat::ToolUse use{.choice = chat::ToolChoice::kAuto};
  for (size_t i = 0; i < 30; ++i) {
    chat::Tool tool{.name = name + std::to_string(i), .parameters = parameters[i % std::size(parameters)]};
    tool.definition = {{"type", "function"},
                       {"function", {{"name", tool.name}, {"parameters", tool.parameters}}}};
    use.tools.push_back(std::move(tool));
  }
  return use;
}

GrammarText CallsOf(const chat::ToolUse& use) {
  const OrderedJson tag = {{"type", "structural_tag"}, {"format", chat::kHermesForm.calls(use)}};
  return {GrammarText::Kind::kStructuralTag, tag.dump()};
}

bool Accepts(const Grammar& grammar, const Tokenizer& tokenizer, const std::string& text) {
  const auto constraint = *grammar.NewConstraint();
  for (const int32_t token : tokenizer.Encode(text)) {
    const auto mask = constraint->Mask();
    EXPECT_TRUE(mask.ok()) << mask.status().message();
    const bool allowed = IsAllowed(*mask, token);
    EXPECT_EQ(constraint->Accept(token), allowed) << text;
    if (!allowed) return false;
  }
  return constraint->complete();
}

TEST(ToolSet, ThirtyToolsAreReadyAtOnce) {
  const std::string path = testing::SourcePath("models/Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf");
  if (!HasGrammars() || !std::filesystem::exists(path)) GTEST_SKIP() << "no xgrammar, or no " << path;
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto text = ModelText::Load(**file, "");
  ASSERT_TRUE(text.ok()) << text.status().message();
  constexpr int kLogits = 151936;
  ASSERT_TRUE(
      (*text)->Compile({GrammarText::Kind::kJsonObject, ""}, kLogits).ok());  // prepares the vocabulary

  std::shared_ptr<const Grammar> grammar;
  for (const char* name : {"first", "tool"}) {
    const GrammarText calls = CallsOf(ThirtyTools(name));
    const double began = ThreadMs();
    auto compiled = (*text)->Compile(calls, kLogits);
    std::cout << "compiled in " << ThreadMs() - began << " ms of a processor\n";
    ASSERT_TRUE(compiled.ok()) << compiled.status().message();
    grammar = *compiled;
  }
  const Tokenizer& tokenizer = (*text)->tokenizer();
  const auto call = [](const std::string& tool, const std::string& arguments) {
    return "I look.\n<tool_call>\n{\"name\": \"" + tool + "\", \"arguments\": " + arguments +
           "}\n</tool_call>";
  };
  const double began = ThreadMs();
  EXPECT_TRUE(Accepts(*grammar, tokenizer, call("tool0", R"({"command": "ls -l | wc", "timeout": 1.5})")));
  EXPECT_TRUE(Accepts(*grammar, tokenizer, call("tool1", R"({"file_path": "/a/b.cc", "offset": 120})")));
  EXPECT_TRUE(
      Accepts(*grammar, tokenizer,
              call("tool3", R"({"level": "low", "findings": [{"file": "a.h", "summary": "It is long"}]})")));
  EXPECT_FALSE(Accepts(*grammar, tokenizer, call("tool0", R"({"timeout": 1.5})")));
  EXPECT_FALSE(Accepts(*grammar, tokenizer, call("tool3", R"({"level": "no", "findings": []})")));
  EXPECT_FALSE(Accepts(*grammar, tokenizer, call("tool30", R"({"command": "ls"})")));
  std::cout << "six answers in " << ThreadMs() - began
            << " ms of a processor, with the masks of new states\n";
}

}  // namespace
}  // namespace longspec
