// SPDX-License-Identifier: Apache-2.0
//
// Memory is planned before it is taken: what fits, what is refused, and with which numbers.
#include "engine/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/testing/fake_root.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1024 * 1024;

MemoryNeeds Needs(int ctx_size) {
  MemoryNeeds needs;
  needs.weights = 100 * kMiB;
  needs.scratch = 20 * kMiB;
  needs.kv_chunk = 6 * kMiB;
  needs.ctx_size = ctx_size;
  return needs;
}

class AvailableMemoryOf : public ::testing::Test {
 protected:
  AvailableMemoryOf() { Write("/proc/self/statm", "1 1 1 0 0 0 0\n"); }
  void Write(const std::string& path, const std::string& text) const { root_.Write(path, text); }
  uint64_t Available() const { return AvailableMemory(root_.path()); }

 private:
  testing::FakeRoot root_;
};

TEST(MemoryPlan, KvIsWholeChunks) {
  EXPECT_EQ(PlanMemory(Needs(0), 0).kv_at_context, 0U);
  EXPECT_EQ(PlanMemory(Needs(1), 0).kv_at_context, 6 * kMiB);
  EXPECT_EQ(PlanMemory(Needs(256), 0).kv_at_context, 6 * kMiB);
  EXPECT_EQ(PlanMemory(Needs(257), 0).kv_at_context, 12 * kMiB);
  const MemoryPlan plan = PlanMemory(Needs(8192), 7);
  EXPECT_EQ(plan.total(), (100 + 20 + 32 * 6) * kMiB);
  EXPECT_EQ(plan.available, 7U);
  EXPECT_EQ(plan.ctx_size, 8192);
}

TEST(MemoryPlan, LargestContextFitsAndTheNextDoesNot) {
  EXPECT_EQ(LargestContextThatFits(Needs(8192), 119 * kMiB), 0);
  EXPECT_EQ(LargestContextThatFits(Needs(8192), 125 * kMiB), 0);
  EXPECT_EQ(LargestContextThatFits(Needs(8192), 126 * kMiB), 256);
  EXPECT_EQ(LargestContextThatFits(Needs(8192), 200 * kMiB), 13 * 256);
  EXPECT_EQ(LargestContextThatFits(Needs(8192), 4096 * kMiB), 8192);
  EXPECT_EQ(LargestContextThatFits(Needs(100), 126 * kMiB), 100);
  for (uint64_t mib = 126; mib < 312; ++mib) {
    const int fits = LargestContextThatFits(Needs(8192), mib * kMiB);
    EXPECT_TRUE(CheckMemory("m", Needs(fits), mib * kMiB).ok()) << mib;
    EXPECT_FALSE(CheckMemory("m", Needs(fits + 1), mib * kMiB).ok()) << mib;
  }
}

// A draft model's cache grows with the target's, the rest of it is there from the beginning.
TEST(MemoryPlan, ADraftModelIsPartOfIt) {
  MemoryNeeds needs = Needs(8192);
  needs.draft = {.fixed = 30 * kMiB, .kv_chunk = 2 * kMiB};
  EXPECT_EQ(PlanMemory(needs, 0).draft, (30 + 32 * 2) * kMiB);
  EXPECT_EQ(PlanMemory(needs, 0).total(), (100 + 20 + 32 * 6 + 30 + 32 * 2) * kMiB);
  EXPECT_EQ(LargestContextThatFits(needs, 157 * kMiB), 0);
  EXPECT_EQ(LargestContextThatFits(needs, 158 * kMiB), 256);
  const Status refused = CheckMemory("m.gguf", needs, 200 * kMiB);
  for (const char* part : {"406.0 MiB", "draft model 94.0 MiB", "-c 1536"}) {
    EXPECT_THAT(refused.message(), HasSubstr(part));
  }
  EXPECT_THAT(CheckMemory("m.gguf", needs, 10 * kMiB).message(), HasSubstr("alone takes 150.0 MiB"));
}

