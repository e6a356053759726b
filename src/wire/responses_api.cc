// SPDX-License-Identifier: Apache-2.0
#include "wire/responses_api.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "chat/answer_reader.h"
#include "openai/answer_form.h"
#include "openai/field_rules.h"
#include "openai/fields.h"
#include "openai/json.h"
#include "openai/tools.h"
#include "wire/chat_turns.h"
#include "wire/errors.h"

namespace longspec::wire {
namespace {

using Json = nlohmann::ordered_json;
using openai::Answer;
using openai::ApiError;
using openai::Fields;
using openai::Treatment;

constexpr std::string_view kNothingKept = "nothing is stored: send the whole conversation as input";
constexpr std::string_view kChancesOfChats = "/v1/chat/completions gives chances of tokens";

// What has no parser of its own here and is no field of a chat, too.
constexpr openai::FieldRule kResponsesRules[] = {
    {"client_metadata"},
    {"max_tool_calls"},
    {"stream_options"},
    {"truncation", Treatment::kIgnored},
    {"context_management", Treatment::kIgnored},
    {"previous_response_id", Treatment::kRefused, openai::kOfAll, "[]", kNothingKept},
    {"conversation", Treatment::kRefused, openai::kOfAll, "[]", kNothingKept},
    {"background", Treatment::kRefused, openai::kOfAll, "[false]", "an answer comes to who asked for it"},
    {"prompt", Treatment::kRefused, openai::kOfAll, "[]", "input has the messages"},
    {"n", Treatment::kRefused, openai::kOfAll, "[1]", "/v1/chat/completions gives several answers"},
    {"n_cmpl", Treatment::kRefused, openai::kOfAll, "[1]", "/v1/chat/completions gives several answers"},
    {"logprobs", Treatment::kRefused, openai::kOfAll, "[false]", kChancesOfChats},
    {"top_logprobs", Treatment::kRefused, openai::kOfAll, "[0]", kChancesOfChats},
    {"n_probs", Treatment::kRefused, openai::kOfAll, "[0]", kChancesOfChats},
};

// What responses repeat of their requests.
constexpr const char* kRepeated[] = {"instructions",        "metadata", "text", "tool_choice", "tools",
                                     "parallel_tool_calls", "user"};

bool IsText(const std::string& type) {
  return type == "input_text" || type == "output_text" || type == "text" || type == "reasoning_text" ||
         type == "summary_text";
}

// The field `name`: a text, or parts of text.
std::string TextOf(Fields& item, const char* name) {
  const Json* content = item.Find(name);
  if (content == nullptr) {
    item.Missing(name);
    return {};
  }
  if (!content->is_array()) {
    std::string text;
    item.Text(name, &text);
    return text;
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    Fields part((*content)[i], item.PlaceOf(std::string(name) + "[" + std::to_string(i) + "]"));
    std::string type, own;
    if (!part.Text("type", &type)) part.Missing("type");
    if (!IsText(type)) part.Fail("type", "is not supported: only texts are", "unsupported_value");
    if (!part.Text("text", &own)) part.Missing("text");
    if (part.error()) {
      item.Fail(*part.error());
      return {};
    }
    text += (text.empty() ? "" : "\n") + own;
  }
  return text;
}

// The first text that is there under one of the names.
std::string FirstText(Fields& item, std::initializer_list<const char*> names) {
  std::string text;
  for (const char* name : names) {
    if (text.empty()) item.Text(name, &text);
  }
  if (text.empty()) item.Missing(*names.begin());
  return text;
}

// --- Calls of tools that are no functions, which agents have in their histories: as if they were. ---

// {"name": "apply_patch", "input": "*** Begin Patch ..."}
void ParseCustomCall(Fields& item, ChatTurns* turns) {
  std::string id = FirstText(item, {"call_id", "id"}), name, input;
  if (!item.Text("name", &name)) item.Missing("name");
  if (!item.Text("input", &input)) item.Missing("input");
  const Json arguments = {{"input", input}};
  turns->Call(std::move(id), std::move(name), openai::DumpJson(arguments));
}

// {"action": {"type": "exec", "command": ["ls"]}}
void ParseShellCall(Fields& item, ChatTurns* turns) {
  std::string id = FirstText(item, {"call_id", "id"});
  const Json* action = item.Find("action");
  if (action == nullptr || !action->is_object())
    return item.Fail("action", "must be an object", "invalid_type");
  Json arguments = *action;
  arguments.erase("type");
  turns->Call(std::move(id), "local_shell", openai::DumpJson(arguments));
}

void ParseCallOutput(Fields& item, ChatTurns* turns) {
  std::string id = FirstText(item, {"call_id", "id"});
  std::string text = TextOf(item, "output");
  turns->Result(std::move(id), std::move(text));
}

void ParseItem(Fields& item, ChatTurns* turns) {
  std::string type = "message", role, id, name, text;
  item.Text("type", &type);
  if (type == "message") {
    if (!item.Text("role", &role)) item.Missing("role");
    text = TextOf(item, "content");
    if (!item.error()) turns->Say(role, std::move(text));
  } else if (type == "function_call") {
    if (!item.Text("call_id", &id)) item.Missing("call_id");
    if (!item.Text("name", &name)) item.Missing("name");
    if (!item.Text("arguments", &text)) item.Missing("arguments");
    turns->Call(std::move(id), std::move(name), std::move(text));
  } else if (type == "custom_tool_call") {
    ParseCustomCall(item, turns);
  } else if (type == "local_shell_call") {
    ParseShellCall(item, turns);
  } else if (type == "function_call_output" || type == "custom_tool_call_output" ||
             type == "local_shell_call_output") {
    ParseCallOutput(item, turns);
  } else if (type == "web_search_call") {
    // It says that there was a search, not what it found.
  } else if (type == "reasoning") {
    // What it thought; where that is not there, what was said of it.
    for (const char* part : {"content", "summary"}) {
      if (text.empty() && item.Find(part) != nullptr) text = TextOf(item, part);
    }
    if (!text.empty()) turns->Think(text);
  } else {
    item.Fail("type", "\"" + type + "\" is not supported: messages, functions' calls and their outputs are",
              "unsupported_value");
  }
}

void ParseInput(Fields& fields, ChatTurns* turns) {
  const Json* input = fields.Find("input");
  if (input == nullptr) return fields.Missing("input");
  if (input->is_string()) return turns->Say("user", *input);
  if (!input->is_array()) return fields.Fail("input", "must be a text or a list of items", "invalid_type");
  const size_t n_before = turns->size();
  for (size_t i = 0; i < input->size(); ++i) {
    Fields item((*input)[i], "input[" + std::to_string(i) + "]");
    ParseItem(item, turns);
    if (item.error()) return fields.Fail(*item.error());
  }
  if (turns->size() == n_before) fields.Fail("input", "must hold a message", "invalid_value");
}

// What an answer is to have besides: of what nothing here has it may be asked for, chances of tokens there
// are, but not in this form.
void ParseInclude(Fields& fields) {
  const Json* include = fields.Find("include");
  if (include == nullptr) return;
  if (!include->is_array()) return fields.Fail("include", "must be a list of texts", "invalid_type");
  if (std::ranges::find(*include, Json("message.output_text.logprobs")) != include->end()) {
    fields.Fail("include",
                "of message.output_text.logprobs is not supported: " + std::string(kChancesOfChats),
                "unsupported_value");
  }
}

// "none", "auto", "required" or {"type": "function", "name": "f"}.
void ParseFunctionChoice(Fields& fields, chat::ToolUse* use) {
  using chat::ToolChoice;
  use->choice = use->tools.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
  const Json* value = fields.Find("tool_choice");
  if (value == nullptr || *value == "auto") return;
  if (*value == "none") {
    use->choice = ToolChoice::kNone;
  } else if (*value == "required") {
    if (use->tools.empty()) fields.Fail("tool_choice", "needs functions in tools", "invalid_value");
    use->choice = ToolChoice::kRequired;
  } else if (value->is_object() && value->value("type", Json()) == "function") {
    const Json name = value->value("name", Json());
    if (!name.is_string() || !chat::ChooseTool(name.get_ref<const std::string&>(), use))
      fields.Fail("tool_choice.name", "must be that of a function in tools", "invalid_value");
  } else {
    fields.Fail("tool_choice", "must be \"none\", \"auto\", \"required\" or the name of a function",
                "invalid_value");
  }
}

void ParseFunctions(Fields& fields, chat::ToolUse* use) {
  if (const Json* tools = fields.Find("tools"); tools != nullptr) {
    if (!tools->is_array()) return fields.Fail("tools", "must be a list", "invalid_type");
    for (size_t i = 0; i < tools->size() && !fields.error(); ++i) {
      Fields inner((*tools)[i], "tools[" + std::to_string(i) + "]");
      std::string type;
      if (!inner.Text("type", &type)) inner.Missing("type");
      chat::Tool tool;
      if (type == "function") openai::ParseFunction(inner, "parameters", &tool);
      if (inner.error()) return fields.Fail(*inner.error());
      if (type == "function") openai::AddTool(fields, std::move(tool), use);
    }
  }
  fields.Bool("parallel_tool_calls", &use->parallel);
  ParseFunctionChoice(fields, use);
}

class ResponsesForm final : public AnswerForm {
 public:
  ResponsesForm(FormParts parts, Json repeated)
      : head_(std::move(parts.head)),
        request_(std::move(parts.request)),
        repeated_(std::move(repeated)),
        reader_(parts.reading) {}

