// SPDX-License-Identifier: Apache-2.0
#include "server/file_names.h"

#include <algorithm>
#include <filesystem>

namespace longspec::server {

FileNames::FileNames(const std::vector<std::string>& paths) {
  const auto add = [this](std::string folder) {
    while (folder.ends_with('/')) folder.pop_back();
    if (!folder.empty() && folder != ".") folders_.push_back(folder + "/");
  };
  for (const std::string& path : paths) {
    add(path);  // if it is a folder, of what lies in it
    add(std::filesystem::path(path).parent_path().string());
  }
  std::ranges::sort(folders_, [](const auto& a, const auto& b) { return a.size() > b.size(); });
}

std::string FileNames::WithoutFolders(std::string text) const {
  for (const std::string& folder : folders_) {
    for (size_t at = 0; (at = text.find(folder, at)) != std::string::npos;) {
      const size_t end = text.find_first_not_of('/', at + folder.size());  // "a//b" is "a/b"
      text.erase(at, std::min(end, text.size()) - at);
    }
  }
  return text;
}

}  // namespace longspec::server
