// SPDX-License-Identifier: Apache-2.0
#include "base/cgroups.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <string>

namespace longspec {
namespace {

constexpr int kNoQuota = std::numeric_limits<int>::max();

// Inside a container the group's own path may not be mounted: the mount's root then is the group.
void ForGroupAndAncestors(const std::string& mount, std::string group,
                          const std::function<void(const std::string& folder)>& visit) {
  visit(mount);
  while (group.size() > 1) {
    visit(mount + group);
    const size_t slash = group.rfind('/');
    group.resize(slash == std::string::npos ? 0 : slash);
  }
}

// Microseconds of processors' time in each period of so many.
int Processors(std::istream& quota, std::istream& period) {
  double allowed = 0.0, of = 0.0;
  if (!(quota >> allowed) || !(period >> of) || allowed <= 0.0 || of <= 0.0) return kNoQuota;  // "max", -1
  const double processors = std::ceil(allowed / of);
  return processors < kNoQuota ? static_cast<int>(processors) : kNoQuota;
}

}  // namespace

void ForEachCgroup(const std::string& root, const std::string& controller,
                   const std::function<void(const std::string& folder, CgroupVersion version)>& visit) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "hierarchy:controllers:path"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      ForGroupAndAncestors(mount, group,
                           [&](const std::string& folder) { visit(folder, CgroupVersion::kV2); });
    }
    if (controllers.find("," + controller + ",") != std::string::npos) {
      ForGroupAndAncestors(mount + "/" + controller, group,
                           [&](const std::string& folder) { visit(folder, CgroupVersion::kV1); });
    }
  }
}

int CgroupProcessors(const std::string& root) {
  int processors = kNoQuota;
  ForEachCgroup(root, "cpu", [&](const std::string& folder, CgroupVersion version) {
    if (version == CgroupVersion::kV2) {
      std::ifstream both(folder + "/cpu.max");
      processors = std::min(processors, Processors(both, both));
    } else {
      std::ifstream quota(folder + "/cpu.cfs_quota_us"), period(folder + "/cpu.cfs_period_us");
      processors = std::min(processors, Processors(quota, period));
    }
  });
  return processors;
}

}  // namespace longspec
