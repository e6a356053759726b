// SPDX-License-Identifier: Apache-2.0
//
// Routes that generate: OpenAI's chat and text completions, llama.cpp's /completion, Anthropic's messages.
#include <algorithm>
#include <ctime>
#include <utility>

#include "api/anthropic.h"
#include "api/apply_dialect.h"
#include "api/fields.h"
#include "api/llama.h"
#include "api/openai.h"
#include "api/responses.h"
#include "base/status_macros.h"
#include "longspec/version.h"
#include "server/body_coding.h"
#include "server/predictions.h"
#include "server/serving.h"

namespace longspec::server {
namespace {

using api::Endpoint;
using api::Error;
using api::Request;

constexpr size_t kMostPredicted = size_t{1} << 17;  // tokens of a prediction: sorting them takes time

// A drafter for the prediction, beside those that were asked for; "auto" takes it by itself.
void AddPrediction(PredictionDraftOptions prediction, SpeculationOptions& speculation) {
  if (speculation.type == "none" || (prediction.tokens.empty() && prediction.beginnings.empty())) return;
  if (prediction.tokens.size() > kMostPredicted) prediction.tokens.resize(kMostPredicted);
  SpeculationOptions with = speculation;
  with.prediction = std::move(prediction);
  if (with.type != "auto" && with.type != "portfolio" && with.type != "prediction")
    with.type += ",prediction";
  // One of those asked for may not work with others: then it works alone.
  if (CheckSpeculation(with).ok()) speculation = std::move(with);
}

// What the answer is going to be made of, as the prompt's form tells.
std::optional<std::string> ExpectedIn(const GenerationRequest& request) {
  return UneditedRegion(request.messages.empty() ? request.prompt : request.messages.back().content);
}

std::vector<int32_t> TokensOf(const Engine& engine, api::Prompt prompt) {
  if (prompt.size() == 1) return std::move(prompt[0].tokens);
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const auto more =
        prompt[i].text.empty() ? prompt[i].tokens : engine.Tokenize(prompt[i].text, i == 0, true);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

Result<std::vector<int32_t>> InfillTokensOf(const Served& served, const Request& request) {
  InfillLayout layout = {.repository = false, .suffix_first = served.options.infill.suffix_first};
  if (request.endpoint == Endpoint::kInfill) {
    layout = served.options.infill;
    layout.context = served.engine->info().n_ctx;
    layout.n_predict = served.options.defaults.generation.n_predict;
  }
  return served.engine->InfillTokens(*request.infill, layout);
}

std::string EndOf(const Engine& engine, const std::vector<int32_t>& prompt) {
  const size_t n = std::min(prompt.size(), api::kPromptEndTokens);
  return engine.Detokenize({prompt.end() - static_cast<std::ptrdiff_t>(n), prompt.end()});
}

// Takes the prompts out of the request. The error: what is wrong with one of them.
Status TakePrompts(const Served& served, Prepared& prepared) {
  Request& request = *prepared.request;
  const Engine& engine = *served.engine;
  std::vector<api::Prompt> prompts = std::exchange(request.prompts, {});
  GenerationRequest& generation = request.generation;
  if (request.infill) {
    LS_ASSIGN(prepared.prompts.emplace_back(), InfillTokensOf(served, request));
  } else if (prompts.empty()) {
    LS_ASSIGN(prepared.prompts.emplace_back(), engine.PromptTokens(generation));
    prepared.reading = api::ReadingFormOf(served.dialect, EndOf(engine, prepared.prompts[0]), &request);
  }
  for (api::Prompt& prompt : prompts) {
    // One that is a single text is what it would be if it were alone.
    GenerationRequest own;
    if (prompt.size() == 1 && prompt[0].tokens.empty()) {
      own.prompt = std::move(prompt[0].text);
    } else {
      own.tokens = TokensOf(engine, std::move(prompt));
    }
    LS_ASSIGN(prepared.prompts.emplace_back(), engine.PromptTokens(own));
  }
  generation.prompt.clear();
  generation.messages.clear();
  generation.tokens.clear();
  generation.template_variables.clear();
  return {};
}

// Of a model that lacks the tokens for a text with a hole.
Error NoInfill(Endpoint endpoint, Error error) {
  if (endpoint == Endpoint::kInfill)
    return {.status_code = 501, .message = std::move(error.message), .type = "not_supported_error"};
  error.param = "suffix";
  return error;
}

}  // namespace

std::unique_ptr<Prepared> PreparedOf(Served& served, std::variant<Request, Error> parsed, Call& call) {
  if (const auto* error = std::get_if<Error>(&parsed)) {
    call.SendError(*error);
    return nullptr;
  }
  auto prepared = std::make_unique<Prepared>(
      Prepared{.request = std::make_shared<Request>(std::get<Request>(std::move(parsed)))});
  Request& request = *prepared->request;
  if (!request.unknown.empty()) call.Note("unknown_fields", request.unknown);
  if (!request.ignored.empty()) call.Note("ignored_fields", request.ignored);
  call.Note("stream", request.wishes.stream);
  if (const auto error = api::ApplyTools(served.dialect, &request)) {
    call.SendError(*error);
    return nullptr;
  }
  if (!PrepareTokens(served, *prepared, call)) return nullptr;
  return prepared;
}

namespace {

// As the API of a route has requests.
using Parse = std::variant<Request, Error> (*)(const nlohmann::ordered_json& body,
                                               const api::RequestDefaults& defaults);

// The request of a call; null after an error was sent.
std::unique_ptr<Prepared> RequestOf(Served& served, Parse parse, Call& call) {
  const auto body = BodyOf(served, call);
  if (body == nullptr) return nullptr;
  return PreparedOf(served, parse(*body, served.options.defaults), call);
}

}  // namespace

api::FormParts FormPartsOf(const Served& served, const Call& call, const Prepared& prepared) {
  api::FormParts parts{.head = HeadOf(served, call),
                       .request = prepared.request,
                       .reading = prepared.reading,
                       .n_ctx = served.engine->info().n_ctx};
  parts.prompts.clear();
  const bool shows = prepared.request->wishes.echo || api::IsLlamas(prepared.request->endpoint);
  for (const auto& tokens : prepared.prompts) {
    parts.prompts.push_back({.text = shows ? served.engine->Detokenize(tokens) : std::string(),
                             .n_tokens = static_cast<int>(tokens.size())});
  }
  return parts;
}

void Generate(Served& served, Prepared& prepared, std::unique_ptr<api::AnswerForm> form,
              const CallPtr& call) {
  GenerationWish wish{.request = prepared.request, .prompts = std::move(prepared.prompts)};
  const GrammarText& grammar = wish.request->generation.grammar;
  if (grammar.kind != GrammarText::Kind::kNone) {
    auto compiled = served.engine->PrepareGrammar(grammar);
    if (!compiled.ok()) {
      Error error = api::BadValueOf(compiled.status());
      error.param = wish.request->grammar_field;
      return call->SendError(error);
    }
    wish.grammar = *std::move(compiled);
  }
  StartGenerationJob(served.job_parts(), std::move(wish), std::move(form), call);
}

namespace {

using MakeForm = std::unique_ptr<api::AnswerForm> (*)(api::FormParts parts);

void Respond(Served& served, Parse parse, MakeForm make_form, const CallPtr& call) {
  const auto request = RequestOf(served, parse, *call);
  if (request == nullptr) return;
  Generate(served, *request, make_form(FormPartsOf(served, *call, *request)), call);
}

}  // namespace

std::unique_ptr<nlohmann::ordered_json> BodyOf(const Served& served, Call& call) {
  Call::Body body = call.TakeBody();
  auto decoded = DecodedBody(call.request().Header("content-encoding"), std::move(body.text),
                             served.options.most_body_bytes);
  if (const auto* error = std::get_if<Error>(&decoded)) {
    call.SendError(*error);
    return nullptr;
  }
  auto json = api::ParseJson(std::get<std::string>(decoded));
  if (const auto* error = std::get_if<Error>(&json)) {
    call.SendError(*error);
    return nullptr;
  }
  return std::make_unique<nlohmann::ordered_json>(std::get<nlohmann::ordered_json>(std::move(json)));
}

bool PrepareTokens(const Served& served, Prepared& prepared, Call& call) {
  Request& request = *prepared.request;
  GenerationRequest& generation = request.generation;
  const Engine& engine = *served.engine;
  auto& biases = generation.sampling.logit_bias;
  for (const auto& [text, bias] : request.text_bias) {
    for (const int32_t token : engine.Tokenize(text, false, true)) biases.emplace_back(token, bias);
    if (biases.size() > api::kMostBiases) {
      call.SendError(
          {.message = "logit_bias: its texts have more than " + std::to_string(api::kMostBiases) + " tokens",
           .param = "logit_bias",
           .code = "invalid_value"});
      return false;
    }
  }
  const int n_vocab = engine.info().n_vocab;
  for (const auto& [token, bias] : biases) {
    if (token < n_vocab) continue;
    call.SendError({.message = "logit_bias: token " + std::to_string(token) +
                               " is not in the vocabulary of " + std::to_string(n_vocab) + " tokens",
                    .param = "logit_bias",
                    .code = "invalid_value"});
    return false;
  }
  if (const auto& wish = request.speculative; !wish.type.empty() || wish.max_rows >= 0) {
    const std::string type = wish.type.empty() ? generation.speculation.type : wish.type;
    generation.speculation = SpeculationOf(generation.speculation, type, wish.max_rows);
  }
  const bool is_auto = generation.speculation.type == "auto";
  if (!request.prediction && is_auto) request.prediction = ExpectedIn(generation);
  PredictionDraftOptions prediction;
  if (request.infill && is_auto) prediction = HolePrediction(*request.infill, *served.suggestions, engine);
  if (request.prediction) prediction.tokens = engine.Tokenize(*request.prediction);
  AddPrediction(std::move(prediction), generation.speculation);
  if (const Status taken = TakePrompts(served, prepared); !taken.ok()) {
    Error error = api::BadValueOf(taken);
    if (request.infill) error = NoInfill(request.endpoint, std::move(error));
    call.SendError(error);
    return false;
  }
  return true;
}

api::ResponseHead HeadOf(const Served& served, const Call& call) {
  return {.id = call.id(),
          .created = std::time(nullptr),
          .model = served.model_names.front(),
          .fingerprint = "longspec-" LONGSPEC_VERSION "-" + served.engine->info().kernels};
}

void PostChatCompletions(Served& served, CallPtr call) {
  Respond(served, api::ParseChatRequest, api::MakeOpenAiForm, call);
}
void PostCompletions(Served& served, CallPtr call) {
  Respond(served, api::ParseCompletionRequest, api::MakeOpenAiForm, call);
}
void PostFimCompletions(Served& served, CallPtr call) {
  Respond(served, api::ParseFimRequest, api::MakeOpenAiForm, call);
}
void PostLlamaCompletion(Served& served, CallPtr call) {
  Respond(served, api::ParseLlamaRequest, api::MakeLlamaForm, call);
}
void PostInfill(Served& served, CallPtr call) {
  Respond(served, api::ParseInfillRequest, api::MakeLlamaForm, call);
}
void PostMessages(Served& served, CallPtr call) {
  Respond(served, api::ParseMessagesRequest, api::MakeAnthropicForm, call);
}
void PostResponses(Served& served, CallPtr call) {
  Respond(served, api::ParseResponsesRequest, api::MakeResponsesForm, call);
}

void PostCountTokens(Served& served, CallPtr call) {
  const auto request = RequestOf(served, api::ParseCountTokensRequest, *call);
  if (request != nullptr) call->SendJson({{"input_tokens", request->prompts[0].size()}});
}

}  // namespace longspec::server
