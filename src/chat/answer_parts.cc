// SPDX-License-Identifier: Apache-2.0
#include "chat/answer_parts.h"

#include <utility>

namespace longspec::chat {
namespace {

// The last part, if it is of this kind.
template <typename Part>
Part* LastAs(AnswerParts& parts) {
  return parts.empty() ? nullptr : std::get_if<Part>(&parts.back());
}

}  // namespace

void Say(std::string_view text, AnswerParts& parts) {
  if (text.empty()) return;
  if (LastAs<std::string>(parts) == nullptr) parts.emplace_back(std::string());
  *LastAs<std::string>(parts) += text;
}

void Think(std::string_view text, AnswerParts& parts) {
  if (text.empty()) return;
  if (LastAs<Thought>(parts) == nullptr) parts.emplace_back(Thought());
  LastAs<Thought>(parts)->text += text;
}

void Call(ToolCallPiece piece, AnswerParts& parts) {
  auto* last = LastAs<ToolCallPiece>(parts);
  if (last != nullptr && last->index == piece.index) {
    last->arguments += piece.arguments;
  } else {
    parts.emplace_back(std::move(piece));
  }
}

void Append(AnswerParts more, AnswerParts& parts) {
  for (auto& part : more) {
    if (auto* call = std::get_if<ToolCallPiece>(&part)) {
      Call(std::move(*call), parts);
    } else if (const auto* thought = std::get_if<Thought>(&part)) {
      Think(thought->text, parts);
    } else {
      Say(std::get<std::string>(part), parts);
    }
  }
}

}  // namespace longspec::chat
