// SPDX-License-Identifier: Apache-2.0
#include "decode/partial_modes.h"

namespace longspec {

PartialMode PaperMode(int n, int set_size, int refreshed_at, int margin) {
  if (n <= set_size) return PartialMode::kFull;
  const bool buffer_has_room = refreshed_at >= 0 && n - refreshed_at <= margin;
  return buffer_has_room ? PartialMode::kPartial : PartialMode::kRefresh;
}

}  // namespace longspec
