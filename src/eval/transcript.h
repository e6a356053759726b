// SPDX-License-Identifier: Apache-2.0
//
// What the model was asked and what it answered, kept beside an evaluation's cells: lines of
// OUT/prompts.jsonl and OUT/answers.jsonl, each written once however often the evaluation goes on. Prompts
// can be given to other programs as they are; with the answers, which all methods share, drafting can be
// replayed without the model.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "longspec/status.h"

namespace longspec {

class Transcript {
 public:
  // Goes on with what the folder holds; lines cut short do not count.
  explicit Transcript(const std::string& out);

  struct Prompt {
    std::string family;
    int length = 0;  // of the context, in tokens
    std::string id;
  };
  Status AddPrompt(const Prompt& prompt, const std::vector<int32_t>& tokens);
  Status AddAnswer(const Prompt& prompt, double temperature, const std::vector<int32_t>& tokens,
                   const std::string& text);

 private:
  // A file of JSON objects, told apart by their key.
  struct File {
    std::string path;
    std::set<std::string> keys;
  };

  File prompts_, answers_;
};

}  // namespace longspec
