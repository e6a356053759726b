// SPDX-License-Identifier: Apache-2.0
#include "cli/template_options.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <cstdint>
#include <optional>
#include <utility>

#include "api/template_fields.h"
#include "base/status_macros.h"
#include "chat/builtin_templates.h"
#include "cli/arguments.h"
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

namespace {

// What llama.cpp's switches are, nothing: whatever the template does by itself.
std::optional<bool> SwitchOf(const std::string& value) {
  if (value == "auto" || value == "-1") return std::nullopt;
  return value == "on" || value == "true" || value == "1" || value == "enabled";
}

std::string CheckSwitch(const std::string& value) {
  return IsSwitch(value) ? "" : value + " must be on, off or auto";
}

std::string CheckBudget(const std::string& value) {
  if (value == "0" || value == "-1") return "";
  return value +
         " is not supported: how long a model thinks is not limited; 0: it does not think, -1: as long "
         "as it likes";
}

}  // namespace

// They are read in the order in which they are declared: what is said of thinking replaces the variables.
void AddTemplateOptions(CLI::App& app, GenerationRequest* request, const std::string& group) {
  app.add_option_function<std::string>(
         "--chat-template-kwargs",
         [request](const std::string& text) {
           auto variables = api::ReadTemplateVariables(text);
           if (!variables.ok())
             throw CLI::ValidationError("--chat-template-kwargs", variables.status().message());
           request->template_variables = *std::move(variables);
         },
         "Variables of the chat template, an object of JSON: {\"key\": \"value\"}")
      ->group(group);
  const auto wish = [request](const api::ThinkingWish& what) {
    request->template_variables = api::WithThinking(std::move(request->template_variables), what);
  };
  const CLI::Option* const thinks =
      app.add_option_function<std::string>(
             "--reasoning", [wish](const std::string& value) { wish({.thinks = SwitchOf(value)}); },
             "Whether the model thinks before it speaks, if its template asks: on, off or auto, as the "
             "template "
             "has it")
          ->check(CheckSwitch)
          ->group(group);
  app.add_option_function<std::string>(
         "--reasoning-effort",
         [wish](const std::string& value) {
           if (value != "default") wish({.effort = value});
         },
         "How much it thinks, if its template asks: low, medium, high, ...; none: not at all; default: as "
         "the "
         "template has it")
      ->group(group);
  app.add_option_function<std::string>(
         "--reasoning-budget",
         [wish, thinks](const std::string& value) {
           if (value != "0") return;
           if (thinks->count() > 0 && SwitchOf(thinks->results().back()).value_or(false))
             throw CLI::ValidationError("--reasoning-budget", "0 has no effect with --reasoning on");
           wish({.thinks = false});
         },
         "0: the model does not think; -1: as long as it likes")
      ->check(CheckBudget)
      ->group(group);
  app.add_flag_function(
         "--reasoning-preserve,!--no-reasoning-preserve",
         [wish](int64_t preserve) { wish({.remembers = preserve > 0}); },
         "Whether thoughts of all earlier turns are shown to the model, if its template asks")
      ->group(group);
}

void AddThoughtsOption(CLI::App& app, api::ThoughtsPlace* place, const std::string& group) {
  app.add_option_function<std::string>(
         "--reasoning-format", [place](const std::string& format) { *place = *api::ThoughtsPlaceOf(format); },
         "Where the thoughts of answers go: auto, reasoning_content where the model's template knows "
         "thoughts; "
         "deepseek: there in any case; none: they stay in the text")
      ->check(CLI::IsMember({"auto", "none", "deepseek"}))
      ->group(group);
}

}  // namespace longspec::cli
