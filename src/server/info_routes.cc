// SPDX-License-Identifier: Apache-2.0
//
// Routes that tell about the server, its model and its tokens.
#include <algorithm>
#include <utility>

#include "api/apply_dialect.h"
#include "api/fields.h"
#include "api/llama.h"
#include "api/openai.h"
#include "base/percent_decoding.h"
#include "base/utf8.h"
#include "longspec/version.h"
#include "server/serving.h"

namespace longspec::server {
namespace {

using Json = nlohmann::ordered_json;
using api::Error;
using api::Fields;

constexpr int64_t kMostTokenNumber = (int64_t{1} << 31) - 1;
constexpr size_t kMostListedTokens = size_t{4} << 20;    // 16 bytes each
constexpr size_t kMostListedPieces = size_t{512} << 10;  // some 400 bytes each

// A text, or bytes where it is none by itself.
Json PieceJson(const std::string& bytes) {
  if (IsUtf8(bytes)) return bytes;
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

}  // namespace

void GetVersion(Served&, CallPtr call) { call->SendJson({{"version", LONGSPEC_VERSION}}); }

void GetModels(Served& served, CallPtr call) {
  const ModelInfo& info = served.engine->info();
  const std::string& id = served.model_names.front();
  const Json model = {{"id", id},
                      {"aliases", served.model_names},
                      {"object", "model"},
                      {"created", served.created},
                      {"owned_by", "longspec"},
                      {"meta",
                       {{"n_vocab", info.n_vocab},
                        {"n_ctx", info.n_ctx},
                        {"n_ctx_train", info.n_ctx_train},
                        {"n_embd", info.n_embd},
                        {"n_params", info.n_parameters},
                        {"size", info.file_bytes},
                        {"file_type", info.file_type}}}};
  // GET /v1/models/NAME
  const std::string& path = call->request().path;
  if (const size_t at = path.find("/models/"); at != std::string::npos) {
    const std::string name = PercentDecoded(path.substr(at + 8));
    if (std::ranges::find(served.model_names, name) != served.model_names.end()) return call->SendJson(model);
    return call->SendError({.status_code = 404,
                            .message = "the model \"" + name + "\" is not here: there is \"" + id + "\"",
                            .param = "model"});
  }
  // `models` is what ollama's clients and Codex look at.
  const Json shown = {
      {"name", id}, {"model", id}, {"details", {{"format", "gguf"}, {"family", info.architecture}}}};
  call->SendJson({{"object", "list"}, {"data", Json::array({model})}, {"models", Json::array({shown})}});
}

void GetProps(Served& served, CallPtr call) {
  const ModelInfo& info = served.engine->info();
  call->SendJson({{"default_generation_settings",
                   {{"n_ctx", info.n_ctx},
                    {"params", api::GenerationSettingsJson(served.options.defaults.generation, info.n_ctx)}}},
                  {"total_slots", served.slots->size()},
                  {"model_alias", served.model_names.front()},
                  {"model_path", served.files.WithoutFolders(info.path)},
                  {"modalities", {{"vision", false}, {"audio", false}}},
                  {"chat_template", info.chat_template},
                  {"build_info", "longspec " LONGSPEC_VERSION},
                  {"kernels", info.kernels},
                  {"is_sleeping", false}});
}

void GetSlots(Served& served, CallPtr call) {
  if (!call->request().QueryValue("fail_on_no_slot").empty() && served.slots->n_idle() == 0)
    return call->SendError(api::Unavailable("no slot is idle"));
  call->SendJson(served.slots->Json());
}

void GetMetrics(Served& served, CallPtr call) {
  call->Send({.content_type = "text/plain; version=0.0.4; charset=utf-8", .body = served.metrics.Text()});
}

void PostTokenize(Served& served, CallPtr call) {
  const auto body = BodyOf(served, *call);
  if (body == nullptr) return;
  Fields fields(*body, "");
  std::string content;
  bool add_special = false, parse_special = true, with_pieces = false;
  fields.Text("content", &content);
  fields.Bool("add_special", &add_special);
  fields.Bool("parse_special", &parse_special);
  fields.Bool("with_pieces", &with_pieces);
  // Of vLLM's route of this name.
  fields.Only("prompt", "[]", "content has the text");
  fields.Only("messages", "[]", "POST /apply-template gives the text of a chat, which can be the content");
  if (fields.error()) return call->SendError(*fields.error());
  const std::vector<int32_t> tokens = served.engine->Tokenize(content, add_special, parse_special);
  const size_t most = with_pieces ? kMostListedPieces : kMostListedTokens;
  if (tokens.size() > most) {
    return call->SendError({.status_code = 413,
                            .message = "content has " + std::to_string(tokens.size()) +
                                       " tokens, of which at most " + std::to_string(most) +
                                       (with_pieces ? " are listed with their pieces" : " are listed"),
                            .param = "content",
                            .code = "request_too_large"});
  }
  Json list = Json::array();
  for (const int32_t token : tokens) {
    if (with_pieces) {
      list.push_back({{"id", token}, {"piece", PieceJson(served.engine->Detokenize({token}))}});
    } else {
      list.push_back(token);
    }
  }
  call->SendJson({{"tokens", std::move(list)}});
}

void PostDetokenize(Served& served, CallPtr call) {
  const auto body = BodyOf(served, *call);
  if (body == nullptr) return;
  Fields fields(*body, "");
  std::vector<int32_t> tokens;
  const nlohmann::ordered_json* list = fields.Find("tokens");
  if (list != nullptr && list->is_array()) {
    for (const auto& token : *list) {
      const auto id = api::WholeNumber(token);
      const bool fits = id && *id >= 0 && *id <= kMostTokenNumber;
      if (!fits) fields.Fail("tokens", "must be a list of token numbers", "invalid_type");
      tokens.push_back(fits ? static_cast<int32_t>(*id) : 0);
    }
  } else if (list != nullptr) {
    fields.Fail("tokens", "must be a list of token numbers", "invalid_type");
  }
  if (fields.error()) return call->SendError(*fields.error());
  if (tokens.size() > kMostListedPieces) {
    return call->SendError({.status_code = 413,
                            .message = "tokens has " + std::to_string(tokens.size()) + " entries; at most " +
                                       std::to_string(kMostListedPieces) + " are read",
                            .param = "tokens",
                            .code = "request_too_large"});
  }
  call->SendJson({{"content", served.engine->Detokenize(tokens)}});
}

void PostApplyTemplate(Served& served, CallPtr call) {
  const auto body = BodyOf(served, *call);
  if (body == nullptr) return;
  auto parsed = api::ParseChatRequest(*body, served.options.defaults);
  if (const auto* error = std::get_if<Error>(&parsed)) return call->SendError(*error);
  auto& request = std::get<api::Request>(parsed);
  if (const auto error = api::ApplyTools(served.dialect, &request)) return call->SendError(*error);
  const auto prompt = served.engine->ChatPrompt(request.generation);
  if (!prompt.ok()) return call->SendError(api::BadValueOf(prompt.status()));
  call->SendJson({{"prompt", *prompt}});
}

}  // namespace longspec::server
