// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch.h"

#include <cstdlib>
#include <fstream>

#include "kernels/tables.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace longspec::kernels {
namespace {

struct Entry {
  const KernelTable* table;
  bool supported;
};

#if defined(__x86_64__)
// __builtin_cpu_supports of clang 14 does not know it.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

// Best first.
std::vector<Entry> Entries() {
  std::vector<Entry> entries;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512vnni");
  entries.push_back({&kAvx512Table, avx512});
  entries.push_back({&kAvx2Table, avx2});
#endif
  entries.push_back({&kReferenceTable, true});
  return entries;
}

}  // namespace

std::vector<const KernelTable*> Available() {
  std::vector<const KernelTable*> tables;
  for (const Entry& e : Entries()) {
    if (e.supported) tables.push_back(e.table);
  }
  return tables;
}

Result<const KernelTable*> Choose(std::string_view forced) {
  std::string source = "--kernels";
  if (forced.empty()) {
    if (const char* env = std::getenv("LONGSPEC_KERNELS"); env != nullptr && *env != '\0') {
      forced = env;
      source = "LONGSPEC_KERNELS";
    }
  }
  const std::vector<const KernelTable*> available = Available();
  if (forced.empty()) return available.front();
  std::string names;
  for (const KernelTable* t : available) {
    if (forced == t->name) return t;
    names += (names.empty() ? "" : ", ") + std::string(t->name);
  }
  const std::string asked = source + "=" + std::string(forced);
  for (const Entry& e : Entries()) {
    if (forced == e.table->name) return Unsupported(asked + ": this CPU cannot run it; it has " + names);
  }
  return InvalidArgument(asked + ": unknown kernel table; this CPU has " + names);
}

std::string CpuDescription() {
  std::string name = "unknown CPU";
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) {
      if (const size_t colon = line.find(": "); colon != std::string::npos) name = line.substr(colon + 2);
      break;
    }
  }
#if defined(__x86_64__)
  __builtin_cpu_init();
  std::string features;
  const auto add = [&](bool has, const char* feature) {
    if (has) features += (features.empty() ? "" : " ") + std::string(feature);
  };
  add(__builtin_cpu_supports("avx2"), "AVX2");
  add(__builtin_cpu_supports("fma"), "FMA");
  add(HasF16c(), "F16C");
  add(__builtin_cpu_supports("avx512f"), "AVX512F");
  add(__builtin_cpu_supports("avx512vnni"), "AVX512_VNNI");
  add(__builtin_cpu_supports("avx512bf16"), "AVX512_BF16");
  name += " (" + (features.empty() ? std::string("no SIMD the kernels use") : features) + ")";
#endif
  return name;
}

}  // namespace longspec::kernels
