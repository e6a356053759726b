// SPDX-License-Identifier: Apache-2.0
#include "chat/channels.h"

#include <algorithm>
#include <utility>

namespace longspec::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostHeaderBytes = 512;
constexpr std::string_view kTo = "to=", kAssistant = "assistant";
// What a header may begin with, where it begins the answer.
constexpr std::string_view kHeaderBegins[] = {kStartMark,     kChannelMark, kMessageMark,
                                              kConstrainMark, " to=",       kTo};
// What ends a message. The last two end the answer, too, and are no text unless a vocabulary has them wrong.
constexpr std::string_view kBodyEnds[] = {kEndMark, kStartMark, "<|call|>", "<|return|>"};

// From `begin` to a space or a mark.
std::string_view WordAt(std::string_view text, size_t begin) {
  text.remove_prefix(std::min(begin, text.size()));
  return text.substr(0, std::min(text.find_first_of(" \n\t<"), text.size()));
}

// Behind the last mark of the kind: gpt-oss at times names a channel and then another one.
std::string_view WordAfter(std::string_view text, std::string_view mark) {
  const size_t at = text.rfind(mark);
  return at == std::string_view::npos ? std::string_view() : WordAt(text, at + mark.size());
}

// Whether one of `marks` begins `text`, or may once there is more of it.
enum class Begins : uint8_t { kNo, kMaybe, kYes };
template <size_t n>
Begins BeginsWith(std::string_view text, const std::string_view (&marks)[n]) {
  Begins begins = Begins::kNo;
  for (const std::string_view mark : marks) {
    if (text.starts_with(mark)) return Begins::kYes;
    if (mark.starts_with(text)) begins = Begins::kMaybe;
  }
  return begins;
}

Json Const(std::string text) { return {{"type", "const_string"}, {"value", std::move(text)}}; }

}  // namespace

bool ShowsChannels(std::string_view chat_template) {
  return std::ranges::all_of(
      std::initializer_list<std::string_view>{kStartMark, kChannelMark, kMessageMark},
      [&](std::string_view mark) { return chat_template.find(mark) != std::string_view::npos; });
}

std::string WithEmptyAnalysis(std::string prompt) {
  for (const std::string_view part :
       {kChannelMark, kAnalysis, kMessageMark, kEndMark, kStartMark, kAssistant})
    prompt += part;
  return prompt;
}

Json InFinal(Json said) {
  const Json header = {
      {"type", "regex"},
      {"pattern", "<\\|channel\\|>final( ?(<\\|constrain\\|>)?[A-Za-z0-9_-]+)?<\\|message\\|>"}};
  return {{"type", "sequence"}, {"elements", {header, std::move(said)}}};
}

Json AnalysisThen(Json message) {
  const std::string header = std::string(kChannelMark) + std::string(kAnalysis) + std::string(kMessageMark);
  const Json thought = {{"type", "tag"},
                        {"begin", header},
                        {"content", {{"type", "any_text"}}},
                        {"end", std::string(kEndMark)}};
  const Json next = Const(std::string(kStartMark) + std::string(kAssistant));
  const Json before = {{"type", "star"}, {"content", {{"type", "sequence"}, {"elements", {thought, next}}}}};
  return {{"type", "sequence"}, {"elements", {before, std::move(message)}}};
}

ChannelReader::ChannelReader(const ChannelForm& form, std::shared_ptr<const CallForm> calls)
    : form_(form), calls_(std::move(calls)), state_(form.within ? State::kBody : State::kStart) {}

AnswerParts ChannelReader::Push(std::string_view text) {
  AnswerParts out;
  held_ += text;
  while (Step(false, out)) {
  }
  return out;
}

AnswerParts ChannelReader::Finish() {
  AnswerParts out;
  while (Step(true, out)) {
  }
  return out;
}

// One state's work; false when it needs more text.
bool ChannelReader::Step(bool at_end, AnswerParts& out) {
  switch (state_) {
    case State::kStart:
      return ReadStart(at_end);
    case State::kHeader:
      return ReadHeader(at_end, out);
    case State::kBody:
      return ReadBody(at_end, out);
    case State::kBetween:
      return ReadBetween(at_end);
  }
  return false;
}

// What does not begin with a header is said.
bool ChannelReader::ReadStart(bool at_end) {
  const Begins begins = BeginsWith(held_, kHeaderBegins);
  if (held_.empty() || (begins == Begins::kMaybe && !at_end)) return false;
  state_ = begins == Begins::kYes ? State::kHeader : State::kBody;
  kind_ = Kind::kSaid;
  at_start_ = true;
  if (held_.starts_with(kStartMark)) held_.erase(0, kStartMark.size());
  return true;
}

bool ChannelReader::ReadHeader(bool at_end, AnswerParts& out) {
  const size_t end = held_.find(kMessageMark);
  if (end <= kMostHeaderBytes) {
    const std::string header = held_.substr(0, end);
    held_.erase(0, end + kMessageMark.size());
    BeginBody(header, out);
    state_ = State::kBody;
    return true;
  }
  if (held_.size() > kMostHeaderBytes + kMessageMark.size()) {  // it is none
    BeginBody("", out);
    state_ = State::kBody;
    return true;
  }
  if (at_end) held_.clear();  // cut short, it says nothing
  return false;
}

