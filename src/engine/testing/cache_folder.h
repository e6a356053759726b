// SPDX-License-Identifier: Apache-2.0
//
// A folder of the cache that a test has to itself, and the one file that it wrote there.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "base/testing/files.h"

namespace longspec::testing {

class CacheFolderOfOne {
 public:
  std::string path() const { return folder_.path(); }
  std::string TheFile() const {
    std::string path;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) path = entry.path();
    return path;
  }
  std::string Contents() const { return ReadText(TheFile()); }
  void Overwrite(const std::string& text) const {
    std::ofstream(TheFile(), std::ios::binary | std::ios::trunc) << text;
  }

 private:
  Folder folder_;
};

}  // namespace longspec::testing
