// SPDX-License-Identifier: Apache-2.0
#include "chat/call_heads.h"

#include <algorithm>
#include <optional>

#include "chat/held_text.h"
#include "chat/mistral_calls.h"
#include "chat/untagged_calls.h"

namespace longspec::chat {
namespace {

constexpr std::string_view kTag = "<tool_call>", kFunction = "<function=", kFence = "```";

// What models put around calls that were not asked for in that way.
struct Wrapper {
  std::string_view open, close;
};
constexpr Wrapper kWrappers[] = {{"<tools>", "</tools>"}, {"<function_call>", "</function_call>"}};
// What a fence may say that it holds.
constexpr std::string_view kLanguages[] = {"json", "JSON", "tool_call", "xml"};

// Reads along a text that may end anywhere: what is expected is there, is not, or cannot be told yet (open_).
class Parser {
 public:
  Parser(const CallForm& form, std::string_view text) : form_(form), text_(text) {}

  CallHead Fenced() { return Done(Take(kFence) && TakeLanguage() && Close(kFence) && Call()); }
  CallHead Wrapped(const Wrapper& wrapper) {
    return Done(Take(wrapper.open) && Close(wrapper.close) && Call());
  }
  CallHead Tagged() { return Done(TakeTag() && Call()); }
  CallHead Plain() { return Done(Call()); }
  CallHead NextOfList(bool any_name) {
    head_.in_list = true;
    head_.any_name = any_name;
    return Done(Object());
  }

 private:
  // With or without a tag.
  bool Call() {
    SkipSpace();
    if (!head_.any_name && TakeTag()) SkipSpace();
    if (open_) return false;
    if (at_ == text_.size()) return Open();
    if (text_[at_] == '[') return List();
    if (text_[at_] == '{') return Object();
    return head_.any_name && IsMistrals(form_.format) ? Named() : Function();
  }

  bool TakeTag() {
    const bool is_mistrals = IsMistrals(form_.format);
    head_.any_name = Take(is_mistrals ? kMistralCalls : kTag);
    return head_.any_name && (is_mistrals || Close("</tool_call>"));
  }

  bool List() {
    ++at_;
    head_.in_list = true;
    if (head_.any_name && TakeAfterSpace("]")) {
      head_.in_list = false;
      return true;
    }
    return !open_ && Object();
  }

  bool Object() {
    if (!TakeAfterSpace("{")) return false;
    const size_t begin = at_ - 1;
    while (true) {
      std::string key, value;
      if (!TakeKey(&key)) return false;
      if (key == "arguments" || key == "parameters") {
        return !head_.name.empty() && BeginsArguments() && MayBegin(text_.substr(begin, at_ - begin));
      }
      if (!TakeString(&value, key == "name") || !TakeAfterSpace(",")) return false;
      if (key == "name") head_.name = std::move(value);
    }
  }

  bool Function() {
    const size_t begin = at_;
    if (!Take(kFunction)) return false;
    const size_t end = text_.find('>', at_);
    const std::string_view name = text_.substr(at_, std::min(end, text_.size()) - at_);
    if (!MayBeName(name, end != std::string_view::npos)) return false;
    if (end == std::string_view::npos) return Open();
    head_.name = name;
    head_.tagged_arguments = true;
    at_ = end + 1;
    return !MustBeHeld() || (Take("\n") && MayBegin(text_.substr(begin, at_ - begin)));
  }

  // f[ARGS] or f[CALL_ID]id[ARGS]
  bool Named() {
    const std::string_view rest = text_.substr(at_);
    const size_t end = std::min(rest.find('['), rest.size());
    head_.name = rest.substr(0, end);
    if (!IsToolName(head_.name)) return false;
    at_ += end;
    if (Take(kMistralId)) at_ = std::min(text_.find('[', at_), text_.size());
    return !open_ && Take(kMistralArguments) && BeginsObject();
  }

  // A strict function's calls are what the grammar holds to its schema.
  bool MayBegin(std::string_view begin) const {
    return !MustBeHeld() || IsHeldBegin(form_, *ToolOfName(), begin);
  }
  bool MustBeHeld() const {
    const Tool* const tool = ToolOfName();
    return tool != nullptr && tool->strict && (!head_.any_name || form_.format == ToolFormat::kLlama3);
  }
  const Tool* ToolOfName() const {
    const auto at = std::ranges::find(form_.tools, head_.name, &Tool::name);
    return at == form_.tools.end() ? nullptr : &*at;
  }

