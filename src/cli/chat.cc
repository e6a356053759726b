// SPDX-License-Identifier: Apache-2.0
//
// longspec chat: turns of a conversation, from a terminal or a pipe. The session's cache is reused between
// turns and, with --session, between one call and the next.
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chat/answer_reader.h"
#include "chat/dialect.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/loading.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/report.h"
#include "cli/saved_session.h"
#include "cli/template_options.h"
#include "cli/terminal.h"

namespace longspec::cli {
namespace {

struct ChatOptions {
  ModelOptions model;
  std::string system_prompt;
  TemplateChoice chat_template;
  GenerationRequest request;
  OutputFlags output;
  std::string session_file;
};

constexpr const char* kChatHelp =
    "/clear  forget the conversation\n/exit   leave (also Ctrl-D, or Ctrl-C at the prompt)\n/help   this "
    "text\n"
    "Ctrl-C stops an answer and keeps the conversation.\n";

class Chat {
 public:
  Chat(const ChatOptions& options, Engine& engine, std::unique_ptr<Session> session)
      : options_(options),
        engine_(engine),
        session_(std::move(session)),
        stdout_(Output::Standard()),
        reader_(STDIN_FILENO, InterruptFd()),
        interactive_(IsTerminal(STDIN_FILENO)),
        saved_(options.session_file) {
    if (!options_.system_prompt.empty()) Instruct(options_.system_prompt);
  }

  int Run() {
    if (interactive_) {
      const size_t n = session_->messages().size();
      if (n > 1)
        std::fprintf(stderr, "the conversation goes on after %zu messages; /clear forgets them\n", n);
      std::fputs("/help lists the commands\n", stderr);
    }
    while (!done_) {
      if (interactive_) std::fputs("> ", stderr);
      // While whoever reads the last answer has not written the next question.
      if (last_) MeasureCostsAfter(*last_, engine_, [this] { return !reader_.HasInput(); });
      std::string line;
      switch (reader_.Read(&line)) {
        case LineReader::Outcome::kLine:
          TakeLine(line);
          break;
        case LineReader::Outcome::kEnd:
          done_ = true;
          break;
        case LineReader::Outcome::kInterrupted:
          done_ = true, exit_code_ = kExitInterrupted;
          break;
      }
    }
    if (interactive_) std::fputs("\n", stderr);
    Save();
    return exit_code_ == kExitOk ? save_code_ : exit_code_;
  }

 private:
  bool HasInstruction() const {
    const std::vector<Message>& messages = session_->messages();
    return !messages.empty() && messages.front().role == "system";
  }

  // What the conversation begins with; a saved one may have begun with another.
  void Instruct(const std::string& system_prompt) {
    std::vector<Message>& messages = session_->messages();
    if (!HasInstruction()) messages.insert(messages.begin(), Message{"system", ""});
    messages.front().content = system_prompt;
  }

  void Clear() {
    const std::string system_prompt = HasInstruction() ? session_->messages().front().content : "";
    session_->Clear();
    if (!system_prompt.empty()) Instruct(system_prompt);
    unsaved_ = true;
  }

  // If that fails, the conversation goes on, and it is tried again.
  void Save() {
    if (!unsaved_) return;
    const Status saved = saved_.Save(engine_, *session_);
    save_code_ = saved.ok() ? static_cast<int>(kExitOk) : FailOutput(saved);
    unsaved_ = !saved.ok();
  }

  void TakeLine(const std::string& line) {
    if (line.find_first_not_of(" \t") == std::string::npos) return;
    if (line == "/exit" || line == "/quit") {
      done_ = true;
    } else if (line == "/clear") {
      Clear();
    } else if (line == "/help") {
      std::fputs(kChatHelp, stderr);
    } else if (line.find_first_not_of("abcdefghijklmnopqrstuvwxyz", 1) == std::string::npos &&
               line[0] == '/') {
      Warn("unknown command " + line + "; /help lists the commands");
    } else {
      Answer(line);
    }
  }

