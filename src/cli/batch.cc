// SPDX-License-Identifier: Apache-2.0
#include "cli/batch.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

#include "api/answer_form.h"
#include "api/apply_dialect.h"
#include "api/openai.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/print.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "cli/report.h"

namespace longspec::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostWarnings = 16;
constexpr int kLinesBetweenReports = 256;  // where requests are only passed over

bool IsBlank(const std::string& line) { return line.find_first_not_of(" \t") == std::string::npos; }

// The requests are counted before they are answered, so they are read twice. What is not there is left to
// who opens it; opening a pipe could wait for ever.
Status CheckReadTwice(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status)) return {};
  return Unsupported("-f " + path +
                     ": is a pipe or a device, and requests are read twice; write them to a file first");
}

Result<int64_t> CountRequests(const std::string& path) {
  LS_ASSIGN(const std::unique_ptr<LineSource> lines, OpenLines(path));
  std::string line;
  int64_t n = 0;
  while (true) {
    LS_ASSIGN(const bool more, lines->Next(&line));
    if (!more) return n;
    n += IsBlank(line) ? 0 : 1;
  }
}

double Share(double part, double whole) { return whole > 0 ? part / whole : 0.0; }

}  // namespace

size_t MostInFlight(int parallel) { return std::max(BatchOptions().most_in_flight, 2 * Z(parallel)); }

// A request that the scheduler has.
struct Batch::Pending {
  Batch* batch = nullptr;
  int64_t line_number = 0, scheduled_as = 0;
  size_t n_bytes = 0;
  std::string custom_id;
  api::Endpoint endpoint = api::Endpoint::kChatCompletions;
  chat::ReadingForm reading;  // of the answers
  std::vector<std::optional<GenerationResult>> answers;
  int64_t pieces = 0;  // of text so far
};

Result<std::unique_ptr<Batch>> Batch::Open(const BatchOptions& options) {
  std::error_code error;
  if (fs::equivalent(options.input, options.output, error))
    return InvalidArgument("-o " + options.output + ": is the file of requests itself");
  LS_TRY(CheckReadTwice(options.input));
  LS_ASSIGN(const int64_t total, CountRequests(options.input));
  LS_ASSIGN(std::unique_ptr<LineSource> lines, OpenLines(options.input));
  return std::unique_ptr<Batch>(new Batch(options, std::move(lines), total));
}

Batch::Batch(const BatchOptions& options, std::unique_ptr<LineSource> lines, int64_t total)
    : options_(options), lines_(std::move(lines)) {
  summary_.total = total;
  std::random_device device;
  id_prefix_ = Print("%08x%08x", device(), device());
}

Batch::~Batch() = default;

Status Batch::OpenAnswers() {
  auto answers = AnswerFile::Open(options_.output, [this](const api::AnsweredRequest& answered) {
    if (answered.custom_id.empty()) {
      answered_lines_.insert(answered.line_number);
    } else {
      ids_.emplace(answered.custom_id, Known::kAnswered);
    }
  });
  if (answers.ok()) {
    answers_.emplace(std::move(*answers));
  } else {
    output_ = answers.status();
  }
  return output_;
}

Status Batch::Run(Scheduler& scheduler, const BatchModel& model, const OnBatchProgress& on_progress) {
  model_ = model;
  on_progress_ = on_progress;
  const double begun_ms = NowMs();
  Status ran = RunRounds(scheduler);
  // What is left was given up. Nobody listens to what the scheduler says of it.
  for (const auto& [line_number, pending] : std::exchange(in_flight_, {})) {
    pending->batch = nullptr;
    scheduler.Cancel(pending->scheduled_as);
  }
  if (ran.ok()) ran = output_ = answers_->Sync();
  if (ran.ok()) ran = CheckCount();
  summary_.seconds = (NowMs() - begun_ms) / 1000.0;
  summary_.distinct_4gram =
      summary_.tokens > 0 ? distinct_tokens_ / static_cast<double>(summary_.tokens) : 1.0;
  return ran;
}

Status Batch::RunRounds(Scheduler& scheduler) {
  while (true) {
    LS_TRY(Fill(scheduler));
    if (in_flight_.empty() && at_end_) return {};
    const auto more = scheduler.RunRound();
    if (!more.ok()) return Stopped(more.status());
    if (!output_.ok()) return Stopped(output_);
    LS_CHECK(*more || in_flight_.empty());
    if (!Report()) return Interrupted();
  }
}

