// SPDX-License-Identifier: Apache-2.0
//
// What the program says of an answer and of a model, as text and as JSON.
#include "cli/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace longspec::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

GenerationResult Sample() {
  GenerationResult result;
  result.text = "hello";
  result.tokens = {1, 2, 3};
  result.finish_reason = FinishReason::kStop;
  result.seed = 42;
  result.timings = {.cache_n = 10,
                    .prompt_n = 4096,
                    .prompt_ms = 2048,
                    .predicted_n = 3,
                    .predicted_ms = 6,
                    .draft_n = 289,
                    .draft_n_accepted = 158};
  result.speculative.type = "ngram";
  result.speculative.steps = 97;
  result.speculative.mean_acceptance_length = 1 + 158.0 / 97;
  result.speculative.acceptance_per_position = {0.91, 0.5};
  result.distinct_4gram = 0.83;
  return result;
}

std::vector<std::string> Keys(const nlohmann::ordered_json& json) {
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  return keys;
}

TEST(Report, StatisticsHaveTheLinesPeopleGrepFor) {
  const std::string text = FormatStatistics(Sample());
  EXPECT_THAT(text, HasSubstr("prompt eval time =    2048.00 ms /  4096 tokens (    0.50 ms per token,  "
                              "2000.00 tokens per second)\n"));
  EXPECT_THAT(text, HasSubstr("       eval time =       6.00 ms /     3 tokens (    2.00 ms per token,   "
                              "500.00 tokens per second)\n"));
  EXPECT_THAT(
      text,
      HasSubstr(
          "draft acceptance = 0.54671 (  158 accepted /   289 generated), mean acceptance length = 2.63, "
          "acceptance rate per position = (0.910, 0.500)\n"));
  EXPECT_THAT(text, HasSubstr("distinct 4-gram share = 0.83\n"));
  EXPECT_THAT(text, HasSubstr("speculation: ngram (exactness: lossless)\n"));
  EXPECT_THAT(text, HasSubstr("(10 more from the cache)"));
}

TEST(Report, PlainDecodingHasNoAcceptance) {
  GenerationResult result = Sample();
  result.speculative.type = "none";
  result.speculative.lossless = false;
  EXPECT_THAT(FormatStatistics(result), Not(HasSubstr("draft acceptance")));
  EXPECT_THAT(FormatStatistics(result), HasSubstr("speculation: none (exactness: approximate)"));
}

TEST(Report, WhatTheDrafterHasToSayIsShown) {
  GenerationResult result = Sample();
  EXPECT_THAT(FormatStatistics(result), Not(HasSubstr("note:")));
  EXPECT_FALSE(GenerationJson(result, "m")["speculative"].contains("notice"));
  result.speculative.notice = "trained for 12 positions";
  EXPECT_THAT(FormatStatistics(result), HasSubstr("note: trained for 12 positions\n"));
  EXPECT_EQ(GenerationJson(result, "m")["speculative"]["notice"], "trained for 12 positions");
}

TEST(Report, NothingIsDividedByZero) {
  GenerationResult result;
  result.speculative.type = "ngram";
  for (const std::string& text :
       {FormatStatistics(result), FormatBriefStatistics(result), JsonLine(GenerationJson(result, "m"))}) {
    EXPECT_THAT(text, Not(HasSubstr("nan")));
    EXPECT_THAT(text, Not(HasSubstr("inf ")));
    EXPECT_THAT(text, Not(HasSubstr("null")));
  }
}

TEST(Report, ThePolicySpeaksInWords) {
  GenerationResult result = Sample();
  SpeculativeStats& s = result.speculative;
  s.policy = "adaptive";
  s.last_decision = "off: 8 rows cost 3.1x at 7.4K keys, expected 1.9 tokens";
  s.decisions = {{"speculated", 60}, {"off", 37}};
  s.costs = "measured in 900 ms";
  s.draft_bytes = 3 << 19;
  s.dice = true;
  s.uses = {{"prior", "x.ngrams, 2000 pairs"}};
  s.by_drafter = {{.name = "ngram", .drafted = 289, .accepted = 158}};
  s.by_context = {{.name = "4K-8K", .steps = 97, .drafted = 289, .accepted = 158, .target_ms = 194}};
  EXPECT_EQ(FormatPolicy(s),
            "policy: adaptive (speculated 60, off 37 rounds), last off: 8 rows cost 3.1x at 7.4K keys, "
            "expected 1.9 "
            "tokens\n"
            "dice: used\n"
            "prior: x.ngrams, 2000 pairs\n"
            "costs of forward passes: measured in 900 ms\n"
            "memory for drafting: 1.5 MiB\n"
            "drafter ngram: 158 of 289 verified tokens accepted\n"
            "context 4K-8K: 97 rounds of 2.00 ms, 158 of 289 verified tokens accepted\n");
  const auto json = GenerationJson(result, "m")["speculative"];
  EXPECT_EQ(json["policy"]["name"], "adaptive");
  EXPECT_EQ(json["policy"]["decisions"]["off"], 37);
  EXPECT_EQ(json["policy"]["last_decision"], s.last_decision);
  EXPECT_EQ(json["dice"], true);
  EXPECT_EQ(json["uses"]["prior"], "x.ngrams, 2000 pairs");
  EXPECT_EQ(json["by_drafter"]["ngram"]["accepted"], 158);
  EXPECT_EQ(json["by_context"]["4K-8K"]["target_ms"], 194);
  SpeculativeStats fixed;
  fixed.policy = "fixed";
  EXPECT_EQ(FormatPolicy(fixed), "policy: fixed\n");
}

