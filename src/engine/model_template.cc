// SPDX-License-Identifier: Apache-2.0
#include "engine/model_template.h"

#include "base/status_macros.h"
#include "chat/builtin_templates.h"

namespace longspec {
namespace {

constexpr const char* kKey = "tokenizer.chat_template";

}  // namespace

Result<ModelTemplate> TemplateOf(const GgufFile& file, std::string_view chosen) {
  ModelTemplate its = {.source = {}, .is_given = true};
  if (!chosen.empty()) {
    LS_ASSIGN(its.source, chat::ChosenTemplate(chosen));
  } else if (file.Has(kKey)) {
    LS_ASSIGN(its.source, file.GetString(kKey));
  } else {
    its.is_given = false;
    LS_ASSIGN(its.source, chat::ChosenTemplate(chat::kTemplateOfAny));
  }
  return its;
}

}  // namespace longspec
