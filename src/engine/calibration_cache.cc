// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration_cache.h"

#include <algorithm>
#include <locale>
#include <sstream>

#include "base/status_macros.h"
#include "engine/cache_file.h"
#include "longspec/version.h"

namespace longspec {
namespace {

constexpr CacheFileKind kCosts = {.header = "longspec costs 5", .suffix = ".costs"};
constexpr size_t kMaxPoints = 64;  // of an axis

}  // namespace

std::string CalibrationKey(const ModelInfo& info, const ModelOptions& options) {
  std::ostringstream key;
  key.imbue(std::locale::classic());
  key << LONGSPEC_VERSION << " | " << FileState(info.path) << " | " << info.file_bytes << " bytes | "
      << info.cpu << " | " << info.kernels << " | " << info.threads << " threads | kv "
      << static_cast<int>(options.cache_type_k) << ' ' << static_cast<int>(options.cache_type_v)
      << " | bf16 weights " << static_cast<int>(options.bf16_weights)
      << (options.attention == AttentionKind::kEager ? " | eager attention" : "") << " | ctx " << info.n_ctx;
  std::string line = key.str();
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

Result<CostTable> ReadCalibration(const std::string& folder, const std::string& key) {
  LS_ASSIGN(CacheFileReader file, CacheFileReader::Open(kCosts, folder, key));
  CostTable table;
  LS_ASSIGN(table.rows, file.Values<int>("rows", kMaxPoints));
  LS_ASSIGN(table.keys, file.Values<int>("keys", kMaxPoints));
  LS_ASSIGN(table.ms, file.Values<double>("ms", kMaxPoints * kMaxPoints));
  LS_TRY(file.End());
  LS_TRY(CheckCostTable(table));
  return table;
}

Status WriteCalibration(const std::string& folder, const std::string& key, const CostTable& table) {
  CacheFileWriter file(kCosts, key);
  file.Values("rows", table.rows);
  file.Values("keys", table.keys);
  file.Values("ms", table.ms);
  return file.WriteTo(folder);
}

}  // namespace longspec