  std::string Whole(std::span<const Answer> answers) override {
    const GenerationResult& result = answers[0].result;
    Items(reader_.ReadWhole(result.text));
    EndItems(result);
    return openai::DumpJson(Response(&result)) + "\n";
  }

  std::string OnStart(const Start&) override {
    std::string events = Numbered("response.created", {{"response", Response(nullptr)}});
    return events + Numbered("response.in_progress", {{"response", Response(nullptr)}});
  }

  std::string OnProgress(int, const Progress&) override { return {}; }

  std::string OnPiece(const Piece& piece) override { return Items(reader_.Push(piece.text)); }

  std::string OnAnswerEnd(int, const Answer& answer) override {
    const bool whole = answer.result.finish_reason == FinishReason::kStop;
    std::string events = Items(reader_.Finish());
    events += EndItems(answer.result);
    return events + Numbered(whole ? "response.completed" : "response.incomplete",
                             {{"response", Response(&answer.result)}});
  }

  std::string OnEnd(std::span<const Answer>) override { return {}; }

  std::string OnError(const ApiError& error) override {
    return Numbered("error", {{"code", std::to_string(error.status_code)},
                              {"message", error.message},
                              {"param", nullptr},
                              {"error", ErrorBody(error)["error"]}});
  }

 private:
  std::string Numbered(const char* type, Json fields) {
    Json event = {{"type", type}, {"sequence_number", n_events_++}};
    for (const auto& [name, value] : fields.items()) event[name] = value;
    return NamedEvent(type, event);
  }

