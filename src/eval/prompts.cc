// SPDX-License-Identifier: Apache-2.0
#include "eval/prompts.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace longspec {
namespace {

// Families whose text must not be cut, by the beginning of their names.
constexpr std::array<std::string_view, 6> kWhole = {"needle",   "gsm8k",    "math_reasoning",
                                                    "mt_bench", "multihop", "cnn_dm"};
// More text than any tokenizer packs into so many tokens is not even tokenised.
constexpr size_t kMaxBytesPerToken = 12;

bool IsWhole(std::string_view family) {
  return std::any_of(kWhole.begin(), kWhole.end(),
                     [&](std::string_view name) { return family.starts_with(name); });
}

bool IsContinuation(std::string_view family) {
  return family.starts_with("code") || family.ends_with("continuation");
}

bool IsInsideCharacter(const std::string& text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
}

// At most `bytes` bytes of whole characters, from the end if `from_end`.
std::string CutBytes(const std::string& text, size_t bytes, bool from_end) {
  if (text.size() <= bytes) return text;
  size_t at = from_end ? text.size() - bytes : bytes;
  while (IsInsideCharacter(text, at)) at += from_end ? 1 : static_cast<size_t>(-1);
  return from_end ? text.substr(at) : text.substr(0, at);
}

EvalPrompt Compose(const Engine& engine, const Sample& sample, const std::string& text) {
  EvalPrompt prompt{.sample = &sample};
  if (IsContinuation(sample.family)) {
    prompt.prompt = text;
    prompt.n_tokens = static_cast<int>(engine.Tokenize(text).size()) + 1;  // a begin token may join
    return prompt;
  }
  const std::string content = sample.instruction.empty() ? text : sample.instruction + "\n\n" + text;
  const std::vector<Message> messages = {{"user", content}};
  const auto rendered = engine.ApplyChatTemplate(messages, true);
  const bool is_chat = rendered.ok() && engine.info().has_chat_template;
  prompt.n_tokens = static_cast<int>(engine.Tokenize(is_chat ? *rendered : content).size()) + 1;
  if (is_chat) {
    prompt.messages = messages;
  } else {
    prompt.prompt = content;
  }
  return prompt;
}

std::optional<EvalPrompt> Fit(const Engine& engine, const Sample& sample, int n_tokens) {
  const bool from_end = IsContinuation(sample.family);
  const size_t most = static_cast<size_t>(n_tokens) * kMaxBytesPerToken;
  if (IsWhole(sample.family)) {
    if (sample.text.size() > most) return std::nullopt;
    EvalPrompt prompt = Compose(engine, sample, sample.text);
    return prompt.n_tokens <= n_tokens ? std::optional(std::move(prompt)) : std::nullopt;
  }
  std::string text = CutBytes(sample.text, most, from_end);
  EvalPrompt prompt = Compose(engine, sample, text);
  while (prompt.n_tokens > n_tokens && !text.empty()) {
    // The share of the text that should fit, less a little.
    const auto keep = static_cast<double>(text.size()) * n_tokens / prompt.n_tokens * 0.995 - 4;
    text = CutBytes(text, static_cast<size_t>(std::max(0.0, keep)), from_end);
    prompt = Compose(engine, sample, text);
  }
  return text.empty() ? std::nullopt : std::optional(std::move(prompt));
}

}  // namespace

std::vector<EvalPrompt> ChoosePrompts(const Engine& engine, const std::vector<Sample>& samples, int n_tokens,
                                      int n_prompts, bool any_length) {
  // Nearest in size first: for whole texts the largest that may fit, else the smallest that fills the
  // context.
  std::vector<const Sample*> order;
  for (const Sample& sample : samples) order.push_back(&sample);
  const bool whole = !samples.empty() && IsWhole(samples.front().family);
  const auto bytes = static_cast<double>(n_tokens) * 4;
  const auto distance = [&](const Sample* sample) {
    const double ratio = static_cast<double>(sample->text.size() + sample->instruction.size()) / bytes;
    return whole ? (ratio <= 1.15 ? 1.15 - ratio : 100 + ratio) : (ratio >= 1.0 ? ratio : 1e9 - ratio);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const Sample* a, const Sample* b) { return distance(a) < distance(b); });
  std::vector<EvalPrompt> prompts;
  for (const Sample* sample : order) {
    if (static_cast<int>(prompts.size()) == n_prompts) break;
    auto prompt = Fit(engine, *sample, n_tokens);
    if (prompt && (any_length || prompt->n_tokens >= n_tokens / 2)) prompts.push_back(std::move(*prompt));
  }
  return prompts;
}

}  // namespace longspec
