// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration_cache.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <locale>
#include <span>
#include <sstream>
#include <system_error>

#include "base/status_macros.h"
#include "formats/atomic_file.h"
#include "longspec/version.h"

namespace longspec {
namespace {

constexpr const char* kHeader = "longspec costs 5";
constexpr uintmax_t kMaxFileBytes = 64 << 10;
constexpr size_t kMaxPoints = 64;  // of an axis

std::string FileOf(const std::string& folder, const std::string& key) {
  uint64_t hash = 14695981039346656037ULL;  // FNV-1a; the key inside the file decides
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  char name[32];
  std::snprintf(name, sizeof(name), "%016llx.costs", static_cast<unsigned long long>(hash));
  return folder + "/" + name;
}

// A line "name v v v".
template <typename T>
Status ReadValues(std::istream& in, const std::string& name, size_t most, std::vector<T>& values) {
  std::string line, word;
  if (!std::getline(in, line)) return Corrupt("calibration: the file ends before " + name);
  std::istringstream fields(line);
  fields.imbue(std::locale::classic());
  if (!(fields >> word) || word != name) return Corrupt("calibration: expected " + name + ", found " + word);
  for (T value; fields >> value;) {
    if (values.size() == most) return Corrupt("calibration: too many values in " + name);
    values.push_back(value);
  }
  return fields.eof() ? Status() : Corrupt("calibration: a value of " + name + " is no number");
}

template <typename T>
void WriteValues(std::ostream& out, const char* name, const std::vector<T>& values) {
  out << name;
  for (const T value : values) out << ' ' << value;
  out << '\n';
}

}  // namespace

std::string CalibrationKey(const ModelInfo& info, const ModelOptions& options) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(info.path, error);
  const auto changed = std::filesystem::last_write_time(info.path, error).time_since_epoch().count();
  std::ostringstream key;
  key.imbue(std::locale::classic());
  key << LONGSPEC_VERSION << " | " << absolute.string() << " | " << info.file_bytes << " bytes of "
      << (error ? 0 : changed) << " | " << info.cpu << " | " << info.kernels << " | " << info.threads
      << " threads | kv " << static_cast<int>(options.cache_type_k) << ' '
      << static_cast<int>(options.cache_type_v) << " | bf16 weights "
      << static_cast<int>(options.bf16_weights)
      << (options.attention == AttentionKind::kEager ? " | eager attention" : "") << " | ctx " << info.n_ctx;
  std::string line = key.str();
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

std::string CalibrationFolder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && cache[0] == '/') return std::string(cache) + "/longspec";
  const char* home = std::getenv("HOME");
  return home != nullptr && home[0] == '/' ? std::string(home) + "/.cache/longspec" : std::string();
}

Result<CostTable> ReadCalibration(const std::string& folder, const std::string& key) {
  const std::string path = FileOf(folder, key);
  std::error_code error;
  if (folder.empty() || !std::filesystem::is_regular_file(path, error))
    return NotFound(path + ": no calibration");
  if (std::filesystem::file_size(path, error) > kMaxFileBytes || error) {
    return Corrupt(path + ": too large for a calibration");
  }
  std::ifstream in(path, std::ios::binary);
  std::string header, known;
  if (!std::getline(in, header) || header != kHeader) return Corrupt(path + ": not a calibration");
  if (!std::getline(in, known) || known != key) return NotFound(path + ": the calibration of something else");
  CostTable table;
  LS_TRY(ReadValues(in, "rows", kMaxPoints, table.rows));
  LS_TRY(ReadValues(in, "keys", kMaxPoints, table.keys));
  LS_TRY(ReadValues(in, "ms", kMaxPoints * kMaxPoints, table.ms));
  std::string end;
  if (!std::getline(in, end) || end != "end" || in.eof())
    return Corrupt(path + ": the calibration is cut short");
  LS_TRY(CheckCostTable(table));
  return table;
}

Status WriteCalibration(const std::string& folder, const std::string& key, const CostTable& table) {
  if (folder.empty()) return NotFound("no folder for calibrations: neither XDG_CACHE_HOME nor HOME is set");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return IoError(folder + ": " + error.message());
  std::ostringstream out;
  out.imbue(std::locale::classic());
  out.precision(std::numeric_limits<double>::max_digits10);
  out << kHeader << '\n' << key << '\n';
  WriteValues(out, "rows", table.rows);
  WriteValues(out, "keys", table.keys);
  WriteValues(out, "ms", table.ms);
  out << "end\n";
  const std::string text = out.str();
  LS_ASSIGN(AtomicFile file, AtomicFile::Create(FileOf(folder, key)));
  LS_TRY(file.Write(std::as_bytes(std::span(text))));
  return file.Commit();
}

}  // namespace longspec
