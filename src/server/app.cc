// SPDX-License-Identifier: Apache-2.0
#include "server/app.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <new>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "server/keys.h"
#include "server/routes.h"
#include "server/serving.h"

namespace longspec::server {
namespace {

using Json = nlohmann::ordered_json;

// What a page that may call is let see of the answer.
Headers CorsHeaders(std::string_view origin, bool credentials) {
  if (origin.empty()) return {};
  Headers headers = {{"Access-Control-Allow-Origin", std::string(origin)},
                     {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"},
                     {"Vary", "Origin"}};
  if (credentials) headers.emplace_back("Access-Control-Allow-Credentials", "true");
  return headers;
}

// A browser's question whether a page may send a request.
void SendPreflight(Call& call) {
  // A page that may send credentials is told the names of headers: to it * is one of them.
  const std::string_view wanted = call.request().Header("access-control-request-headers");
  HttpResponse response = {
      .content_type = "text/plain",
      .headers = {{"Access-Control-Allow-Methods", "GET, POST"},
                  {"Access-Control-Allow-Headers", wanted.empty() ? "*" : std::string(wanted)}}};
  // From a page of the internet to a server at home.
  if (call.request().Header("access-control-request-private-network") == "true")
    response.headers.emplace_back("Access-Control-Allow-Private-Network", "true");
  call.Send(std::move(response));
}

// Files that messages of the engine may speak of.
FileNames FilesOf(const AppOptions& options, const ModelInfo& info) {
  const SpeculationOptions& speculation = options.defaults.generation.speculation;
  return FileNames({info.path, options.slot_save_path, speculation.draft_model, speculation.suffix.corpus,
                    speculation.ppm.prior, speculation.recycling.file});
}

}  // namespace

class App::Serving {
 public:
  Serving(App& app, std::unique_ptr<Engine> engine)
      : app_(app), served_{.options = app.options_, .metrics = app.metrics_} {
    served_.engine = std::move(engine);
  }

  // Workers first: they post to the loop, whose end cancels what is left. Its last tasks may still ask for
  // workers.
  ~Serving() {
    if (served_.workers != nullptr) served_.workers->Stop();
    served_.loop.reset();
  }

  Status Start() {
    const ModelInfo& info = served_.engine->info();
    served_.model_names = app_.options_.model_names;
    if (served_.model_names.empty())
      served_.model_names.push_back(std::filesystem::path(info.path).filename().string());
    served_.files = FilesOf(app_.options_, info);
    served_.created = std::time(nullptr);
    served_.dialect = chat::DialectOf(info.chat_template);
    SchedulerOptions options = app_.options_.scheduler;
    options.on_round = [&metrics = app_.metrics_](const RoundReport& round) { Count(round, metrics); };
    options.waits_for_sessions = [&saving = served_.saving] {
      if (saving.use_count() == 1) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      return true;
    };
    LS_ASSIGN(auto scheduler, served_.engine->NewScheduler(options));
    const int n_slots = options.parallel > 0 ? std::min(options.parallel, kMostSlots) : kMostSlots;
    served_.slots = std::make_unique<SlotTable>(n_slots, info.n_ctx);
    served_.loop = std::make_unique<EngineLoop>(
        std::move(scheduler),
        LoopOptions{
            .most_queued = app_.options_.most_queued,
            .on_stats = [this](const SchedulerStats& stats) { Count(stats); },
            .on_failure =
                [log = app_.log_](const Status& status) {
                  log->Write({{"event", "round_failed"}, {"error", status.message()}});
                },
            .when_idle = [engine = served_.engine.get()](
                             const std::function<bool()>& keep_going) { engine->MeasureCosts(keep_going); }});
    served_.workers = std::make_unique<Workers>(app_.options_.worker_threads, kMostForWorkers);
    return {};
  }

  Served& served() { return served_; }

 private:
  static constexpr int kMostSlots = 64;  // as many as the scheduler runs
  static constexpr size_t kMostForWorkers = 1024;

  static void Count(const RoundReport& round, Metrics& metrics) {
    metrics.Observe("longspec:step_rows", round.rows);
    metrics.Observe("longspec:step_sequences", round.sequences);
    metrics.Observe("longspec:iteration_tokens_total", round.tokens);
    metrics.Observe("longspec:step_cost_actual_seconds", round.pass_ms / 1000);
    metrics.Observe("longspec:step_cost_predicted_seconds", round.predicted_ms / 1000);
  }

