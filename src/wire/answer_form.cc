// SPDX-License-Identifier: Apache-2.0
#include "wire/answer_form.h"

#include "openai/json.h"

namespace longspec::wire {

std::string Event(const nlohmann::ordered_json& data) { return "data: " + openai::DumpJson(data) + "\n\n"; }

std::string NamedEvent(std::string_view name, const nlohmann::ordered_json& data) {
  return "event: " + std::string(name) + "\n" + Event(data);
}

}  // namespace longspec::wire
