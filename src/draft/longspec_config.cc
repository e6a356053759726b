// SPDX-License-Identifier: Apache-2.0
//
// config.json of a draft model: the target's configuration, as Hugging Face writes it.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/status_macros.h"
#include "draft/longspec_checkpoint.h"

namespace longspec {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxSize = 1 << 30;

class Reader {
 public:
  Reader(const Json& json, const std::string& path) : json_(json), path_(path) {}

  // 0 if the key is absent or null.
  Result<int> Size(const char* key) const {
    const Json* value = Find(json_, key);
    if (value == nullptr) return 0;
    if (!value->is_number_integer() || value->get<int64_t>() < 1 || value->get<int64_t>() > kMaxSize) {
      return Corrupt(path_ + ": \"" + key + "\" must be a whole number from 1 to " +
                     std::to_string(kMaxSize));
    }
    return static_cast<int>(value->get<int64_t>());
  }

  Result<double> Positive(const Json& from, const char* key) const {
    const Json* value = Find(from, key);
    if (value == nullptr) return 0.0;
    if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0.0) {
      return Corrupt(path_ + ": \"" + key + "\" must be a positive number");
    }
    return value->get<double>();
  }

  Result<std::string> Text(const Json& from, const char* key) const {
    const Json* value = Find(from, key);
    if (value == nullptr) return std::string();
    if (!value->is_string()) return Corrupt(path_ + ": \"" + key + "\" must be a string");
    return value->get<std::string>();
  }

  // An object, or null if the key is absent or null.
  Result<const Json*> Object(const char* key) const {
    const Json* value = Find(json_, key);
    if (value != nullptr && !value->is_object())
      return Corrupt(path_ + ": \"" + key + "\" must be an object");
    return value;
  }

 private:
  static const Json* Find(const Json& from, const char* key) {
    const auto it = from.find(key);
    return it == from.end() || it->is_null() ? nullptr : &*it;
  }

  const Json& json_;
  const std::string& path_;
};

// "rope_theta" and "rope_scaling" until transformers 5, "rope_parameters" since.
Status ReadRope(const Json& json, const Reader& reader, LongspecConfig* config) {
  LS_ASSIGN(config->rope_theta, reader.Positive(json, "rope_theta"));
  LS_ASSIGN(const Json* scaling, reader.Object("rope_scaling"));
  LS_ASSIGN(const Json* parameters, reader.Object("rope_parameters"));
  if (parameters != nullptr && config->rope_theta == 0.0) {
    LS_ASSIGN(config->rope_theta, reader.Positive(*parameters, "rope_theta"));
  }
  if (config->rope_theta == 0.0) config->rope_theta = 10000.0;
  config->rope_scaling = "none";
  const Json* from = scaling != nullptr ? scaling : parameters;
  if (from == nullptr) return {};
  LS_ASSIGN(std::string type, reader.Text(*from, "rope_type"));
  if (type.empty()) {
    LS_ASSIGN(type, reader.Text(*from, "type"));
  }
  if (!type.empty() && type != "default") config->rope_scaling = type;
  LS_ASSIGN(config->rope_factor, reader.Positive(*from, "factor"));
  return {};
}

// Published configurations name the positions a model has before linear scaling stretches them (Vicuna-16k:
// 4096 and a factor of 4).
Status ReadTrainedPositions(const Reader& reader, LongspecConfig* config) {
  LS_ASSIGN(config->trained_positions, reader.Size("longspec_trained_positions"));
  if (config->trained_positions != 0) return {};
  LS_ASSIGN(const int unscaled, reader.Size("max_position_embeddings"));
  const bool is_scaled = config->rope_scaling == "linear" && config->rope_factor > 0.0;
  const double scaled = unscaled * (is_scaled ? config->rope_factor : 1.0);
  config->trained_positions = static_cast<int>(std::min(scaled, static_cast<double>(kMaxSize)));
  return {};
}

}  // namespace

Result<LongspecConfig> ParseLongspecConfig(const std::string& text, const std::string& path) {
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) { return !(too_deep |= depth > 32); };
  const Json json = Json::parse(text, watch, /*allow_exceptions=*/false);
  if (too_deep || json.is_discarded() || !json.is_object()) return Corrupt(path + ": not a JSON object");
  const Reader reader(json, path);
  LongspecConfig config;
  LS_ASSIGN(config.hidden_size, reader.Size("hidden_size"));
  LS_ASSIGN(config.n_head, reader.Size("num_attention_heads"));
  LS_ASSIGN(config.n_kv_head, reader.Size("num_key_value_heads"));
  LS_ASSIGN(config.head_dim, reader.Size("head_dim"));
  LS_ASSIGN(config.n_ff, reader.Size("intermediate_size"));
  LS_ASSIGN(config.n_vocab, reader.Size("vocab_size"));
  LS_ASSIGN(const int window, reader.Size("longspec_window"));
  if (window > 0) config.window = window;
  if (config.n_kv_head == 0) config.n_kv_head = config.n_head;
  if (config.head_dim == 0 && config.n_head > 0) config.head_dim = config.hidden_size / config.n_head;
  LS_TRY(ReadRope(json, reader, &config));
  LS_TRY(ReadTrainedPositions(reader, &config));
  return config;
}

}  // namespace longspec
