// SPDX-License-Identifier: Apache-2.0
//
// Slots saved to files, restored and erased. What a slot's tokens evaluated is known to the engine for as
// long as there is room; a session made of them is what the file holds. Sessions are made and let go of on
// the loop's thread; files are written by a worker.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "api/fields.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "server/serving.h"

namespace longspec::server {
namespace {

using Json = nlohmann::ordered_json;
using api::Error;

constexpr size_t kMostNameBytes = 200;

// A name in the folder, and nothing that leads out of it.
bool IsFileName(const std::string& name) {
  return !name.empty() && name.size() <= kMostNameBytes && name[0] != '.' &&
         std::ranges::all_of(name, [](char c) {
           return static_cast<unsigned char>(c) > ' ' && c != '/' && c != '\\' && c != 0x7F;
         });
}

Error FileError(const Status& status) {
  Error error = api::FailureOf(status);
  if (status.code() == StatusCode::kNotFound) error.status_code = 404;
  if (status.code() == StatusCode::kCorrupt)
    error = {.message = status.message(), .param = "filename", .code = "invalid_value"};
  return error;
}

// A session that has evaluated these tokens. What is still known of them costs nothing.
Result<std::shared_ptr<Session>> Evaluated(Engine& engine, std::vector<int32_t> tokens) {
  // Where an answer filled the context, nobody evaluated its last token.
  if (const auto most = static_cast<size_t>(engine.info().n_ctx) - 1; tokens.size() > most)
    tokens.resize(most);
  LS_ASSIGN(std::shared_ptr<Session> session, engine.NewSession());
  GenerationRequest request{.tokens = std::move(tokens), .n_predict = 0};
  request.speculation.type = "none";
  LS_ASSIGN(const auto generation, engine.Start(*session, request));
  (void)generation->Finish();
  return session;
}

void Save(Served& served, int slot, const std::string& name, const CallPtr& call) {
  const auto tokens = served.slots->Tokens(slot);
  if (!tokens || tokens->empty()) {
    return call->SendError({.message = "slot " + std::to_string(slot) +
                                       (tokens ? " holds nothing to save" : " is busy: try again later"),
                            .code = "invalid_value"});
  }
  served.loop->Post([&served, slot, name, call, tokens = *tokens] {
    const double start = NowMs();
    const auto session = Evaluated(*served.engine, tokens);
    if (!session.ok()) return call->SendError(FileError(session.status()));
    const bool posted = served.workers->Post([&served, slot, name, call, session = *session, start,
                                              saving = served.saving]() mutable {
      const std::string path = (std::filesystem::path(served.options.slot_save_path) / name).string();
      const Status saved = served.engine->SaveSession(*session, path);
      const size_t n_saved = session->tokens().size();
      served.loop->Post([held = std::move(session), saving = std::move(saving)]() mutable { held.reset(); });
      if (!saved.ok()) return call->SendError(FileError(saved));
      std::error_code error;
      call->SendJson({{"id_slot", slot},
                      {"filename", name},
                      {"n_saved", n_saved},
                      {"n_written", std::filesystem::file_size(path, error)},
                      {"timings", {{"save_ms", NowMs() - start}}}});
    });
    if (!posted) call->SendError(api::Unavailable("too much to do"));
  });
}

void Restore(Served& served, int slot, const std::string& name, const CallPtr& call) {
  served.loop->Post([&served, slot, name, call] {
    const double start = NowMs();
    const std::string path = (std::filesystem::path(served.options.slot_save_path) / name).string();
    const auto session = served.engine->LoadSession(path);
    if (!session.ok()) return call->SendError(FileError(session.status()));
    const std::vector<int32_t> tokens = (*session)->tokens();
    if (tokens.empty())
      return call->SendError({.message = path + ": holds no tokens", .code = "invalid_value"});
    // Its end makes what it holds known to all that begin alike.
    GenerationRequest request{.tokens = tokens, .n_predict = 0};
    request.speculation.type = "none";
    const auto generation = served.engine->Start(**session, request);
    if (!generation.ok()) return call->SendError(FileError(generation.status()));
    (void)(*generation)->Finish();
    if (!served.slots->SetTokens(slot, tokens)) {
      return call->SendError(
          {.message = "slot " + std::to_string(slot) + " is busy: try again later", .code = "invalid_value"});
    }
    std::error_code error;
    call->SendJson({{"id_slot", slot},
                    {"filename", name},
                    {"n_restored", tokens.size()},
                    {"n_read", std::filesystem::file_size(path, error)},
                    {"timings", {{"restore_ms", NowMs() - start}}}});
  });
}

void Erase(Served& served, int slot, const CallPtr& call) {
  const auto tokens = served.slots->Tokens(slot);
  if (!tokens) {
    return call->SendError(
        {.message = "slot " + std::to_string(slot) + " is busy: try again later", .code = "invalid_value"});
  }
  served.loop->Post([&served, slot, call, tokens = *tokens] {
    served.engine->Forget(tokens);
    served.slots->SetTokens(slot, {});
    call->SendJson({{"id_slot", slot}, {"n_erased", tokens.size()}});
  });
}

}  // namespace

// POST /slots/NUMBER?action=save|restore|erase
void PostSlot(Served& served, CallPtr call) {
  const std::string& path = call->request().path;
  const std::string number = path.substr(path.rfind('/') + 1);
  int slot = -1;
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), slot);
  if (parsed.ec != std::errc() || parsed.ptr != number.data() + number.size() || slot < 0 ||
      slot >= served.slots->size()) {
    return call->SendError({.message = "\"" + number + "\" is no slot: they go from 0 to " +
                                       std::to_string(served.slots->size() - 1),
                            .param = "id_slot",
                            .code = "invalid_value"});
  }
  const std::string action = call->request().QueryValue("action");
  if (action == "erase") return Erase(served, slot, call);
  if (action != "save" && action != "restore") {
    return call->SendError({.message = "action must be save, restore or erase, not \"" + action + "\"",
                            .param = "action",
                            .code = "invalid_value"});
  }
  if (served.options.slot_save_path.empty()) {
    return call->SendError({.status_code = 501,
                            .message = "slots are neither saved nor restored: start the server with "
                                       "--slot-save-path",
                            .type = "not_supported_error"});
  }
  const auto body = BodyOf(served, *call);
  if (body == nullptr) return;
  api::Fields fields(*body, "");
  std::string name;
  if (!fields.Text("filename", &name)) fields.Missing("filename");
  if (!fields.error() && !IsFileName(name))
    fields.Fail("filename", "must be the name of a file, without a folder", "invalid_value");
  if (fields.error()) return call->SendError(*fields.error());
  if (action == "save") {
    Save(served, slot, name, call);
  } else {
    Restore(served, slot, name, call);
  }
}

}  // namespace longspec::server
