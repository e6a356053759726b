// SPDX-License-Identifier: Apache-2.0
//
// A conversation whose last message is gone on with: its prompt ends within that message, where its content
// does. A chat template knows only whole messages, so its text is cut there. Pure functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longspec/generation.h"
#include "longspec/status.h"

namespace longspec {

// `render` applies the template, without the beginning of another turn. What the template puts before the
// content, such as an empty thought, is part of the prompt; the content's own end is kept as it is, also
// where the template would trim it. kUnsupported: the template does not show the last message.
Result<std::string> ContinuedPrompt(
    const std::vector<Message>& messages,
    const std::function<Result<std::string>(const std::vector<Message>&)>& render);

}  // namespace longspec
