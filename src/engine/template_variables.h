// SPDX-License-Identifier: Apache-2.0
//
// What a chat template gets besides roles and contents.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longspec/generation.h"
#include "longspec/status.h"

namespace longspec {

// `variables` (GenerationRequest::template_variables), with the messages among them if some have more than a
// role and a content and none are there. kInvalidArgument: something is no object of JSON.
Result<std::string> TemplateVariables(const std::vector<Message>& messages, std::string_view variables);

}  // namespace longspec