  // A member before the arguments, and the colon.
  bool TakeKey(std::string* key) {
    if (!TakeAfterSpace("\"")) return false;
    const size_t end = text_.find('"', at_);
    const std::string_view name = text_.substr(at_, std::min(end, text_.size()) - at_);
    constexpr std::string_view kKeys[] = {"name", "arguments", "parameters", "type", "id"};
    const bool may_be = std::ranges::any_of(kKeys, [&](std::string_view known) {
      return end == std::string_view::npos ? known.starts_with(name) : known == name;
    });
    if (!may_be) return false;
    if (end == std::string_view::npos) return Open();
    *key = name;
    at_ = end + 1;
    return TakeAfterSpace(":");
  }

  // Names have no escapes, and other strings here neither.
  bool TakeString(std::string* value, bool is_name) {
    if (!TakeAfterSpace("\"")) return false;
    const size_t end = text_.find('"', at_);
    const std::string_view text = text_.substr(at_, std::min(end, text_.size()) - at_);
    if (is_name && !MayBeName(text, end != std::string_view::npos)) return false;
    if (end == std::string_view::npos) return Open();
    *value = text;
    at_ = end + 1;
    return true;
  }

  // Without a tag they are an object.
  bool BeginsArguments() { return BeginsObject() || (!open_ && head_.any_name); }

  bool BeginsObject() {
    SkipSpace();
    if (at_ == text_.size()) return Open();
    return text_[at_] == '{';
  }

  bool MayBeName(std::string_view name, bool whole) const {
    if (head_.any_name) return !whole || !name.empty();
    return std::ranges::any_of(form_.tools, [&](const Tool& tool) {
      return whole ? tool.name == name : tool.name.starts_with(name);
    });
  }

  bool TakeLanguage() {
    for (const std::string_view language : kLanguages) {
      if (Take(language)) break;
      if (open_) return false;
    }
    if (at_ == text_.size()) return Open();
    return kJsonSpace.find(text_[at_]) != std::string_view::npos;
  }

  bool TakeAfterSpace(std::string_view wanted) {
    SkipSpace();
    return Take(wanted);
  }

  bool Take(std::string_view wanted) {
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with(wanted)) {
      at_ += wanted.size();
      return true;
    }
    return wanted.starts_with(rest) && Open();
  }

  bool Close(std::string_view closer) {
    head_.closers.push_back(closer);
    return true;
  }

  void SkipSpace() { at_ = std::min(text_.find_first_not_of(kJsonSpace, at_), text_.size()); }

  // Always false.
  bool Open() {
    open_ = true;
    return false;
  }

  CallHead Done(bool is) {
    if (!is) return {.outcome = open_ ? CallHead::kOpenEnded : CallHead::kIsNot};
    head_.outcome = CallHead::kIs;
    head_.length = at_;
    return std::move(head_);
  }

  const CallForm& form_;
  std::string_view text_;
  size_t at_ = 0;
  bool open_ = false;
  CallHead head_;
};

}  // namespace

CallHead ReadCallHead(const CallForm& form, std::string_view text, Column column) {
  CallHead open;
  const auto settles = [&](CallHead& head) {
    if (head.outcome == CallHead::kOpenEnded) open = head;
    return head.outcome == CallHead::kIs;
  };
  if (CallHead head = Parser(form, text).Tagged(); settles(head)) return head;
  const bool begins_line = column != Column::kWithin;
  if (begins_line && form.takes_untagged) {
    if (CallHead head = Parser(form, text).Fenced(); settles(head)) return head;
    for (const Wrapper& wrapper : kWrappers) {
      if (CallHead head = Parser(form, text).Wrapped(wrapper); settles(head)) return head;
    }
  }
  // Within a line or an indented block, JSON is part of something else; what Llama 3 writes is a call.
  const bool may_be_json =
      column == Column::kFresh || column == Column::kFirst || form.format == ToolFormat::kLlama3;
  const bool is_shown = form.takes_untagged || form.format == ToolFormat::kLlama3;
  if (is_shown && (text.starts_with('<') ? begins_line : may_be_json)) {
    if (CallHead head = Parser(form, text).Plain(); settles(head)) return head;
  }
  return open;
}

CallHead ReadNextOfList(const CallForm& form, std::string_view text, bool any_name) {
  return Parser(form, text).NextOfList(any_name);
}

size_t FindCallHead(std::string_view text, size_t from) {
  return std::min(text.find_first_of("<{[`", from), text.size());
}

}  // namespace longspec::chat
