// SPDX-License-Identifier: Apache-2.0
#include "cli/model_choice.h"

#include <CLI/Error.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/status_macros.h"
#include "cli/exit_code.h"
#include "cli/options.h"

namespace longspec::cli {
namespace {

namespace fs = std::filesystem;

// As tools/model_table.py names them, the best first.
constexpr std::array kFetched = {
    "Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf",
    "Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    "gemma-3-270m-Q4_K_M.gguf",
};

// Of a split model only its first shard stands for it.
bool StandsForAModel(const fs::path& file) {
  const std::string stem = file.stem().string();
  return file.extension() == ".gguf" &&
         (stem.find("-of-") == std::string::npos || stem.find("-00001-of-") != std::string::npos);
}

std::vector<std::string> ModelsIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unreadable;
    if (StandsForAModel(entry->path()) && entry->is_regular_file(unreadable))
      names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string Joined(const std::vector<std::string>& names, const char* separator) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : separator) + name;
  return text;
}

// build/PRESET/longspec -> models. Empty where the system does not say.
std::string FolderBesideBuild() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return "";
  return (program.parent_path().parent_path().parent_path() / "models").string();
}

std::string DataFolder() {
  const char* data = std::getenv("XDG_DATA_HOME");
  if (data != nullptr && data[0] == '/') return std::string(data) + "/longspec/models";
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.local/share/longspec/models" : "";
}

}  // namespace

std::vector<std::string> ModelFolders() {
  std::vector<std::string> folders;
  for (std::string folder : {std::string("models"), FolderBesideBuild(), DataFolder()}) {
    if (!folder.empty()) folders.push_back(std::move(folder));
  }
  return folders;
}

Result<std::string> ChooseModel(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    const std::vector<std::string> names = ModelsIn(folder);
    for (const char* fetched : kFetched) {
      if (std::find(names.begin(), names.end(), fetched) != names.end()) return folder + "/" + fetched;
    }
    if (names.size() == 1) return folder + "/" + names.front();
    if (names.size() > 1)
      return InvalidArgument("which model? " + folder + " has " + Joined(names, ", ") +
                             ": say it with -m FILE");
  }
  return InvalidArgument("there is none in " + Joined(folders, ", ") +
                         ": give one with -m FILE, or fetch one with 'make model'");
}

CLI::Option* AddModelFile(CLI::App& app, std::string* path, const std::string& description) {
  CLI::Option* option =
      app.add_option("-m,--model", *path, description + " (default: the one that 'make model' fetched)")
          ->check(CheckNotEmpty);
  app.final_callback([option, path] {
    if (option->count() > 0) return;
    auto chosen = ChooseModel(ModelFolders());
    if (!chosen.ok()) throw CLI::ValidationError("--model", chosen.status().message());
    *path = *std::move(chosen);
    std::fprintf(stderr, "model: %s (-m FILE takes another)\n", OneLine(*path).c_str());
  });
  return option;
}

}  // namespace longspec::cli
