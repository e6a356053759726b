// SPDX-License-Identifier: Apache-2.0
//
// The server without its sockets: requests in, responses out. Routes, keys, CORS, and what they need of the
// engine. Answers from the moment it is made: "loading" until it has an engine.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/request.h"
#include "longspec/engine.h"
#include "server/access_log.h"
#include "server/exchange.h"
#include "server/metrics.h"
#include "server/origins.h"

namespace longspec::server {

struct AppOptions {
  api::RequestDefaults defaults;  // what requests do not say
  SchedulerOptions scheduler;
  std::vector<std::string> model_names;            // the first as answers give it; none: the file's name
  std::vector<std::string> api_keys;               // empty: none is asked for
  std::string api_prefix;                          // "/llm": what all paths begin with
  Origins origins = *Origins::Parse("localhost");  // of pages that may call, besides its own
  bool names_are_own = false;              // every name by which it is called is its own (server/origins.h)
  bool credentials = true;                 // pages may send what their browsers keep of logins
  bool metrics = true, slots = true;       // whether /metrics and /slots are there
  bool page = true;                        // and the page at /
  std::string slot_save_path;              // a folder; empty: slots are neither saved nor restored
  InfillLayout infill = {.window = 2048};  // of /infill; the engine knows the context
  int ping_seconds = 30;                   // of streams in which nothing happens; 0: none
  int most_queued = 64;                    // requests that wait to start
  int worker_threads = 2;
  size_t most_body_bytes = size_t{64} << 20;  // of a body that came compressed
  bool log_polls = false;  // lines for what programs ask again and again: /health, /metrics, /slots
};

class Call;

class App {
 public:
  // `log` is borrowed.
  App(AppOptions options, AccessLog* log);
  ~App();
  App(const App&) = delete;
  App& operator=(const App&) = delete;

  // From now on there is an engine. Called once.
  Status SetEngine(std::unique_ptr<Engine> engine);

  void Handle(HttpRequest request, std::shared_ptr<Reply> reply);

  // No new work is taken; /health says so. What runs goes on.
  void BeginDrain() { draining_ = true; }
  int n_unended() const;  // requests whose answers are still to come
  void CancelAll();

  Metrics& metrics() { return metrics_; }

 private:
  class Serving;
  friend class Serving;
  bool RefusesOrigin(Call& call) const;

  const AppOptions options_;
  AccessLog* const log_;
  Metrics metrics_;
  std::unique_ptr<Serving> serving_;
  std::atomic<Serving*> ready_{nullptr};
  std::atomic<bool> draining_{false};
};

}  // namespace longspec::server
