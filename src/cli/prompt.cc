// SPDX-License-Identifier: Apache-2.0
#include "cli/prompt.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "cli/output.h"

namespace longspec::cli {
namespace {

Status CannotRead(const std::string& name, int error) {
  const StatusCode code = error == ENOENT ? StatusCode::kNotFound : StatusCode::kIo;
  return {code, "cannot read " + name + ": " + std::strerror(error)};
}

Result<std::string> ReadAll(int fd, const std::string& name, size_t most) {
  std::string text;
  std::vector<char> block(size_t{1} << 16);
  while (true) {
    const ssize_t n = read(fd, block.data(), block.size());
    if (n > 0) text.append(block.data(), static_cast<size_t>(n));
    if (n == 0) return text;
    if (text.size() > most) {
      return InvalidArgument(name + ": more than " + std::to_string(most >> 20) +
                             " MiB, the most that is read of a text");
    }
    if (n < 0 && errno == EAGAIN) {
      WaitUntilReady(fd, POLLIN);
    } else if (n < 0 && errno != EINTR) {
      return CannotRead(name, errno);
    }
  }
}

}  // namespace

Result<std::string> ReadInput(const std::string& path, size_t most) {
  if (path == "-") return ReadAll(STDIN_FILENO, "standard input", most);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return CannotRead(path, errno);
  auto text = ReadAll(fd, path, most);
  close(fd);
  return text;
}

Status CheckInput(const std::string& path) {
  if (path == "-") return {};
  // Opening it would wait for who writes a pipe, and closing it would tell that nobody reads.
  struct stat info {};
  if (access(path.c_str(), R_OK) != 0 || stat(path.c_str(), &info) != 0) return CannotRead(path, errno);
  return S_ISDIR(info.st_mode) ? CannotRead(path, EISDIR) : Status();
}

Result<std::string> ComposePrompt(const PromptFlags& flags) {
  std::string text = flags.prompt;
  if (!flags.file.empty()) {
    LS_ASSIGN(std::string document, ReadInput(flags.file));
    if (document.ends_with('\n')) document.pop_back();
    if (!text.empty() && !document.empty()) text += "\n\n";
    text += document;
  }
  if (text.empty()) return InvalidArgument("the prompt is empty: give text with -p, a file with -f, or both");
  return text;
}

Status FillPrompt(const PromptFlags& flags, std::string prompt, bool has_chat_template,
                  GenerationRequest* request) {
  if (!flags.chat.value_or(has_chat_template)) {
    if (!flags.system_prompt.empty()) {
      return InvalidArgument(
          "-sys needs a chat template: the prompt is raw text here, put the instruction into -p");
    }
    request->prompt = std::move(prompt);
    return {};
  }
  if (!flags.system_prompt.empty()) request->messages.push_back({"system", flags.system_prompt});
  request->messages.push_back({"user", std::move(prompt)});
  return {};
}

}  // namespace longspec::cli