  void Count(const SchedulerStats& stats) {
    Metrics& metrics = app_.metrics_;
    metrics.Set("longspec:num_requests_running", stats.running);
    metrics.Set("longspec:num_requests_waiting", stats.waiting);
    const auto used =
        static_cast<double>(stats.chunks_held - std::min(stats.chunks_held, stats.chunks_reclaimable));
    metrics.Set("longspec:kv_cache_usage_perc",
                stats.chunks_most > 0 ? used / static_cast<double>(stats.chunks_most) : 0);
    metrics.Add("longspec:num_preemptions_total", static_cast<double>(stats.preemptions - preemptions_));
    preemptions_ = stats.preemptions;
  }

  App& app_;
  Served served_;
  int64_t preemptions_ = 0;
};

App::App(AppOptions options, AccessLog* log) : options_(std::move(options)), log_(log) {
  DeclareServerMetrics(metrics_);
}
App::~App() = default;

Status App::SetEngine(std::unique_ptr<Engine> engine) {
  serving_ = std::make_unique<Serving>(*this, std::move(engine));
  LS_TRY(serving_->Start());
  ready_ = serving_.get();
  return {};
}

int App::n_unended() const {
  Serving* serving = ready_;
  return serving == nullptr ? 0 : serving->served().loop->n_unended();
}

void App::CancelAll() {
  if (Serving* serving = ready_; serving != nullptr) serving->served().loop->CancelAll();
}

// Before anything is read of it, and also where no key is needed.
bool App::RefusesOrigin(Call& call) const {
  const HttpRequest& request = call.request();
  const std::string_view origin = request.Header("origin");
  if (options_.origins.MayCall(origin, request.Header("host"), options_.names_are_own)) {
    call.set_common(CorsHeaders(origin, options_.credentials));
    return false;
  }
  call.SendError({.status_code = 403,
                  .message = "pages of " + std::string(origin) +
                             " may not call this server: its option --cors-origins names those that may",
                  .type = "permission_error"});
  return true;
}

void App::Handle(HttpRequest request, std::shared_ptr<Reply> reply) {
  if (!options_.api_prefix.empty() && request.path.starts_with(options_.api_prefix + "/"))
    request.path.erase(0, options_.api_prefix.size());
  const RoutesAt found = FindRoutes(request.method, request.path, options_);
  const Route* route = found.route;
  const auto call = std::make_shared<Call>(std::move(request), std::move(reply), log_, &metrics_);
  call->set_silent(route != nullptr && route->is_polled && !options_.log_polls);
  call->set_error_form(found.errors);
  Serving* serving = ready_;
  if (serving != nullptr) call->set_files(&serving->served().files);
  if (RefusesOrigin(*call)) return;
  const std::string& method = call->request().method;
  const std::string& path = call->request().path;
  if (method == "OPTIONS") return SendPreflight(*call);
  if (!found.is_public && !HasKey(call->request(), options_.api_keys)) {
    return call->SendError(
        {.status_code = 401, .message = "Invalid API Key", .type = "authentication_error"});
  }
  if (found.methods.empty()) {
    return call->SendError(
        {.status_code = 404, .message = "there is nothing at " + path, .type = "not_found_error"});
  }
  if (route == nullptr) {
    return call->SendError(
        {.status_code = 405, .message = path + " takes " + found.methods + ", not " + method}, {},
        {{"Allow", found.methods + ", OPTIONS"}});
  }
  if (route->at_once != nullptr)
    return route->at_once({.is_loading = serving == nullptr, .is_stopping = draining_}, *call);
  if (serving == nullptr) return call->SendError(api::Unavailable("Loading model"));
  if (draining_ && method == "POST") return call->SendError(api::Unavailable("the server is stopping"));
  if (route->option != nullptr && !(options_.*route->option)) {
    return call->SendError(
        {.status_code = 501, .message = path + " is turned off", .type = "not_supported_error"});
  }
  Served& served = serving->served();
  if (route->is_quick) return route->with_engine(served, call);
  const bool posted = served.workers->Post([&served, call, handler = route->with_engine] {
    try {
      handler(served, call);
    } catch (const std::bad_alloc&) {
      call->SendError(api::Unavailable("out of memory while reading the request"));
    }
  });
  if (!posted) call->SendError(api::Unavailable("too many requests at once: try again later"));
}

}  // namespace longspec::server