// Reads requests as long as there is room for them.
Status Batch::Fill(Scheduler& scheduler) {
  std::string line;
  for (int n = 1; !at_end_ && HasRoom(); ++n) {
    const auto more = lines_->Next(&line);
    if (!more.ok()) return Stopped(more.status());
    at_end_ = !*more;
    if (*more && !IsBlank(line)) TakeLine(scheduler, line);
    if (!output_.ok()) return Stopped(output_);
    if (n % kLinesBetweenReports == 0 && !Report()) return Interrupted();
  }
  return {};
}

bool Batch::HasRoom() const {
  return in_flight_.empty() ||
         (in_flight_.size() < options_.most_in_flight && bytes_in_flight_ < options_.most_bytes_in_flight);
}

void Batch::TakeLine(Scheduler& scheduler, const std::string& line) {
  const int64_t line_number = lines_->line_number();
  api::BatchLine parsed = api::ParseBatchLine(line, options_.defaults);
  if (WasAnswered(parsed, line_number)) {
    ++summary_.skipped;
  } else if (const auto* error = std::get_if<api::Error>(&parsed.request)) {
    WriteError(parsed.custom_id, line_number, *error);
  } else {
    auto& request = std::get<api::Request>(parsed.request);
    if (const auto refused = api::ApplyTools(model_.dialect, &request)) {
      WriteError(parsed.custom_id, line_number, *refused);
    } else {
      Submit(scheduler, line.size(), std::move(parsed.custom_id), std::move(request));
    }
  }
}

// A custom_id belongs to the first request that has it: another one is turned into an error without a
// custom_id, since an answer that has it must mean the first.
bool Batch::WasAnswered(api::BatchLine& line, int64_t line_number) {
  if (!line.custom_id.empty()) {
    const auto [known, is_new] = ids_.try_emplace(line.custom_id, Known::kSeen);
    if (is_new) return false;
    if (std::exchange(known->second, Known::kSeen) == Known::kAnswered) return true;
    line.custom_id.clear();
    line.request = api::Error{.message = "custom_id was used before in this file",
                              .param = "custom_id",
                              .code = "duplicate_custom_id"};
  }
  return answered_lines_.contains(line_number);
}

chat::ReadingForm Batch::ReadingOf(api::Request* request) const {
  const bool may_think = model_.dialect.thinking || request->wishes.thoughts == api::ThoughtsPlace::kApart;
  const std::string prompt = may_think && model_.prompt ? model_.prompt(request->generation) : std::string();
  return api::ReadingFormOf(model_.dialect, prompt, request);
}

void Batch::Submit(Scheduler& scheduler, size_t n_bytes, std::string custom_id, api::Request request) {
  WarnOfUnknown(request);
  if (const auto& wish = request.speculative; !wish.type.empty() || wish.max_rows >= 0) {
    SpeculationOptions& speculation = request.generation.speculation;
    speculation = SpeculationOf(speculation, wish.type.empty() ? speculation.type : wish.type, wish.max_rows);
  }
  auto pending = std::make_shared<Pending>();
  pending->batch = this;
  pending->line_number = lines_->line_number();
  pending->n_bytes = n_bytes;
  pending->custom_id = std::move(custom_id);
  pending->endpoint = request.endpoint;
  pending->reading = ReadingOf(&request);
  pending->answers.resize(static_cast<size_t>(request.n));
  // The scheduler may hold these longer than the batch lives.
  const std::weak_ptr<Pending> weak = pending;
  request.generation.on_text = [weak](std::string_view) {
    const auto held = weak.lock();
    if (held == nullptr || held->batch == nullptr) return false;
    ++held->pieces;
    ++held->batch->pieces_in_flight_;
    return true;
  };
  const auto on_end = [weak](int index, Result<GenerationResult> result) {
    const auto held = weak.lock();
    if (held != nullptr && held->batch != nullptr) held->batch->End(held, index, std::move(result));
  };
  in_flight_.emplace(pending->line_number, pending);
  bytes_in_flight_ += n_bytes;
  const auto id =
      scheduler.Submit({.request = std::make_shared<const GenerationRequest>(std::move(request.generation)),
                        .n = request.n,
                        .on_end = on_end});
  if (id.ok()) {
    pending->scheduled_as = *id;
    return;
  }
  in_flight_.erase(pending->line_number);
  bytes_in_flight_ -= n_bytes;
  WriteError(pending->custom_id, pending->line_number, api::RefusalOf(id.status()));
}

// One error is the whole request's: what its other answers come to does not matter then.
void Batch::End(const std::shared_ptr<Pending>& pending, int index, Result<GenerationResult> result) {
  const bool failed = !result.ok();
  if (!failed) pending->answers[static_cast<size_t>(index)] = std::move(*result);
  const bool complete = std::all_of(pending->answers.begin(), pending->answers.end(),
                                    [](const auto& answer) { return answer.has_value(); });
  if (!failed && !complete) return;
  in_flight_.erase(pending->line_number);
  bytes_in_flight_ -= pending->n_bytes;
  pieces_in_flight_ -= pending->pieces;
  pending->batch = nullptr;
  if (failed) {
    WriteError(pending->custom_id, pending->line_number, api::FailureOf(result.status()));
  } else {
    WriteAnswer(*pending);
  }
}

