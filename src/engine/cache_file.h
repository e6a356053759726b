// SPDX-License-Identifier: Apache-2.0
//
// Small text files in the program's cache folder that spare it measuring again: one for a key, in lines. The
// first says what the file is, the second is the key, the last is "end"; those between are "name value value"
// or "name text". Nothing that is wrong with them does harm. Several processes may use one folder at once.
#pragma once

#include <cstddef>
#include <locale>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "longspec/status.h"

namespace longspec {

// $XDG_CACHE_HOME/longspec, or ~/.cache/longspec; empty if the environment names no home.
std::string CacheFolder();

// What tells a file or folder from others that have its name or had it, for a key: where it is, its bytes,
// and when it was changed. In one line.
std::string FileState(const std::string& path);

// A kind of such files: its first line, and how their names end.
struct CacheFileKind {
  const char* header;
  const char* suffix;
};

class CacheFileReader {
 public:
  // kNotFound: nothing is known of this key; kCorrupt: the file is none of ours.
  static Result<CacheFileReader> Open(const CacheFileKind& kind, const std::string& folder,
                                      const std::string& key);

  // The next line, of numbers. kCorrupt: it has another name, too many or what is no number.
  template <typename T>
  Result<std::vector<T>> Values(std::string_view name, size_t most) {
    LS_ASSIGN(std::string line, Text(name));
    std::istringstream fields(std::move(line));
    fields.imbue(std::locale::classic());
    std::vector<T> values;
    for (T value; fields >> value;) {
      if (values.size() == most) return Wrong("too many values in " + std::string(name));
      values.push_back(value);
    }
    if (!fields.eof()) return Wrong("a value of " + std::string(name) + " is no number");
    return values;
  }
  // The next line, of text.
  Result<std::string> Text(std::string_view name);
  bool AtEnd() const;  // the next line is the last
  // kCorrupt: something comes before the end, or it is cut short.
  Status End();

 private:
  CacheFileReader(std::string path, std::string text) : path_(std::move(path)), text_(std::move(text)) {}
  Status Wrong(const std::string& what) const { return Corrupt(path_ + ": " + what); }
  std::optional<std::string_view> NextLine();

  std::string path_, text_;
  size_t at_ = 0;
};

class CacheFileWriter {
 public:
  CacheFileWriter(const CacheFileKind& kind, const std::string& key);

  template <typename T>
  void Values(std::string_view name, const std::vector<T>& values) {
    out_ << name;
    for (const T value : values) out_ << ' ' << value;
    out_ << '\n';
  }
  // REQUIRES: no line break in it
  void Text(std::string_view name, std::string_view text) { out_ << name << ' ' << text << '\n'; }
  // The folder is made if it is not there.
  Status WriteTo(const std::string& folder);

 private:
  const CacheFileKind kind_;
  const std::string key_;
  std::ostringstream out_;
};

}  // namespace longspec
