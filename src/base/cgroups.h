// SPDX-License-Identifier: Apache-2.0
//
// The control groups that this process is in, by which containers limit it. Free functions; thread-safe.
// `root` replaces "/" in tests.
#pragma once

#include <functional>
#include <string>

namespace longspec {

enum class CgroupVersion { kV1, kV2 };

// Calls visit with the folder of each group whose limits of `controller` ("memory", "cpu") hold for this
// process: its own and their ancestors. A folder may be absent.
void ForEachCgroup(const std::string& root, const std::string& controller,
                   const std::function<void(const std::string& folder, CgroupVersion version)>& visit);

// How many processors' time the groups' quotas allow, rounded up; the largest int if none limits it.
int CgroupProcessors(const std::string& root = "");

}  // namespace longspec