  // --- The items of the output: events, while output_ becomes the same as a whole. ---

  std::string Items(const chat::AnswerParts& parts) {
    std::string events;
    for (const auto& part : parts) {
      if (const auto* call = std::get_if<chat::ToolCallPiece>(&part)) {
        if (call->index == n_calls_) events += OpenCall(call->name);
        output_.back()["arguments"].get_ref<std::string&>() += call->arguments;
        if (!call->arguments.empty())
          events += Numbered("response.function_call_arguments.delta", OfItem({{"delta", call->arguments}}));
      } else if (const auto* thought = std::get_if<chat::Thought>(&part)) {
        if (!Is("reasoning")) events += OpenThought();
        text_ += thought->text;
        events += Numbered("response.reasoning_text.delta", OfPart({{"delta", thought->text}}));
      } else {
        const auto& text = std::get<std::string>(part);
        if (!Is("message")) events += OpenMessage();
        text_ += text;
        events +=
            Numbered("response.output_text.delta", OfPart({{"delta", text}, {"logprobs", Json::array()}}));
      }
    }
    return events;
  }

  // An output has at least one item.
  std::string EndItems(const GenerationResult& result) {
    std::string events;
    if (output_.empty()) events = OpenMessage();
    return events + CloseItem(result.finish_reason == FinishReason::kStop ? "completed" : "incomplete");
  }

