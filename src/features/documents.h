// SPDX-License-Identifier: Apache-2.0
//
// Training text: one JSON object a line, plain or gzip, in any of the forms
//   {"text": "..."}                                    a document; all of it is learned
//   {"prompt": "...", "answer": "..."}                 the answer is learned
//   {"messages": [{"role": "...", "content": "..."}]}  (or "conversation") what the assistant says is learned
// Other keys are ignored. Nothing here knows tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gzip/line_source.h"
#include "longspec/status.h"

namespace longspec {

struct TrainingMessage {
  std::string role, content;
};

// Either a text or messages.
struct TrainingDocument {
  std::string text;
  std::vector<TrainingMessage> messages;
};

// `where` ("file:line") is what errors name.
Result<TrainingDocument> ParseTrainingDocument(const std::string& json, const std::string& where);

// The documents of several files, one after the other.
class DocumentSource {
 public:
  explicit DocumentSource(std::vector<std::string> paths) : paths_(std::move(paths)) {}

  // False at the end of the last file.
  Result<bool> Next(TrainingDocument* document);
  // Passes over a document without looking at it.
  Result<bool> Skip();
  double share_read() const;
  // "file:line" of the last document, for errors.
  std::string Where() const;
  // What is wrong with the last document, and where it stands.
  template <typename T>
  Result<T> Located(Result<T> result) const {
    if (result.ok()) return result;
    return Status(result.status().code(), Where() + ": " + result.status().message());
  }

 private:
  Result<bool> NextLine(std::string* line);

  std::vector<std::string> paths_;
  size_t n_opened_ = 0;
  std::unique_ptr<LineSource> file_;
};

}  // namespace longspec
