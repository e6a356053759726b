// SPDX-License-Identifier: Apache-2.0
//
// longspec train: becomes longspec-train, which is a program of its own because it needs LibTorch.
#include <unistd.h>

#include <CLI/App.hpp>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/exit_code.h"

namespace longspec::cli {
namespace {

constexpr char kTrainer[] = "longspec-train";

int BecomeTrainer(std::vector<std::string> args) {
  std::vector<char*> argv = {const_cast<char*>(kTrainer)};
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) execv((self.parent_path() / kTrainer).c_str(), argv.data());
  execvp(kTrainer, argv.data());
  return Fail(
      kExitUsage,
      std::string(kTrainer) + " cannot be run (" + std::strerror(errno) +
          "); tools/setup_trainer.sh builds it, and it is looked for beside this program and in PATH");
}

}  // namespace

// Every argument, --help too, is the trainer's.
Runner SetUpTrain(CLI::App& app) {
  app.set_help_flag();
  app.prefix_command();
  return [&app] { return BecomeTrainer(app.remaining()); };
}

}  // namespace longspec::cli
