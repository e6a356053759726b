// SPDX-License-Identifier: Apache-2.0
//
// What clients see of the server's files: names. In which folders they lie is said to the log alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace longspec::server {

class FileNames {
 public:
  FileNames() = default;
  // Files and folders that messages may speak of; empty ones are passed over.
  explicit FileNames(const std::vector<std::string>& paths);

  // `text` with names in the place of paths.
  std::string WithoutFolders(std::string text) const;

 private:
  std::vector<std::string> folders_;  // with a slash at the end, longer ones first
};

}  // namespace longspec::server
