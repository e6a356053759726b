// SPDX-License-Identifier: Apache-2.0
//
// Routes that generate: OpenAI's chat and text completions, llama.cpp's /completion, Anthropic's messages.
#include <algorithm>
#include <ctime>
#include <utility>

#include "base/status_macros.h"
#include "longspec/version.h"
#include "openai/infill_fields.h"
#include "openai/next_edit.h"
#include "server/body_coding.h"
#include "server/hole_prediction.h"
#include "server/serving.h"
#include "wire/anthropic.h"
#include "wire/responses_api.h"

namespace longspec::server {
namespace {

using openai::ApiError;
using openai::ApiRequest;
using openai::Endpoint;

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
  return openai::UneditedRegion(request.messages.empty() ? request.prompt : request.messages.back().content);
}

std::vector<int32_t> TokensOf(const Engine& engine, openai::Prompt prompt) {
  if (prompt.size() == 1) return std::move(prompt[0].tokens);
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < prompt.size(); ++i) {
    const auto more =
        prompt[i].text.empty() ? prompt[i].tokens : engine.Tokenize(prompt[i].text, i == 0, true);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  return tokens;
}

Result<std::vector<int32_t>> InfillTokensOf(const Served& served, const ApiRequest& request) {
  InfillLayout layout = {.repository = false, .suffix_first = served.options.infill.suffix_first};
  if (request.endpoint == Endpoint::kInfill) {
    layout = served.options.infill;
    layout.context = served.engine->info().n_ctx;
    layout.n_predict = served.options.defaults.generation.n_predict;
  }
  return served.engine->InfillTokens(*request.infill, layout);
}

std::string EndOf(const Engine& engine, const std::vector<int32_t>& prompt) {
  const size_t n = std::min(prompt.size(), openai::kPromptEndTokens);
  return engine.Detokenize({prompt.end() - static_cast<std::ptrdiff_t>(n), prompt.end()});
}

// Takes the prompts out of the request. The error: what is wrong with one of them.
Status TakePrompts(const Served& served, Prepared& prepared) {
  ApiRequest& request = *prepared.request;
  const Engine& engine = *served.engine;
  std::vector<openai::Prompt> prompts = std::exchange(request.prompts, {});
  GenerationRequest& generation = request.generation;
  if (request.infill) {
    LS_ASSIGN(prepared.prompts.emplace_back(), InfillTokensOf(served, request));
  } else if (prompts.empty()) {
    LS_ASSIGN(prepared.prompts.emplace_back(), engine.PromptTokens(generation));
    prepared.reading = openai::ReadingFormOf(served.dialect, EndOf(engine, prepared.prompts[0]), &request);
  }
  for (openai::Prompt& prompt : prompts) {
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
ApiError NoInfill(Endpoint endpoint, ApiError error) {
  if (endpoint == Endpoint::kInfill)
    return {.status_code = 501, .message = std::move(error.message), .type = "not_supported_error"};
  error.param = "suffix";
  return error;
}

}  // namespace

std::unique_ptr<Prepared> PreparedOf(Served& served, std::variant<ApiRequest, ApiError> parsed, Call& call) {
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    call.SendError(*error);
    return nullptr;
  }
  auto prepared = std::make_unique<Prepared>(
      Prepared{.request = std::make_shared<ApiRequest>(std::get<ApiRequest>(std::move(parsed)))});
  ApiRequest& request = *prepared->request;
  if (!request.unknown.empty()) call.Note("unknown_fields", request.unknown);
  if (!request.ignored.empty()) call.Note("ignored_fields", request.ignored);
  call.Note("stream", request.wishes.stream);
  if (const auto error = openai::ApplyTools(served.dialect, &request)) {
    call.SendError(*error);
    return nullptr;
  }
  if (!PrepareTokens(served, *prepared, call)) return nullptr;
  return prepared;
}

namespace {

using Parsed = std::variant<ApiRequest, ApiError>;

// The request of a call, as `parse` makes it of the body; null after an error was sent.
template <typename Parse>
std::unique_ptr<Prepared> RequestOf(Served& served, Call& call, const Parse& parse) {
  const auto body = BodyOf(served, call);
  if (body == nullptr) return nullptr;
  return PreparedOf(served, parse(*body), call);
}

std::unique_ptr<Prepared> RequestOf(Served& served, Endpoint endpoint, Call& call) {
  return RequestOf(served, call, [&](const nlohmann::ordered_json& body) {
    return openai::ParseRequest(endpoint, body, served.options.defaults);
  });
}

std::unique_ptr<Prepared> MessagesOf(Served& served, bool count_only, Call& call) {
  return RequestOf(served, call, [&](const nlohmann::ordered_json& body) {
    return wire::ParseMessagesRequest(body, served.options.defaults, count_only);
  });
}

}  // namespace

wire::FormParts FormPartsOf(const Served& served, const Call& call, const Prepared& prepared) {
  wire::FormParts parts{.head = HeadOf(served, call),
                        .request = prepared.request,
                        .reading = prepared.reading,
                        .n_ctx = served.engine->info().n_ctx};
  parts.prompts.clear();
  const bool shows = prepared.request->wishes.echo || openai::IsLlamas(prepared.request->endpoint);
  for (const auto& tokens : prepared.prompts) {
    parts.prompts.push_back({.text = shows ? served.engine->Detokenize(tokens) : std::string(),
                             .n_tokens = static_cast<int>(tokens.size())});
  }
  return parts;
}

void Generate(Served& served, Prepared& prepared, std::unique_ptr<wire::AnswerForm> form,
              const CallPtr& call) {
  GenerationWish wish{.request = prepared.request, .prompts = std::move(prepared.prompts)};
  const GrammarText& grammar = wish.request->generation.grammar;
  if (grammar.kind != GrammarText::Kind::kNone) {
    auto compiled = served.engine->PrepareGrammar(grammar);
    if (!compiled.ok()) {
      ApiError error = openai::BadValueOf(compiled.status());
      error.param = wish.request->grammar_field;
      return call->SendError(error);
    }
    wish.grammar = *std::move(compiled);
  }
  StartGenerationJob(served.job_parts(), std::move(wish), std::move(form), call);
}

namespace {

void PostLlamas(Served& served, Endpoint endpoint, const CallPtr& call) {
  const auto request = RequestOf(served, endpoint, *call);
  if (request == nullptr) return;
  Generate(served, *request, wire::MakeLlamaForm(FormPartsOf(served, *call, *request)), call);
}

void PostOpenAi(Served& served, Endpoint endpoint, const CallPtr& call) {
  const auto request = RequestOf(served, endpoint, *call);
  if (request == nullptr) return;
  Generate(served, *request, wire::MakeOpenAiForm(FormPartsOf(served, *call, *request)), call);
}

}  // namespace

std::unique_ptr<nlohmann::ordered_json> BodyOf(const Served& served, Call& call) {
  Call::Body body = call.TakeBody();
  auto decoded = DecodedBody(call.request().Header("content-encoding"), std::move(body.text),
                             served.options.most_body_bytes);
  if (const auto* error = std::get_if<ApiError>(&decoded)) {
    call.SendError(*error);
    return nullptr;
  }
  auto json = openai::ParseJson(std::get<std::string>(decoded));
  if (const auto* error = std::get_if<ApiError>(&json)) {
    call.SendError(*error);
    return nullptr;
  }
  return std::make_unique<nlohmann::ordered_json>(std::get<nlohmann::ordered_json>(std::move(json)));
}

bool PrepareTokens(const Served& served, Prepared& prepared, Call& call) {
  ApiRequest& request = *prepared.request;
  GenerationRequest& generation = request.generation;
  const Engine& engine = *served.engine;
  auto& biases = generation.sampling.logit_bias;
  for (const auto& [text, bias] : request.text_bias) {
    for (const int32_t token : engine.Tokenize(text, false, true)) biases.emplace_back(token, bias);
    if (biases.size() > openai::kMostBiases) {
      call.SendError({.message = "logit_bias: its texts have more than " +
                                 std::to_string(openai::kMostBiases) + " tokens",
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
    ApiError error = openai::BadValueOf(taken);
    if (request.infill) error = NoInfill(request.endpoint, std::move(error));
    call.SendError(error);
    return false;
  }
  return true;
}

openai::ResponseHead HeadOf(const Served& served, const Call& call) {
  return {.id = call.id(),
          .created = std::time(nullptr),
          .model = served.model_names.front(),
          .fingerprint = "longspec-" LONGSPEC_VERSION "-" + served.engine->info().kernels};
}

void PostChatCompletions(Served& served, CallPtr call) {
  PostOpenAi(served, Endpoint::kChatCompletions, call);
}
void PostCompletions(Served& served, CallPtr call) { PostOpenAi(served, Endpoint::kCompletions, call); }

void PostLlamaCompletion(Served& served, CallPtr call) {
  PostLlamas(served, Endpoint::kLlamaCompletion, call);
}
void PostInfill(Served& served, CallPtr call) { PostLlamas(served, Endpoint::kInfill, call); }

void PostFimCompletions(Served& served, CallPtr call) {
  const auto request = RequestOf(served, *call, [&](const nlohmann::ordered_json& body) {
    return openai::ParseFimRequest(body, served.options.defaults);
  });
  if (request == nullptr) return;
  Generate(served, *request, wire::MakeOpenAiForm(FormPartsOf(served, *call, *request)), call);
}

void PostMessages(Served& served, CallPtr call) {
  const auto request = MessagesOf(served, false, *call);
  if (request == nullptr) return;
  Generate(served, *request, wire::MakeAnthropicForm(FormPartsOf(served, *call, *request)), call);
}

void PostResponses(Served& served, CallPtr call) {
  nlohmann::ordered_json repeated = nlohmann::ordered_json::object();
  const auto request = RequestOf(served, *call, [&](const nlohmann::ordered_json& body) -> Parsed {
    auto parsed = wire::ParseResponsesRequest(body, served.options.defaults);
    if (auto* error = std::get_if<ApiError>(&parsed)) return std::move(*error);
    auto& responses = std::get<wire::ResponsesRequest>(parsed);
    repeated = std::move(responses.repeated);
    return std::move(responses.chat);
  });
  if (request == nullptr) return;
  auto form = wire::MakeResponsesForm(FormPartsOf(served, *call, *request), std::move(repeated));
  Generate(served, *request, std::move(form), call);
}

void PostCountTokens(Served& served, CallPtr call) {
  const auto request = MessagesOf(served, true, *call);
  if (request != nullptr) call->SendJson({{"input_tokens", request->prompts[0].size()}});
}

}  // namespace longspec::server
