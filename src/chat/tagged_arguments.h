// SPDX-License-Identifier: Apache-2.0
//
// Arguments of a call that are written one by one between tags, as Qwen 3 Coder and Qwen 3.5 do:
//
//   <parameter=city>
//   Bonn
//   </parameter>
//   </function>
//
// They are read as they come and become the JSON that other models write, by the types that the function's
// schema gives them: texts stand there as they are, all else as JSON. Not thread-safe.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "chat/json_types.h"

namespace longspec::chat {

// `text` between the tags, without the line breaks beside them, as JSON of one of the types; text where it is
// none of them.
std::string TaggedValue(std::string_view text, JsonTypes types);

class TaggedArgumentsReader {
 public:
  // `parameters`, the arguments' schema, is borrowed; null: it is not known.
  explicit TaggedArgumentsReader(const nlohmann::ordered_json* parameters) : parameters_(parameters) {}

  // Takes from the beginning of *held what can be read, and appends to *json what that says. Text that is no
  // argument ends them.
  void Read(bool at_end, std::string* held, std::string* json);
  bool ended() const { return state_ == State::kEnded; }

 private:
  enum class State : uint8_t { kBetween, kName, kText, kJson, kEnded };

  bool Step(bool at_end, std::string* held, std::string* json);
  bool ReadBetween(bool at_end, std::string* held, std::string* json);
  bool ReadName(bool at_end, std::string* held, std::string* json);
  bool ReadText(bool at_end, std::string* held, std::string* json);
  bool ReadJson(bool at_end, std::string* held, std::string* json);
  void End(std::string* json);

  const nlohmann::ordered_json* parameters_;
  State state_ = State::kBetween;
  bool any_ = false;            // argument so far
  bool in_value_ = false;       // something of it was read
  JsonTypes types_ = kAnyType;  // of the argument
};

}  // namespace longspec::chat
