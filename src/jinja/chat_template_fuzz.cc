// SPDX-License-Identifier: Apache-2.0
//
// Any bytes as a chat template: parsing and rendering must end soon and without a fault.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "jinja/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = longspec::ChatTemplate::Parse(source);
  if (!parsed.ok()) return 0;
  longspec::ChatTemplateInput input;
  input.messages = {{"system", "s"}, {"user", " Hi \n"}, {"assistant", "é🙂"}, {"user", ""}};
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now = std::tm{};
  input.extra_json = R"({"tools": [{"function": {"name": "f", "arguments": {"a": [1, 2.5, null, true]}}}]})";
  input.max_steps = 20'000;
  input.max_bytes = 100'000;
  const longspec::Result<std::string> text = (*parsed)->Render(input);
  if (text.ok() && text->size() > input.max_bytes) __builtin_trap();
  return 0;
}
