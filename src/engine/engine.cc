// SPDX-License-Identifier: Apache-2.0
#include "longspec/engine.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <ctime>
#include <new>
#include <optional>
#include <utility>

#include "base/status_macros.h"
#include "decode/calibration.h"
#include "draft_model/draft_models.h"
#include "draft_model/option_use.h"
#include "draft_model/registry.h"
#include "engine/cache_file.h"
#include "engine/calibration_cache.h"
#include "engine/drafter_memories.h"
#include "engine/generation.h"
#include "engine/gguf_tokenizer.h"
#include "engine/machine_costs.h"
#include "engine/model_facts.h"
#include "engine/model_text.h"
#include "engine/opened_model.h"
#include "engine/scheduler.h"
#include "engine/session.h"
#include "formats/feature_shard.h"
#include "kv/full_cache.h"
#include "policy/policy.h"
#include "tokenizer/infill_prompt.h"

namespace longspec {
namespace {

class EngineImpl final : public Engine {
 public:
  EngineImpl(ModelInfo info, std::unique_ptr<ModelText> text)
      : info_(std::move(info)), text_(std::move(text)) {}
  EngineImpl(const EngineImpl&) = delete;
  EngineImpl& operator=(const EngineImpl&) = delete;
  ~EngineImpl() override { KeepDrafterMemories(); }

  Status LoadWeights(OpenedModel model, const ModelOptions& options);

  const ModelInfo& info() const override { return info_; }
  Result<std::unique_ptr<Session>> NewSession() override;
  Result<std::unique_ptr<Session>> Fork(const Session& session) override;
  Status SaveSession(const Session& session, const std::string& path) override;
  Result<std::unique_ptr<Session>> LoadSession(const std::string& path) override;
  void Forget(const std::vector<int32_t>& tokens) override {
    if (prompts_ != nullptr) prompts_->Forget(tokens);
  }
  Result<GenerationResult> Generate(Session& session, const GenerationRequest& request) override;
  Result<std::unique_ptr<Generation>> Start(Session& session, const GenerationRequest& request) override;
  Result<std::unique_ptr<Scheduler>> NewScheduler(const SchedulerOptions& options) override;
  std::vector<int32_t> Tokenize(std::string_view text, bool add_special, bool parse_special) const override {
    return text_->tokenizer().Encode(text, {.add_special = add_special, .parse_special = parse_special});
  }
  bool EndsAnswer(int32_t token) const override { return text_->tokenizer().IsEndOfGeneration(token); }
  std::string Detokenize(const std::vector<int32_t>& tokens, bool keep_special) const override {
    return text_->tokenizer().Decode(tokens, keep_special);
  }
  Result<std::vector<int32_t>> PromptTokens(const GenerationRequest& request) const override {
    return text_->PromptTokens(request, info_.n_ctx);
  }
  Result<std::vector<int32_t>> InfillTokens(const InfillText& text,
                                            const InfillLayout& layout) const override {
    return InfillPrompt(text_->tokenizer(), text, layout);
  }
  Result<std::string> ChatPrompt(const GenerationRequest& request) const override {
    return text_->ChatPrompt(request);
  }
  Result<std::string> ApplyChatTemplate(const std::vector<Message>& messages, bool add_generation_prompt,
                                        std::string_view template_variables) const override {
    return text_->ApplyChatTemplate(messages, add_generation_prompt, template_variables);
  }
  Result<std::shared_ptr<const Grammar>> PrepareGrammar(const GrammarText& grammar) override {
    return Compile(grammar);
  }
  void MeasureCosts(const std::function<bool()>& keep_going) override;

 private:
  Result<EngineSession*> Own(Session& session) const;
  SessionOwner OwnerOfSessions() const;
  GenerationParts Parts();
  Result<std::shared_ptr<const Grammar>> Compile(const GrammarText& text) {
    const int n_logits = target_ != nullptr ? target_->vocab_size() : text_->tokenizer().vocab_size();
    return text_->Compile(text, n_logits);
  }
  AdaptiveMemory& Memory();
  KnownCosts Costs();
  void KeepDrafterMemories() const;
  Result<Calibration> CalibrateTarget(const std::function<bool()>& keep_going);

