// SPDX-License-Identifier: Apache-2.0
//
// Limits of control groups, read from made-up files of /proc and /sys.
#include "base/cgroups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "base/testing/fake_root.h"
#include "base/thread_team.h"

namespace longspec::testing {
namespace {

using ::testing::ElementsAre;

constexpr int kNoQuota = std::numeric_limits<int>::max();

TEST(Cgroups, OfAProcessAreItsOwnAndTheirAncestors) {
  const FakeRoot root;
  root.Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/y\nnonsense\n0::/a/b\n");
  std::vector<std::string> folders;
  ForEachCgroup(root.path(), "cpu", [&](const std::string& folder, CgroupVersion version) {
    folders.push_back((version == CgroupVersion::kV1 ? "1 " : "2 ") + folder.substr(root.path().size()));
  });
  EXPECT_THAT(folders, ElementsAre("1 /sys/fs/cgroup/cpu", "1 /sys/fs/cgroup/cpu/x", "2 /sys/fs/cgroup",
                                   "2 /sys/fs/cgroup/a/b", "2 /sys/fs/cgroup/a"));
}

TEST(Cgroups, TheLeastQuotaLimitsProcessors) {
  const FakeRoot root;
  EXPECT_EQ(CgroupProcessors(root.path()), kNoQuota);
  root.Write("/proc/self/cgroup", "0::/a/b\n");
  root.Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(CgroupProcessors(root.path()), kNoQuota);
  root.Write("/sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  EXPECT_EQ(CgroupProcessors(root.path()), 4);
  root.Write("/sys/fs/cgroup/a/b/cpu.max", "250000 100000\n");
  EXPECT_EQ(CgroupProcessors(root.path()), 3);
  root.Write("/sys/fs/cgroup/a/b/cpu.max", "1000 100000\n");
  EXPECT_EQ(CgroupProcessors(root.path()), 1);
}

TEST(Cgroups, OldQuotasLimitProcessors) {
  const FakeRoot root;
  root.Write("/proc/self/cgroup", "5:cpu,cpuacct:/docker/123\n0::/\n");
  root.Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n");
  root.Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(CgroupProcessors(root.path()), kNoQuota);
  root.Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "75000\n");
  EXPECT_EQ(CgroupProcessors(root.path()), 2);
}

TEST(Cgroups, AQuotaLimitsTheThreadsOfATeam) {
  const FakeRoot root;
  const int cores = ThreadTeam::UsableCores(root.path());
  EXPECT_GE(cores, 1);
  root.Write("/proc/self/cgroup", "0::/\n");
  root.Write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(ThreadTeam::UsableCores(root.path()), 1);
  root.Write("/sys/fs/cgroup/cpu.max", "100000000 100000\n");
  EXPECT_EQ(ThreadTeam::UsableCores(root.path()), std::min(cores, 1000));
}

}  // namespace
}  // namespace longspec::testing
