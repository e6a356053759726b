// SPDX-License-Identifier: Apache-2.0
//
// Packed weights kept on disk: the same logits, bit for bit, and nothing of another model or of a damaged
// file.
#include "model/weights_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/testing/files.h"
#include "formats/testing/file_size_limit.h"
#include "formats/tiny_model.h"
#include "kernels/dispatch.h"
#include "kernels/packing.h"
#include "kv/full_cache.h"
#include "model/transformer.h"
#include "sampling/testing/values_of.h"

namespace longspec {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// What a load did.
struct Loaded {
  Status status;
  std::string origin;
  std::vector<std::string> warnings;
  std::vector<double> shares;
  std::vector<float> logits;
};

class WeightsCacheTest : public ::testing::Test {
 protected:
  std::string Write(const TinyModelOptions& tiny, const std::string& name = "model.gguf") const {
    const std::string path = work_ / name;
    EXPECT_TRUE(WriteTinyModel(tiny, path).ok());
    return path;
  }

  Loaded Load(const std::string& path, const std::string& folder, int threads = 2, int cancel_at = -1) const {
    Loaded loaded;
    const auto file = *GgufFile::Open(path);
    const ModelSpec config = *ReadModelSpec(*file, {});
    ThreadTeam team(threads);
    ModelLoadOptions options;
    options.max_rows = 64;
    options.on_progress = [&](double share) {
      loaded.shares.push_back(share);
      return static_cast<int>(loaded.shares.size()) - 1 != cancel_at;
    };
    options.weights_cache = {.folder = folder, .on_warning = [&](const std::string& warning) {
                               loaded.warnings.push_back(warning);
                             }};
    options.origin = &loaded.origin;
    const auto target = LoadModel(file, config, {kernels::Available().front(), &team}, options);
    loaded.status = target.status();
    if (target.ok()) loaded.logits = Logits(**target, config);
    return loaded;
  }
  Loaded Load(const std::string& path) const { return Load(path, folder_); }

  static std::vector<float> Logits(Target& target, const ModelSpec& config) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < 40; ++i) tokens.push_back(i * 37 % 380);
    const auto cache = MakeFullCache(config.kv_layout(CacheType::kF16, CacheType::kF16), config.n_layer, 64);
    auto transaction = cache->Begin(static_cast<int>(tokens.size()));
    const ForwardSegment segment{
        .tokens = tokens, .parents = {}, .kv = &*transaction, .logits = LogitsFor::kAllRows};
    const auto output = target.Forward({&segment, 1});
    EXPECT_TRUE(output.ok());
    const float* logits = testing::ValuesOf(output->segments[0].logits[0]).data();
    return {logits, logits + tokens.size() * static_cast<size_t>(output->vocab)};
  }

  // But for the hash of a model's file, which is kept once that file has not changed for a while.
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    if (!fs::exists(folder_)) return names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() != ".longspec-hash") names.push_back(entry.path().filename());
    }
    return names;
  }
  std::string OnlyFile() const {
    const auto names = Files();
    EXPECT_EQ(names.size(), 1U);
    return names.empty() ? std::string() : (folder_ / names[0]).string();
  }

  static void SetBytes(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }

  const testing::Folder own_;
  const fs::path work_ = own_.path(), folder_ = work_ / "some" / "folder";
};

::testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (!a.empty() && a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << "the logits differ";
}

