// SPDX-License-Identifier: Apache-2.0
#include "server/call.h"

#include <random>
#include <utility>

#include "base/clock.h"
#include "base/print.h"
#include "json/json_text.h"
#include "server/body_coding.h"

namespace longspec::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kClientGone = 499;  // of the log only, as nginx has it

std::string NewId() {
  thread_local std::mt19937_64 engine{std::random_device()()};
  return Print("%016llx%08llx", static_cast<unsigned long long>(engine()),
               static_cast<unsigned long long>(engine() >> 32U));
}

}  // namespace

Call::Call(HttpRequest request, std::shared_ptr<Reply> reply, AccessLog* log, Metrics* metrics)
    : request_(std::move(request)),
      method_(request_.method),
      path_(request_.path),
      client_(request_.client),
      reply_(std::move(reply)),
      log_(log),
      metrics_(metrics),
      id_(NewId()),
      arrived_ms_(NowMs()) {}

// Whoever was to answer has let go of it: the client went away, or something is wrong here.
Call::~Call() { Log(kClientGone); }

void Call::AddCommon(HttpResponse* response) const {
  response->headers.insert(response->headers.end(), common_.begin(), common_.end());
  response->headers.emplace_back("X-Request-Id", "req_" + id_);
}

void Call::Send(HttpResponse response) {
  AddCommon(&response);
  Log(response.status);
  reply_->Send(std::move(response));
}

void Call::SendJson(const Json& json) { Send({.body = WriteJson(json) + "\n"}); }

void Call::SendError(const api::Error& error, const Json& more, Headers headers) {
  api::Error shown = error;
  shown.message = Shown(std::move(shown.message));
  HttpResponse response{.status = error.status_code,
                        .headers = std::move(headers),
                        .body = WriteJson(ErrorJson(shown, more)) + "\n"};
  if (error.status_code == 429 || error.status_code == 503) response.headers.emplace_back("Retry-After", "1");
  if (error.status_code == 415) response.headers.emplace_back("Accept-Encoding", kBodyCodings);
  if (error.status_code == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  Note("error", error.message);
  Send(std::move(response));
}

void Call::BeginEvents(int ping_seconds) {
  BeginStream("text/event-stream", {.bytes = ": ping\n\n", .seconds = ping_seconds});
}

void Call::BeginLines() { BeginStream("application/x-ndjson", {.bytes = {}, .seconds = 0}); }

void Call::BeginStream(std::string content_type, Reply::Idle idle) {
  HttpResponse head{.content_type = std::move(content_type),
                    .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}};
  AddCommon(&head);
  begun_ = true;
  reply_->Begin(std::move(head), std::move(idle));
}

bool Call::Write(std::string events) {
  if (reply_->Write(std::move(events))) return true;
  SetGone();  // who writes may hear of it before OnGone's function is called
  return false;
}

void Call::End() {
  Log(200);
  reply_->End();
}

void Call::OnGone(std::function<void()> on_gone) { reply_->OnGone(std::move(on_gone)); }

void Call::Note(const std::string& name, Json value) {
  const std::lock_guard lock(mutex_);
  notes_[name] = std::move(value);
}

void Call::SetGone() { gone_ = true; }

void Call::Log(int status) {
  const std::lock_guard lock(mutex_);
  if (gone_) status = kClientGone;
  if (std::exchange(logged_, true)) return;
  if (status >= 400) metrics_->Add("longspec:request_failure_total", 1, {{"status", std::to_string(status)}});
  if (is_silent_ && (status < 400 || status == 503)) return;  // 503: it says how the server is, too
  Json fields = {{"id", id_},     {"client", client_}, {"method", method_},
                 {"path", path_}, {"status", status},  {"ms", NowMs() - arrived_ms_}};
  for (const auto& [name, value] : notes_.items()) fields[name] = value;
  log_->Write(fields);
}

}  // namespace longspec::server
