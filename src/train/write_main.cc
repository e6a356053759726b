// SPDX-License-Identifier: Apache-2.0
//
// longspec-write: the target ends the beginnings of `longspec features --write N --write-later`, hundreds at
// once, on a GPU. What comes out are shards of tokens alone, which longspec-train reads.
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <torch/cuda.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/size.h"
#include "base/status_macros.h"
#include "longspec/version.h"
#include "train/target_states.h"

namespace longspec::train {
namespace {

struct WriteFlags {
  std::vector<std::string> beginnings;
  std::string model, output, device = "cuda";
  WriteOptions write;
  int at_once = 512;
  int64_t first = 0, most = 0;
  uint64_t seed = 1;
};

// What ends an answer in the model's file.
std::vector<int32_t> EndsOf(const GgufFile& file) {
  std::vector<int32_t> ends;
  for (const char* key : {"eos", "eot", "eom"}) {
    const auto id = file.GetUint("tokenizer.ggml." + std::string(key) + "_token_id");
    if (id.ok()) ends.push_back(static_cast<int32_t>(*id));
  }
  return ends;
}

class Writing {
 public:
  Writing(const WriteFlags& flags, TargetStates target, FeatureHeader header)
      : flags_(flags), target_(std::move(target)), header_(std::move(header)) {
    header_.keep = {.kv = false};
    header_.top_k = 0;
    header_.source = "longspec-write " + std::to_string(flags.write.max_tokens) + " after " + header_.source;
  }

  Status Go(std::vector<std::vector<int32_t>> beginnings) {
    const double begun_ms = NowMs();
    for (size_t begin = 0; begin < beginnings.size(); begin += Z(flags_.at_once)) {
      const size_t n = std::min(Z(flags_.at_once), beginnings.size() - begin);
      const auto part = std::span(beginnings).subspan(begin, n);
      const auto texts = target_.Write(part, flags_.first + static_cast<int64_t>(begin), flags_.write,
                                       [](int) { return true; });
      for (size_t i = 0; i < n; ++i) {
        Add(texts[i]);
        written_ += std::ssize(texts[i]) - std::ssize(part[i]);
      }
      header_.last = begin + n == beginnings.size();
      LS_TRY(writer_.Write(header_, FeatureShardPath(flags_.output, n_shards_++)));
      std::fprintf(stderr, "%zu of %zu texts, %lld tokens written, %.0f tokens/s\n", begin + n,
                   beginnings.size(), static_cast<long long>(written_),
                   1000.0 * static_cast<double>(written_) / (NowMs() - begun_ms));
    }
    return {};
  }

 private:
  void Add(const std::vector<int32_t>& tokens) {
    std::vector<int32_t> positions(tokens.size());
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<int8_t> learn(tokens.size(), 1);
    writer_.Add(header_, {.tokens = tokens,
                          .positions = positions,
                          .loss = learn,
                          .kept = {},
                          .top_ids = {},
                          .top_log_probs = {}});
  }

  const WriteFlags& flags_;
  const TargetStates target_;
  FeatureHeader header_;
  FeatureShardWriter writer_;
  int n_shards_ = 0;
  int64_t written_ = 0;
};

Status Write(const WriteFlags& flags) {
  LS_ASSIGN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(flags.model));
  if (flags.device != "cpu" && !torch::cuda::is_available()) {
    return Unsupported("--device " + flags.device +
                       ": LibTorch finds no CUDA device; cpu is right without one");
  }
  const at::Device device(flags.device);
  std::vector<std::vector<int32_t>> beginnings;
  FeatureHeader header;
  for (const std::string& folder : flags.beginnings) {
    LS_ASSIGN(const auto shards, OpenFeatureShards(folder));
    header = shards.front()->header();
    for (const auto& shard : shards) {
      for (int i = 0; i < shard->n_sequences(); ++i) {
        const FeatureSequence s = shard->sequence(i);
        if (std::ssize(s.tokens) + flags.write.max_tokens > header.target.n_ctx) continue;
        beginnings.emplace_back(s.tokens.begin(), s.tokens.end());
      }
    }
  }
  const size_t begin = std::min(Z(flags.first), beginnings.size());
  const size_t most = flags.most > 0 ? Z(flags.most) : beginnings.size();
  beginnings.erase(beginnings.begin(), beginnings.begin() + static_cast<std::ptrdiff_t>(begin));
  beginnings.resize(std::min(most, beginnings.size()));
  if (beginnings.empty())
    return InvalidArgument("--first " + std::to_string(flags.first) + ": no beginning is left");
  std::error_code error;
  std::filesystem::create_directories(flags.output, error);
  if (error) return IoError(flags.output + ": " + error.message());
  const at::ScalarType type = device.is_cpu() ? at::kFloat : at::kBFloat16;
  LS_ASSIGN(TargetStates target, TargetStates::Load(*file, header.target, device, type));
  at::manual_seed(flags.seed);
  WriteFlags of_file = flags;
  of_file.write.ends = EndsOf(*file);
  return Writing(of_file, std::move(target), header).Go(std::move(beginnings));
}

int Main(int argc, char** argv) {
  CLI::App app("Lets the target write on after beginnings, many at once.", "longspec-write");
  app.set_version_flag("--version", "longspec-write " LONGSPEC_VERSION);
  WriteFlags flags;
  app.add_option("-f,--features", flags.beginnings, "Folders of `longspec features --write N --write-later`")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("-m,--model", flags.model, "GGUF file they were made with")->required();
  app.add_option("-o,--output", flags.output, "Folder for the shards")->required();
  app.add_option("--write", flags.write.max_tokens, "Tokens after each at most")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--write-temps", flags.write.temperatures, "Temperatures, in turn")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  app.add_option("--write-seed", flags.seed, "Decides what is written, on one kind of device")
      ->capture_default_str();
  app.add_option("--at-once", flags.at_once, "Texts that are written together; memory grows with them")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--first", flags.first, "Leave out so many of the beginnings")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--most", flags.most, "Take so many of them; 0: all")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--device", flags.device, "cuda, cuda:N or cpu")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "longspec-write: error: %s (longspec-write --help lists the options)\n",
                 error.what());
    return 2;
  }
  Status status;
  try {
    status = Write(flags);
  } catch (const c10::Error& error) {
    status = ResourceExhausted("LibTorch: " + std::string(error.what_without_backtrace()));
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "longspec-write: error: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalidArgument ? 2 : status.code() == StatusCode::kIo ? 5 : 3;
}

}  // namespace
}  // namespace longspec::train

int main(int argc, char** argv) { return longspec::train::Main(argc, argv); }