TEST_F(WeightsCacheTest, TheSameBitsWithAndWithoutForEveryType) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ4_1, DType::kQ8_0,
                            DType::kIQ4_NL, DType::kMXFP4, DType::kQ5_0, DType::kQ5_1, DType::kQ3_K,
                            DType::kIQ4_XS, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    SCOPED_TRACE(Info(dtype).name);
    TinyModelOptions tiny;
    tiny.dtype = dtype;
    tiny.n_embd = 256;
    tiny.n_ff = 256;
    tiny.tied = dtype != DType::kQ8_0;
    tiny.n_vocab = 389;  // the last group of rows is padded
    const std::string path = Write(tiny);
    fs::remove_all(folder_);
    const Loaded plain = Load(path, "");
    EXPECT_EQ(plain.origin, "packed now");
    EXPECT_THAT(Files(), IsEmpty());
    const Loaded first = Load(path), second = Load(path), other_team = Load(path, folder_, 3);
    EXPECT_EQ(first.origin, "packed now, kept in " + OnlyFile());
    EXPECT_EQ(second.origin, "read from " + OnlyFile());
    EXPECT_EQ(other_team.origin, second.origin);
    EXPECT_TRUE(SameBits(first.logits, plain.logits));
    EXPECT_TRUE(SameBits(second.logits, plain.logits));
    EXPECT_TRUE(SameBits(other_team.logits, plain.logits));
    EXPECT_THAT(first.warnings, IsEmpty());
    EXPECT_THAT(second.warnings, IsEmpty());
    EXPECT_EQ(fs::path(OnlyFile()).extension(), ".longspec-weights");
  }
}

TEST_F(WeightsCacheTest, ProgressRisesToOne) {
  const std::string path = Write({});
  for (const Loaded& loaded : {Load(path), Load(path)}) {
    EXPECT_TRUE(std::is_sorted(loaded.shares.begin(), loaded.shares.end()));
    EXPECT_DOUBLE_EQ(loaded.shares.back(), 1.0);
  }
}

// The file decides, not its name: a copy is the same model, and another under the same name is not.
TEST_F(WeightsCacheTest, TheContentsOfTheModelFileAreTheKey) {
  const std::string path = Write({});
  const Loaded first = Load(path);
  fs::copy(path, work_ / "copy.gguf");
  EXPECT_THAT(Load(work_ / "copy.gguf").origin, StartsWith("read from "));
  TinyModelOptions other;
  other.seed = 2;
  Write(other);
  const Loaded changed = Load(path);
  EXPECT_THAT(changed.origin, StartsWith("packed now, kept in "));
  EXPECT_FALSE(SameBits(changed.logits, first.logits));
  EXPECT_EQ(Files().size(), 2U);
}

struct Damage {
  const char* name;
  const char* message;
  void (*apply)(std::string& bytes);
};

TEST_F(WeightsCacheTest, ADamagedFileIsNamedAndWrittenAnew) {
  const std::string path = Write({});
  const Loaded plain = Load(path, "");
  Load(path);
  const std::string kept = OnlyFile(), good = testing::ReadText(kept);
  const Damage damages[] = {
      {"empty", "cut short", [](std::string& b) { b.clear(); }},
      {"half a header", "cut short", [](std::string& b) { b.resize(100); }},
      {"the last byte is missing", "bytes, should have ", [](std::string& b) { b.pop_back(); }},
      {"half", "bytes, should have ", [](std::string& b) { b.resize(b.size() / 2); }},
      {"a byte too many", "bytes, should have ", [](std::string& b) { b.push_back('\0'); }},
      {"another magic", "not a file of packed weights", [](std::string& b) { b[0] = 'L'; }},
      {"another format", "written by another version", [](std::string& b) { b[16] = 9; }},
      {"another key", "its header is damaged", [](std::string& b) { b[24] ^= 1; }},
      {"another size", "its header is damaged", [](std::string& b) { b[40] ^= 1; }},
      {"another header checksum", "its header is damaged", [](std::string& b) { b[79] ^= 1; }},
      {"the first bit of the weights", "not the bytes that were written",
       [](std::string& b) { b[4096] ^= 1; }},
      {"the last bit of the weights", "not the bytes that were written",
       [](std::string& b) { b.back() ^= 1; }},
  };
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.name);
    std::string bytes = good;
    damage.apply(bytes);
    SetBytes(kept, bytes);
    const Loaded again = Load(path);
    EXPECT_THAT(again.warnings, ElementsAre(AllOf(StartsWith(kept + ": "), HasSubstr(damage.message),
                                                  EndsWith("; packed anew"))));
    EXPECT_TRUE(SameBits(again.logits, plain.logits));
    EXPECT_EQ(again.origin, "packed now, kept in " + kept);
    EXPECT_EQ(testing::ReadText(kept), good);
    EXPECT_EQ(Load(path).origin, "read from " + kept);
  }
}

