// SPDX-License-Identifier: Apache-2.0
//
// One request on its way through the server: what was asked, how it is answered, and its line in the log.
// Thread-safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "api/errors.h"
#include "server/access_log.h"
#include "server/exchange.h"
#include "server/file_names.h"
#include "server/metrics.h"

namespace longspec::server {

class Call {
 public:
  // `log` and `metrics` are borrowed.
  Call(HttpRequest request, std::shared_ptr<Reply> reply, AccessLog* log, Metrics* metrics);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const HttpRequest& request() const { return request_; }
  const std::string& id() const { return id_; }  // random, for names of responses
  double arrived_ms() const { return arrived_ms_; }
  // What is left of the request has no body. Whoever has it holds the lease as long.
  struct Body {
    std::string text;
    std::shared_ptr<const void> lease;
  };
  Body TakeBody() { return {std::exchange(request_.body, {}), std::exchange(request_.body_lease, nullptr)}; }

  // Before it is answered:
  void set_error_form(api::ErrorForm form) { error_form_ = form; }
  void set_common(Headers headers) { common_ = std::move(headers); }  // of every response
  void set_files(const FileNames* files) { files_ = files; }          // borrowed
  void set_silent(bool is_silent) { is_silent_ = is_silent; }         // no line unless it fails

  // What the client may see of a message.
  std::string Shown(std::string message) const {
    return files_ == nullptr ? message : files_->WithoutFolders(std::move(message));
  }
  nlohmann::ordered_json ErrorJson(const api::Error& error, const nlohmann::ordered_json& more = {}) const {
    return error_form_(error, more);
  }

  void Send(HttpResponse response);
  void SendJson(const nlohmann::ordered_json& json);
  void SendError(const api::Error& error, const nlohmann::ordered_json& more = {}, Headers headers = {});

  // Server-sent events. Comments are sent where nothing else is for so long; 0: none.
  void BeginEvents(int ping_seconds);
  void BeginLines();               // of JSON, in place of events
  bool Write(std::string events);  // false: the client has gone
  void End();
  void OnGone(std::function<void()> on_gone);
  void SetGone();  // the log says so

  // A field of the log's line.
  void Note(const std::string& name, nlohmann::ordered_json value);

 private:
  void BeginStream(std::string content_type, Reply::Idle idle);
  void AddCommon(HttpResponse* response) const;
  void Log(int status);

  HttpRequest request_;
  const std::string method_, path_, client_;  // for the log
  const std::shared_ptr<Reply> reply_;
  Headers common_;
  AccessLog* const log_;
  Metrics* const metrics_;
  const std::string id_;
  const double arrived_ms_;
  api::ErrorForm error_form_ = api::ErrorBody;
  const FileNames* files_ = nullptr;
  bool is_silent_ = false;
  std::mutex mutex_;
  nlohmann::ordered_json notes_ = nlohmann::ordered_json::object();
  bool logged_ = false, begun_ = false;
  std::atomic<bool> gone_ = false;
};

}  // namespace longspec::server