  // A turn that fails leaves the conversation as it was before it.
  void Answer(const std::string& line) {
    std::vector<Message>& messages = session_->messages();
    messages.push_back({"user", line});
    unsaved_ = true;
    const auto result = Generate();
    const bool interrupted = Interrupted();
    ClearInterrupt();
    if (!written_.ok()) {
      messages.pop_back();
      done_ = true;
      exit_code_ = FailOutput(written_);
      return;
    }
    if (!result.ok()) {
      messages.pop_back();
      const int code = Fail(result.status(), Stage::kGenerate);
      if (!interactive_) exit_code_ = code;  // who pipes a conversation in reads the exit status
      return;
    }
    if (interrupted) std::fputs("[stopped]\n", stderr);
    std::fputs(
        options_.output.verbose ? FormatStatistics(*result).c_str() : FormatBriefStatistics(*result).c_str(),
        stderr);
    if (result->tokens.empty()) {
      messages.pop_back();
    } else {
      messages.push_back({"assistant", chat::ContentOf(dialect_, result->text)});
    }
    Save();
    last_ = *result;
  }

  Result<GenerationResult> Generate() {
    GenerationRequest request = options_.request;
    request.messages = session_->messages();
    Progress progress("prefill", Progress::StandardError(!options_.output.no_progress));
    request.on_prefill = ReportPrefill(&progress);
    request.on_text = [&](std::string_view piece) {
      progress.Finish();
      written_ = stdout_.Write(piece);
      return written_.ok() && !Interrupted();
    };
    auto result = engine_.Generate(*session_, request);
    progress.Finish();
    if (written_.ok() && result.ok()) written_ = stdout_.Write("\n");
    return result;
  }

  const ChatOptions& options_;
  Engine& engine_;
  std::unique_ptr<Session> session_;
  Output stdout_;
  LineReader reader_;
  bool interactive_;
  const SavedSession saved_;
  const chat::Dialect dialect_ = chat::DialectOf(engine_.info().chat_template);
  bool unsaved_ = false;  // there is something that the file does not have
  int save_code_ = kExitOk;
  Status written_;
  std::optional<GenerationResult> last_;
  bool done_ = false;
  int exit_code_ = kExitOk;
};

Result<std::unique_ptr<Session>> OpenSession(const SavedSession& saved, Engine& engine) {
  auto session = saved.Open(engine);
  if (session.ok() && (*session)->messages().empty() && !(*session)->tokens().empty()) {
    return InvalidArgument(saved.path() +
                           ": the session is a text and no conversation; go on with it by 'longspec run "
                           "--session', or name another session file");
  }
  return session;
}

int RunChat(const ChatOptions& options) {
  CatchInterrupt();
  const Status speculation = CheckSpeculation(options.request.speculation);
  if (!speculation.ok()) return Fail(speculation, Stage::kLoad);
  const auto chat_template = ReadTemplateChoice(options.chat_template);
  if (!chat_template.ok()) return Fail(chat_template.status(), Stage::kLoad);
  const SavedSession saved(options.session_file);
  Status writable = Output::Standard().Check();
  if (writable.ok()) writable = saved.CheckWritable();
  if (!writable.ok()) return FailOutput(writable);
  ModelOptions model = options.model;
  model.chat_template = *chat_template;
  model.speculation = options.request.speculation;
  model.partial_verification = options.request.partial_verification;
  auto engine = LoadEngine(model, options.output);
  if (!engine.ok()) return Fail(engine.status(), Stage::kLoad);
  WarnOfMissingTemplate((*engine)->info());
  // A model with a template that is not understood is refused before the first question.
  const auto probe = (*engine)->ApplyChatTemplate({{"user", "?"}}, true);
  if (!probe.ok()) return Fail(probe.status(), Stage::kLoad);
  auto session = OpenSession(saved, **engine);
  if (!session.ok()) return Fail(session.status(), Stage::kLoad);
  ClearInterrupt();
  return Chat(options, **engine, std::move(*session)).Run();
}

}  // namespace

Runner SetUpChat(CLI::App& app) {
  auto options = std::make_shared<ChatOptions>();
  AddModelOptions(app, &options->model);
  app.add_option("--system-prompt", options->system_prompt, "System message (-sys)")->group("Prompt");
  AddTemplateChoice(app, &options->chat_template, "Prompt");
  AddTemplateOptions(app, &options->request, "Prompt");
  AddSessionOption(app, &options->session_file, "it goes on where it stopped");
  AddLimitOptions(app, &options->request);
  AddSamplingOptions(app, &options->request.sampling);
  AddSpeculationOptions(app, &options->request.speculation);
  AddOutputOptions(app, &options->output);
  return [options] { return RunChat(*options); };
}

}  // namespace longspec::cli
