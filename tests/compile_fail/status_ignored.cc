// SPDX-License-Identifier: Apache-2.0
// A Status that nobody looks at hides a failure.
// EXPECT: ignoring return
#include "longspec/status.h"

longspec::Status Save();

void Use() {
#ifdef MISUSE
  Save();
#else
  if (!Save().ok()) return;
#endif
}
