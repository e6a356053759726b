// SPDX-License-Identifier: Apache-2.0
#include "engine/calibration_cache.h"

#include <algorithm>
#include <cstddef>
#include <locale>
#include <numeric>
#include <sstream>
#include <vector>

#include "attention/attention_kind.h"
#include "base/status_macros.h"
#include "engine/cache_file.h"
#include "longspec/version.h"

namespace longspec {
namespace {

constexpr CacheFileKind kCosts = {.header = "longspec costs 7", .suffix = ".costs"};
constexpr size_t kMaxPoints = 64;  // of an axis

}  // namespace

std::string CalibrationKey(const ModelInfo& info, const ModelOptions& options) {
  const std::string kind(FindAttention(options.attention)->name);
  std::ostringstream key;
  key.imbue(std::locale::classic());
  key << LONGSPEC_VERSION << " | " << FileState(info.path) << " | " << info.file_bytes << " bytes | "
      << info.cpu << " | " << info.kernels << " | " << info.threads << " threads | kv "
      << static_cast<int>(options.cache_type_k) << ' ' << static_cast<int>(options.cache_type_v)
      << " | bf16 weights " << static_cast<int>(options.bf16_weights)
      << (kind.empty() ? "" : " | " + kind + " attention") << " | ctx " << info.n_ctx;
  std::string line = key.str();
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

Result<KeptCosts> ReadCalibration(const std::string& folder, const std::string& key) {
  LS_ASSIGN(CacheFileReader file, CacheFileReader::Open(kCosts, folder, key));
  KeptCosts costs;
  LS_ASSIGN(const std::vector<int> steady, file.Values<int>("steady", 1));
  LS_ASSIGN(const std::vector<int64_t> measured_at, file.Values<int64_t>("measured_at", 1));
  LS_ASSIGN(costs.table.rows, file.Values<int>("rows", kMaxPoints));
  LS_ASSIGN(costs.table.keys, file.Values<int>("keys", kMaxPoints));
  LS_ASSIGN(costs.table.ms, file.Values<double>("ms", kMaxPoints * kMaxPoints));
  LS_TRY(file.End());
  LS_TRY(CheckCostTable(costs.table));
  if (steady.empty() || measured_at.empty()) return Corrupt(folder + ": costs without a state or a time");
  costs.steady = steady.front() != 0;
  costs.measured_at = measured_at.front();
  return costs;
}

Status WriteCalibration(const std::string& folder, const std::string& key, const KeptCosts& costs) {
  CacheFileWriter file(kCosts, key);
  file.Values("steady", std::vector<int>{costs.steady ? 1 : 0});
  file.Values("measured_at", std::vector<int64_t>{costs.measured_at});
  file.Values("rows", costs.table.rows);
  file.Values("keys", costs.table.keys);
  file.Values("ms", costs.table.ms);
  return file.WriteTo(folder);
}

bool AreWorthMeasuringAgain(const KeptCosts& costs, int64_t now) {
  constexpr int64_t kDay = 24 * 60 * 60;
  return !costs.steady && (now - costs.measured_at >= kDay || now < costs.measured_at);
}

KeptCosts BetterOf(KeptCosts before, KeptCosts now) {
  const bool comparable = before.table.keys == now.table.keys && !now.steady;
  if (!comparable) return now;
  // The same row counts come first, and what is measured of them is the same work.
  const size_t n = std::min(before.table.ms.size(), now.table.ms.size());
  const auto sum = [n](const KeptCosts& costs) {
    return std::accumulate(costs.table.ms.begin(), costs.table.ms.begin() + static_cast<std::ptrdiff_t>(n),
                           0.0);
  };
  if (sum(now) <= sum(before)) return now;
  before.measured_at = now.measured_at;  // it was tried
  return before;
}

}  // namespace longspec
