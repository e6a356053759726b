// SPDX-License-Identifier: Apache-2.0
#include "eval/lines.h"

#include <fstream>

namespace longspec {
namespace {

bool EndsWithinALine(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  if (!in || in.tellg() <= 0) return false;
  in.seekg(-1, std::ios::end);
  return in.get() != '\n';
}

}  // namespace

Status AppendLines(const std::string& path, std::string_view lines) {
  const bool torn = EndsWithinALine(path);
  std::ofstream out(path, std::ios::app | std::ios::binary);
  if (torn) out << '\n';
  out << lines;
  out.flush();
  return out.good() ? Status() : IoError(path + ": cannot be written");
}

}  // namespace longspec
