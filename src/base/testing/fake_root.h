// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "base/testing/files.h"

namespace longspec::testing {

// A made-up root folder with the files of /proc and /sys that a test writes.
class FakeRoot {
 public:
  std::string path() const { return folder_.path(); }
  // `name` begins with a slash.
  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path() + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

 private:
  const Folder folder_;
};

}  // namespace longspec::testing
