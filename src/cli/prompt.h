// SPDX-License-Identifier: Apache-2.0
//
// The prompt of `run`, from -p, -f and -sys.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "longspec/engine.h"
#include "longspec/status.h"

namespace longspec::cli {

struct PromptFlags {
  std::string prompt = {};         // -p
  std::string file = {};           // -f; "-": standard input
  std::string system_prompt = {};  // -sys
  std::optional<bool> chat = {};   // --chat, --no-chat; unset: chat if the model has a template
};

// A whole file, or standard input for "-", as bytes. kInvalidArgument if it has more than `most`: a device
// may never end.
inline constexpr size_t kMostInput = size_t{1} << 30;
Result<std::string> ReadInput(const std::string& path, size_t most = kMostInput);

// What ReadInput says of a file that is not there or is a folder, before anything else is done.
Status CheckInput(const std::string& path);

// The instruction, a blank line, the document; or the one that is there. One line end at the end of the
// document is dropped. kInvalidArgument if nothing is left.
Result<std::string> ComposePrompt(const PromptFlags& flags);

// Puts the prompt into the request: as messages for chat, raw otherwise.
Status FillPrompt(const PromptFlags& flags, std::string prompt, bool has_chat_template,
                  GenerationRequest* request);

}  // namespace longspec::cli
