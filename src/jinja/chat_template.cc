// SPDX-License-Identifier: Apache-2.0
#include "jinja/chat_template.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "jinja/evaluator.h"
#include "jinja/json.h"
#include "jinja/parser.h"

namespace longspec {
namespace {

constexpr size_t kMaxSourceBytes = size_t{1} << 20;

jinja::Value Text(const std::string& text) { return jinja::Value::Literal(text); }

jinja::Value MessageList(jinja::Runtime& runtime, const std::vector<ChatMessage>& messages) {
  std::vector<jinja::Value> list;
  for (const ChatMessage& message : messages) {
    jinja::Dict* dict = runtime.NewDict();
    dict->Set("role", Text(message.role));
    dict->Set("content", Text(message.content));
    list.push_back(jinja::Value::Of(dict));
  }
  return runtime.NewList(std::move(list));
}

Status DefineExtra(jinja::Runtime& runtime, const std::string& json, jinja::Evaluator* evaluator) {
  Result<jinja::Value> extra = jinja::ParseJson(runtime, json);
  if (!extra.ok()) return InvalidArgument("chat template: extra_json: " + extra.status().message());
  if (!extra->IsDict()) return InvalidArgument("chat template: extra_json must be an object of variables");
  for (const jinja::Dict::Entry& entry : extra->dict().entries())
    evaluator->Define(entry.key.text(), entry.value);
  return {};
}

class ParsedTemplate : public ChatTemplate {
 public:
  explicit ParsedTemplate(jinja::Body body) : body_(std::move(body)) {}

  Result<std::string> Render(const ChatTemplateInput& input) const override {
    jinja::Runtime runtime({std::max<int64_t>(input.max_steps, 0), input.max_bytes}, input.now);
    jinja::Evaluator evaluator(runtime);
    runtime.Unmetered(true);
    evaluator.Define("messages", MessageList(runtime, input.messages));
    evaluator.Define("add_generation_prompt", jinja::Value::Bool(input.add_generation_prompt));
    evaluator.Define("bos_token", Text(input.bos_token));
    evaluator.Define("eos_token", Text(input.eos_token));
    evaluator.Define("tools", jinja::Value::None());
    evaluator.Define("documents", jinja::Value::None());
    if (!input.extra_json.empty()) LS_TRY(DefineExtra(runtime, input.extra_json, &evaluator));
    runtime.Unmetered(false);
    return evaluator.Run(body_);
  }

 private:
  jinja::Body body_;
};

}  // namespace

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return ResourceExhausted("chat template: " + std::to_string(source.size()) + " bytes are more than the " +
                             std::to_string(kMaxSourceBytes) + " a template may have");
  }
  LS_ASSIGN(jinja::Body body, jinja::ParseTemplate(source));
  return std::shared_ptr<const ChatTemplate>(std::make_shared<const ParsedTemplate>(std::move(body)));
}

}  // namespace longspec
