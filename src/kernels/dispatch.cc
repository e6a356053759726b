// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch.h"

#include <cstdlib>
#include <fstream>

#include "kernels/tables.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include "kernels/cpu/amx.h"
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
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

// Leaf 7 of CPUID, which compilers this builds with do not all name.
bool HasAmx() {
  constexpr unsigned kBf16 = 1U << 22U, kTile = 1U << 24U;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kBf16) != 0 && (edx & kTile) != 0;
}

// Tiles are 8 KiB more that the system saves for a thread: a process must ask for them, for all of its
// threads at once.
bool MayUseTiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

bool HasAvx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c(); }

bool HasAvx512() {
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

bool HasAvx512Bf16() { return HasAvx512() && __builtin_cpu_supports("avx512bf16"); }

// The table has been tested on emulated tiles only: a CPU whose tiles sum otherwise must not have it.
bool AmxWorks() {
  static const bool works = HasAvx512Bf16() && HasAmx() && MayUseTiles() && amx::TilesSumAsDocumented();
  return works;
}
#elif defined(__aarch64__)
// Optional in ARMv8.2; every Apple CPU has it.
bool HasDotProduct() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return true;
#endif
}
#endif

// Best first.
std::vector<Entry> Entries() {
  std::vector<Entry> entries;
#if defined(__x86_64__)
  __builtin_cpu_init();
  entries.push_back({&kAmxTable, AmxWorks()});
  entries.push_back({&kAvx512Bf16Table, HasAvx512Bf16()});
  entries.push_back({&kAvx512Table, HasAvx512()});
  entries.push_back({&kAvx2Table, HasAvx2()});
#elif defined(__aarch64__)
  entries.push_back({&kNeonTable, HasDotProduct()});
#endif
  entries.push_back({&kReferenceTable, true});
  return entries;
}

// Linux names the CPU in words on x86, and by its designer's and its own number on AArch64.
std::string CpuName() {
  std::string implementer, part;
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer")) implementer = value;
    if (line.starts_with("CPU part")) part = value;
    if (!implementer.empty() && !part.empty()) return "CPU " + implementer + ":" + part;
  }
  return "unknown CPU";
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
  std::string features;
  [[maybe_unused]] const auto add = [&](bool has, const char* feature) {
    if (has) features += (features.empty() ? "" : " ") + std::string(feature);
  };
#if defined(__x86_64__)
  __builtin_cpu_init();
  add(__builtin_cpu_supports("avx2"), "AVX2");
  add(__builtin_cpu_supports("fma"), "FMA");
  add(HasF16c(), "F16C");
  add(__builtin_cpu_supports("avx512f"), "AVX512F");
  add(__builtin_cpu_supports("avx512vnni"), "AVX512_VNNI");
  add(__builtin_cpu_supports("avx512bf16"), "AVX512_BF16");
  add(HasAmx(),
      AmxWorks() ? "AMX_BF16" : "AMX_BF16 (unused: not permitted, or its sums are not the documented ones)");
#elif defined(__aarch64__)
  add(true, "NEON");
  add(HasDotProduct(), "DOTPROD");
#ifdef HWCAP2_I8MM
  add((getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0, "I8MM");
#endif
#endif
  return CpuName() + " (" + (features.empty() ? std::string("no SIMD the kernels use") : features) + ")";
}

}  // namespace longspec::kernels
