// SPDX-License-Identifier: Apache-2.0
#include "openai/tool_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace longspec::openai {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kObject = "{\"name\":";
constexpr std::string_view kWhiteSpace = " \n\t\r";
constexpr size_t kMostHeadBytes = 512;  // before the arguments: a name and white space

// How much of the end of `text` may be the beginning of `wanted`.
size_t HeldBack(std::string_view text, std::string_view wanted) {
  for (size_t n = std::min(text.size(), wanted.size() - 1); n > 0; --n) {
    if (wanted.starts_with(text.substr(text.size() - n))) return n;
  }
  return 0;
}

// Reads along a text that may not be whole yet.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  void SkipSpace() { at_ = std::min(text_.find_first_not_of(kWhiteSpace, at_), text_.size()); }
  bool AtEnd() const { return at_ == text_.size(); }
  size_t at() const { return at_; }

  // After white space. Nothing: the text ends before that is known.
  std::optional<bool> Take(std::string_view wanted) {
    SkipSpace();
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with(wanted)) {
      at_ += wanted.size();
      return true;
    }
    if (wanted.starts_with(rest)) return std::nullopt;
    return false;
  }

  // Up to the next quotation mark; names have no escapes.
  std::optional<std::string> TakeName() {
    const size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) return std::nullopt;
    std::string name(text_.substr(at_, end - at_));
    at_ = end + 1;
    return name;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

struct Head {
  enum Outcome : uint8_t { kIs, kIsNot, kOpenEnded } outcome = kIsNot;
  std::string name;
  size_t length = 0;
  bool list = false;
  bool empty_list = false;
};

// {"name": "f", "arguments": and what may stand before it.
Head ReadHeadOf(std::string_view text, bool tag, bool list_goes_on) {
  Cursor cursor(text);
  Head head{.list = list_goes_on};
  const auto expect = [&](std::string_view wanted) {
    const auto taken = cursor.Take(wanted);
    if (!taken) head.outcome = Head::kOpenEnded;
    return taken.value_or(false);
  };
  if (tag && !list_goes_on) {
    const auto bracket = cursor.Take("[");
    if (!bracket) return {.outcome = Head::kOpenEnded};
    head.list = *bracket;
    if (head.list) {
      const auto closed = cursor.Take("]");
      if (!closed) return {.outcome = Head::kOpenEnded};
      if (*closed) return {.outcome = Head::kIs, .length = cursor.at(), .list = true, .empty_list = true};
    }
  }
  if (!expect("{") || !expect("\"name\"") || !expect(":") || !expect("\"")) return head;
  const auto name = cursor.TakeName();
  if (!name) return {.outcome = Head::kOpenEnded};
  head.name = *name;
  if (!expect(",")) return head;
  const auto arguments = cursor.Take("\"arguments\"");
  if (!arguments) return {.outcome = Head::kOpenEnded};
  if (!*arguments && !expect("\"parameters\"")) return head;
  if (!expect(":")) return head;
  cursor.SkipSpace();
  if (cursor.AtEnd()) return {.outcome = Head::kOpenEnded};
  head.outcome = Head::kIs;
  head.length = cursor.at();
  return head;
}

void Say(std::string_view text, AnswerParts& out) {
  if (text.empty()) return;
  if (out.empty() || !std::holds_alternative<std::string>(out.back())) out.emplace_back(std::string());
  std::get<std::string>(out.back()) += text;
}

void Call(ToolCallPiece piece, AnswerParts& out) {
  auto* last = out.empty() ? nullptr : std::get_if<ToolCallPiece>(&out.back());
  if (last != nullptr && last->index == piece.index) {
    last->arguments += piece.arguments;
  } else {
    out.emplace_back(std::move(piece));
  }
}

}  // namespace

std::string_view ToolCallReader::Trigger() const { return format_ == ToolFormat::kLlama3 ? kObject : kOpen; }

AnswerParts ToolCallReader::Push(std::string_view text) {
  AnswerParts out;
  if (!format_) {
    Say(text, out);
    return out;
  }
  held_ += text;
  while (Step(false, out)) {
  }
  return out;
}

AnswerParts ToolCallReader::Finish() {
  AnswerParts out;
  while (Step(true, out)) {
  }
  return out;
}

AnswerParts ToolCallReader::ReadWhole(std::string_view text) {
  AnswerParts parts = Push(text);
  for (auto& part : Finish()) {
    if (auto* call = std::get_if<ToolCallPiece>(&part)) {
      Call(std::move(*call), parts);
    } else {
      Say(std::get<std::string>(part), parts);
    }
  }
  return parts;
}

// One state's work; false when it needs more text.
bool ToolCallReader::Step(bool at_end, AnswerParts& out) {
  switch (state_) {
    case State::kText:
      return ReadText(at_end, out);
    case State::kHead:
      return ReadHead(at_end, out);
    case State::kArguments:
      return ReadArguments(out);
    case State::kTail:
      return ReadTail(at_end);
  }
  return false;
}

