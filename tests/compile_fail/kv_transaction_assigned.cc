// SPDX-License-Identifier: Apache-2.0
// Assigning would end one transaction in silence.
// EXPECT: deleted (function|operator)|operator.* is implicitly deleted
#include <utility>

#include "kv/kv_cache.h"

void Use(longspec::KvTransaction a, longspec::KvTransaction b) {
#ifdef MISUSE
  a = std::move(b);
#else
  a.CommitAll();
  b.CommitAll();
#endif
}
