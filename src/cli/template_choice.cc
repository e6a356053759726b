// SPDX-License-Identifier: Apache-2.0
#include "cli/template_choice.h"

#include <CLI/Option.hpp>

#include "base/status_macros.h"
#include "chat/builtin_templates.h"
#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/prompt.h"
#include "jinja/chat_template.h"

namespace longspec::cli {
namespace {

constexpr const char kText[] = "--chat-template", kFile[] = "--chat-template-file";

// A choice that can be used is said before the model is loaded.
Result<std::string> Checked(const std::string& source, const std::string& option) {
  const auto with_name = [&](const Status& status) {
    return Status(status.code(), option + ": " + status.message());
  };
  auto chosen = chat::ChosenTemplate(source);
  if (!chosen.ok()) return with_name(chosen.status());
  const auto parsed = ChatTemplate::Parse(*chosen);
  if (!parsed.ok()) return with_name(parsed.status());
  return chosen;
}

}  // namespace

void AddTemplateChoice(CLI::App& app, TemplateChoice* choice, const std::string& group) {
  app.add_option(kText, choice->name_or_source,
                 "Chat template instead of the model's: a name (chatml, llama3, ...) or Jinja")
      ->check(CheckNotEmpty)
      ->group(group);
  app.add_option(kFile, choice->file, "File with the chat template")->check(CheckNotEmpty)->group(group);
}

Result<std::string> ReadTemplateChoice(const TemplateChoice& choice) {
  if (!choice.name_or_source.empty() && !choice.file.empty())
    return InvalidArgument(std::string(kText) + " and " + kFile + ": give one of them");
  if (!choice.name_or_source.empty()) return Checked(choice.name_or_source, kText);
  if (choice.file.empty()) return std::string();
  auto source = ReadInput(choice.file);
  if (!source.ok())
    return Status(source.status().code(), std::string(kFile) + ": " + source.status().message());
  return Checked(*source, std::string(kFile) + " " + choice.file);
}

void WarnOfMissingTemplate(const ModelInfo& info) {
  if (info.has_chat_template) return;
  Warn(info.path + " has no chat template: chats are written as ChatML; " + kText + " chooses another one");
}

}  // namespace longspec::cli