  std::string OpenMessage() {
    std::string events = Open({{"id", "msg_" + head_.id + Number(output_.size())},
                               {"type", "message"},
                               {"status", "in_progress"},
                               {"role", "assistant"},
                               {"content", Json::array()}});
    return events + Numbered("response.content_part.added", OfPart({{"part", Part("")}}));
  }

  std::string OpenThought() {
    std::string events = Open({{"id", "rs_" + head_.id + Number(output_.size())},
                               {"type", "reasoning"},
                               {"status", "in_progress"},
                               {"summary", Json::array()},
                               {"content", Json::array()}});
    return events + Numbered("response.content_part.added", OfPart({{"part", ThoughtPart("")}}));
  }

  std::string OpenCall(const std::string& name) {
    const std::string of_call = head_.id + "_" + std::to_string(n_calls_++);
    return Open({{"id", "fc_" + of_call},
                 {"type", "function_call"},
                 {"status", "in_progress"},
                 {"call_id", "call_" + of_call},
                 {"name", name},
                 {"arguments", ""}});
  }

  std::string Open(Json item) {
    std::string events = CloseItem("completed");
    output_.push_back(std::move(item));
    open_ = true;
    return events + Numbered("response.output_item.added",
                             {{"output_index", output_.size() - 1}, {"item", output_.back()}});
  }

  std::string CloseItem(const char* status) {
    if (!std::exchange(open_, false)) return {};
    Json& item = output_.back();
    std::string events;
    if (item["type"] == "function_call") {
      events = Numbered("response.function_call_arguments.done",
                        OfItem({{"name", item["name"]}, {"arguments", item["arguments"]}}));
    } else {
      const std::string text = std::exchange(text_, std::string());
      const bool thinks = item["type"] == "reasoning";
      const Json part = thinks ? ThoughtPart(text) : Part(text);
      events = thinks ? Numbered("response.reasoning_text.done", OfPart({{"text", text}}))
                      : Numbered("response.output_text.done",
                                 OfPart({{"text", text}, {"logprobs", Json::array()}}));
      events += Numbered("response.content_part.done", OfPart({{"part", part}}));
      item["content"].push_back(part);
    }
    item["status"] = status;
    return events +
           Numbered("response.output_item.done", {{"output_index", output_.size() - 1}, {"item", item}});
  }

  // Whether the open item is one.
  bool Is(const char* type) const { return open_ && output_.back()["type"] == type; }

  Json OfItem(Json fields) const {
    fields["item_id"] = output_.back()["id"];
    fields["output_index"] = output_.size() - 1;
    return fields;
  }

  Json OfPart(Json fields) const {
    fields = OfItem(std::move(fields));
    fields["content_index"] = 0;
    return fields;
  }