  ModelInfo info_;
  std::unique_ptr<ModelText> text_;
  KvLayout layout_;
  std::shared_ptr<ChunkPool> pool_;       // of all sessions
  size_t kept_chunks_ = 0;                // that the plan has for the prompt cache
  std::unique_ptr<PromptCache> prompts_;  // what any of them has evaluated; null: it is not kept
  std::string fingerprint_;               // of the model file
  int batch_size_ = 0, max_rows_ = 0;
  std::unique_ptr<Device> device_;  // used by target_, so declared before it
  std::unique_ptr<Target> target_;  // null: vocabulary only
  DraftModels draft_models_;        // made for target_
  std::string calibration_key_;     // empty: measured costs are not kept
  std::optional<MachineCosts> costs_;
  // What adaptive speculation has learned; absent until a generation asks for it.
  std::optional<AdaptiveMemory> memory_;
  uint64_t answers_ = 0;  // that asked for it
};

Status EngineImpl::LoadWeights(OpenedModel model, const ModelOptions& options) {
  layout_ = model.layout;
  batch_size_ = options.batch_size;
  max_rows_ = MaxRows(options);
  fingerprint_ = TargetFingerprint(*model.file);
  if (options.calibration_cache) calibration_key_ = CalibrationKey(info_, options);
  costs_.emplace(options.calibration_cache ? CacheFolder() : "", calibration_key_,
                 [] { return static_cast<int64_t>(std::time(nullptr)); });
  device_ = std::move(model.device);
  ModelLoadOptions load;
  load.max_rows = MaxRows(options);
  load.on_progress = options.on_progress;
  load.weights_cache = {.folder = options.weights_cache, .on_warning = options.on_warning};
  load.origin = &info_.weights_origin;
  LS_ASSIGN(target_, device_->Load(model.file, model.spec, load));
  pool_ = target_->NewPool(layout_, info_.n_layer, model.offload);
  const size_t of_context = info_.memory.kv_at_context / pool_->chunk_bytes();
  kept_chunks_ = info_.memory.prompt_cache / model.needs.kept_chunk();
  if (options.cache_prompt && of_context + kept_chunks_ > 0) {
    prompts_ = std::make_unique<PromptCache>(
        pool_, PromptCache::Room{.context = of_context, .beside = kept_chunks_});
  }
  draft_models_.SetFiles(model.draft_files);
  if (options.cache_prompt) draft_models_.KeepKeys({.context = of_context, .beside = kept_chunks_});
  draft_models_.SetVocabulary(&text_->tokenizer().spec().tokens);
  draft_models_.SetWeightsCache(load.weights_cache);
  draft_models_.priors().SetSource(PriorsOf(*model.file, text_->tokenizer().spec(), target_->vocab_size()));
  return {};
}

Result<std::unique_ptr<Session>> EngineImpl::NewSession() {
  if (target_ == nullptr) return InvalidArgument(info_.path + ": only the vocabulary is loaded (vocab_only)");
  return std::unique_ptr<Session>(std::make_unique<EngineSession>(this, MakeFullCache(pool_, info_.n_ctx)));
}

Result<std::unique_ptr<Session>> EngineImpl::Fork(const Session& session) {
  LS_ASSIGN(EngineSession* const from, Own(const_cast<Session&>(session)));
  LS_ASSIGN(std::unique_ptr<Session> copy, NewSession());
  SessionState& state = static_cast<EngineSession&>(*copy).state();
  state.cache = from->state().cache->Fork();
  state.tokens = from->state().tokens;
  copy->messages() = from->messages();
  return copy;
}

SessionOwner EngineImpl::OwnerOfSessions() const {
  SessionOwner to = {
      {"model", info_.architecture + " " + fingerprint_},
      {"context extension", info_.rope_scaling + ", base " + std::to_string(info_.rope_freq_base)}};
  to.insert(to.end(), info_.arithmetic.begin(), info_.arithmetic.end());
  return to;
}

Status EngineImpl::SaveSession(const Session& session, const std::string& path) {
  LS_ASSIGN(const EngineSession* const own, Own(const_cast<Session&>(session)));
  return SaveSessionFile(*own, OwnerOfSessions(), *pool_, path);
}

Result<std::unique_ptr<Session>> EngineImpl::LoadSession(const std::string& path) {
  LS_ASSIGN(std::unique_ptr<Session> session, NewSession());
  LS_TRY(LoadSessionFile(path, OwnerOfSessions(), *pool_, target_->vocab_size(),
                         static_cast<EngineSession*>(session.get())));
  return session;
}

Result<GenerationResult> EngineImpl::Generate(Session& session, const GenerationRequest& request) {
  LS_ASSIGN(EngineSession* const own, Own(session));
  LS_ASSIGN(const std::vector<int32_t> prompt, PromptTokens(request));
  return RunGeneration(Parts(), own->state(), prompt, request);
}

Result<std::unique_ptr<Generation>> EngineImpl::Start(Session& session, const GenerationRequest& request) {
  LS_ASSIGN(EngineSession* const own, Own(session));
  LS_ASSIGN(const std::vector<int32_t> prompt, PromptTokens(request));
  return StartGeneration(Parts(), own->state(), prompt, std::make_shared<const GenerationRequest>(request));
}

Result<std::unique_ptr<Scheduler>> EngineImpl::NewScheduler(const SchedulerOptions& options) {
  if (target_ == nullptr) return InvalidArgument(info_.path + ": only the vocabulary is loaded (vocab_only)");
  return MakeScheduler(
      {.generation = Parts(),
       .pool = pool_,
       .ctx_size = info_.n_ctx,
       .tokenize = [this](const GenerationRequest& request) { return PromptTokens(request); }},
      options, info_.memory.kv_at_context + info_.memory.kv_in_file + kept_chunks_ * pool_->chunk_bytes());
}

Result<EngineSession*> EngineImpl::Own(Session& session) const {
  auto* own = dynamic_cast<EngineSession*>(&session);
  if (own == nullptr || own->engine() != this)
    return InvalidArgument("the session belongs to another engine");
  return own;
}

GenerationParts EngineImpl::Parts() {
  GenerationParts parts;
  parts.target = target_.get();
  parts.tokenizer = &text_->tokenizer();
  parts.prefill_chunk = batch_size_;
  parts.max_rows = max_rows_;
  parts.n_ctx_train = info_.n_ctx_train;
  parts.draft_models = &draft_models_;
  parts.known_costs = [this] { return Costs(); };
  parts.prompts = prompts_.get();
  parts.grammar = [this](const GrammarText& text) { return Compile(text); };
  return parts;
}

AdaptiveMemory& EngineImpl::Memory() {
  if (!memory_) {
    memory_.emplace(AdaptiveMemory{.costs = costs_->Known(), .drafters = {}});
    if (!calibration_key_.empty()) {
      auto known = ReadDrafterMemories(CacheFolder(), calibration_key_);
      if (known.ok()) memory_->drafters = std::move(*known);
    }
  }
  return *memory_;
}

KnownCosts EngineImpl::Costs() {
  AdaptiveMemory& memory = Memory();
  // So that one that is killed leaves what most of its answers taught.
  constexpr uint64_t kKeepEvery = 64;
  if (++answers_; std::has_single_bit(answers_) || answers_ % kKeepEvery == 0) KeepDrafterMemories();
  return {.memory = &memory, .origin = costs_->origin()};
}

// For the programs that come.
void EngineImpl::KeepDrafterMemories() const {
  if (!memory_ || calibration_key_.empty()) return;
  const bool any = std::ranges::any_of(memory_->drafters, [](const auto& drafter) {
    return drafter.second.last_used > 0 && !drafter.second.asking.Beliefs().empty();
  });
  // What cannot be kept is learned again.
  if (any) static_cast<void>(WriteDrafterMemories(CacheFolder(), calibration_key_, memory_->drafters));
}

void EngineImpl::MeasureCosts(const std::function<bool()>& keep_going) {
  if (target_ == nullptr) return;
  AdaptiveMemory& memory = Memory();
  auto costs = costs_->Measured([&]() -> Result<Calibration> {
    try {
      return CalibrateTarget(keep_going);
    } catch (const std::bad_alloc&) {
      return ResourceExhausted("out of memory");
    }
  });
  if (costs) memory.costs = std::move(*costs);
}

Result<Calibration> EngineImpl::CalibrateTarget(const std::function<bool()>& keep_going) {
  constexpr size_t kMostScratch = 256 << 20;  // bytes of made-up keys and values
  constexpr int kLongContext = 16384;         // costs there are not told from those of short ones
  const size_t chunk_bytes = KvChunkBytes(layout_, info_.n_layer);
  const auto depth_of = [&](size_t n_chunks) {
    return std::max(static_cast<int>(std::min(kMostScratch / chunk_bytes, n_chunks)), 1) * kKvChunk;
  };
  const auto make_cache = [&](int depth, int rows) -> Result<std::unique_ptr<KvCache>> {
    std::unique_ptr<KvCache> cache =
        MakeFullCache(target_->NewPool(layout_, info_.n_layer, {}), depth + rows);
    LS_TRY(CommitMadeUp(*cache, info_.n_layer, depth));
    return cache;
  };
  return Calibrate(*target_, make_cache,
                   {.capacity = info_.n_ctx,
                    .deep = depth_of(8),
                    .deepest = info_.n_ctx >= kLongContext ? depth_of(32) : 0,
                    .most_rows = max_rows_,
                    .keep_going = keep_going});
}

Result<std::unique_ptr<Engine>> LoadVocabulary(const ModelOptions& options, ModelFiles& files) {
  if (options.path.empty()) return InvalidArgument("no model file given");
  LS_ASSIGN(const std::shared_ptr<const GgufFile> file, files.Target(options.path));
  LS_ASSIGN(std::unique_ptr<ModelText> text, ModelText::Load(*file, options.chat_template));
  ModelInfo info;
  DescribeFile(*file, options, &info);
  info.n_vocab = text->tokenizer().vocab_size();
  return std::unique_ptr<Engine>(std::make_unique<EngineImpl>(std::move(info), std::move(text)));
}

Result<std::unique_ptr<Engine>> LoadOpened(OpenedModel model, const ModelOptions& options) {
  if (options.on_plan) options.on_plan(model.info);
  LS_TRY(CheckRoom(model, options));
  LS_ASSIGN(std::unique_ptr<ModelText> text, ModelText::Load(*model.file, options.chat_template));
  if (text->tokenizer().vocab_size() > model.spec.n_vocab) {
    return Corrupt(options.path + ": the tokenizer has " + std::to_string(text->tokenizer().vocab_size()) +
                   " tokens but token_embd.weight only " + std::to_string(model.spec.n_vocab) + " rows");
  }
  if (options.on_warning && model.info.has_chat_template && !text->chat_template_status().ok())
    options.on_warning(text->chat_template_status().message());
  auto engine = std::make_unique<EngineImpl>(model.info, std::move(text));
  LS_TRY(engine->LoadWeights(std::move(model), options));
  return std::unique_ptr<Engine>(std::move(engine));
}

Result<std::unique_ptr<Engine>> LoadAll(const ModelOptions& options, ModelFiles& files) {
  LS_ASSIGN(OpenedModel model, OpenModel(options, files));
  const bool on_card = model.device->has_memory();
  auto engine = LoadOpened(std::move(model), options);
  // Between the plan and the load somebody else may take the card's memory, or the card be gone.
  const StatusCode code = engine.status().code();
  const bool failed_there = on_card && (code == StatusCode::kResourceExhausted || code == StatusCode::kIo);
  if (options.device != "auto" || !failed_there) return engine;
  if (options.on_warning) options.on_warning(engine.status().message() + "; the model runs on the CPU");
  ModelOptions on_cpu = options;
  on_cpu.device = "cpu";
  LS_ASSIGN(OpenedModel other, OpenModel(on_cpu, files));
  return LoadOpened(std::move(other), on_cpu);
}

}  // namespace

Result<std::unique_ptr<Engine>> LoadModelOf(const ModelOptions& options, ModelFiles& files) try {
  return options.vocab_only ? LoadVocabulary(options, files) : LoadAll(options, files);
} catch (const std::bad_alloc&) {
  return ResourceExhausted(options.path + ": out of memory while loading the model");
}

Result<std::unique_ptr<Engine>> Engine::Load(const ModelOptions& options) {
  ModelFiles files;
  return LoadModelOf(options, files);
}

Result<ModelInfo> Engine::Inspect(const ModelOptions& options) {
  ModelFiles files;
  return InspectModel(options, files);
}

std::string_view ToString(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContext:
      return "context";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

Status CheckSpeculation(const SpeculationOptions& options) {
  if (options.draft_n_max > kMaxDraftNodes) {
    return InvalidArgument("--spec-draft-n-max " + std::to_string(options.draft_n_max) +
                           ": must be at most " + std::to_string(kMaxDraftNodes));
  }
  if (options.adaptive_n_max < 0 || options.adaptive_n_max > kMaxDraftNodes) {
    return InvalidArgument("--spec-adaptive-n-max " + std::to_string(options.adaptive_n_max) +
                           ": must be from 0 to " + std::to_string(kMaxDraftNodes));
  }
  LS_TRY(CheckPolicy(options));
  return CheckDrafter(options);
}

SpeculationOptions SpeculationOf(const SpeculationOptions& options, const std::string& type, int max_nodes) {
  SpeculationOptions of = options;
  if (type != options.type) {
    of = OnlyRead(options, type);
    of.tree = {};  // a shape is meant for the drafters that it was given with
    of = Settled(of);
  }
  if (max_nodes >= 0) {
    of.draft_n_max = of.adaptive_n_max = max_nodes;
    of.draft_n_min = std::min(of.draft_n_min, max_nodes);
  }
  return of;
}

std::vector<std::string> SpeculationTypes() { return DrafterNames(); }

}  // namespace longspec
