// SPDX-License-Identifier: Apache-2.0
//
// Ollama's API, for its clients: one model, which is always loaded and answers to any name.
#include <string>
#include <utility>

#include "api/ollama.h"
#include "base/print.h"
#include "server/serving.h"

namespace longspec::server {
namespace {

using Json = nlohmann::ordered_json;
using api::OllamaRoute;

// Whose API this is: clients want to know what it can do.
constexpr const char* kVersion = "0.12.6";

// 1.5B, 494M
std::string SizeText(uint64_t n_parameters) {
  const auto n = static_cast<double>(n_parameters);
  return n >= 1e9 ? Print("%.1fB", n / 1e9) : Print("%.0fM", n / 1e6);
}

Json Details(const ModelInfo& info) {
  return {{"parent_model", ""},
          {"format", "gguf"},
          {"family", info.architecture},
          {"families", Json::array({info.architecture})},
          {"parameter_size", SizeText(info.n_parameters)},
          {"quantization_level", info.file_type}};
}

Json Capabilities(const Served& served) {
  const ModelInfo& info = served.engine->info();
  Json capabilities = Json::array({"completion"});
  if (info.has_chat_template && info.chat_template.find("tools") != std::string::npos)
    capabilities.emplace_back("tools");
  if (served.engine->InfillTokens({}, {}).ok()) capabilities.emplace_back("insert");
  return capabilities;
}

void PostOllama(Served& served, OllamaRoute route, const CallPtr& call) {
  const auto body = BodyOf(served, *call);
  if (body == nullptr) return;
  if (api::AsksNothing(route, *body)) return call->SendJson(api::LoadedJson(route, HeadOf(served, *call)));
  auto parsed =
      api::ParseOllamaRequest(route, *body, served.options.defaults, served.engine->info().has_chat_template);
  const auto request = PreparedOf(served, std::move(parsed), *call);
  if (request == nullptr) return;
  Generate(served, *request, api::MakeOllamaForm(route, FormPartsOf(served, *call, *request)), call);
}

}  // namespace

void GetOllamaVersion(Served&, CallPtr call) { call->SendJson({{"version", kVersion}}); }

// Those that there are, and those that are loaded: the same one.
void GetOllamaModels(Served& served, CallPtr call) {
  const ModelInfo& info = served.engine->info();
  const std::string& name = served.model_names.front();
  Json model = {{"name", name},
                {"model", name},
                {"modified_at", api::OllamaTime(served.created)},
                {"size", info.file_bytes},
                {"digest", Print("%064llx", static_cast<unsigned long long>(info.file_bytes))},
                {"details", Details(info)}};
  if (call->request().path == "/api/ps") {
    constexpr int64_t kNever = 253402300799;  // the year 9999
    model.erase("modified_at");
    model["expires_at"] = api::OllamaTime(kNever);
    model["size_vram"] = 0;
    model["context_length"] = info.n_ctx;
  }
  call->SendJson({{"models", Json::array({std::move(model)})}});
}

void PostOllamaShow(Served& served, CallPtr call) {
  if (BodyOf(served, *call) == nullptr) return;
  const ModelInfo& info = served.engine->info();
  const std::string prefix = info.architecture + ".";
  call->SendJson({{"modelfile", ""},
                  {"parameters", ""},
                  {"template", info.chat_template},
                  {"details", Details(info)},
                  {"model_info",
                   {{"general.architecture", info.architecture},
                    {"general.parameter_count", info.n_parameters},
                    {prefix + "context_length", info.n_ctx},
                    {prefix + "embedding_length", info.n_embd},
                    {prefix + "block_count", info.n_layer}}},
                  {"capabilities", Capabilities(served)},
                  {"modified_at", api::OllamaTime(served.created)}});
}

void PostOllamaChat(Served& served, CallPtr call) { PostOllama(served, OllamaRoute::kChat, call); }
void PostOllamaGenerate(Served& served, CallPtr call) { PostOllama(served, OllamaRoute::kGenerate, call); }

}  // namespace longspec::server
