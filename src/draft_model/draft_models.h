// SPDX-License-Identifier: Apache-2.0
//
// Draft models and n-gram priors loaded for one target, kept so that each is loaded once and not once per
// generation. Used by one generation at a time, like the target.
#pragma once

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status_macros.h"
#include "draft_model/draft_files.h"
#include "draft_model/draft_keys.h"
#include "draft_model/lm.h"
#include "draft_text/priors.h"
#include "longspec/status.h"
#include "model/shared_parts.h"
#include "model/transformer.h"

namespace longspec {

class DraftLane;

class DraftModels {
 public:
  // The target's tokens (borrowed), by which drafts with a vocabulary of their own are checked.
  void SetVocabulary(const std::vector<std::string>* tokens) { tokens_ = tokens; }

  // Where language models keep their packed weights.
  void SetWeightsCache(WeightsCacheOptions cache) { weights_cache_ = std::move(cache); }

  Priors& priors() { return priors_; }

  // Files that are open already: those of the memory plan.
  void SetFiles(DraftFiles files) { files_ = std::move(files); }

  // Of a draft model: DraftFiles::Architecture. Known without its file once it is loaded.
  Result<std::string> Architecture(const std::string& path);
  void Close(const std::string& path) { files_.Close(path); }  // if it is not going to be loaded

  // The model of this file, loaded if it has not been. Failures are not remembered.
  // Model: a learned draft (draft_model/learned_draft.h).
  template <typename Model>
  Result<std::shared_ptr<const Model>> Learned(const std::string& path, const std::string& weights,
                                               const SharedParts& target) {
    const Key key(path, weights);
    if (const auto it = learned_.find(key); it != learned_.end() && it->second.kind == Model::kKind) {
      return std::static_pointer_cast<const Model>(it->second.model);
    }
    LS_ASSIGN(const auto checkpoint, files_.Draft(path, Model::kKind));
    auto model = Model::Load(*checkpoint, weights, target);
    files_.Close(path);
    if (model.ok()) learned_[key] = {.kind = Model::kKind, .model = *model};
    return model;
  }
  // What draft models made of texts is kept: of each model as many chunks as one context has (fewer, if the
  // model knows shorter ones), those of sequences included, and `beside`. By default little.
  struct KeysRoom {
    size_t context = 0, beside = 0;
  };
  void KeepKeys(KeysRoom room) { room_ = room; }
  // Of the model that Learned has loaded with the same arguments.
  std::shared_ptr<DraftKeys> Keys(const std::string& path, const std::string& weights,
                                  const KvLayout& layout) {
    return KeysOf({.path = path, .weights = weights}, MakeHostPool(layout, 1), room_.context);
  }
  // Of the model that Lm has loaded. `extended`: what it made with SpecExtend, which is something else.
  // `positions`: of a sequence's cache.
  std::shared_ptr<DraftKeys> LmKeys(const std::string& path, bool extended, const KvLayout& layout,
                                    int positions) {
    const LmModel& model = *lm_.at(path);
    return KeysOf({.path = path, .extended = extended}, model.target->NewPool(layout, model.spec.n_layer, {}),
                  std::min(room_.context, static_cast<size_t>(positions / kKvChunk + 1)));
  }
  // Where the passes of that model run, for all that draft with it: what make() makes. `nth`: of several.
  template <typename Make>
  std::shared_ptr<DraftLane> Lane(const std::string& path, const std::string& weights, size_t nth,
                                  const Make& make) {
    std::vector<std::shared_ptr<DraftLane>>& lanes = learned_.at({path, weights}).lanes;
    if (lanes.size() <= nth) lanes.resize(nth + 1);
    if (lanes[nth] == nullptr) lanes[nth] = make();
    return lanes[nth];
  }
  Result<std::shared_ptr<const LmModel>> Lm(const std::string& path, const SharedParts& target);

 private:
  DraftFiles files_;                                // of models that are not loaded
  using Key = std::pair<std::string, std::string>;  // file, type of weights
  struct LearnedModel {
    std::string_view kind;
    std::shared_ptr<const void> model;
    std::vector<std::shared_ptr<DraftLane>> lanes = {};  // null: not asked for yet
  };
  std::map<Key, LearnedModel> learned_;
  struct KeysKey {
    std::string path, weights = {};
    bool extended = false;
    auto operator<=>(const KeysKey&) const = default;
  };
  // `pool`: for them, if there are none yet.
  std::shared_ptr<DraftKeys> KeysOf(const KeysKey& key, std::shared_ptr<ChunkPool> pool, size_t own_chunks);
  std::map<KeysKey, std::shared_ptr<DraftKeys>> keys_;
  KeysRoom room_;
  std::map<std::string, std::shared_ptr<const LmModel>> lm_;
  const std::vector<std::string>* tokens_ = nullptr;
  WeightsCacheOptions weights_cache_;
  Priors priors_;
};

}  // namespace longspec