// Of the draft of a model on a card only what the target computes on takes the card's memory; the rest is the
// host's, and each of them has to have room.
TEST(MemoryPlan, OnACardADraftModelIsPartOfTheHosts) {
  MemoryNeeds needs = Needs(8192);
  needs.draft = {.fixed = 30 * kMiB, .kv_chunk = 2 * kMiB, .kept_chunk = kMiB, .with_target = 5 * kMiB};
  EXPECT_EQ(PlanMemory(needs, 0).draft, (5 + 30 + 64) * kMiB);
  EXPECT_EQ(PlanMemory(needs, 0).total(), (312 + 5 + 30 + 64 + 8) * kMiB);
  EXPECT_EQ(PlanMemory(needs, 0, 500 * kMiB).host_draft, 0U);
  EXPECT_EQ(PlanMemory(needs, 0, 500 * kMiB).host_available, 0U);
  needs.draft_on_host = true;
  const MemoryPlan plan = PlanMemory(needs, 1000 * kMiB, 500 * kMiB);
  EXPECT_EQ(plan.total(), (312 + 5) * kMiB);
  EXPECT_EQ(plan.host_draft, (30 + 64 + 8) * kMiB);
  EXPECT_EQ(plan.host_available, 500 * kMiB);

  const auto check = [&](uint64_t card, uint64_t host) {
    return std::string(CheckMemory("m.gguf", needs, card * kMiB, true, host * kMiB).message());
  };
  EXPECT_EQ(check(317, 102), "");
  EXPECT_EQ(check(317, 0), "");  // unknown
  EXPECT_EQ(check(0, 102), "");
  EXPECT_THAT(check(316, 102), HasSubstr("317.0 MiB of memory needed"));
  EXPECT_THAT(check(316, 102), HasSubstr("draft model 5.0 MiB"));
  EXPECT_THAT(check(316, 102), HasSubstr("-c 7936"));
  for (const char* part : {"m.gguf: 102.0 MiB of the host's memory needed for the draft model",
                           "100.0 MiB available", "-c 7936"}) {
    EXPECT_THAT(check(317, 100), HasSubstr(part));
    EXPECT_THAT(check(0, 100), HasSubstr(part));
  }
  EXPECT_THAT(check(1000, 10), HasSubstr("alone takes 38.0 MiB"));
  EXPECT_THAT(check(100, 10), HasSubstr("alone takes 125.0 MiB"));

  EXPECT_EQ(LargestContextThatFits(needs, 197 * kMiB, 500 * kMiB), 12 * 256);
  EXPECT_EQ(LargestContextThatFits(needs, 197 * kMiB, 41 * kMiB), 256);
  EXPECT_EQ(LargestContextThatFits(needs, 197 * kMiB), 12 * 256);

  // A chunk of an earlier prompt takes 6 MiB of the card and 1 of the host.
  needs.most_prompt_cache = MostPromptCache(-1);
  EXPECT_EQ(PlanMemory(needs, 437 * kMiB, 500 * kMiB).prompt_cache, 10 * 7 * kMiB);
  EXPECT_EQ(PlanMemory(needs, 437 * kMiB, 110 * kMiB).prompt_cache, 4 * 7 * kMiB);
  needs.most_prompt_cache = MostPromptCache(22);
  EXPECT_EQ(PlanMemory(needs, 437 * kMiB, 500 * kMiB).prompt_cache, 3 * 7 * kMiB);
}

// So is the working set of partial verification, beside what is remembered of each block.
TEST(MemoryPlan, AWorkingSetIsPartOfIt) {
  MemoryNeeds needs = Needs(8192);
  needs.working_set = {.fixed = 30 * kMiB, .source_chunk = kMiB};
  EXPECT_EQ(PlanMemory(needs, 0).working_set, (30 + 32) * kMiB);
  EXPECT_EQ(PlanMemory(needs, 0).draft, 0U);
  EXPECT_EQ(PlanMemory(needs, 0).total(), (100 + 20 + 32 * 6 + 30 + 32) * kMiB);
  EXPECT_EQ(LargestContextThatFits(needs, 156 * kMiB), 0);
  EXPECT_EQ(LargestContextThatFits(needs, 157 * kMiB), 256);
  const Status refused = CheckMemory("m.gguf", needs, 200 * kMiB);
  for (const char* part : {"374.0 MiB", "working set 62.0 MiB", "-c 1792"}) {
    EXPECT_THAT(refused.message(), HasSubstr(part));
  }
  EXPECT_THAT(CheckMemory("m.gguf", needs, 10 * kMiB).message(), HasSubstr("alone takes 150.0 MiB"));
}

