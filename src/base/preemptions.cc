// SPDX-License-Identifier: Apache-2.0
#include "base/preemptions.h"

#include <sys/resource.h>

namespace longspec {

int64_t Preemptions() {
  rusage usage = {};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_nivcsw : 0;
}

}  // namespace longspec
