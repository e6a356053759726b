// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as the answer of a model, in each form of calls and thoughts: however it is cut, the same is
// read, names are those of functions, and nothing is told twice or out of order.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "chat/answer_reader.h"

namespace {

using longspec::chat::AnswerParts;
using longspec::chat::AnswerReader;
using longspec::chat::ReadingForm;
using longspec::chat::Thought;
using longspec::chat::ToolCallPiece;
using longspec::chat::ToolFormat;

void Require(bool condition) {
  if (!condition) __builtin_trap();
}

constexpr ToolFormat kFormats[] = {ToolFormat::kHermes,      ToolFormat::kTagged,  ToolFormat::kLlama3,
                                   ToolFormat::kMistralList, ToolFormat::kMistral, ToolFormat::kHarmony,
                                   ToolFormat::kGeneric};

std::shared_ptr<const longspec::chat::CallForm> CallsOf(ToolFormat format, bool strict) {
  longspec::chat::CallForm form{.format = format, .holds_untagged = strict};
  form.tools.push_back(
      {.name = "f",
       .parameters = {{"type", "object"},
                      {"properties",
                       {{"a", {{"type", "string"}}}, {"b", {{"type", "integer"}}}, {"c", true}}}},
       .strict = strict});
  form.tools.push_back({.name = "g"});
  return std::make_shared<const longspec::chat::CallForm>(std::move(form));
}

// What is thought, said and called, each with a mark before it.
std::string Told(const AnswerParts& parts) {
  std::string told;
  for (const auto& part : parts) {
    if (const auto* call = std::get_if<ToolCallPiece>(&part)) {
      told += "\x01" + std::to_string(call->index) + call->name + "\x02" + call->arguments;
    } else if (const auto* thought = std::get_if<Thought>(&part)) {
      Require(!thought->text.empty());
      told += "\x03" + thought->text;
    } else {
      Require(!std::get<std::string>(part).empty());
      told += "\x04" + std::get<std::string>(part);
    }
  }
  return told;
}

// In pieces of n bytes.
AnswerParts Read(const ReadingForm& form, std::string_view text, size_t n, bool* whole_calls) {
  AnswerReader reader(form);
  AnswerParts parts;
  for (; text.size() > n; text.remove_prefix(n)) Append(reader.Push(text.substr(0, n)), parts);
  Append(reader.Push(text), parts);
  Append(reader.Finish(), parts);
  *whole_calls = reader.has_whole_calls();
  return parts;
}

void Check(const AnswerParts& parts) {
  int n_calls = 0;
  for (const auto& part : parts) {
    const auto* call = std::get_if<ToolCallPiece>(&part);
    if (call == nullptr) continue;
    Require(call->index == n_calls++ && !call->name.empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kMostBytes = 480;  // a head may have 512
  if (size < 2 || size > kMostBytes) return 0;
  const uint8_t flags = data[1];
  const ToolFormat format = kFormats[data[0] % std::size(kFormats)];
  ReadingForm form;
  if ((flags & 1U) != 0) form.calls = CallsOf(format, (flags & 2U) != 0);
  if (format == ToolFormat::kHarmony) {
    form.channels = {.shown = (flags & 4U) == 0, .apart = (flags & 8U) == 0, .within = (flags & 16U) != 0};
  } else if ((flags & 4U) != 0) {
    form.thinking = {
        .tags = (flags & 8U) != 0 ? longspec::chat::kThinkTags : longspec::chat::kMistralThinkTags,
        .begun = (flags & 16U) != 0,
        .shown = (flags & 32U) == 0};
  }
  // Answers come in whole characters: here each is a byte.
  std::string text(reinterpret_cast<const char*>(data) + 2, size - 2);
  for (char& c : text) c = static_cast<char>(c & 0x7F);
  bool whole = false;
  const AnswerParts parts = Read(form, text, text.size() + 1, &whole);
  Check(parts);
  for (const size_t n : {size_t{1}, size_t{5}}) {
    bool also_whole = false;
    Require(Told(Read(form, text, n, &also_whole)) == Told(parts) && also_whole == whole);
  }
  return 0;
}