  static Json Part(const std::string& text) {
    return {
        {"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }

  static Json ThoughtPart(const std::string& text) { return {{"type", "reasoning_text"}, {"text", text}}; }

  static std::string Number(size_t n) { return n == 0 ? "" : "_" + std::to_string(n); }

  // Null: it is in the making.
  Json Response(const GenerationResult* result) const {
    const bool whole = result != nullptr && result->finish_reason == FinishReason::kStop;
    const SamplingOptions& sampling = request_->generation.sampling;
    const int n_predict = request_->generation.n_predict;
    Json json = {{"id", "resp_" + head_.id},
                 {"object", "response"},
                 {"created_at", head_.created},
                 {"status", result == nullptr ? "in_progress"
                            : whole           ? "completed"
                                              : "incomplete"},
                 {"error", nullptr},
                 {"incomplete_details", nullptr},
                 {"instructions", nullptr},
                 {"max_output_tokens", n_predict < 0 ? Json(nullptr) : Json(n_predict)},
                 {"model", head_.model},
                 {"output", Json::array()},
                 {"parallel_tool_calls", true},
                 {"previous_response_id", nullptr},
                 {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                 {"store", false},
                 {"temperature", sampling.temperature},
                 {"text", {{"format", {{"type", "text"}}}}},
                 {"tool_choice", "auto"},
                 {"tools", Json::array()},
                 {"top_p", sampling.top_p},
                 {"truncation", "disabled"},
                 {"usage", nullptr},
                 {"user", nullptr},
                 {"metadata", Json::object()}};
    for (const auto& [name, value] : repeated_.items()) json[name] = value;
    if (result == nullptr) return json;
    if (!whole) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    json["output"] = output_;
    const Timings& t = result->timings;
    const int64_t input = t.cache_n + t.prompt_n;
    json["usage"] = {{"input_tokens", input},
                     {"input_tokens_details", {{"cached_tokens", t.cache_n}}},
                     {"output_tokens", t.predicted_n},
                     {"output_tokens_details", {{"reasoning_tokens", 0}}},
                     {"total_tokens", input + t.predicted_n}};
    json["timings"] = openai::TimingsJson(t);
    return json;
  }

  const openai::ResponseHead head_;
  const std::shared_ptr<const openai::ApiRequest> request_;
  const Json repeated_;
  chat::AnswerReader reader_;
  Json output_ = Json::array();
  bool open_ = false;  // the last item
  std::string text_;   // of the last message or thought
  int n_calls_ = 0;
  int64_t n_events_ = 0;
};

}  // namespace

std::variant<ResponsesRequest, ApiError> ParseResponsesRequest(const Json& body,
                                                               const openai::RequestDefaults& defaults) {
  Fields fields(body, "");
  if (fields.error()) return *fields.error();
  ResponsesRequest request;
  ChatTurns turns;
  chat::ToolUse tools;
  GrammarText grammar;
  std::string instructions, effort;
  std::vector<std::string> ignored;
  if (fields.Text("instructions", &instructions) && !instructions.empty()) turns.Say("system", instructions);
  ParseInput(fields, &turns);
  ParseFunctions(fields, &tools);
  ParseInclude(fields);
  KeepRules(kResponsesRules, openai::kOfAll, fields, &ignored);
  if (const auto* text = fields.Find("text"); text != nullptr) {
    Fields inside(*text, "text");
    openai::ParseResponseFormat(inside, "format", &grammar);
    if (inside.Find("verbosity") != nullptr) ignored.emplace_back("text.verbosity");
    if (inside.error()) fields.Fail(*inside.error());
  }
  if (const auto* reasoning = fields.Find("reasoning"); reasoning != nullptr) {
    Fields inside(*reasoning, "reasoning");
    inside.Text("effort", &effort);
    if (inside.error()) fields.Fail(*inside.error());
  }
  int limit = 0;
  const bool limited = fields.Integer("max_output_tokens", -1, 1 << 30, &limit);
  if (fields.error()) return *fields.error();
  Json chat = fields.Rest();
  chat["messages"] = turns.Take();
  if (limited) chat["max_tokens"] = limit;
  if (!effort.empty() && !chat.contains("reasoning_effort")) chat["reasoning_effort"] = effort;
  auto parsed = openai::ParseRequest(openai::Endpoint::kChatCompletions, chat, defaults);
  if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
  request.chat = std::get<openai::ApiRequest>(std::move(parsed));
  request.chat.tools = std::move(tools);
  request.chat.ignored.insert(request.chat.ignored.end(), ignored.begin(), ignored.end());
  if (grammar.kind != GrammarText::Kind::kNone) {
    if (auto error = openai::SetAnswerForm(std::move(grammar), "text.format", &request.chat))
      return *std::move(error);
  }
  request.repeated = Json::object();
  for (const char* name : kRepeated) {
    if (const Json* value = fields.Find(name); value != nullptr) request.repeated[name] = *value;
  }
  return request;
}

std::unique_ptr<AnswerForm> MakeResponsesForm(FormParts parts, Json repeated) {
  return std::make_unique<ResponsesForm>(std::move(parts), std::move(repeated));
}

}  // namespace longspec::wire
