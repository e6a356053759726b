// SPDX-License-Identifier: Apache-2.0
#include "features/documents.h"

#include <nlohmann/json.hpp>

#include "base/status_macros.h"

namespace longspec {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;

Result<std::string> Text(const Json& object, const char* key, const std::string& where) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) return Corrupt(where + ": \"" + key + "\" must be a string");
  return it->get<std::string>();
}

Result<std::vector<TrainingMessage>> Messages(const Json& list, const std::string& where) {
  if (!list.is_array() || list.empty()) {
    return Corrupt(where + ": the messages must be a list that is not empty");
  }
  std::vector<TrainingMessage> messages;
  for (const Json& entry : list) {
    if (!entry.is_object()) {
      return Corrupt(where + ": a message must be an object with \"role\" and \"content\"");
    }
    LS_ASSIGN(std::string role, Text(entry, "role", where));
    LS_ASSIGN(std::string content, Text(entry, "content", where));
    messages.push_back({std::move(role), std::move(content)});
  }
  return messages;
}

}  // namespace

Result<TrainingDocument> ParseTrainingDocument(const std::string& line, const std::string& where) {
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) { return !(too_deep |= depth > kMaxDepth); };
  const Json json = Json::parse(line, watch, /*allow_exceptions=*/false);
  if (too_deep || json.is_discarded() || !json.is_object()) return Corrupt(where + ": not a JSON object");
  TrainingDocument document;
  for (const char* key : {"messages", "conversation"}) {
    if (!json.contains(key)) continue;
    LS_ASSIGN(document.messages, Messages(json[key], where));
    return document;
  }
  if (json.contains("prompt") && json.contains("answer")) {
    LS_ASSIGN(std::string prompt, Text(json, "prompt", where));
    LS_ASSIGN(std::string answer, Text(json, "answer", where));
    document.messages = {{"user", std::move(prompt)}, {"assistant", std::move(answer)}};
    return document;
  }
  if (json.contains("prompt") && !json.contains("text")) {
    LS_ASSIGN(std::string prompt, Text(json, "prompt", where));
    document.messages = {{"user", std::move(prompt)}};
    return document;
  }
  if (!json.contains("text")) {
    return Corrupt(where + ": expected \"text\", \"prompt\" and \"answer\", or \"messages\"");
  }
  LS_ASSIGN(document.text, Text(json, "text", where));
  return document;
}

Result<bool> DocumentSource::NextLine(std::string* line) {
  while (true) {
    if (file_ != nullptr) {
      LS_ASSIGN(const bool more, file_->Next(line));
      if (more) return true;
      file_.reset();
    }
    if (n_opened_ == paths_.size()) return false;
    LS_ASSIGN(file_, OpenLines(paths_[n_opened_++]));
  }
}

Result<bool> DocumentSource::Next(TrainingDocument* document) {
  std::string line;
  LS_ASSIGN(const bool more, NextLine(&line));
  if (!more) return false;
  LS_ASSIGN(*document, ParseTrainingDocument(line, Where()));
  return true;
}

std::string DocumentSource::Where() const {
  if (n_opened_ == 0) return {};
  return paths_[n_opened_ - 1] + (file_ == nullptr ? "" : ":" + std::to_string(file_->line_number()));
}

Result<bool> DocumentSource::Skip() {
  std::string line;
  return NextLine(&line);
}

double DocumentSource::share_read() const {
  if (paths_.empty()) return 1.0;
  const double unread = file_ == nullptr ? 0.0 : 1.0 - file_->share_read();
  return (static_cast<double>(n_opened_) - unread) / static_cast<double>(paths_.size());
}

}  // namespace longspec
