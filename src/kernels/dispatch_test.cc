// SPDX-License-Identifier: Apache-2.0
//
// The table of kernels that runs is the best one that this CPU has, or the one that was asked for.
#include "kernels/dispatch.h"

#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/tables.h"
#include "kernels/testing/emulated_gpu_table.h"
#include "kernels/testing/tables_under_test.h"

namespace longspec::kernels {
namespace {

using ::testing::HasSubstr;

// LONGSPEC_KERNELS for one scope; what the caller of the tests had set comes back.
class ScopedKernels {
 public:
  explicit ScopedKernels(const char* value) {
    if (const char* old = std::getenv(kName)) old_ = old;
    if (value != nullptr) {
      setenv(kName, value, 1);
    } else {
      unsetenv(kName);
    }
  }
  ~ScopedKernels() {
    if (old_.has_value()) {
      setenv(kName, old_->c_str(), 1);
    } else {
      unsetenv(kName);
    }
  }
  ScopedKernels(const ScopedKernels&) = delete;
  ScopedKernels& operator=(const ScopedKernels&) = delete;

 private:
  static constexpr const char* kName = "LONGSPEC_KERNELS";
  std::optional<std::string> old_;
};

bool IsAvailable(std::string_view name) {
  for (const KernelTable* table : Available()) {
    if (name == table->name) return true;
  }
  return false;
}

// Fast tables of this build.
#if defined(__x86_64__)
constexpr const char* kFastTables[] = {"amx", "avx512-bf16", "avx512", "avx2"};
constexpr const char* kFlags = "flags";
#elif defined(__aarch64__)
constexpr const char* kFastTables[] = {"neon"};
constexpr const char* kFlags = "Features";
#endif

#if defined(__x86_64__) || defined(__aarch64__)
// What the kernel says about the CPU, by another road than dispatch.cc's.
bool CpuinfoHas(const std::vector<std::string>& wanted) {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(kFlags)) continue;
    const std::string flags = line + " ";
    for (const std::string& flag : wanted) {
      if (flags.find(" " + flag + " ") == std::string::npos) return false;
    }
    return true;
  }
  return false;
}
#endif

TEST(DispatchTest, BestTableIsTheDefault) {
  const ScopedKernels unset(nullptr);
  const auto chosen = Choose("");
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(*chosen, Available().front());
  const ScopedKernels empty("");
  EXPECT_EQ(*Choose(""), Available().front());
}

TEST(DispatchTest, ReferenceIsAlwaysThereAndLast) { EXPECT_EQ(Available().back(), &kReferenceTable); }

#if defined(__x86_64__)
TEST(DispatchTest, AgreesWithTheKernelAboutTheCpu) {
  if (!CpuinfoHas({"fpu"})) GTEST_SKIP() << "no /proc/cpuinfo";
  EXPECT_EQ(IsAvailable("avx2"), CpuinfoHas({"avx2", "fma", "f16c"}));
  EXPECT_EQ(IsAvailable("avx512"), CpuinfoHas({"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq",
                                               "avx512vl", "avx512_vnni"}));
  EXPECT_EQ(IsAvailable("avx512-bf16"), IsAvailable("avx512") && CpuinfoHas({"avx512_bf16"}));
  // Only if its sums are the documented ones, too.
  EXPECT_TRUE(!IsAvailable("amx") || (IsAvailable("avx512-bf16") && CpuinfoHas({"amx_tile", "amx_bf16"})));
}
#elif defined(__aarch64__)
TEST(DispatchTest, AgreesWithTheKernelAboutTheCpu) {
  if (!CpuinfoHas({"asimd"})) GTEST_SKIP() << "/proc/cpuinfo, if any, is not this CPU's";
  EXPECT_EQ(IsAvailable("neon"), CpuinfoHas({"asimddp"}));
}
#endif

TEST(DispatchTest, ForcedTableIsTheActiveOne) {
  for (const KernelTable* table : Available()) {
    const ScopedKernels unset(nullptr);
    EXPECT_EQ(*Choose(table->name), table);
    const ScopedKernels forced(table->name);
    EXPECT_EQ(*Choose(""), table);
  }
}

TEST(DispatchTest, TheOptionBeatsTheEnvironment) {
  const ScopedKernels forced("no-such-table");
  EXPECT_EQ(*Choose("reference"), &kReferenceTable);
}

