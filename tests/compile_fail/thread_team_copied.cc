// SPDX-License-Identifier: Apache-2.0
// A team owns its threads.
// EXPECT: deleted
#include "base/thread_team.h"

void Use(longspec::ThreadTeam& team) {
#ifdef MISUSE
  longspec::ThreadTeam other = team;
#else
  longspec::ThreadTeam& other = team;
#endif
  static_cast<void>(other);
}
