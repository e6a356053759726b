// SPDX-License-Identifier: Apache-2.0
#include "cli/template_options.h"

#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <cstdint>
#include <optional>
#include <utility>

#include "api/template_fields.h"
#include "cli/foreign_options.h"

namespace longspec::cli {
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
