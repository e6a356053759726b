// SPDX-License-Identifier: Apache-2.0
// So does a Result.
// EXPECT: ignoring return
#include "longspec/status.h"

longspec::Result<int> Load();

void Use() {
#ifdef MISUSE
  Load();
#else
  if (!Load().ok()) return;
#endif
}