// What is kept of earlier prompts is no need: it takes what was asked for, and half of what is left at most.
TEST(MemoryPlan, EarlierPromptsTakeOfWhatIsLeft) {
  MemoryNeeds needs = Needs(1024);  // 144 MiB
  EXPECT_EQ(PlanMemory(needs, 1000 * kMiB).prompt_cache, 0U);
  needs.most_prompt_cache = MostPromptCache(100);
  EXPECT_EQ(PlanMemory(needs, 0).prompt_cache, 96 * kMiB);  // whole chunks
  EXPECT_EQ(PlanMemory(needs, 1000 * kMiB).prompt_cache, 96 * kMiB);
  EXPECT_EQ(PlanMemory(needs, 1000 * kMiB).total(), 144 * kMiB);
  EXPECT_EQ(PlanMemory(needs, 244 * kMiB).prompt_cache, 48 * kMiB);
  EXPECT_EQ(PlanMemory(needs, 144 * kMiB).prompt_cache, 0U);
  EXPECT_EQ(PlanMemory(needs, 100 * kMiB).prompt_cache, 0U);
  EXPECT_TRUE(CheckMemory("m", needs, 144 * kMiB).ok());
  needs.most_prompt_cache = MostPromptCache(-1);
  EXPECT_EQ(PlanMemory(needs, 1344 * kMiB).prompt_cache, 600 * kMiB);
  needs.most_prompt_cache = MostPromptCache(0);
  EXPECT_EQ(PlanMemory(needs, 1344 * kMiB).prompt_cache, 0U);
  // A draft model keeps its part of them.
  needs.most_prompt_cache = MostPromptCache(100);
  needs.draft.kept_chunk = 2 * kMiB;
  EXPECT_EQ(needs.kept_chunk(), 8 * kMiB);
  EXPECT_EQ(PlanMemory(needs, 0).prompt_cache, 96 * kMiB);
  // Some of it in any case.
  EXPECT_EQ(PlanMemory(needs, 0).draft_keys, 16 * kMiB);
  EXPECT_EQ(PlanMemory(needs, 0).total(), (144 + 16) * kMiB);
  EXPECT_EQ(LargestContextThatFits(needs, 141 * kMiB), 0);
  EXPECT_EQ(LargestContextThatFits(needs, 142 * kMiB), 256);
  EXPECT_THAT(CheckMemory("m.gguf", needs, 150 * kMiB).message(), HasSubstr("texts it keeps 16.0 MiB"));
}

// They lie in memory, and leave --kv-memory to the context.
TEST(MemoryPlan, EarlierPromptsLieInNoFile) {
  MemoryNeeds needs = Needs(1024);  // of keys and values 24 MiB
  needs.most_prompt_cache = MostPromptCache(100);
  needs.most_kv = 60 * kMiB;
  EXPECT_EQ(PlanMemory(needs, 0).prompt_cache, 36 * kMiB);
  needs.most_kv = 18 * kMiB;
  EXPECT_EQ(PlanMemory(needs, 0).prompt_cache, 0U);
}

TEST(MemoryPlan, WhereTheMemoryOfAFileIsTooMuchAShorterContextFits) {
  MemoryNeeds needs = Needs(8192);  // 192 MiB of keys and values, of which 100 may be in memory
  needs.most_kv = 100 * kMiB;
  EXPECT_EQ(LargestContextThatFits(needs, 220 * kMiB), 8192);
  EXPECT_EQ(LargestContextThatFits(needs, 150 * kMiB), 5 * 256);
  const Status refused = CheckMemory("m.gguf", needs, 150 * kMiB);
  EXPECT_THAT(refused.message(), HasSubstr("(-c 1280) would fit, or a smaller --kv-memory may"));
}

TEST(MemoryPlan, RefusalNamesTheNumbersAndWhatFits) {
  EXPECT_TRUE(CheckMemory("m.gguf", Needs(8192), 312 * kMiB).ok());
  EXPECT_TRUE(CheckMemory("m.gguf", Needs(8192), 0).ok());  // unknown: nothing to refuse on
  const Status refused = CheckMemory("m.gguf", Needs(8192), 200 * kMiB);
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted);
  for (const char* part : {"m.gguf", "312.0 MiB", "weights 100.0 MiB", "192.0 MiB for a context of 8192",
                           "scratch 20.0 MiB", "200.0 MiB available", "-c 3328"}) {
    EXPECT_THAT(refused.message(), HasSubstr(part));
  }
  EXPECT_THAT(CheckMemory("m.gguf", Needs(8192), 10 * kMiB).message(), HasSubstr("alone takes 120.0 MiB"));
}