TEST_F(WeightsCacheTest, TheFileOfAnotherModelUnderThisNameIsRefused) {
  TinyModelOptions other;
  other.seed = 2;
  const std::string path = Write({}), other_path = Write(other, "other.gguf");
  const Loaded plain = Load(path, "");
  Load(path);
  const std::string kept = OnlyFile(), good = testing::ReadText(kept);
  fs::remove(kept);
  Load(other_path);
  fs::rename(OnlyFile(), kept);
  ASSERT_EQ(testing::ReadText(kept).size(), good.size());
  const Loaded again = Load(path);
  EXPECT_THAT(again.warnings, ElementsAre(HasSubstr(kept + ": the weights of another model file")));
  EXPECT_TRUE(SameBits(again.logits, plain.logits));
  EXPECT_EQ(testing::ReadText(kept), good);
}

TEST_F(WeightsCacheTest, AFolderThatCannotBeWrittenIsAWarning) {
  const std::string path = Write({});
  const Loaded plain = Load(path, "");
  SetBytes(work_ / "file", "");
  const std::map<std::string, std::string> folders = {
      {work_ / "file" / "below", "/file/below: cannot be created: "},
      {work_ / "file", "/file: cannot be created: "},
      {"/proc", ".longspec-weights.tmp: cannot be created: "},
  };
  for (const auto& [folder, message] : folders) {
    SCOPED_TRACE(folder);
    const Loaded loaded = Load(path, folder);
    EXPECT_TRUE(loaded.status.ok());
    EXPECT_THAT(loaded.warnings,
                ElementsAre(AllOf(HasSubstr(message), EndsWith("; the packed weights are not kept"))));
    EXPECT_EQ(loaded.origin, "packed now");
    EXPECT_TRUE(SameBits(loaded.logits, plain.logits));
    EXPECT_DOUBLE_EQ(loaded.shares.back(), 1.0);
  }
}

TEST_F(WeightsCacheTest, AFullDiskIsAWarningAndLeavesNothing) {
  const std::string path = Write({});
  const Loaded plain = Load(path, "");
  Loaded loaded;
  {
    const testing::FileSizeLimit full(8192);
    loaded = Load(path);
  }
  EXPECT_TRUE(loaded.status.ok());
  EXPECT_THAT(loaded.warnings, ElementsAre(HasSubstr(": cannot be written: ")));
  EXPECT_EQ(loaded.origin, "packed now");
  EXPECT_TRUE(SameBits(loaded.logits, plain.logits));
  EXPECT_THAT(Files(), IsEmpty());
}