bool ToolCallReader::ReadText(bool at_end, AnswerParts& out) {
  if (after_call_) {
    // Some models of the Llama kind part their calls by semicolons.
    const std::string_view between = format_ == ToolFormat::kLlama3 ? " \n\t\r;" : kWhiteSpace;
    held_.erase(0, std::min(held_.find_first_not_of(between), held_.size()));
    if (held_.empty()) return false;
  }
  const size_t trigger = held_.find(Trigger());
  const size_t n = trigger != std::string::npos ? trigger
                   : at_end                     ? held_.size()
                                                : held_.size() - HeldBack(held_, Trigger());
  Say(std::string_view(held_).substr(0, n), out);
  after_call_ = after_call_ && n == 0;
  held_.erase(0, n);
  if (trigger == std::string::npos) return false;
  state_ = State::kHead;
  return true;
}

// held_ begins with the trigger, or with what separates calls of a list.
bool ToolCallReader::ReadHead(bool at_end, AnswerParts& out) {
  const bool tag = format_ != ToolFormat::kLlama3;
  const size_t before = tag && !in_list_ ? kOpen.size() : 0;
  Head head = ReadHeadOf(std::string_view(held_).substr(before), tag, in_list_);
  if (head.outcome == Head::kOpenEnded && !at_end && held_.size() < kMostHeadBytes) return false;
  if (head.outcome != Head::kIs) {  // it only looked like one
    const size_t n = std::max<size_t>(before, 1);
    Say(std::string_view(held_).substr(0, n), out);
    held_.erase(0, n);
    in_list_ = false;
    after_call_ = false;
    state_ = State::kText;
    return !held_.empty();
  }
  held_.erase(0, before + head.length);
  in_list_ = head.list;
  depth_ = 0;
  in_string_ = escaped_ = false;
  if (head.empty_list) {
    in_list_ = false;
    state_ = State::kTail;
    return true;
  }
  Call({.index = n_calls_++, .name = std::move(head.name), .arguments = ""}, out);
  state_ = State::kArguments;
  return true;
}

bool ToolCallReader::ReadArguments(AnswerParts& out) {
  size_t n = 0;
  bool ended = false;
  while (n < held_.size() && !ended) {
    const char c = held_[n];
    if (in_string_) {
      if (!escaped_ && c == '"') in_string_ = false;
      escaped_ = !escaped_ && c == '\\';
    } else {
      if (c == '}' && depth_ == 0) break;  // arguments that were no object
      in_string_ = c == '"';
      if (c == '{' || c == '[') ++depth_;
      if (c == '}' || c == ']') ended = --depth_ <= 0;
    }
    ++n;
  }
  if (n > 0) Call({.index = n_calls_ - 1, .name = "", .arguments = held_.substr(0, n)}, out);
  const bool more = ended || n < held_.size();
  held_.erase(0, n);
  if (more) state_ = State::kTail;
  return more;
}

// What closes a call, a list and a tag.
bool ToolCallReader::ReadTail(bool at_end) {
  Cursor cursor(held_);
  const auto leave = [&](State state, size_t n) {
    held_.erase(0, n);
    state_ = state;
    after_call_ = state == State::kText;
    if (after_call_) in_list_ = false;
    return true;
  };
  const auto brace = cursor.Take("}");
  if (!brace && !at_end) return false;
  if (format_ == ToolFormat::kLlama3) return leave(State::kText, cursor.at());
  if (in_list_) {
    const auto comma = cursor.Take(",");
    if (!comma && !at_end) return false;
    if (comma.value_or(false)) return leave(State::kHead, cursor.at());
    const auto bracket = cursor.Take("]");
    if (!bracket && !at_end) return false;
  }
  const auto close = cursor.Take(kClose);
  if (!close && !at_end) return false;
  return leave(State::kText, cursor.at());
}

Json ToolCallDeltaJson(const ToolCallPiece& piece, const std::string& id, int choice) {
  Json json = {{"index", piece.index}};
  if (!piece.name.empty()) {
    json["id"] =
        "call_" + id + (choice == 0 ? "" : "_" + std::to_string(choice)) + "_" + std::to_string(piece.index);
    json["type"] = "function";
    json["function"] = {{"name", piece.name}};
  }
  json["function"]["arguments"] = piece.arguments;
  return json;
}

void MoveToolCalls(ToolFormat format, const std::string& id, Json* response) {
  for (Json& choice : (*response)["choices"]) {
    Json& message = choice["message"];
    if (!message["content"].is_string()) continue;
    std::string content;
    Json calls = Json::array();
    ToolCallReader reader(format);
    for (const auto& part : reader.ReadWhole(message["content"].get_ref<const std::string&>())) {
      if (const auto* call = std::get_if<ToolCallPiece>(&part)) {
        calls.push_back(ToolCallDeltaJson(*call, id, choice["index"].get<int>()));
        calls.back().erase("index");
      } else {
        content += std::get<std::string>(part);
      }
    }
    message["content"] = content.empty() && !calls.empty() ? Json(nullptr) : Json(content);
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    if (reader.has_whole_calls() && choice["finish_reason"] == "stop") choice["finish_reason"] = "tool_calls";
  }
}

}  // namespace longspec::openai
