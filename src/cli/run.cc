// SPDX-License-Identifier: Apache-2.0
//
// longspec run: one prompt, one answer.
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "chat/answer_reader.h"
#include "chat/dialect.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/grammar_flags.h"
#include "cli/interrupt.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/saved_session.h"
#include "cli/template_options.h"
#include "cli/terminal.h"

namespace longspec::cli {
namespace {

struct RunOptions {
  ModelOptions model;
  PromptFlags prompt;
  TemplateChoice chat_template;
  GenerationRequest request;
  GrammarFlags grammar;
  OutputFlags output;
  bool json = false;
  std::string stats_file, answers_file, session_file;
  bool prompt_given = false;   // with -p or -f
  std::string about_prompt;    // an option that says how a prompt is shown to the model, if one is given
  std::string about_template;  // and one of the chat template
};

void AddRunOptions(CLI::App& app, RunOptions* options) {
  AddModelOptions(app, &options->model);
  const std::string group = "Prompt";
  app.add_option("-p,--prompt", options->prompt.prompt,
                 "Prompt; with -f the instruction that precedes the document")
      ->group(group);
  app.add_option("-f,--file", options->prompt.file, "File with the prompt or document; -: standard input")
      ->check(CheckNotEmpty)
      ->group(group);
  app.add_option("--system-prompt", options->prompt.system_prompt, "System message (-sys)")->group(group);
  app.add_flag_callback(
         "--chat", [options] { options->prompt.chat = true; },
         "Use the model's chat template (default if it has one)")
      ->group(group);
  app.add_flag_callback(
         "--no-chat", [options] { options->prompt.chat = false; }, "Continue the prompt as raw text")
      ->group(group);
  AddTemplateChoice(app, &options->chat_template, group);
  AddTemplateOptions(app, &options->request, group);
  AddSessionOption(app, &options->session_file, "without a prompt its text goes on");
  AddLimitOptions(app, &options->request);
  AddGrammarOptions(app, &options->grammar);
  AddSamplingOptions(app, &options->request.sampling);
  AddSpeculationOptions(app, &options->request.speculation);
  app.add_flag("--json", options->json, "Print one JSON object with text and statistics instead of the text")
      ->group("Output");
  app.add_option("--stats-file", options->stats_file, "Also write that JSON object to this file")
      ->check(CheckNotEmpty)
      ->group("Output");
  app.add_option("--keep-answers", options->answers_file,
                 "Append prompt and answer to this file as a line of JSON, for 'longspec corpus --ngrams'")
      ->check(CheckNotEmpty)
      ->group("Output");
  AddOutputOptions(app, &options->output);
}

// A request's prompt as it was given.
std::string PromptOf(const GenerationRequest& request) {
  return request.messages.empty() ? request.prompt : request.messages.back().content;
}

// Everything that goes wrong before the model is needed is said before the model is loaded.
class Run {
 public:
  explicit Run(const RunOptions& options)
      : options_(options), saved_(options.session_file), stdout_(Output::Standard()) {}

  int operator()() {
    const Status speculation = CheckSpeculation(options_.request.speculation);
    if (!speculation.ok()) return Fail(speculation, Stage::kLoad);
    if (options_.prompt.file == "-" && ReadsStandardInput(options_.grammar)) {
      return Fail(kExitUsage,
                  "--file -: standard input is read for the form of the answer; give one of them as a file");
    }
    const auto grammar = ReadGrammar(options_.grammar);
    if (!grammar.ok()) return Fail(grammar.status(), Stage::kLoad);
    const auto chat_template = ReadTemplateChoice(options_.chat_template);
    if (!chat_template.ok()) return Fail(chat_template.status(), Stage::kLoad);
    auto prompt = ComposePrompt(options_.prompt);
    const bool goes_on = !options_.prompt_given && saved_.Exists();
    if (goes_on && !options_.about_prompt.empty()) {
      return Fail(kExitUsage, options_.about_prompt +
                                  ": has no effect where a session goes on without a prompt: give -p or -f");
    }
    if (!prompt.ok() && !goes_on) return Fail(prompt.status(), Stage::kLoad);
    CatchInterrupt();  // not before the prompt is read, which may come from a terminal
    if (const Status writable = OpenOutputs(); !writable.ok()) return FailOutput(writable);
    ModelOptions model = options_.model;
    model.chat_template = *chat_template;
    model.speculation = options_.request.speculation;
    model.partial_verification = options_.request.partial_verification;
    auto engine = LoadEngine(model, options_.output);
    if (!engine.ok()) return Fail(engine.status(), Stage::kLoad);
    GenerationRequest request = options_.request;
    request.grammar = *grammar;
    auto session = saved_.Open(**engine);
    if (!session.ok()) return Fail(session.status(), Stage::kLoad);
    if (goes_on) {
      request.tokens = (*session)->tokens();
    } else {
      const Status filled =
          FillPrompt(options_.prompt, std::move(*prompt), (*engine)->info().has_chat_template, &request);
      if (!filled.ok()) return Fail(filled, Stage::kGenerate);
      const bool asks = !request.template_variables.empty() || !model.chat_template.empty();
      if (request.messages.empty() && asks) {
        return Fail(kExitUsage,
                    options_.about_template + ": has no effect on a raw text, which has no template");
      }
      if (!request.messages.empty()) WarnOfMissingTemplate((*engine)->info());
    }
    return Generate(**engine, **session, std::move(request));
  }

