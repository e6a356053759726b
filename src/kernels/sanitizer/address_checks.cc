// SPDX-License-Identifier: Apache-2.0
//
// What a load or a store of the kernels of cpu/ calls under AddressSanitizer, for clang on x86-64 Linux: its
// own functions take longer than the vector instructions they guard. These look at the first and the last
// byte, as inlined checks do, and leave the rest to AddressSanitizer.
#include <cstddef>
#include <cstdint>

extern "C" {

void __asan_loadN(uintptr_t address, size_t n);
void __asan_storeN(uintptr_t address, size_t n);
void* __asan_memcpy(void* to, const void* from, size_t n);
void* __asan_memmove(void* to, const void* from, size_t n);
void* __asan_memset(void* to, int value, size_t n);

namespace {

// A byte of shadow memory says of eight bytes which may be used; 0: all.
// https://github.com/google/sanitizers/wiki/AddressSanitizerAlgorithm
constexpr uintptr_t kShadow = 0x7fff8000;

inline int8_t Shadow(uintptr_t address) { return *reinterpret_cast<const int8_t*>((address >> 3) + kShadow); }

inline bool AllFine(uintptr_t address, size_t n) { return (Shadow(address) | Shadow(address + n - 1)) == 0; }

}  // namespace

#define LONGSPEC_CHECKS_OF_SIZE(n)                       \
  void longspec_asan_load##n(uintptr_t address) {        \
    if (!AllFine(address, n)) __asan_loadN(address, n);  \
  }                                                      \
  void longspec_asan_store##n(uintptr_t address) {       \
    if (!AllFine(address, n)) __asan_storeN(address, n); \
  }

LONGSPEC_CHECKS_OF_SIZE(1)
LONGSPEC_CHECKS_OF_SIZE(2)
LONGSPEC_CHECKS_OF_SIZE(4)
LONGSPEC_CHECKS_OF_SIZE(8)
LONGSPEC_CHECKS_OF_SIZE(16)

void longspec_asan_loadN(uintptr_t address, size_t n) {
  if (!AllFine(address, n)) __asan_loadN(address, n);
}
void longspec_asan_storeN(uintptr_t address, size_t n) {
  if (!AllFine(address, n)) __asan_storeN(address, n);
}
void* longspec_asan_memcpy(void* to, const void* from, size_t n) { return __asan_memcpy(to, from, n); }
void* longspec_asan_memmove(void* to, const void* from, size_t n) { return __asan_memmove(to, from, n); }
void* longspec_asan_memset(void* to, int value, size_t n) { return __asan_memset(to, value, n); }
}
