// SPDX-License-Identifier: Apache-2.0
#include "chat/tool_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostHeadBytes = 512;  // before the arguments: a name and white space

Column ColumnAfter(Column column, std::string_view text) {
  for (const char c : text) {
    if (c == '\n') {
      column = column == Column::kFresh ? Column::kFresh : Column::kFirst;
    } else if (c == ' ' || c == '\t') {
      column = column == Column::kFirst ? Column::kIndented : column;
    } else {
      column = Column::kWithin;
    }
  }
  return column;
}

}  // namespace

AnswerParts ToolCallReader::Push(std::string_view text) {
  AnswerParts out;
  if (form_ == nullptr) {
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
  Append(Finish(), parts);
  return parts;
}

// One state's work; false when it needs more text.
bool ToolCallReader::Step(bool at_end, AnswerParts& out) {
  switch (state_) {
    case State::kText:
      return ReadText(at_end, out);
    case State::kNextOfList:
      return ReadNext(at_end, out);
    case State::kJson:
      return ReadJson(out);
    case State::kTagged:
      return ReadTagged(at_end, out);
    case State::kTail:
      return ReadTail(at_end);
    case State::kMembers:
      return ReadMembers();
    case State::kListTail:
      return ReadListTail(at_end);
  }
  return false;
}

bool ToolCallReader::ReadText(bool at_end, AnswerParts& out) {
  if (held_.empty() || (after_call_ && !SkipBetweenCalls(at_end))) return false;
  size_t at = 0;
  while (at < held_.size() && MayCall()) {
    at = FindCallHead(held_, at);
    const std::string_view held = held_;
    CallHead head = ReadCallHead(*form_, held.substr(at), ColumnAfter(column_, held.substr(0, at)));
    const bool open = head.outcome == CallHead::kOpenEnded && !at_end && held_.size() - at < kMostHeadBytes;
    if (open || head.outcome == CallHead::kIs) {
      SayHeld(at, out);
      if (open) return false;
      Begin(std::move(head), out);
      return true;
    }
    ++at;
  }
  SayHeld(held_.size(), out);
  return false;
}

// What stands between calls, or after the last one, and says nothing. False: it may go on.
bool ToolCallReader::SkipBetweenCalls(bool at_end) {
  // Some models of the Llama kind part their calls by semicolons.
  const std::string_view between = form_->format == ToolFormat::kLlama3 ? " \n\t\r;" : kJsonSpace;
  while (true) {
    held_.erase(0, std::min(held_.find_first_not_of(between), held_.size()));
    if (held_.empty()) return false;
    if (closers_.empty()) return true;
    const std::string_view closer = closers_.back();
    if (!held_.starts_with(closer)) return at_end || !closer.starts_with(held_);
    held_.erase(0, closer.size());
    closers_.pop_back();
  }
}

// Says the first `n` bytes.
void ToolCallReader::SayHeld(size_t n, AnswerParts& out) {
  if (n == 0) return;
  column_ = ColumnAfter(column_, std::string_view(held_).substr(0, n));
  Say(std::string_view(held_).substr(0, n), out);
  held_.erase(0, n);
  after_call_ = false;
  closers_.clear();
}

void ToolCallReader::Begin(CallHead head, AnswerParts& out) {
  held_.erase(0, head.length);
  in_list_ = head.in_list;
  any_name_ = head.any_name;
  // Those of what is around it are still to come.
  closers_.insert(closers_.end(), head.closers.begin(), head.closers.end());
  if (head.name.empty()) {  // a list of none
    Leave(State::kText, 0);
    return;
  }
  state_ = head.tagged_arguments ? State::kTagged : State::kJson;
  scanner_ = JsonScanner();
  if (head.tagged_arguments) tagged_.emplace(ParametersOf(head.name));
  Call({.index = n_calls_++, .name = std::move(head.name), .arguments = ""}, out);
}

bool ToolCallReader::ReadNext(bool at_end, AnswerParts& out) {
  CallHead head = ReadNextOfList(*form_, held_, any_name_);
  if (head.outcome == CallHead::kOpenEnded && !at_end && held_.size() < kMostHeadBytes) return false;
  if (head.outcome != CallHead::kIs) return Leave(State::kText, 0);
  Begin(std::move(head), out);
  return true;
}

bool ToolCallReader::ReadJson(AnswerParts& out) {
  bool ended = false;
  const size_t n = scanner_.Scan(held_, &ended);
  if (n > 0) Call({.index = n_calls_ - 1, .name = "", .arguments = held_.substr(0, n)}, out);
  const bool more = ended || n < held_.size();
  held_.erase(0, n);
  if (more) state_ = State::kTail;
  return more;
}

bool ToolCallReader::ReadTagged(bool at_end, AnswerParts& out) {
  std::string json;
  tagged_->Read(at_end, &held_, &json);
  if (!json.empty()) Call({.index = n_calls_ - 1, .name = "", .arguments = std::move(json)}, out);
  return tagged_->ended() && Leave(State::kText, 0);
}

// What closes a call after its arguments.
bool ToolCallReader::ReadTail(bool at_end) {
  const size_t at = std::min(held_.find_first_not_of(kJsonSpace), held_.size());
  if (at == held_.size()) return at_end && EndObject(at);
  if (held_[at] == '}') return EndObject(at + 1);
  if (held_[at] == ',') {
    const size_t next = held_.find_first_not_of(kJsonSpace, at + 1);
    if (next == std::string::npos && !at_end) return false;
    if (next != std::string::npos && held_[next] == '"') {
      scanner_ = JsonScanner(1);
      return Leave(State::kMembers, next);
    }
  }
  return EndObject(at);
}

// Members after the arguments, which say nothing.
bool ToolCallReader::ReadMembers() {
  bool ended = false;
  const size_t n = scanner_.Scan(held_, &ended);
  if (ended) return EndObject(n);
  held_.erase(0, n);
  return false;
}

bool ToolCallReader::EndObject(size_t n) { return Leave(in_list_ ? State::kListTail : State::kText, n); }

bool ToolCallReader::ReadListTail(bool at_end) {
  const size_t at = std::min(held_.find_first_not_of(kJsonSpace), held_.size());
  if (at == held_.size() && !at_end) return false;
  if (at < held_.size() && held_[at] == ',') return Leave(State::kNextOfList, at + 1);
  return Leave(State::kText, at < held_.size() && held_[at] == ']' ? at + 1 : at);
}

// Drops the first `n` bytes, and goes on with something else. Always true.
bool ToolCallReader::Leave(State state, size_t n) {
  held_.erase(0, n);
  state_ = state;
  if (state == State::kText) {
    after_call_ = true;
    column_ = Column::kFresh;
  }
  return true;
}

const Json* ToolCallReader::ParametersOf(std::string_view name) const {
  const auto tool = std::ranges::find_if(form_->tools, [&](const Tool& t) { return t.name == name; });
  return tool == form_->tools.end() ? nullptr : &tool->parameters;
}

}  // namespace longspec::chat
