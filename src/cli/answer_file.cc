// SPDX-License-Identifier: Apache-2.0
#include "cli/answer_file.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "base/status_macros.h"

namespace longspec::cli {
namespace {

namespace fs = std::filesystem;

Status NoAnswer(const std::string& path, int64_t line_number) {
  return Corrupt(path + ":" + std::to_string(line_number) +
                 ": no answer of a batch; nothing was changed: name another file with -o");
}

// A machine that lost power may have left zeros behind the last bytes.
std::string_view WithoutZeros(std::string_view bytes) {
  return bytes.substr(0, bytes.find_last_not_of('\0') + 1);
}

// Reads whole lines; returns the bytes they take.
Result<uint64_t> ReadAnswers(const std::string& path,
                             const std::function<void(const api::AnsweredRequest&)>& on_answer) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return IoError("cannot read " + path);
  uint64_t size = 0;
  std::string line;
  for (int64_t line_number = 1; std::getline(in, line); ++line_number) {
    if (in.eof()) {  // no line break
      if (!api::MayBeginAnswerLine(WithoutZeros(line))) return NoAnswer(path, line_number);
      break;
    }
    const auto answered = api::ParseAnswerLine(line);
    if (!answered) return NoAnswer(path, line_number);
    on_answer(*answered);
    size += line.size() + 1;
  }
  if (in.bad()) return IoError("cannot read " + path);
  return size;
}

}  // namespace

Result<AnswerFile> AnswerFile::Open(const std::string& path,
                                    const std::function<void(const api::AnsweredRequest&)>& on_answer) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_regular_file(path, error)) {
    LS_ASSIGN(Output output, Output::Append(path));
    return AnswerFile(std::move(output), 0);
  }
  LS_ASSIGN(Output output, Output::AppendAlone(path));
  LS_ASSIGN(const uint64_t size, ReadAnswers(path, on_answer));
  AnswerFile file(std::move(output), size);
  LS_TRY(file.output_.CutTo(size));
  return file;
}

Status AnswerFile::Append(std::string_view line) {
  Status written = output_.Write(line);
  if (written.ok()) {
    size_ += line.size();
  } else {
    // If this fails as well, the torn line is cut off by the next run.
    [[maybe_unused]] const Status cut = output_.CutTo(size_);
  }
  return written;
}

Status AnswerFile::Sync() { return output_.Sync(); }

}  // namespace longspec::cli
