// SPDX-License-Identifier: Apache-2.0
//
// --session FILE: a session that goes on from one call of the program to the next.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <string>

#include "longspec/engine.h"
#include "longspec/status.h"

namespace longspec::cli {

// Declares the option. `what`: of its help, what becomes of the conversation.
void AddSessionOption(CLI::App& app, std::string* path, const std::string& what);

class SavedSession {
 public:
  explicit SavedSession(std::string path) : path_(std::move(path)) {}  // empty: nothing is kept

  const std::string& path() const { return path_; }
  bool Exists() const;
  // Whether it could be saved here, as far as can be told before there is anything to save.
  Status CheckWritable() const;

  // As it was saved, or a new one.
  Result<std::unique_ptr<Session>> Open(Engine& engine) const;
  // Beside the former file, and renamed. Nothing to do without a path.
  Status Save(Engine& engine, const Session& session) const;

 private:
  std::string path_;
};

}  // namespace longspec::cli
