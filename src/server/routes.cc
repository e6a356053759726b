// SPDX-License-Identifier: Apache-2.0
#include "server/routes.h"

#include <algorithm>

#include "api/anthropic.h"
#include "api/ollama.h"
#include "server/page.h"

namespace longspec::server {
namespace {

void GetHealth(const ServerState& state, Call& call) {
  if (state.is_stopping) return call.SendError(api::Unavailable("the server is stopping"));
  if (state.is_loading) return call.SendError(api::Unavailable("Loading model"));
  call.SendJson({{"status", "ok"}});
}

void GetPage(const ServerState&, Call& call) {
  call.Send({.content_type = "text/html; charset=utf-8",
             .headers = {{"Content-Security-Policy", kPagePolicy},
                         {"X-Content-Type-Options", "nosniff"},
                         {"Referrer-Policy", "no-referrer"},
                         {"Cache-Control", "no-cache"}},
             .body = std::string(Page())});
}

using WithEngine = void (*)(Served&, CallPtr);

constexpr Route Get(std::string_view path, WithEngine handler) {
  return {.method = "GET", .path = path, .with_engine = handler, .is_quick = true};
}
constexpr Route Post(std::string_view path, WithEngine handler) {
  return {.method = "POST", .path = path, .with_engine = handler};
}
constexpr Route Public(Route route) {
  route.is_public = true;
  return route;
}
constexpr Route Polled(Route route) {
  route.is_polled = true;
  return route;
}
constexpr Route If(bool AppOptions::*option, Route route) {
  route.option = option;
  return route;
}
constexpr Route Anthropic(Route route) {
  route.errors = api::AnthropicErrorBody;
  return route;
}
constexpr Route Ollama(Route route) {
  route.errors = api::OllamaErrorBody;
  return route;
}
constexpr Route Health(std::string_view path) {
  return {.method = "GET", .path = path, .at_once = GetHealth, .is_public = true, .is_polled = true};
}
constexpr Route PageAt(std::string_view path) {
  return {.method = "GET",
          .path = path,
          .at_once = GetPage,
          .is_public = true,
          .option = &AppOptions::page,
          .is_hidden_when_off = true};
}

constexpr Route kRoutes[] = {
    Health("/health"),
    Health("/v1/health"),
    PageAt("/"),
    PageAt("/index.html"),
    Public(Get("/version", GetVersion)),
    Public(Get("/v1/models", GetModels)),
    Public(Get("/models", GetModels)),
    Public(Get("/v1/models/", GetModels)),
    Get("/props", GetProps),
    If(&AppOptions::slots, Polled(Get("/slots", GetSlots))),
    If(&AppOptions::metrics, Polled(Get("/metrics", GetMetrics))),
    Post("/v1/chat/completions", PostChatCompletions),
    Post("/chat/completions", PostChatCompletions),
    Post("/v1/completions", PostCompletions),
    Post("/completion", PostLlamaCompletion),
    Post("/completions", PostLlamaCompletion),
    Post("/infill", PostInfill),
    Post("/v1/fim/completions", PostFimCompletions),
    Post("/fim/completions", PostFimCompletions),
    Ollama(Public(Get("/api/version", GetOllamaVersion))),
    Ollama(Public(Get("/api/tags", GetOllamaModels))),
    Ollama(Public(Get("/api/ps", GetOllamaModels))),
    Ollama(Post("/api/show", PostOllamaShow)),
    Ollama(Post("/api/chat", PostOllamaChat)),
    Ollama(Post("/api/generate", PostOllamaGenerate)),
    Anthropic(Post("/v1/messages", PostMessages)),
    Anthropic(Post("/v1/messages/count_tokens", PostCountTokens)),
    Post("/v1/responses", PostResponses),
    Post("/responses", PostResponses),
    Post("/tokenize", PostTokenize),
    Post("/detokenize", PostDetokenize),
    Post("/apply-template", PostApplyTemplate),
    Post("/slots/", PostSlot),
};

bool IsAt(const Route& route, std::string_view path) {
  if (!route.path.ends_with('/') || route.path.size() == 1) return path == route.path;
  return path.size() > route.path.size() && path.starts_with(route.path);
}

// How many characters two paths share, up to a slash that both have.
size_t SharedFolder(std::string_view a, std::string_view b) {
  const size_t n = std::ranges::mismatch(a, b).in1 - a.begin();
  return a.substr(0, n).rfind('/') + 1;
}

// Of an address where nothing is.
api::ErrorForm ErrorsBeside(std::string_view path) {
  return std::ranges::max_element(kRoutes, {},
                                  [&](const Route& route) { return SharedFolder(route.path, path); })
      ->errors;
}

void AddMethod(std::string_view method, std::string* methods) {
  if (methods->find(method) != std::string::npos) return;
  *methods += (methods->empty() ? "" : ", ") + std::string(method);
  if (method == "GET") *methods += ", HEAD";
}

}  // namespace

RoutesAt FindRoutes(std::string_view method, std::string_view path, const AppOptions& options) {
  RoutesAt found = {.is_public = true};
  for (const Route& route : kRoutes) {
    const bool is_hidden = route.is_hidden_when_off && !(options.*route.option);
    if (is_hidden || !IsAt(route, path)) continue;
    if (route.method == method || (route.method == "GET" && method == "HEAD")) found.route = &route;
    found.is_public = found.is_public && route.is_public;
    found.errors = route.errors;
    AddMethod(route.method, &found.methods);
  }
  if (found.methods.empty()) found = {.errors = ErrorsBeside(path)};
  return found;
}

}  // namespace longspec::server