 private:
  Status OpenOutputs() {
    Status writable = stdout_.Check();
    if (writable.ok()) writable = saved_.CheckWritable();
    if (writable.ok() && !options_.stats_file.empty()) {
      auto file = Output::Open(options_.stats_file);
      if (!file.ok()) return file.status();
      stats_file_.emplace(std::move(*file));
    }
    return writable;
  }

  int Generate(Engine& engine, Session& session, GenerationRequest request) {
    Progress progress("prefill", Progress::StandardError(!options_.output.no_progress));
    request.on_prefill = ReportPrefill(&progress);
    request.on_text = [&](std::string_view piece) {
      progress.Finish();
      if (!options_.json) written_ = stdout_.Write(piece);
      return written_.ok() && !Interrupted();
    };
    const auto result = engine.Generate(session, request);
    progress.Finish();
    if (!written_.ok()) return FailOutput(written_);
    if (!result.ok()) return Fail(result.status(), Stage::kGenerate);
    const int status = Report(*result, engine.info());
    KeepConversation(request, chat::ContentOf(chat::DialectOf(engine.info().chat_template), result->text),
                     session);
    const Status saved = saved_.Save(engine, session);
    if (!saved.ok()) return FailOutput(saved);
    KeepAnswer(request, *result);
    if (options_.model.calibration_cache) MeasureCostsAfter(*result, engine);
    return status;
  }

  // What `chat` goes on with. A text that goes on is more of its last message; raw text is no conversation.
  static void KeepConversation(const GenerationRequest& request, const std::string& said, Session& session) {
    std::vector<Message>& messages = session.messages();
    if (request.tokens.empty()) messages = request.messages;
    if (messages.empty()) return;
    if (messages.back().role != "assistant") messages.push_back({"assistant", ""});
    messages.back().content += said;
  }

  // The answer was given: that it was not kept is no failure.
  void KeepAnswer(const GenerationRequest& request, const GenerationResult& result) {
    if (options_.answers_file.empty() || result.text.empty()) return;
    auto file = Output::Append(options_.answers_file);
    Status kept = file.status();
    std::error_code error;
    const uintmax_t before = std::filesystem::file_size(options_.answers_file, error);
    if (kept.ok()) kept = file->Write(JsonLine({{"prompt", PromptOf(request)}, {"answer", result.text}}));
    // A disk that was full in the middle of a line leaves none of it, for others would be glued to it.
    if (file.ok() && !kept.ok() && !error) (void)file->CutTo(before);
    if (!kept.ok()) Warn("--keep-answers: " + kept.message());
  }

  int Report(const GenerationResult& result, const ModelInfo& info) {
    const std::string json = JsonLine(GenerationJson(result, info.path));
    if (options_.json) {
      written_ = stdout_.Write(json);
    } else if (!result.text.ends_with('\n')) {
      written_ = stdout_.Write("\n");
    }
    if (!written_.ok()) return FailOutput(written_);
    std::fputs(FormatStatistics(result).c_str(), stderr);
    if (options_.output.verbose) std::fputs(FormatPolicy(result.speculative).c_str(), stderr);
    if (stats_file_) {
      const Status stats = stats_file_->Replace(json);
      if (!stats.ok()) return FailOutput(stats);
    }
    return Interrupted() ? kExitInterrupted : kExitOk;
  }

  const RunOptions& options_;
  const SavedSession saved_;
  Output stdout_;
  std::optional<Output> stats_file_;
  Status written_;
};

}  // namespace

Runner SetUpRun(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  AddRunOptions(app, options.get());
  return [options, &app] {
    const auto given = [&app](std::string_view name) {
      return app.get_option(std::string(name))->count() > 0;
    };
    options->prompt_given = given("--prompt") || given("--file");
    for (const std::string_view name : kTemplateOptions) {
      if (given(name)) options->about_prompt = options->about_template = name;
    }
    for (const std::string_view name : {"--system-prompt", "--chat", "--no-chat"}) {
      if (given(name)) options->about_prompt = name;
    }
    return Run(*options)();
  };
}

}  // namespace longspec::cli
