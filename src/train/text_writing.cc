// SPDX-License-Identifier: Apache-2.0
#include "train/text_writing.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>
#include <numeric>
#include <span>
#include <utility>

#include "base/size.h"
#include "base/status_macros.h"
#include "formats/feature_shard.h"
#include "formats/gguf.h"
#include "tokenizer/control_tokens.h"
#include "tokenizer/tokenizer.h"
#include "train/device.h"
#include "train/schedule.h"
#include "train/target_states.h"

namespace longspec::train {
namespace {

namespace fs = std::filesystem;

Status CheckTextOptions(const TextOptions& o) {
  const auto fail = [](const std::string& option, const std::string& right) {
    return InvalidArgument(option + ": must be " + right);
  };
  if (o.beginnings.empty()) return fail("--features", "a folder of beginnings");
  if (o.max_tokens < 1) return fail("--write", "at least 1");
  const auto right = [](float t) { return std::isfinite(t) && t >= 0.0F; };
  if (o.temperatures.empty() || !std::ranges::all_of(o.temperatures, right))
    return fail("--write-temps", "numbers of 0 or more");
  if (o.at_once < 1) return fail("--at-once", "at least 1");
  if (o.first < 0) return fail("--first", "0 or more");
  if (o.most < 0) return fail("--most", "0 (all) or more");
  return {};
}

struct Beginnings {
  FeatureTarget target;
  std::string source;  // of the folders
  std::vector<std::vector<int32_t>> tokens;
  int64_t left_out = 0;  // they leave no room
};

Result<Beginnings> ReadBeginnings(const TextOptions& options) {
  Beginnings all;
  for (const std::string& folder : options.beginnings) {
    LS_ASSIGN(const auto shards, OpenFeatureShards(folder));
    const FeatureHeader& header = shards.front()->header();
    const bool begins = all.source.empty();
    if (begins) all.target = header.target;
    if (header.target != all.target) {
      return InvalidArgument(folder + ": beginnings of another model than " + options.beginnings.front());
    }
    all.source += (begins ? "" : "; ") + header.source;
    for (const auto& shard : shards) {
      for (int i = 0; i < shard->n_sequences(); ++i) {
        const FeatureSequence s = shard->sequence(i);
        if (std::ranges::count(s.loss, 1) > 0) {
          return InvalidArgument(shard->path() +
                                 ": holds texts to be learned, not beginnings; these are made with longspec "
                                 "features --write N --keep none --write-later");
        }
        const bool fits = std::ssize(s.tokens) + options.max_tokens <= all.target.n_ctx;
        if (fits) all.tokens.emplace_back(s.tokens.begin(), s.tokens.end());
        if (!fits) ++all.left_out;
      }
    }
  }
  if (all.tokens.empty()) {
    return InvalidArgument("--write " + std::to_string(options.max_tokens) +
                           ": no beginning leaves as much room in the model's context of " +
                           std::to_string(all.target.n_ctx));
  }
  const int64_t n = std::ssize(all.tokens);
  if (options.first >= n) {
    return InvalidArgument("--first " + std::to_string(options.first) + ": there are " + std::to_string(n) +
                           " beginnings");
  }
  const int64_t most = options.most > 0 ? std::min(options.most, n - options.first) : n - options.first;
  all.tokens.erase(all.tokens.begin(), all.tokens.begin() + options.first);
  all.tokens.resize(Z(most));
  return all;
}

// What decides the texts, so that a run is not continued with others.
std::string DescribeSource(const TextOptions& o, const Beginnings& beginnings, at::Device device) {
  std::string text = "longspec-write --write " + std::to_string(o.max_tokens) + " --write-temps ";
  for (const float t : o.temperatures) {
    char number[32];
    std::snprintf(number, sizeof(number), "%s%g", text.ends_with(' ') ? "" : ",", static_cast<double>(t));
    text += number;
  }
  return text + " --write-seed " + std::to_string(o.seed) + " --at-once " + std::to_string(o.at_once) +
         " --first " + std::to_string(o.first) + " --most " + std::to_string(o.most) +
         (device.is_cpu() ? " --device cpu" : " --device cuda") + ", " +
         std::to_string(beginnings.tokens.size()) + " beginnings of " + beginnings.source;
}

// What ends an answer of the engine's.
Result<std::vector<int32_t>> EndsOf(const GgufFile& file) {
  TokenizerSpec spec;
  LS_ASSIGN(spec.tokens, file.GetStrings("tokenizer.ggml.tokens"));
  if (const std::string key = "tokenizer.ggml.token_type"; file.Has(key)) {
    LS_ASSIGN(const std::vector<int64_t> types, file.GetInts(key));
    if (types.size() != spec.tokens.size())
      return Corrupt(file.path() + ": " + key + ": not one for a token");
    for (const int64_t type : types) spec.token_types.push_back(static_cast<int32_t>(type));
  }
  for (const TokenIdKey& key : TokenIdKeys()) {
    if (!file.Has(key.key)) continue;
    LS_ASSIGN(const uint64_t value, file.GetUint(key.key));
    if (value < spec.tokens.size()) spec.*key.id = static_cast<int32_t>(value);
  }
  SettleControlTokens(&spec);
  return EndsOfGeneration(spec);
}

class TextRun {
 public:
  TextRun(const TextOptions& options, Beginnings beginnings, at::Device device,
          const std::function<bool(const TextProgress&)>& on_progress)
      : options_(options), beginnings_(std::move(beginnings)), device_(device), on_progress_(on_progress) {
    header_.target = beginnings_.target;
    header_.keep = {.kv = false};
    header_.source = DescribeSource(options, beginnings_, device);
    summary_.left_out = beginnings_.left_out;
    progress_.all = std::ssize(beginnings_.tokens);
  }

