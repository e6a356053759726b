// SPDX-License-Identifier: Apache-2.0
//
// longspec serve: the model behind HTTP, for clients of OpenAI's API and of llama-server.
#include <poll.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status_macros.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/grammar_flags.h"
#include "cli/interrupt.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "cli/template_options.h"
#include "http/http_server.h"
#include "longspec/engine.h"
#include "server/app.h"
#include "server/log_writer.h"
#include "server/origins.h"

namespace longspec::cli {
namespace {

struct ServeFlags {
  ModelOptions model;
  server::AppOptions app;
  GrammarFlags grammar;
  TemplateChoice chat_template;
  http::HttpOptions http;
  OutputFlags output;
  std::string api_key_file;
  std::vector<std::string> api_keys;
  std::string aliases, origins = "localhost";
  int most_body_mib = 64;
  int drain_seconds = 30;
  bool log_json = false;
  bool fim = false;  // what code completion in editors expects, where nothing else is said
};

constexpr int kDrainPollMs = 20;
constexpr int kFimPort = 8012, kFimWindow = 1024;  // of llama.cpp's presets for editors
// What stands behind the cursor is evaluated at every key: on a CPU that is what a suggestion costs.
constexpr int kFimSuffix = 64;

// What to tell editors, so that they find this server.
nlohmann::ordered_json EditorSettings(const std::string& url) {
  return {{"event", "editors"},
          {"llama.vim", "let g:llama_config = {'endpoint_fim': '" + url + "/infill'}"},
          {"llama.vscode", "llama-vscode.endpoint: " + url},
          {"continue", "{provider: llama.cpp, apiBase: " + url + ", roles: [autocomplete]}"}};
}

// What stands between commas.
void AddNames(const std::string& list, std::vector<std::string>* names) {
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) names->push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
}

// One key a line.
Status ReadKeys(const std::string& path, std::vector<std::string>* keys) {
  std::ifstream file(path);
  if (!file) return IoError("--api-key-file " + path + ": cannot be read");
  const size_t before = keys->size();
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) keys->push_back(line);
  }
  if (keys->size() == before) return InvalidArgument("--api-key-file " + path + ": has no key in it");
  return {};
}

void WaitForInterrupt() {
  while (!Interrupted()) {
    pollfd waiting{.fd = InterruptFd(), .events = POLLIN, .revents = 0};
    (void)poll(&waiting, 1, -1);
  }
}

// Lets what runs come to its end, for a while.
void Drain(server::App& app, http::HttpServer& http, int seconds) {
  app.BeginDrain();
  http.StopAccepting();
  const double deadline = NowMs() + seconds * 1000.0;
  while (http.n_connections() > 0 && NowMs() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(kDrainPollMs));
  app.CancelAll();
}

// What no answer could have or do is said at the start, not to each client.
Status Begin(std::unique_ptr<Engine> engine, const GenerationRequest& defaults, server::App& app) {
  const GrammarText& grammar = defaults.grammar;
  WarnOfMissingTemplate(engine->info());
  if (grammar.kind != GrammarText::Kind::kNone) LS_TRY(engine->PrepareGrammar(grammar).status());
  return app.SetEngine(std::move(engine));
}