TEST_F(AvailableMemoryOf, NothingReadableIsUnknown) { EXPECT_EQ(Available(), 0U); }

// Outside of any control group it is what the system says is available, and not what is free.
TEST_F(AvailableMemoryOf, MeminfoAlone) {
  Write("/proc/meminfo", "MemTotal: 2000 kB\nMemFree: 10 kB\nMemAvailable:    1000 kB\n");
  EXPECT_EQ(Available(), 1000U * 1024);
}

TEST_F(AvailableMemoryOf, UnifiedGroupAndItsAncestorsLimit) {
  Write("/proc/meminfo", "MemAvailable: 100000 kB\n");
  Write("/proc/self/cgroup", "0::/a/b\n");
  Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  Write("/sys/fs/cgroup/a/b/memory.current", "500\n");
  EXPECT_EQ(Available(), 100000U * 1024);
  Write("/sys/fs/cgroup/a/memory.max", "5000\n");
  Write("/sys/fs/cgroup/a/memory.current", "3000\n");
  EXPECT_EQ(Available(), 2000U);
  Write("/sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 700\nactive_file 300\n");
  EXPECT_EQ(Available(), 3000U);
}

TEST_F(AvailableMemoryOf, OldGroupOfAContainerWhosePathIsNotMounted) {
  Write("/proc/meminfo", "MemAvailable: 100000 kB\n");
  Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/123\nnonsense\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9000\n");
  Write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4000\n");
  EXPECT_EQ(Available(), 5000U);
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // how v1 writes "none"
  EXPECT_EQ(Available(), 100000U * 1024);
}

TEST_F(AvailableMemoryOf, AnExhaustedGroupIsNotUnknown) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "100\n");
  Write("/sys/fs/cgroup/memory.current", "400\n");
  EXPECT_EQ(Available(), 1U);
}

TEST(MemoryPlan, BytesForPeople) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(kMiB - 1), "1.0 MiB");
  EXPECT_EQ(FormatBytes(uint64_t{3} << 30), "3.0 GiB");
  EXPECT_EQ(FormatBytes(uint64_t{5000} << 40), "5000.0 TiB");
}

// Half of the context's keys lie in a file.
TEST(MemoryPlan, AnOffloadedCacheTakesWhatMemoryItMay) {
  MemoryNeeds needs = Needs(8192);
  needs.most_kv = 96 * kMiB;
  const MemoryPlan plan = PlanMemory(needs, 0);
  EXPECT_EQ(plan.kv_at_context, 96 * kMiB);
  EXPECT_EQ(plan.kv_in_file, 96 * kMiB);
  EXPECT_EQ(plan.total(), 216 * kMiB);
  EXPECT_TRUE(CheckMemory("m", needs, 216 * kMiB).ok());
  EXPECT_THAT(CheckMemory("m", needs, 200 * kMiB).message(), HasSubstr("(-c 3328) would fit"));
  EXPECT_THAT(CheckMemory("m", needs, 200 * kMiB, false).message(), HasSubstr("size of 3328 would fit"));
  EXPECT_EQ(LargestContextThatFits(needs, 216 * kMiB), 8192);
  ModelOptions options;
  EXPECT_TRUE(OffloadOf(options, 6 * kMiB, 100 * kMiB).folder.empty());
  options.kv_offload = "/tmp";
  EXPECT_EQ(OffloadOf(options, 6 * kMiB, 100 * kMiB).memory_chunks, 8U);
  options.kv_memory = 13;
  EXPECT_EQ(OffloadOf(options, 6 * kMiB, 100 * kMiB).memory_chunks, 2U);
  EXPECT_TRUE(CheckOffload("/tmp", PlanMemory(Needs(8192), 0)).ok());
  EXPECT_THAT(CheckOffload("/nowhere/at/all", plan).message(), HasSubstr("--kv-offload /nowhere/at/all"));
  MemoryPlan large = plan;
  large.kv_in_file = uint64_t{1} << 60;
  EXPECT_THAT(CheckOffload("/tmp", large).message(), HasSubstr("are to lie there"));
}

