// SPDX-License-Identifier: Apache-2.0
//
// Options that say how chats are written for the model: variables of its chat template, above all whether it
// is to think before it speaks. They hold where a request does not say it.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <string_view>

#include "api/request.h"
#include "longspec/generation.h"

namespace longspec::cli {

// Those that choose the template (cli/template_choice.h) and set its variables.
inline constexpr std::string_view kTemplateOptions[] = {
    "--chat-template",    "--chat-template-file", "--chat-template-kwargs", "--reasoning",
    "--reasoning-effort", "--reasoning-budget",   "--reasoning-preserve"};
// Declares them.
void AddTemplateOptions(CLI::App& app, GenerationRequest* request, const std::string& group);

// --reasoning-format: where the thoughts of answers go.
void AddThoughtsOption(CLI::App& app, api::ThoughtsPlace* place, const std::string& group);

}  // namespace longspec::cli
