// SPDX-License-Identifier: Apache-2.0
#include "cli/saved_session.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cli/options.h"

namespace longspec::cli {

void AddSessionOption(CLI::App& app, std::string* path, const std::string& what) {
  app.add_option("--session", *path, "File with the conversation so far, kept up to date; " + what)
      ->check(CheckNotEmpty)
      ->group("Prompt");
}

bool SavedSession::Exists() const {
  std::error_code error;  // what cannot be looked at is opened, and that says why
  return !path_.empty() && (std::filesystem::exists(path_, error) || error);
}

Status SavedSession::CheckWritable() const {
  if (path_.empty()) return {};
  std::error_code error;
  if (std::filesystem::is_directory(path_, error)) {
    return IoError(path_ + ": is a folder; --session takes a file");
  }
  const std::filesystem::path parent = std::filesystem::path(path_).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return IoError(path_ + ": cannot be written: " + std::strerror(errno));
}

Result<std::unique_ptr<Session>> SavedSession::Open(Engine& engine) const {
  return Exists() ? engine.LoadSession(path_) : engine.NewSession();
}

Status SavedSession::Save(Engine& engine, const Session& session) const {
  return path_.empty() ? Status() : engine.SaveSession(session, path_);
}

}  // namespace longspec::cli
