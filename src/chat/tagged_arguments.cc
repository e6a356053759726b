// SPDX-License-Identifier: Apache-2.0
#include "chat/tagged_arguments.h"

#include <algorithm>
#include <optional>
#include <variant>

#include "chat/held_text.h"
#include "json/bounded_json.h"
#include "json/json_text.h"

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kOpenArgument = "<parameter=", kCloseArgument = "</parameter>",
                           kEndFunction = "</function>";
constexpr size_t kMostArgumentName = 512;

std::string Quoted(std::string_view text) { return WriteJson(Json(std::string(text))); }

std::string_view WithoutSpace(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kJsonSpace), text.size());
  return text.substr(begin, text.find_last_not_of(kJsonSpace) + 1 - begin);
}

std::string_view WithoutLineBreaks(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// The words that Python has for some values of JSON, which models write too.
std::optional<std::string_view> FromPython(std::string_view word, JsonTypes types) {
  if ((types & kBooleanType) != 0 && word == "True") return "true";
  if ((types & kBooleanType) != 0 && word == "False") return "false";
  if ((types & kNullType) != 0 && word == "None") return "null";
  return std::nullopt;
}

// Where a value ends that is no text: at the first closing tag after which it is JSON, since strings within
// it may hold one, too. npos: not yet.
size_t EndOfJson(std::string_view held, bool all_is_there) {
  const std::string_view value = WithoutSpace(held);
  const bool nested = value.starts_with('{') || value.starts_with('[');
  const size_t first = held.find(kCloseArgument);
  for (size_t at = first; nested && at != std::string_view::npos; at = held.find(kCloseArgument, at + 1)) {
    if (std::holds_alternative<Json>(ReadBoundedJson(held.substr(0, at)))) return at;
  }
  if (!nested || all_is_there ||
      held.find(kEndFunction, std::min(first, held.size())) != std::string_view::npos)
    return first;
  return std::string_view::npos;
}

}  // namespace

std::string TaggedValue(std::string_view text, JsonTypes types) {
  text = WithoutLineBreaks(text);
  if (types == kStringType) return Quoted(text);
  const std::string_view word = WithoutSpace(text);
  if (const auto python = FromPython(word, types)) return std::string(*python);
  const auto parsed = ReadBoundedJson(word);
  const auto* value = std::get_if<Json>(&parsed);
  if (value == nullptr) return Quoted(text);
  // Where text may stand, quotation marks belong to it, and what has a type that is not meant is text.
  const bool may_be_text = (types & kStringType) != 0;
  if (may_be_text && (value->is_string() || (TypeOf(*value) & types) == 0)) return Quoted(text);
  return std::string(word);
}

void TaggedArgumentsReader::Read(bool at_end, std::string* held, std::string* json) {
  while (!ended() && Step(at_end, held, json)) {
  }
}

bool TaggedArgumentsReader::Step(bool at_end, std::string* held, std::string* json) {
  switch (state_) {
    case State::kBetween:
      return ReadBetween(at_end, held, json);
    case State::kName:
      return ReadName(at_end, held, json);
    case State::kText:
      return ReadText(at_end, held, json);
    case State::kJson:
      return ReadJson(at_end, held, json);
    case State::kEnded:
      break;
  }
  return false;
}

void TaggedArgumentsReader::End(std::string* json) {
  *json += any_ ? "}" : "{}";
  state_ = State::kEnded;
}

bool TaggedArgumentsReader::ReadBetween(bool at_end, std::string* held, std::string* json) {
  held->erase(0, std::min(held->find_first_not_of(kJsonSpace), held->size()));
  if (held->starts_with(kOpenArgument)) {
    held->erase(0, kOpenArgument.size());
    state_ = State::kName;
    return true;
  }
  const bool closed = held->starts_with(kEndFunction);
  if (!closed && (kOpenArgument.starts_with(*held) || kEndFunction.starts_with(*held))) {
    if (at_end) held->clear();  // cut short
    return false;
  }
  if (closed) held->erase(0, kEndFunction.size());
  End(json);
  return false;
}

bool TaggedArgumentsReader::ReadName(bool at_end, std::string* held, std::string* json) {
  const size_t end = held->find('>');
  if (end == std::string::npos) {
    if (held->size() > kMostArgumentName) End(json);
    if (at_end) held->clear();  // cut short
    return false;
  }
  const std::string name = held->substr(0, end);
  const Json* schema = parameters_ == nullptr ? nullptr : SchemaOfArgument(*parameters_, name);
  types_ = schema == nullptr ? kAnyType : TypesOf(*schema, *parameters_);
  *json += (any_ ? ", " : "{") + Quoted(name) + ": ";
  held->erase(0, end + 1);
  any_ = true;
  in_value_ = false;
  state_ = types_ == kStringType ? State::kText : State::kJson;
  if (state_ == State::kText) *json += '"';
  return true;
}

// Texts are given out as they come.
bool TaggedArgumentsReader::ReadText(bool at_end, std::string* held, std::string* json) {
  if (held->empty()) return false;
  if (!in_value_ && held->starts_with('\n')) held->erase(0, 1);
  in_value_ = true;
  const size_t close = held->find(kCloseArgument);
  size_t n = close;
  if (close == std::string::npos) n = at_end ? held->size() : held->size() - HeldBack(*held, kCloseArgument);
  std::string_view text = std::string_view(*held).substr(0, n);
  const bool break_last = text.ends_with('\n') && (close != std::string::npos || !at_end);
  if (break_last) text.remove_suffix(1);  // it may be the one before the tag
  const std::string quoted = Quoted(text);
  json->append(quoted, 1, quoted.size() - 2);
  if (close == std::string::npos) {
    held->erase(0, text.size());
    return false;
  }
  held->erase(0, close + kCloseArgument.size());
  *json += '"';
  state_ = State::kBetween;
  return true;
}

bool TaggedArgumentsReader::ReadJson(bool at_end, std::string* held, std::string* json) {
  const size_t close = EndOfJson(*held, at_end);
  if (close == std::string::npos) {
    // Cut short: what there is, as it is.
    if (at_end && !WithoutSpace(*held).empty()) *json += WithoutSpace(*held);
    if (at_end) held->clear();
    return false;
  }
  *json += TaggedValue(std::string_view(*held).substr(0, close), types_);
  held->erase(0, close + kCloseArgument.size());
  state_ = State::kBetween;
  return true;
}

}  // namespace longspec::chat
