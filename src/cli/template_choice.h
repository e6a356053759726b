// SPDX-License-Identifier: Apache-2.0
//
// Which chat template chats are written by, under llama.cpp's names: --chat-template and
// --chat-template-file.
#pragma once

#include <CLI/App.hpp>
#include <string>

#include "longspec/engine.h"
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

}  // namespace longspec::cli