// Where room cannot be reserved, a disk is full in the middle of a write.
TEST_F(WeightsCacheTest, ADiskThatFillsUpWhileWritingLeavesNothing) {
  const auto file = *GgufFile::Open(Write({}));
  ThreadTeam team(1);
  const AlignedBuffer packed(100000);
  const auto cache = WeightsCache::Open(folder_, *file, "", packed.size(), team, {});
  ASSERT_TRUE(cache.ok());
  auto to = cache->Create();
  ASSERT_TRUE(to.ok());
  Status written;
  {
    const testing::FileSizeLimit full(8192);
    written = cache->Write(std::move(*to), {packed.data(), packed.size()}, team, {});
  }
  EXPECT_EQ(written.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(written.message(), HasSubstr(cache->path() + ": cannot be written"));
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(WeightsCacheTest, CancellingAnywhereLeavesNothingHalf) {
  const std::string path = Write({});
  const auto n_first = static_cast<int>(Load(path).shares.size());
  const auto n_second = static_cast<int>(Load(path).shares.size());
  for (int i = 0; i < n_second; ++i) {
    EXPECT_EQ(Load(path, folder_, 1, i).status.code(), StatusCode::kCancelled) << i;
  }
  for (int i = 0; i < n_first; ++i) {
    fs::remove_all(folder_);
    EXPECT_EQ(Load(path, folder_, 1, i).status.code(), StatusCode::kCancelled) << i;
    EXPECT_THAT(Files(), IsEmpty()) << i;
  }
}

// Another process holds the temporary file: this one goes on without, and harms nothing.
TEST_F(WeightsCacheTest, WhileAnotherWritesTheWeightsAreNotKept) {
  const std::string path = Write({});
  Load(path);
  const std::string kept = OnlyFile(), good = testing::ReadText(kept);
  fs::remove(kept);
  {
    auto other = AtomicFile::Create(kept);
    ASSERT_TRUE(other.ok());
    const Loaded loaded = Load(path);
    EXPECT_TRUE(loaded.status.ok());
    EXPECT_THAT(loaded.warnings, ElementsAre(HasSubstr(kept + ".tmp: another process is writing it")));
    ASSERT_TRUE(other->Write(std::as_bytes(std::span(good))).ok());
    ASSERT_TRUE(other->Commit().ok());
  }
  EXPECT_EQ(Load(path).origin, "read from " + kept);
}

TEST_F(WeightsCacheTest, ManyProcessesAtOnceEndWithOneGoodFile) {
  const std::string path = Write({});
  const Loaded plain = Load(path);
  const std::string kept = OnlyFile();
  fs::remove(kept);
  std::vector<pid_t> children;
  for (int i = 0; i < 6; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      bool good = true;
      for (int round = 0; round < 4; ++round) {
        const Loaded loaded = Load(path, folder_, 1);
        good = good && loaded.status.ok() && loaded.logits == plain.logits;
        for (const std::string& warning : loaded.warnings) {
          good = good && warning.find("another process is writing it") != std::string::npos;
        }
        if (i == 0) fs::remove(kept);  // so that there is something to write again
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int state = 0;
    waitpid(child, &state, 0);
    EXPECT_EQ(state, 0);
  }
  const Loaded last = Load(path);
  EXPECT_TRUE(SameBits(last.logits, plain.logits));
  EXPECT_THAT(last.warnings, IsEmpty());
  EXPECT_THAT(Files(), ElementsAre(EndsWith(".longspec-weights")));
}

// What a killed process left is written over.
TEST_F(WeightsCacheTest, LeftoversAreNoHindrance) {
  const std::string path = Write({});
  Load(path);
  const std::string kept = OnlyFile(), good = testing::ReadText(kept);
  fs::rename(kept, kept + ".tmp");
  SetBytes(kept + ".tmp", good + good);
  const Loaded loaded = Load(path);
  EXPECT_THAT(loaded.warnings, IsEmpty());
  EXPECT_EQ(testing::ReadText(OnlyFile()), good);
}

TEST_F(WeightsCacheTest, MatricesAreAlignedAndLayoutsHaveTheirOwnFiles) {
  const auto file = *GgufFile::Open(Write({}));
  ThreadTeam team(1);
  AlignedBuffer packed(4096 + 64);
  packed.data()[17] = std::byte{5};
  const auto open = [&](std::string_view layout, uint64_t bytes) {
    return *WeightsCache::Open(folder_, *file, layout, bytes, team, {});
  };
  const WeightsCache cache = open("a", packed.size());
  EXPECT_NE(open("b", packed.size()).path(), cache.path());
  EXPECT_NE(open("a", packed.size() + 64).path(), cache.path());
  EXPECT_EQ(cache.Read(team, {}).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(cache.Write(*cache.Create(), {packed.data(), packed.size()}, team, {}).ok());
  const auto read = cache.Read(team, {});
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->bytes().size(), packed.size());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(read->bytes().data()) % 4096, 0U);
  EXPECT_EQ(std::memcmp(read->bytes().data(), packed.data(), packed.size()), 0);
}

}  // namespace
}  // namespace longspec