  Result<TextSummary> Go() {
    LS_TRY(Continue());
    if (header_.last) return summary_;
    std::error_code error;
    fs::create_directories(options_.output, error);
    if (error) return IoError(options_.output + ": cannot be made: " + error.message());
    LS_ASSIGN(const std::shared_ptr<const GgufFile> file, GgufFile::Open(options_.model));
    LS_ASSIGN(const std::vector<int32_t> ends, EndsOf(*file));
    const at::ScalarType type = device_.is_cpu() ? at::kFloat : at::kBFloat16;
    LS_ASSIGN(const TargetStates target, TargetStates::Load(*file, header_.target, device_, type));
    const WriteOptions how = {
        .max_tokens = options_.max_tokens, .temperatures = options_.temperatures, .ends = ends};
    while (!header_.last) {
      const bool go_on = on_progress_(progress_);
      if (!go_on) return Cancelled("stopped between two batches");
      LS_TRY(WriteBatch(target, how));
    }
    on_progress_(progress_);
    return summary_;
  }

 private:
  // Takes up where the folder's last shard ends.
  Status Continue() {
    std::error_code error;
    if (!fs::exists(FeatureShardPath(options_.output, 0), error)) return {};
    LS_ASSIGN(const auto shards, OpenFeatureShards(options_.output));
    const FeatureHeader& before = shards.back()->header();
    if (before.target != header_.target || before.source != header_.source) {
      return InvalidArgument(options_.output +
                             ": holds texts of another model, beginnings or options; give another folder, "
                             "or what it was begun with (" +
                             before.target.name + ", " + before.source + ")");
    }
    for (const auto& shard : shards) {
      summary_.tokens += shard->n_tokens();
      summary_.texts += shard->n_sequences();
    }
    summary_.shards = std::ssize(shards);
    progress_.texts = summary_.texts;
    header_ = before;
    return {};
  }

  Status WriteBatch(const TargetStates& target, const WriteOptions& how) {
    const auto left = std::span(beginnings_.tokens).subspan(Z(header_.next_document));
    const auto batch = left.first(std::min(Z(options_.at_once), left.size()));
    const int64_t first = options_.first + header_.next_document;
    at::manual_seed(DrawSeed(options_.seed, first));  // wherever this call began
    const auto texts = target.Write(batch, first, how, [this](int) { return on_progress_(progress_); });
    if (texts.empty()) return Cancelled("stopped in the middle of a batch");
    for (size_t i = 0; i < texts.size(); ++i) {
      Add(texts[i]);
      progress_.tokens += std::ssize(texts[i]) - std::ssize(batch[i]);
      summary_.tokens += std::ssize(texts[i]);
    }
    header_.next_document += std::ssize(texts);
    header_.last = texts.size() == left.size();
    LS_TRY(writer_.Write(header_, FeatureShardPath(options_.output, static_cast<int>(summary_.shards))));
    ++summary_.shards;
    progress_.texts = summary_.texts += std::ssize(texts);
    return {};
  }

  void Add(std::span<const int32_t> tokens) {
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

  const TextOptions& options_;
  const Beginnings beginnings_;
  const at::Device device_;
  const std::function<bool(const TextProgress&)>& on_progress_;
  FeatureHeader header_;
  FeatureShardWriter writer_;
  TextProgress progress_;
  TextSummary summary_;
};

}  // namespace

Result<TextSummary> WriteTexts(const TextOptions& options,
                               const std::function<bool(const TextProgress&)>& on_progress) {
  LS_TRY(CheckTextOptions(options));
  LS_ASSIGN(const at::Device device, ParseDevice(options.device));
  LS_ASSIGN(Beginnings beginnings, ReadBeginnings(options));
  try {
    return TextRun(options, std::move(beginnings), device, on_progress).Go();
  } catch (const c10::OutOfMemoryError& error) {
    return ResourceExhausted(StatusOf(error).message() + "; a smaller --at-once needs less");
  } catch (const c10::Error& error) {
    return StatusOf(error);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("out of memory; a smaller --at-once needs less");
  }
}

}  // namespace longspec::train