int RunServe(ServeFlags flags) {
  const Status speculation = CheckSpeculation(flags.app.defaults.generation.speculation);
  if (!speculation.ok()) return Fail(speculation, Stage::kLoad);
  for (const std::string& list : flags.api_keys) AddNames(list, &flags.app.api_keys);
  // An empty variable of a script must not open the server to everybody.
  if (!flags.api_keys.empty() && flags.app.api_keys.empty())
    return Fail(InvalidArgument("--api-key: has no key in it; leave it out to ask for none"), Stage::kLoad);
  if (!flags.api_key_file.empty()) {
    if (const Status read = ReadKeys(flags.api_key_file, &flags.app.api_keys); !read.ok())
      return Fail(read, Stage::kLoad);
  }
  const auto grammar = ReadGrammar(flags.grammar);
  if (!grammar.ok()) return Fail(grammar.status(), Stage::kLoad);
  flags.app.defaults.generation.grammar = *grammar;
  auto chat_template = ReadTemplateChoice(flags.chat_template);
  if (!chat_template.ok()) return Fail(chat_template.status(), Stage::kLoad);
  flags.model.chat_template = *std::move(chat_template);
  AddNames(flags.aliases, &flags.app.model_names);
  auto origins = server::Origins::Parse(flags.origins);
  if (!origins.ok()) return Fail(kExitUsage, origins.status().message());
  flags.app.origins = std::move(*origins);
  // Beyond this machine, and behind the proxy of a Unix socket, it is called by names that others gave it.
  flags.app.names_are_own = !server::IsThisMachine(flags.http.host);
  flags.app.log_polls = flags.output.verbose;
  flags.http.most_body_bytes = static_cast<size_t>(flags.most_body_mib) << 20;
  flags.app.most_body_bytes = flags.http.most_body_bytes;
  CatchInterrupt();
  CatchTermination();
  const server::LogForm form = flags.log_json ? server::LogForm::kJson : server::LogForm::kText;
  server::LogWriter writer(STDERR_FILENO, {.dropped_line = [form](int64_t n) {
                             return server::LogLine(form, {{"event", "log_lines_dropped"}, {"lines", n}});
                           }});
  server::AccessLog log(form, [&writer](const std::string& line) { writer.Write(line); });
  auto app = std::make_unique<server::App>(flags.app, &log);
  flags.http.on_connections = [&metrics = app->metrics()](int n) {
    metrics.Set("longspec:http_connections", n);
  };
  // Who asks before the model is there is told so.
  const auto http = http::HttpServer::Start(
      flags.http, [&app = *app](server::HttpRequest request, std::shared_ptr<server::Reply> reply) {
        app.Handle(std::move(request), std::move(reply));
      });
  if (!http.ok()) return Fail(http.status(), Stage::kGenerate);
  ModelOptions model = flags.model;
  model.speculation = flags.app.defaults.generation.speculation;
  model.partial_verification = flags.app.defaults.generation.partial_verification;
  auto engine = LoadEngine(model, flags.output);
  const Status ready =
      engine.ok() ? Begin(std::move(*engine), flags.app.defaults.generation, *app) : engine.status();
  if (ready.ok()) {
    log.Write({{"event", "listening"}, {"url", (*http)->url()}});
    if (flags.fim) log.Write(EditorSettings((*http)->url()));
    WaitForInterrupt();
    log.Write({{"event", "stopping"}, {"requests", app->n_unended()}});
    Drain(*app, **http, flags.drain_seconds);
  }
  (*http)->Stop();
  app.reset();
  return ready.ok() ? kExitOk : Fail(ready, Stage::kLoad);
}

}  // namespace

