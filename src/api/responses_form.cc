// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "api/errors.h"
#include "api/responses.h"
#include "api/statistics.h"
#include "chat/answer_reader.h"
#include "json/json_text.h"

namespace longspec::api {
namespace {

using Json = nlohmann::ordered_json;

class ResponsesForm final : public AnswerForm {
 public:
  explicit ResponsesForm(FormParts parts)
      : head_(std::move(parts.head)), request_(std::move(parts.request)), reader_(parts.reading) {}

  std::string Whole(std::span<const FinishedAnswer> answers) override {
    const GenerationResult& result = answers[0].result;
    Items(reader_.ReadWhole(result.text));
    EndItems(result);
    return WriteJson(Response(&result)) + "\n";
  }

  std::string OnStart(const Start&) override {
    std::string events = Numbered("response.created", {{"response", Response(nullptr)}});
    return events + Numbered("response.in_progress", {{"response", Response(nullptr)}});
  }

  std::string OnProgress(int, const Progress&) override { return {}; }

  std::string OnPiece(const Piece& piece) override { return Items(reader_.Push(piece.text)); }

  std::string OnAnswerEnd(int, const FinishedAnswer& answer) override {
    const bool whole = answer.result.finish_reason == FinishReason::kStop;
    std::string events = Items(reader_.Finish());
    events += EndItems(answer.result);
    return events + Numbered(whole ? "response.completed" : "response.incomplete",
                             {{"response", Response(&answer.result)}});
  }

  std::string OnEnd(std::span<const FinishedAnswer>) override { return {}; }

  std::string OnError(const Error& error) override {
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
    for (const auto& [name, value] : request_->repeated.items()) json[name] = value;
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
    json["timings"] = TimingsJson(t);
    return json;
  }

  const ResponseHead head_;
  const std::shared_ptr<const Request> request_;
  chat::AnswerReader reader_;
  Json output_ = Json::array();
  bool open_ = false;  // the last item
  std::string text_;   // of the last message or thought
  int n_calls_ = 0;
  int64_t n_events_ = 0;
};

}  // namespace

std::unique_ptr<AnswerForm> MakeResponsesForm(FormParts parts) {
  return std::make_unique<ResponsesForm>(std::move(parts));
}

}  // namespace longspec::api
