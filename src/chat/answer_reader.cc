// SPDX-License-Identifier: Apache-2.0
#include "chat/answer_reader.h"

#include <utility>

namespace longspec::chat {

AnswerReader::AnswerReader(const ReadingForm& form)
    : thinking_(form.thinking), calls_(form.calls), shows_thoughts_(!form.thinking || form.thinking->shown) {
  if (form.channels) channels_.emplace(*form.channels, form.calls);
}

AnswerParts AnswerReader::Push(std::string_view text) {
  if (channels_) return channels_->Push(text);
  ThinkingReader::Parts parts = thinking_.Push(text);
  AnswerParts said = calls_.Push(parts.text);
  return Parts(std::move(parts), std::move(said));
}

AnswerParts AnswerReader::Finish() {
  if (channels_) return channels_->Finish();
  ThinkingReader::Parts parts = thinking_.Finish();
  AnswerParts said = calls_.Push(parts.text);
  Append(calls_.Finish(), said);
  return Parts(std::move(parts), std::move(said));
}

AnswerParts AnswerReader::ReadWhole(std::string_view text) {
  AnswerParts parts = Push(text);
  Append(Finish(), parts);
  return parts;
}

std::string ContentOf(const Dialect& dialect, const std::string& text) {
  if (!dialect.has_channels()) return text;
  std::string said;
  for (const auto& part : AnswerReader({.channels = ChannelForm()}).ReadWhole(text)) {
    if (const auto* words = std::get_if<std::string>(&part)) said += *words;
  }
  return said;
}

AnswerParts AnswerReader::Parts(ThinkingReader::Parts parts, AnswerParts said) const {
  if (!parts.thought.empty() && shows_thoughts_) said.insert(said.begin(), Thought{std::move(parts.thought)});
  return said;
}

}  // namespace longspec::chat