// Between the turns of a chat one line says how many tokens, how fast, and how many a step.
TEST(Report, BriefStatistics) {
  EXPECT_EQ(FormatBriefStatistics(Sample()), "[3 tokens, 500.0 tokens per second, 2.63 per step]\n");
}

TEST(Report, JsonHasExactlyTheseFields) {
  const auto json = GenerationJson(Sample(), "m.gguf");
  EXPECT_THAT(Keys(json),
              ElementsAre("text", "tokens", "finish_reason", "seed", "timings", "speculative", "model"));
  EXPECT_THAT(Keys(json["timings"]),
              ElementsAre("cache_n", "prompt_n", "prompt_ms", "prompt_per_token_ms", "prompt_per_second",
                          "prompt_draft_ms", "predicted_n", "predicted_ms", "predicted_per_token_ms",
                          "predicted_per_second", "draft_n", "draft_n_accepted"));
  EXPECT_THAT(Keys(json["speculative"]),
              ElementsAre("type", "steps", "mean_acceptance_length", "acceptance_per_position", "exactness",
                          "distinct_4gram", "draft_ms", "target_ms", "verify_ms", "commit_ms", "proposed",
                          "draft_bytes", "dice", "uses", "policy", "by_drafter", "by_context"));
  EXPECT_THAT(Keys(json["speculative"]["policy"]),
              ElementsAre("name", "decisions", "last_decision", "costs"));
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["tokens"], (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(json["timings"]["predicted_per_second"], 500.0);
  EXPECT_EQ(json["speculative"]["exactness"], "lossless");
  EXPECT_EQ(json["model"], "m.gguf");
}

TEST(Report, JsonOfBytesThatAreNotUtf8) {
  GenerationResult result = Sample();
  result.text =
      "a\xFF"
      "b\xC3";
  const std::string line = JsonLine(GenerationJson(result, "\xFEpath"));
  EXPECT_EQ(nlohmann::json::parse(line)["text"],
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
  EXPECT_EQ(line.find('\n'), line.size() - 1);
}

TEST(Report, EmptyAcceptanceIsAnArray) {
  EXPECT_EQ(GenerationJson(GenerationResult(), "m")["speculative"]["acceptance_per_position"].dump(), "[]");
  EXPECT_EQ(GenerationJson(GenerationResult(), "m")["tokens"].dump(), "[]");
}

ModelInfo SampleInfo() {
  ModelInfo info;
  info.path = "m.gguf";
  info.architecture = "llama";
  info.name = "Smol";
  info.file_type = "Q4_1";
  info.file_bytes = 1 << 20;
  info.n_parameters = 134500000;
  info.n_layer = 30;
  info.rope_scaling = "none";
  info.tokenizer_model = "gpt2";
  info.tokenizer_pre = "smollm";
  info.has_chat_template = true;
  info.device = "cpu";
  info.cpu = "Some CPU";
  info.kernels = "avx2";
  info.kernels_available = {"avx2", "reference"};
  info.arithmetic = {{"matmul Q4_1", "q8"}, {"attention", "f32"}};
  info.weight_bytes_by_type = {{"Q4_1", 2048}, {"F32", 1024}};
  info.threads = 2;
  info.memory = {.weights = 1024, .kv_at_context = 2048, .scratch = 512, .available = 4096, .ctx_size = 8192};
  return info;
}

TEST(Report, InfoForPeople) {
  const std::string text = FormatInfo(SampleInfo());
  for (const char* part :
       {"m.gguf (1.0 MiB)", "Smol (llama, 134.5 M parameters, Q4_1)", "30 layers", "scaling none",
        "gpt2, smollm, chat template: yes", "runs         yes", "Q4_1 2.0 KiB, F32 1.0 KiB", "Some CPU",
        "avx2 (this CPU has: avx2, reference), 2 threads", "matmul Q4_1: q8", "attention: f32",
        "3.5 KiB: weights 1.0 KiB, KV cache 2.0 KiB at a context of 8192, scratch 512 B; 4.0 KiB "
        "available"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Report, InfoSaysWhatDoesNotRun) {
  ModelInfo info = SampleInfo();
  info.missing = "tokenizer model 'bert' (WordPiece) is not offered";
  info.chat_template_error = "chat template, line 3: nofilter";
  const std::string text = FormatInfo(info);
  EXPECT_THAT(text, HasSubstr("no: tokenizer model 'bert' (WordPiece) is not offered\n"));
  EXPECT_THAT(text, HasSubstr("chat template: cannot be used (chat template, line 3: nofilter)"));
  EXPECT_FALSE(InfoJson(info)["runs"].get<bool>());
  EXPECT_EQ(InfoJson(info)["missing"], info.missing);
  EXPECT_TRUE(InfoJson(SampleInfo())["runs"].get<bool>());
}

TEST(Report, OfANetworkThatDoesNotRunNothingIsPlanned) {
  ModelInfo info = SampleInfo();
  info.missing = "architecture \"gamma\" is not supported; known are llama";
  info.memory = {};
  const std::string text = FormatInfo(info);
  for (const char* part :
       {"30 layers", "trained for ", "runs         no: architecture \"gamma\"", "Q4_1 2.0 KiB"})
    EXPECT_THAT(text, HasSubstr(part));
  for (const char* part : {"RoPE", "kernels", "arithmetic", "memory"})
    EXPECT_THAT(text, Not(HasSubstr(part)));
}

TEST(Report, AModelFileCannotWriteToTheTerminal) {
  ModelInfo info = SampleInfo();
  info.name = "Smol\x1b[31m";
  info.tokenizer_pre = "smollm\nloaded";
  const std::string text = FormatInfo(info);
  EXPECT_THAT(text, HasSubstr("Smol?[31m (llama"));
  EXPECT_THAT(text, HasSubstr("gpt2, smollm loaded, chat template"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(Report, InfoForPrograms) {
  const auto json = InfoJson(SampleInfo());
  EXPECT_EQ(json["arithmetic"]["matmul Q4_1"], "q8");
  EXPECT_EQ(json["weight_bytes_by_type"]["F32"], 1024);
  EXPECT_EQ(json["memory"]["total"], 3584);
  EXPECT_EQ(json["kernels_available"], (std::vector<std::string>{"avx2", "reference"}));
  EXPECT_EQ(InfoJson(ModelInfo())["arithmetic"].dump(), "{}");
}

TEST(Report, MemoryPlanOfUnknownAvailability) {
  EXPECT_THAT(FormatMemoryPlan({}), Not(HasSubstr("available")));
  EXPECT_THAT(FormatMemoryPlan({}), Not(HasSubstr("prompts")));
  EXPECT_THAT(FormatMemoryPlan({.prompt_cache = 3 << 20}),
              HasSubstr("; up to 3.0 MiB more for earlier prompts"));
}

// A number of its own for the memory of another place, which a model on the CPU does not have.
TEST(Report, TheMemoryOfADraftBesideACard) {
  EXPECT_THAT(FormatMemoryPlan({.available = 9 << 20}), Not(HasSubstr("host")));
  EXPECT_THAT(FormatMemoryPlan({.host_draft = 3 << 20, .host_available = 4 << 20, .available = 9 << 20}),
              HasSubstr("; 9.0 MiB available; in the host's memory: draft model 3.0 MiB, 4.0 MiB available"));
  EXPECT_THAT(
      FormatMemoryPlan(
          {.kv_in_file = 5 << 20, .kv_on_host = true, .host_draft = 3 << 20, .host_available = 9 << 20}),
      HasSubstr("; in the host's memory: KV cache 5.0 MiB, draft model 3.0 MiB, 9.0 MiB available"));
  EXPECT_THAT(FormatMemoryPlan({.kv_in_file = 5 << 20}), Not(HasSubstr("host")));
  ModelInfo info = SampleInfo();
  EXPECT_FALSE(InfoJson(info)["memory"].contains("host_draft"));
  info.memory.host_draft = 7;
  EXPECT_EQ(InfoJson(info)["memory"]["host_draft"], 7);
  info.memory.kv_in_file = 8;
  EXPECT_EQ(InfoJson(info)["memory"]["host_total"], 7);
  info.memory.kv_on_host = true;
  EXPECT_EQ(InfoJson(info)["memory"]["host_total"], 15);
}

TEST(EscapeText, KeepsUtf8AndShowsTheRest) {
  EXPECT_EQ(EscapeText("plain é “x” 😀"), "plain é “x” 😀");
  EXPECT_EQ(EscapeText("a\nb\tc\rd\\e"), "a\\nb\\tc\\rd\\\\e");
  EXPECT_EQ(EscapeText(std::string("\x1b[0m\0\x7f", 6)), "\\x1b[0m\\x00\\x7f");
  EXPECT_EQ(EscapeText("\xC3"), "\\xc3");           // cut short
  EXPECT_EQ(EscapeText("\xC0\xAF"), "\\xc0\\xaf");  // overlong
  EXPECT_EQ(EscapeText("\xE0\x80\xAF"), "\\xe0\\x80\\xaf");
  EXPECT_EQ(EscapeText("\xED\xA0\x80"), "\\xed\\xa0\\x80");  // a surrogate
  EXPECT_EQ(EscapeText("\xF0\x80\x80\x80"), "\\xf0\\x80\\x80\\x80");
  EXPECT_EQ(EscapeText("\xF4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
  EXPECT_EQ(EscapeText("\xF5"), "\\xf5");
}

}  // namespace
}  // namespace longspec::cli