void Batch::WriteAnswer(const Pending& pending) {
  std::vector<api::FinishedAnswer> answers;
  for (const auto& answer : pending.answers) answers.push_back({.result = *answer});
  const std::string id = NextId();
  const api::ResponseHead head{.id = id, .created = std::time(nullptr), .model = model_.name};
  auto body = api::ResponseJson(pending.endpoint, head, answers);
  if (pending.reading.reads()) api::MoveParts(pending.reading, id, &body);
  if (!Write(api::BatchAnswerJson(id, pending.custom_id, body))) return;
  ++summary_.answered;
  for (const api::FinishedAnswer& answer : answers) Count(answer.result);
}

void Batch::WriteError(const std::string& custom_id, int64_t line_number, const api::Error& error) {
  if (Write(api::BatchErrorJson(NextId(), custom_id, line_number, error))) ++summary_.errors;
}

// After a line that could not be written, none is: the disk may take a short one again.
bool Batch::Write(const nlohmann::ordered_json& line) {
  if (output_.ok()) output_ = answers_->Append(JsonLine(line));
  return output_.ok();
}

void Batch::Count(const GenerationResult& answer) {
  const Timings& t = answer.timings;
  summary_.prompt_tokens += t.prompt_n;
  summary_.cached_tokens += t.cache_n;
  summary_.tokens += t.predicted_n;
  summary_.drafted += t.draft_n;
  summary_.accepted += t.draft_n_accepted;
  distinct_tokens_ += answer.distinct_4gram * static_cast<double>(t.predicted_n);
}

void Batch::WarnOfUnknown(const api::Request& request) {
  const auto warn = [&](const std::string& name, const char* what) {
    if (!options_.on_warning || warned_.size() == kMostWarnings || !warned_.insert(name).second) return;
    options_.on_warning(options_.input + ":" + std::to_string(lines_->line_number()) + ": the field \"" +
                        name + "\" " + what + " (said once)");
  };
  for (const std::string& name : request.unknown) warn(name, "is not known and has no effect");
  for (const std::string& name : request.ignored) warn(name, "has no effect here");
}

bool Batch::Report() {
  return on_progress_({.done = summary_.done(),
                       .total = summary_.total,
                       .skipped = summary_.skipped,
                       .tokens = summary_.tokens + pieces_in_flight_});
}

Status Batch::Stopped(const Status& why) const {
  return {why.code(), why.message() + "; " + std::to_string(summary_.done()) + " of " +
                          std::to_string(summary_.total) +
                          " requests are done, and the same command goes on from there"};
}

// Every request that was read is done now.
Status Batch::CheckCount() const {
  if (summary_.done() == summary_.total) return {};
  return Corrupt(options_.input + ": changed while it was read: it had " + std::to_string(summary_.total) +
                 " requests at first, and " + std::to_string(summary_.done()) +
                 " later; run the same command again for what it has now");
}

Status Batch::Interrupted() const { return Stopped(Cancelled(options_.output + ": interrupted")); }

std::string Batch::NextId() {
  return id_prefix_ + Print("%08llx", static_cast<unsigned long long>(next_id_++));
}

std::string FormatBatch(const BatchSummary& s) {
  std::string text = Print("requests = %lld: %lld answered, %lld errors", static_cast<long long>(s.total),
                           static_cast<long long>(s.answered), static_cast<long long>(s.errors));
  if (s.skipped > 0) text += Print(", %lld done before", static_cast<long long>(s.skipped));
  text += Print("\nprompt tokens = %lld evaluated", static_cast<long long>(s.prompt_tokens));
  if (s.cached_tokens > 0) text += Print(", %lld from the cache", static_cast<long long>(s.cached_tokens));
  text += Print("\ngenerated tokens = %lld in %.2f s (%.2f tokens per second)\n",
                static_cast<long long>(s.tokens), s.seconds, Share(static_cast<double>(s.tokens), s.seconds));
  if (s.drafted > 0) {
    text += Print("draft acceptance = %.5f (%5lld accepted / %5lld generated)\n",
                  Share(static_cast<double>(s.accepted), static_cast<double>(s.drafted)),
                  static_cast<long long>(s.accepted), static_cast<long long>(s.drafted));
  }
  return text + Print("distinct 4-gram share = %.2f\n", s.distinct_4gram);
}

}  // namespace longspec::cli
