// SPDX-License-Identifier: Apache-2.0
// A Result does not turn into its value by itself: the reader sees where it may be missing.
// EXPECT: cannot convert|no viable conversion
#include "longspec/status.h"

longspec::Result<int> Load();

int Use() {
#ifdef MISUSE
  int value = Load();
#else
  const longspec::Result<int> loaded = Load();
  int value = loaded.ok() ? *loaded : 0;
#endif
  return value;
}
