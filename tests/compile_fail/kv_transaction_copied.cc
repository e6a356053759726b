// SPDX-License-Identifier: Apache-2.0
// Two owners of one transaction would commit or roll back twice.
// EXPECT: (deleted function|deleted constructor|deleted copy).*
#include <utility>

#include "kv/kv_cache.h"

void Use(longspec::KvTransaction transaction) {
#ifdef MISUSE
  const longspec::KvTransaction other = transaction;
#else
  const longspec::KvTransaction other = std::move(transaction);
#endif
  static_cast<void>(other);
}