TEST(DispatchTest, UnknownNamesListWhatThereIs) {
  const auto by_option = Choose("avx1024");
  ASSERT_FALSE(by_option.ok());
  EXPECT_EQ(by_option.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(by_option.status().message(), HasSubstr("--kernels=avx1024"));
  for (const KernelTable* table : Available())
    EXPECT_THAT(by_option.status().message(), HasSubstr(table->name));

  const ScopedKernels forced("AVX2");  // names are lower case
  const auto by_environment = Choose("");
  ASSERT_FALSE(by_environment.ok());
  EXPECT_THAT(by_environment.status().message(), HasSubstr("LONGSPEC_KERNELS=AVX2"));
}

#if defined(__x86_64__) || defined(__aarch64__)
TEST(DispatchTest, ForcingWhatTheCpuLacksIsAnError) {
  int lacking = 0;
  for (const char* name : kFastTables) {
    if (IsAvailable(name)) continue;
    const auto chosen = Choose(name);
    ASSERT_FALSE(chosen.ok()) << name;
    EXPECT_EQ(chosen.status().code(), StatusCode::kUnsupported);
    EXPECT_THAT(chosen.status().message(), HasSubstr("this CPU cannot run it; it has "));
    EXPECT_THAT(chosen.status().message(), HasSubstr("reference"));
    ++lacking;
  }
  if (lacking == 0) GTEST_SKIP() << "this CPU runs every table of the build";
}
#endif

TEST(DispatchTest, DescribesTheCpuInOneLine) {
  const std::string description = CpuDescription();
  EXPECT_EQ(description.find('\n'), std::string::npos);
  if (IsAvailable("avx2")) {
    EXPECT_THAT(description, HasSubstr("AVX2 FMA F16C"));
  }
  EXPECT_EQ(IsAvailable("neon"), description.find("NEON DOTPROD") != std::string::npos);
}

// Functions of a table that are the reference's own.
std::vector<std::string> TakenFromTheReference(const KernelTable& t) {
  std::vector<std::string> names;
  const auto compare = [&](const char* name, auto function) {
    if (t.*function == kReferenceTable.*function) names.emplace_back(name);
  };
  compare("quantize_q8", &KernelTable::quantize_q8);
  compare("matmul_q8", &KernelTable::matmul_q8);
  compare("quantize_q8k", &KernelTable::quantize_q8k);
  compare("matmul_q8k", &KernelTable::matmul_q8k);
  compare("matmul_float", &KernelTable::matmul_float);
  compare("round_bf16", &KernelTable::round_bf16);
  compare("matmul_bf16", &KernelTable::matmul_bf16);
  compare("rms_norm", &KernelTable::rms_norm);
  compare("rope", &KernelTable::rope);
  compare("swiglu", &KernelTable::swiglu);
  compare("geglu", &KernelTable::geglu);
  compare("exp", &KernelTable::exp);
  compare("argmax", &KernelTable::argmax);
  compare("top_k", &KernelTable::top_k);
  compare("gumbel_argmax", &KernelTable::gumbel_argmax);
  compare("scores", &KernelTable::scores);
  compare("softmax_chunk", &KernelTable::softmax_chunk);
  compare("values", &KernelTable::values);
  compare("gathered_values", &KernelTable::gathered_values);
  compare("merge_state", &KernelTable::merge_state);
  compare("finish_state", &KernelTable::finish_state);
  compare("store_kv", &KernelTable::store_kv);
  return names;
}

// The kernel tests would pass if they compared the reference with itself.
TEST(TablesUnderTestTest, ShareNoFunctionWithTheReference) {
  for (const KernelTable* t : testing::TablesUnderTest()) {
    EXPECT_STRNE(t->name, kReferenceTable.name);
    std::vector<std::string> shared;
    if (t == &testing::kEmulatedGpuTable) {
      shared = {"matmul_bf16"};  // orders of instructions that only CPUs have
    }
    EXPECT_EQ(TakenFromTheReference(*t), shared) << t->name;
  }
}

TEST(TablesUnderTestTest, HaveTheEmulatedOnes) {
  const std::vector<const KernelTable*> emulated = testing::EmulatedTables();
  if (emulated.empty()) GTEST_SKIP() << "sanitised, or neither AVX-512 nor SIMDe with AVX2";
  const KernelTable& amx = *emulated.back();
  EXPECT_STREQ(amx.name, "amx (emulated)");
  // The emulated one where the build has it, else the CPU's.
  const KernelTable* found = emulated.front();
  for (const KernelTable* table : Available()) {
    if (emulated.size() == 1 && std::string(table->name) == "avx512") found = table;
  }
  const KernelTable& avx512 = *found;
  EXPECT_STREQ(avx512.name, emulated.size() == 1 ? "avx512" : "avx512 (emulated)");
  EXPECT_TRUE(amx.scores != avx512.scores && amx.values != avx512.values &&
              amx.gathered_values != avx512.gathered_values && amx.matmul_bf16 != avx512.matmul_bf16);
}

// A CPU whose tiles sum in another way must not have the table.
TEST(AmxTest, OnlyTheDocumentedSumsAreTrusted) {
  using testing::TileSums;
  if (testing::EmulatedTables().empty()) GTEST_SKIP() << "no emulated tiles";
  EXPECT_TRUE(testing::EmulatedTilesAreTrusted(TileSums::kDocumented));
  for (const TileSums sums :
       {TileSums::kInOrder, TileSums::kPairs, TileSums::kAddedApart, TileSums::kUnflushed}) {
    EXPECT_FALSE(testing::EmulatedTilesAreTrusted(sums)) << static_cast<int>(sums);
  }
}

TEST(TablesUnderTestTest, CoverEveryAvailableTable) {
  EXPECT_GE(testing::TablesUnderTest().size(), Available().size() - 1);
}

}  // namespace
}  // namespace longspec::kernels
