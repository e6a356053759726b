// SPDX-License-Identifier: Apache-2.0
#include "network/read_rope.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/status_macros.h"
#include "tensor/dequantize.h"

namespace longspec {
namespace {

using Scaling = RopeOptions::Scaling;

constexpr std::string_view kRopeKeys[] = {"dimension_count",
                                          "freq_base",
                                          "scale_linear",  // scaling.factor in files of 2023
                                          "scaling.type",
                                          "scaling.factor",
                                          "scaling.attn_factor",
                                          "scaling.original_context_length",
                                          "scaling.finetuned",  // tells; asks for nothing
                                          "scaling.yarn_log_multiplier",
                                          "scaling.yarn_ext_factor",
                                          "scaling.yarn_attn_factor",
                                          "scaling.yarn_beta_fast",
                                          "scaling.yarn_beta_slow"};

struct RopeRule {
  bool (*holds)(double);
  const char* expected;
};
constexpr RopeRule kPositive = {[](double v) { return std::isfinite(v) && v > 0.0; }, "a positive number"};
constexpr RopeRule kAboveOne = {[](double v) { return std::isfinite(v) && v > 1.0; }, "a number above 1"};
constexpr RopeRule kShare = {[](double v) { return v >= 0.0 && v <= 1.0; }, "a number from 0 to 1"};
constexpr RopeRule kNotNegative = {[](double v) { return std::isfinite(v) && v >= 0.0; }, "0 or more"};

std::string NumberText(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

std::optional<double> Unless(bool unset, double value) { return unset ? std::nullopt : std::optional(value); }

class RopeReader {
 public:
  RopeReader(const GgufFile& file, const std::string& architecture, const ModelSizes& sizes,
             const RopeOptions& options)
      : file_(file), sizes_(sizes), options_(options), prefix_(architecture + ".rope.") {}

  Result<RopeConfig> Read() {
    LS_TRY(RefuseUnknownKeys());
    LS_TRY(ReadDimensions());
    LS_ASSIGN(rope_.freq_base,
              Number("freq_base", "--rope-freq-base", Unless(options_.freq_base == 0.0F, options_.freq_base),
                     10000.0, kAboveOne));
    LS_TRY(ReadScaling());
    LS_TRY(ReadYarn());
    LS_TRY(ReadFactors());
    return std::move(rope_);
  }

 private:
  Status RefuseUnknownKeys() const {
    for (const auto& [key, value] : file_.metadata()) {
      if (!key.starts_with(prefix_)) continue;
      const std::string_view name = std::string_view(key).substr(prefix_.size());
      if (std::ranges::find(kRopeKeys, name) == std::end(kRopeKeys)) {
        return Unsupported(file_.path() + ": " + key +
                           " is not supported: what it changes would not be done");
      }
    }
    return {};
  }

  Result<int> Positions(const std::string& key, int fallback, uint64_t most) const {
    LS_ASSIGN(const uint64_t value, file_.GetUintOr(prefix_ + key, static_cast<uint64_t>(fallback)));
    if (value >= 1 && value <= most) return static_cast<int>(value);
    return Corrupt(file_.path() + ": " + prefix_ + key + " is " + std::to_string(value) + ", expected 1 to " +
                   std::to_string(most));
  }

  // What the user asks for, else what the file says, else `fallback`.
  Result<double> Number(const std::string& key, const std::string& option, std::optional<double> asked,
                        double fallback, const RopeRule& rule) const {
    if (asked) {
      if (rule.holds(*asked)) return *asked;
      return InvalidArgument(option + " is " + NumberText(*asked) + ", expected " + rule.expected);
    }
    LS_ASSIGN(const double value, file_.GetFloatOr(prefix_ + key, fallback));
    if (rule.holds(value)) return value;
    return Corrupt(file_.path() + ": " + prefix_ + key + " is " + NumberText(value) + ", expected " +
                   rule.expected);
  }
  Result<double> YarnNumber(const std::string& name, const std::string& option, float asked, double fallback,
                            const RopeRule& rule) const {
    return Number("scaling.yarn_" + name, option, Unless(asked < 0.0F, asked), fallback, rule);
  }

  Status ReadDimensions() {
    constexpr uint64_t kMost = 1 << 20;
    LS_ASSIGN(rope_.n_rot, Positions("dimension_count", sizes_.head_dim, kMost));
    if (rope_.n_rot % 2 == 0 && rope_.n_rot <= sizes_.head_dim) return {};
    return Corrupt(file_.path() + ": " + prefix_ + "dimension_count is " + std::to_string(rope_.n_rot) +
                   ", expected an even number up to the head dimension " + std::to_string(sizes_.head_dim));
  }

  Status ReadScaling() {
    const std::string type_key = prefix_ + "scaling.type";
    LS_ASSIGN(const std::string type, file_.GetStringOr(type_key, ""));
    // llama.cpp's rule: a factor without a type is linear. Without both there is nothing to scale.
    const bool has_type = !type.empty();
    if (!has_type || type == "linear") {
      rope_.scaling = Scaling::kLinear;
    } else if (type == "yarn") {
      rope_.scaling = Scaling::kYarn;
    } else if (type != "none") {
      return Unsupported(file_.path() + ": " + type_key + " \"" + type +
                         "\" is not supported; known are none, linear, yarn");
    }
    const bool asked = options_.scaling != Scaling::kFromModel;
    if (asked) rope_.scaling = options_.scaling;

    const char* const key = file_.Has(prefix_ + "scaling.factor") ? "scaling.factor" : "scale_linear";
    LS_ASSIGN(rope_.scale,
              Number(key, "--rope-scale", Unless(options_.scale == 0.0F, options_.scale), 1.0, kPositive));
    if (rope_.scaling == Scaling::kNone) {
      if (options_.scale != 0.0F && options_.scale != 1.0F) {
        return InvalidArgument("--rope-scale " + NumberText(options_.scale) +
                               " needs --rope-scaling linear or yarn" +
                               (asked ? "" : "; " + file_.path() + " has " + type_key + " \"none\""));
      }
      rope_.scale = 1.0;
    }
    if (!has_type && !asked && rope_.scale == 1.0) rope_.scaling = Scaling::kNone;
    LS_ASSIGN(rope_.attn_factor, Number("scaling.attn_factor", "", std::nullopt, 1.0, kPositive));
    return {};
  }

  // The file's numbers are checked, and known to whoever asks for YaRN, where its own scaling is another.
  Status ReadYarn() {
    constexpr uint64_t kMostPositions = 1 << 30;
    LS_ASSIGN(rope_.orig_ctx,
              Positions("scaling.original_context_length", sizes_.n_ctx_train, kMostPositions));
    if (options_.yarn_orig_ctx != 0) rope_.orig_ctx = options_.yarn_orig_ctx;
    if (rope_.orig_ctx <= 0) return InvalidArgument("--yarn-orig-ctx must be positive");
    LS_ASSIGN(rope_.ext_factor,
              YarnNumber("ext_factor", "--yarn-ext-factor", options_.yarn_ext_factor, 1.0, kShare));
    LS_ASSIGN(rope_.beta_fast,
              YarnNumber("beta_fast", "--yarn-beta-fast", options_.yarn_beta_fast, 32.0, kPositive));
    LS_ASSIGN(rope_.beta_slow,
              YarnNumber("beta_slow", "--yarn-beta-slow", options_.yarn_beta_slow, 1.0, kPositive));
    LS_TRY(CheckBetas());
    LS_ASSIGN(rope_.log_multiplier,
              Number("scaling.yarn_log_multiplier", "", std::nullopt, 0.0, kNotNegative));
    // Converters write transformers' attention_factor here, which is all of the magnitude; llama.cpp's option
    // multiplies what the formula gives.
    const bool asked = !(options_.yarn_attn_factor < 0.0F);
    LS_ASSIGN(const double magnitude,
              YarnNumber("attn_factor", "--yarn-attn-factor", options_.yarn_attn_factor,
                         rope_.YarnMagnitude(), kPositive));
    if (rope_.scaling == Scaling::kYarn)
      rope_.attn_factor *= asked ? magnitude : magnitude / rope_.YarnMagnitude();
    return CheckYarnIsUsed();
  }

  Status CheckBetas() const {
    if (rope_.beta_fast >= rope_.beta_slow) return {};
    const std::string numbers = "beta_fast " + NumberText(rope_.beta_fast) + " is below beta_slow " +
                                NumberText(rope_.beta_slow) + "; it counts the turns of faster rotations";
    if (!(options_.yarn_beta_fast < 0.0F)) return InvalidArgument("--yarn-beta-fast: " + numbers);
    if (!(options_.yarn_beta_slow < 0.0F)) return InvalidArgument("--yarn-beta-slow: " + numbers);
    return Corrupt(file_.path() + ": " + prefix_ + "scaling.yarn_" + numbers);
  }

  Status CheckYarnIsUsed() const {
    if (rope_.scaling == Scaling::kYarn) return {};
    const std::pair<const char*, bool> asked[] = {{"--yarn-orig-ctx", options_.yarn_orig_ctx != 0},
                                                  {"--yarn-ext-factor", options_.yarn_ext_factor >= 0.0F},
                                                  {"--yarn-attn-factor", options_.yarn_attn_factor >= 0.0F},
                                                  {"--yarn-beta-fast", options_.yarn_beta_fast >= 0.0F},
                                                  {"--yarn-beta-slow", options_.yarn_beta_slow >= 0.0F}};
    for (const auto& [option, is_asked] : asked) {
      if (is_asked) return InvalidArgument(std::string(option) + " needs --rope-scaling yarn");
    }
    return {};
  }

  // Llama 3's.
  Status ReadFactors() {
    const TensorView* factors = file_.FindTensor("rope_freqs.weight");
    if (factors == nullptr) return {};
    const int n = rope_.n_rot / 2;
    if (factors->dtype != DType::kF32 || factors->n_elements() != n) {
      return Corrupt(file_.path() + ": tensor rope_freqs.weight must hold " + std::to_string(n) +
                     " F32 values");
    }
    rope_.freq_factors.resize(static_cast<size_t>(n));
    DequantizeRow(DType::kF32, factors->data, factors->n_elements(), rope_.freq_factors.data());
    return {};
  }

  const GgufFile& file_;
  const ModelSizes& sizes_;
  const RopeOptions& options_;
  const std::string prefix_;
  RopeConfig rope_;
};

}  // namespace

Result<RopeConfig> ReadRope(const GgufFile& file, const std::string& architecture, const ModelSizes& sizes,
                            const RopeOptions& options) {
  return RopeReader(file, architecture, sizes, options).Read();
}

}  // namespace longspec
