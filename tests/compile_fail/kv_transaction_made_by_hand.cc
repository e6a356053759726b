// SPDX-License-Identifier: Apache-2.0
// Only a cache opens transactions on itself: it has room for the rows then.
// EXPECT: private
#include "kv/kv_cache.h"

void Use(longspec::KvCache& cache) {
#ifdef MISUSE
  const longspec::KvTransaction transaction(&cache, 0, 1);
#else
  const auto transaction = cache.Begin(1);
#endif
  static_cast<void>(transaction);
}