// What a card has no room for of a cache lies in host memory, beside what a draft takes there: both are
// counted, to the byte.
TEST(MemoryPlan, ACacheInHostMemoryIsCountedWithTheDraftThere) {
  MemoryNeeds needs = Needs(8192);
  needs.most_kv = 96 * kMiB;
  needs.rest_on_host = true;
  EXPECT_EQ(HostTotal(PlanMemory(needs, 0)), 96 * kMiB);
  EXPECT_TRUE(CheckMemory("m", needs, 216 * kMiB, true, 96 * kMiB).ok());
  const Status alone = CheckMemory("m", needs, 216 * kMiB, true, 96 * kMiB - 1);
  EXPECT_EQ(alone.code(), StatusCode::kResourceExhausted);
  for (const char* part : {"m: 96.0 MiB of the host's memory needed for the KV cache at a context of 8192",
                           "-c 7936", "or a larger --kv-memory may"}) {
    EXPECT_THAT(alone.message(), HasSubstr(part));
  }

  needs.draft = {.fixed = 30 * kMiB, .kv_chunk = 2 * kMiB, .kept_chunk = kMiB};
  needs.draft_on_host = true;
  const MemoryPlan plan = PlanMemory(needs, 216 * kMiB, 198 * kMiB);
  EXPECT_EQ(plan.total(), 216 * kMiB);
  EXPECT_EQ(HostTotal(plan), (96 + 30 + 64 + 8) * kMiB);
  EXPECT_TRUE(CheckMemory("m", needs, 216 * kMiB, true, 198 * kMiB).ok());
  EXPECT_THAT(CheckMemory("m", needs, 216 * kMiB, true, 198 * kMiB - 1).message(),
              HasSubstr("for the KV cache (96.0 MiB) and the draft model (102.0 MiB) at a context of 8192"));
  EXPECT_THAT(CheckMemory("m", needs, 216 * kMiB - 1, true, 198 * kMiB).message(),
              HasSubstr("or a smaller --kv-memory may"));
  // A chunk is 2 MiB there while the card has room for its keys, and 8 from then on.
  for (uint64_t mib = 40; mib < 198; ++mib) {
    const int fits = LargestContextThatFits(needs, 216 * kMiB, mib * kMiB);
    EXPECT_EQ(fits, 256 * static_cast<int>(mib < 70 ? (mib - 38) / 2 : 16 + (mib - 70) / 8));
    MemoryNeeds of_it = needs;
    of_it.ctx_size = fits;
    EXPECT_TRUE(CheckMemory("m", of_it, 216 * kMiB, true, mib * kMiB).ok()) << mib;
    of_it.ctx_size = fits + 1;
    EXPECT_FALSE(CheckMemory("m", of_it, 216 * kMiB, true, mib * kMiB).ok()) << mib;
  }
}

// Host memory is another place than a model's on a card alone.
TEST(MemoryPlan, WhereTheRestOfACacheLies) {
  ModelOptions options;
  MemoryNeeds needs = Needs(8192);
  PlanOffload(options, true, 100 * kMiB, 6, &needs);
  EXPECT_FALSE(needs.most_kv.has_value());
  options.kv_offload = "host";
  EXPECT_FALSE(PlanOffload(options, false, 100 * kMiB, 6, &needs).to_host);
  EXPECT_FALSE(needs.most_kv.has_value() || needs.rest_on_host);
  const KvOffload on_card = PlanOffload(options, true, 100 * kMiB, 6, &needs);
  EXPECT_TRUE(on_card.to_host && on_card.folder.empty());
  EXPECT_EQ(on_card.memory_chunks, 8U);
  EXPECT_EQ(needs.most_kv, 48 * kMiB);
  EXPECT_TRUE(needs.rest_on_host);
  // Of the 24 chunks beyond these a layer is fetched ahead, and the one after it, or as much as pays.
  EXPECT_EQ(on_card.fetched_chunks, 24U);
  EXPECT_EQ(needs.scratch, (20 + 2 * 24) * kMiB);
  needs = Needs(8192);
  EXPECT_EQ(PlanOffload(options, true, 100 * kMiB, 2, &needs).fetched_chunks, 10U);
  EXPECT_EQ(needs.scratch, (20 + 2 * 10 * 3) * kMiB);
}

}  // namespace
}  // namespace longspec
