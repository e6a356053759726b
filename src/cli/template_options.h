// SPDX-License-Identifier: Apache-2.0
//
// Options that say how chats are written for the model: by which chat template, under llama.cpp's names
// --chat-template and --chat-template-file, and with which variables of it, above all whether the model is to
// think before it speaks. They hold where a request does not say it.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <string_view>

#include "api/request.h"
#include "longspec/engine.h"
#include "longspec/generation.h"
#include "longspec/status.h"

namespace longspec::cli {

struct TemplateChoice {
  std::string name_or_source, file;
};

void AddTemplateChoice(CLI::App& app, TemplateChoice* choice, const std::string& group);

// For ModelOptions::chat_template; empty: the model's own. The error names the option.
Result<std::string> ReadTemplateChoice(const TemplateChoice& choice);

// Of a model whose chats are written as ChatML since nobody says how they are to be.
void WarnOfMissingTemplate(const ModelInfo& info);

// Those that choose the template and set its variables.
inline constexpr std::string_view kTemplateOptions[] = {
    "--chat-template",    "--chat-template-file", "--chat-template-kwargs", "--reasoning",
    "--reasoning-effort", "--reasoning-budget",   "--reasoning-preserve"};
// Declares them.
void AddTemplateOptions(CLI::App& app, GenerationRequest* request, const std::string& group);

// --reasoning-format: where the thoughts of answers go.
void AddThoughtsOption(CLI::App& app, api::ThoughtsPlace* place, const std::string& group);

}  // namespace longspec::cli
