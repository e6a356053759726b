// SPDX-License-Identifier: Apache-2.0
#include "engine/cache_file.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <locale>
#include <span>
#include <system_error>
#include <utility>

#include "formats/atomic_file.h"

namespace longspec {
namespace {

constexpr uintmax_t kMaxFileBytes = 64 << 10;
constexpr std::string_view kEnd = "end";

std::string FileOf(const CacheFileKind& kind, const std::string& folder, const std::string& key) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a; the key inside the file decides
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  char name[32];
  std::snprintf(name, sizeof(name), "%016llx", static_cast<unsigned long long>(hash));
  return folder + "/" + name + kind.suffix;
}

}  // namespace

std::string CacheFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/longspec";
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/longspec" : std::string();
}

std::string FileState(const std::string& path) {
  std::error_code error;
  std::string line = std::filesystem::absolute(path, error).string();
  const auto bytes = std::filesystem::file_size(path, error);
  line += " | " + std::to_string(error ? 0 : bytes) + " bytes of ";
  const auto changed = std::filesystem::last_write_time(path, error).time_since_epoch().count();
  line += std::to_string(error ? 0 : changed);
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

Result<CacheFileReader> CacheFileReader::Open(const CacheFileKind& kind, const std::string& folder,
                                              const std::string& key) {
  const std::string path = FileOf(kind, folder, key);
  std::error_code error;
  if (folder.empty() || !std::filesystem::is_regular_file(path, error))
    return NotFound(path + ": not in the cache");
  if (std::filesystem::file_size(path, error) > kMaxFileBytes || error)
    return Corrupt(path + ": too large for a file of the cache");
  std::ifstream in(path, std::ios::binary);
  CacheFileReader reader(path, {std::istreambuf_iterator<char>(in), {}});
  if (reader.NextLine() != kind.header) return Corrupt(path + ": not \"" + kind.header + "\"");
  if (reader.NextLine() != key) return NotFound(path + ": of something else");
  return reader;
}

std::optional<std::string_view> CacheFileReader::NextLine() {
  const size_t end = text_.find('\n', at_);
  if (end == std::string::npos) return std::nullopt;  // cut short
  const std::string_view line = std::string_view(text_).substr(at_, end - at_);
  at_ = end + 1;
  return line;
}

Result<std::string> CacheFileReader::Text(std::string_view name) {
  const auto line = NextLine();
  if (!line) return Wrong("ends before " + std::string(name));
  const std::string_view word = line->substr(0, line->find(' '));
  if (word != name) return Wrong("expected " + std::string(name) + ", found " + std::string(word));
  return std::string(line->substr(std::min(word.size() + 1, line->size())));
}

bool CacheFileReader::AtEnd() const { return std::string_view(text_).substr(at_).starts_with(kEnd); }

Status CacheFileReader::End() { return NextLine() == kEnd ? Status() : Wrong("cut short"); }

CacheFileWriter::CacheFileWriter(const CacheFileKind& kind, const std::string& key) : kind_(kind), key_(key) {
  out_.imbue(std::locale::classic());
  out_.precision(std::numeric_limits<double>::max_digits10);
  out_ << kind.header << '\n' << key << '\n';
}

Status CacheFileWriter::WriteTo(const std::string& folder) {
  if (folder.empty()) return NotFound("no folder for the cache: neither XDG_CACHE_HOME nor HOME is set");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return IoError(folder + ": " + error.message());
  out_ << kEnd << '\n';
  const std::string text = std::move(out_).str();
  LS_ASSIGN(AtomicFile file, AtomicFile::Create(FileOf(kind_, folder, key_)));
  LS_TRY(file.Write(std::as_bytes(std::span(text))));
  return file.Commit();
}

}  // namespace longspec