Runner SetUpServe(CLI::App& app) {
  auto flags = std::make_shared<ServeFlags>();
  AddModelOptions(app, &flags->model);
  const std::string group = "Server";
  const auto add = [&](const std::string& names, auto* target, const std::string& help) {
    return app.add_option(names, *target, help)->capture_default_str()->group(group);
  };
  add("--host", &flags->http.host,
      "Address to listen on, or a Unix socket: unix:/path or a path ending in .sock");
  const CLI::Option* port =
      add("--port", &flags->http.port, "Port to listen on; 0: one that is free")->check(NumberFrom(0, 65535));
  add("--parallel", &flags->app.scheduler.parallel,
      "Answers written at once (-np); 0: as many as memory holds, 64 at most; never changes output")
      ->check(NumberFrom(0, 1024))
      ->transform(MinusOneIs("0"));
  add("-a,--alias", &flags->aliases,
      "Name of the model in answers and lists (default: the file's); more, by commas, are known too");
  add("--cors-origins", &flags->origins,
      "Web pages that may call, besides the server's own: origins separated by commas, such as "
      "https://chat.example; localhost: all pages of this machine; *: all")
      ->check(CheckNotEmpty);
  app.add_flag("--cors-credentials,!--no-cors-credentials", flags->app.credentials,
               "Whether pages may send what their browsers keep of logins (default: yes)")
      ->group(group);
  app.add_option("--api-key", flags->api_keys, "Key that requests must show; several separated by commas")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
  add("--api-key-file", &flags->api_key_file, "File of keys, one a line")->check(CheckNotEmpty);
  add("--api-prefix", &flags->app.api_prefix, "What all paths begin with, such as /llm");
  add("--timeout", &flags->http.write_seconds, "Seconds after which a client that takes nothing is given up")
      ->check(NumberFrom(1, kMaxInt));
  add("--slot-save-path", &flags->app.slot_save_path,
      "Folder for /slots/N?action=save and restore (default: they are off)")
      ->check(CLI::ExistingDirectory);
  app.add_flag("--metrics,!--no-metrics", flags->app.metrics, "Whether /metrics is there (default: yes)")
      ->group(group);
  app.add_flag("--slots,!--no-slots", flags->app.slots, "Whether /slots is there (default: yes)")
      ->group(group);
  app.add_flag("--webui,!--no-webui", flags->app.page, "Whether the page at / is there (default: yes)")
      ->group(group);
  add("--sse-ping-interval", &flags->app.ping_seconds,
      "Seconds after which a silent stream gets a comment, so that nobody closes it; 0: never")
      ->check(NumberFrom(0, 3600))
      ->transform(MinusOneIs("0"));
  add("--max-queued-requests", &flags->app.most_queued,
      "Requests that may wait to start; more are told to retry")
      ->check(NumberFrom(1, 1 << 16));
  add("--threads-http", &flags->app.worker_threads, "Threads that read requests and make tokens of them")
      ->check(NumberFrom(1, 64))
      ->transform(MinusOneIs(std::to_string(flags->app.worker_threads)));
  add("--max-connections", &flags->http.most_connections, "Connections at once; more wait")
      ->check(NumberFrom(1, 1 << 16));
  add("--max-body", &flags->most_body_mib, "MiB of a request's body")->check(NumberFrom(1, 64));
  add("--prefill-ms", &flags->app.scheduler.prefill_ms,
      "Milliseconds that prompts may add to a round in which others are written")
      ->check(PositiveNumber());
  add("--drain-timeout", &flags->drain_seconds, "Seconds that running requests have to end after SIGTERM")
      ->check(NumberFrom(0, kMaxInt));
  const CLI::Option* window =
      add("--infill-window", &flags->app.infill.window,
          "Tokens of the text around a hole that /infill keeps: three quarters before it, one behind")
          ->check(NumberFrom(16, 1 << 20));
  const CLI::Option* suffix = add("--infill-suffix", &flags->app.infill.suffix,
                                  "Most tokens behind a hole that /infill keeps; -1: what its window leaves")
                                  ->check(NumberFrom(-1, 1 << 20));
  const CLI::Option* anchor =
      app.add_flag(
             "--infill-anchor,!--no-infill-anchor", flags->app.infill.anchored,
             "The window before a hole begins at a line that its content chooses, so that most of a prompt "
             "is known from the key before")
          ->group(group);
  app.add_flag("--spm-infill", flags->app.infill.suffix_first,
               "Texts with a hole begin with what is behind it")
      ->group(group);
  app.add_flag("--fim", flags->fim,
               "For code completion in editors: --port 8012, --infill-window 1024 and --infill-suffix 64 "
               "unless they are given, --infill-anchor, and a line that says what editors have to be told")
      ->group(group);
  app.add_flag("--log-jsonl", flags->log_json, "Lines of JSON on standard error")->group(group);
  // What a request does not say.
  GenerationRequest& defaults = flags->app.defaults.generation;
  AddTemplateChoice(app, &flags->chat_template, group);
  AddTemplateOptions(app, &defaults, group);
  AddThoughtsOption(app, &flags->app.defaults.thoughts, group);
  AddLimitOptions(app, &defaults);
  AddGrammarOptions(app, &flags->grammar);
  AddSamplingOptions(app, &defaults.sampling);
  AddSpeculationOptions(app, &defaults.speculation);
  AddOutputOptions(app, &flags->output);
  return [flags, port, window, suffix, anchor] {
    if (flags->fim && port->count() == 0) flags->http.port = kFimPort;
    if (flags->fim && window->count() == 0) flags->app.infill.window = kFimWindow;
    if (flags->fim && suffix->count() == 0) flags->app.infill.suffix = kFimSuffix;
    if (flags->fim && anchor->count() == 0) flags->app.infill.anchored = true;
    return RunServe(*flags);
  };
}

}  // namespace longspec::cli