void ChannelReader::BeginBody(std::string_view header, AnswerParts& out) {
  at_start_ = true;
  kind_ = Kind::kSaid;
  is_verbatim_ = false;
  if (std::string name = CalledBy(header); !name.empty()) {
    kind_ = Kind::kCall;
    scanner_ = JsonScanner();
    arguments_ended_ = arguments_over_ = false;
    Call({.index = n_calls_++, .name = std::move(name), .arguments = ""}, out);
    return;
  }
  if (WordAfter(header, kChannelMark) != kAnalysis) return;
  if (form_.apart) {
    kind_ = Kind::kThought;
    return;
  }
  is_verbatim_ = true;
  Take(std::string(kChannelMark) + std::string(kAnalysis) + std::string(kMessageMark), false, out);
}

// The function that a message of this header calls; empty: none that is offered. Of a strict one only those
// are calls that the grammar holds to its schema, which knows them by the mark that begins them.
std::string ChannelReader::CalledBy(std::string_view header) const {
  if (calls_ == nullptr || (!calls_->parallel && n_calls_ > 0)) return {};
  const std::string_view recipient = WordAfter(header, kTo);
  if (!recipient.starts_with(kFunctions)) return {};
  const std::string name(recipient.substr(kFunctions.size()));
  if (!IsToolName(name)) return {};
  const Tool* const tool = calls_->Find(name);
  const std::string in_commentary = std::string(kChannelMark) + std::string(kCommentary) + " ";
  const bool is_held = header.find(in_commentary + std::string(kTo)) != std::string_view::npos ||
                       header.starts_with(std::string(kAssistant) + " " + std::string(kTo));
  return tool != nullptr && tool->strict && !is_held ? std::string() : name;
}

bool ChannelReader::ReadBody(bool at_end, AnswerParts& out) {
  size_t end = std::string::npos, n_mark = 0, n_held_back = 0;
  for (const std::string_view mark : kBodyEnds) {
    const size_t at = held_.find(mark);
    if (at < end) {
      end = at;
      n_mark = mark == kStartMark ? 0 : mark.size();  // the next message's
    }
    n_held_back = std::max(n_held_back, HeldBack(held_, mark));
  }
  const bool ended = end != std::string::npos;
  const size_t n = ended ? end : held_.size() - (at_end ? 0 : n_held_back);
  Take(std::string_view(held_).substr(0, n), ended || at_end, out);
  if (ended && is_verbatim_) Take(kEndMark, true, out);
  held_.erase(0, n + n_mark);
  if (ended) state_ = State::kBetween;
  return ended;
}

void ChannelReader::Take(std::string_view words, bool ended, AnswerParts& out) {
  switch (kind_) {
    case Kind::kSaid:
      return TakeSaid(words, out);
    case Kind::kThought:
      return TakeThought(words, ended, out);
    case Kind::kCall:
      return TakeArguments(words, ended, out);
  }
}

// Several messages are lines.
void ChannelReader::TakeSaid(std::string_view words, AnswerParts& out) {
  if (words.empty()) return;
  if (std::exchange(at_start_, false) && std::exchange(has_said_, true)) Say("\n", out);
  Say(words, out);
}

// Without the white space around it. Several are lines.
void ChannelReader::TakeThought(std::string_view words, bool ended, AnswerParts& out) {
  if (at_start_) words.remove_prefix(std::min(words.find_first_not_of(kJsonSpace), words.size()));
  const std::string_view text = words.substr(0, words.find_last_not_of(kJsonSpace) + 1);
  if (!text.empty()) {
    const bool is_next = std::exchange(at_start_, false) && std::exchange(has_thought_, true);
    if (form_.shown)
      Think((is_next ? "\n" : "") + std::exchange(spaces_, std::string()) + std::string(text), out);
  }
  spaces_ = ended || at_start_ ? std::string() : spaces_ + std::string(words.substr(text.size()));
}

void ChannelReader::TakeArguments(std::string_view words, bool ended, AnswerParts& out) {
  const auto give = [&](std::string_view text) {
    Call({.index = n_calls_ - 1, .name = "", .arguments = std::string(text)}, out);
  };
  if (at_start_) words.remove_prefix(std::min(words.find_first_not_of(kJsonSpace), words.size()));
  if (!words.empty() && !arguments_over_) {
    at_start_ = false;
    const size_t n = scanner_.Scan(words, &arguments_ended_);
    arguments_over_ = arguments_ended_ || n < words.size();
    give(words.substr(0, n));
  }
  if (ended && at_start_) {  // it has none
    at_start_ = false;
    arguments_ended_ = true;
    give("{}");
  }
}

bool ChannelReader::ReadBetween(bool at_end) {
  held_.erase(0, std::min(held_.find_first_not_of(kJsonSpace), held_.size()));
  return !held_.empty() && ReadStart(at_end);
}

}  // namespace longspec::chat
