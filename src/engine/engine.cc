// SPDX-License-Identifier: Apache-2.0
#include "longspec/engine.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "base/thread_team.h"
#include "decode/calibration.h"
#include "decode/policy.h"
#include "draft/drafter.h"
#include "draft_model/draft_files.h"
#include "draft_model/draft_models.h"
#include "draft_model/option_use.h"
#include "engine/cache_file.h"
#include "engine/calibration_cache.h"
#include "engine/continued_prompt.h"
#include "engine/draft_state.h"
#include "engine/generation.h"
#include "engine/gguf_tokenizer.h"
#include "engine/learned_cache.h"
#include "engine/machine_costs.h"
#include "engine/memory_plan.h"
#include "engine/model_facts.h"
#include "engine/offload_cost.h"
#include "engine/partial_retrieval.h"
#include "engine/scheduler.h"
#include "engine/template_variables.h"
#include "formats/feature_shard.h"
#include "formats/gguf.h"
#include "formats/session_file.h"
#include "formats/string_list.h"
#include "grammar/grammar.h"
#include "jinja/chat_template.h"
#include "kernels/dispatch.h"
#include "kv/full_cache.h"
#include "model/transformer.h"
#include "openai/thinking.h"
#include "tokenizer/infill_prompt.h"
#include "tokenizer/tokenizer.h"

namespace longspec {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kMaxBatch = 65536;

Status CheckOptions(const ModelOptions& options) {
  if (options.path.empty()) return InvalidArgument("no model file given");
  if (options.ctx_size < 0) {
    return InvalidArgument("context size " + std::to_string(options.ctx_size) +
                           ": must be 0 (from the model) or more");
  }
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return InvalidArgument("threads " + std::to_string(options.threads) +
                           ": must be from 0 (one per core) to " + std::to_string(kMaxThreads));
  }
  if (options.batch_size < 1 || options.batch_size > kMaxBatch) {
    return InvalidArgument("batch size " + std::to_string(options.batch_size) + ": must be from 1 to " +
                           std::to_string(kMaxBatch));
  }
  return {};
}

int MaxRows(const ModelOptions& options) { return std::max(options.batch_size, kMaxDraftNodes + 1); }

// A path that names no regular file is a file that cannot be read, not a bad option.
Result<std::shared_ptr<const GgufFile>> OpenFile(const std::string& path) {
  auto file = GgufFile::Open(path);
  if (file.status().code() == StatusCode::kInvalidArgument) return IoError(file.status().message());
  return file;
}

// A model whose header has been read: all that can be known, and refused, before weights are.
struct Opened {
  std::shared_ptr<const GgufFile> file;
  ModelSpec spec;
  const kernels::KernelTable* kernels = nullptr;
  DraftFiles draft_files;  // opened for the memory plan
  MemoryNeeds needs;
  KvOffload offload;
  KvLayout layout;
  ReadSpeeds speeds;  // of the offload's folder
  ModelInfo info;
};

Result<Opened> OpenModel(const ModelOptions& options) {
  LS_TRY(CheckOptions(options));
  Opened model;
  LS_ASSIGN(model.kernels, kernels::Choose(options.kernels));
  LS_ASSIGN(model.file, OpenFile(options.path));
  LS_TRY(CheckStandsAlone(*model.file));
  LS_ASSIGN(model.spec, ReadModelSpec(*model.file, options.rope, options.bf16_weights, options.attention));
  const ModelSpec& spec = model.spec;
  const KvLayout layout = spec.kv_layout(options.cache_type_k, options.cache_type_v);
  if (Status status = CheckLayout(layout); !status.ok()) {
    return Status(status.code(), options.path + ": " + status.message());
  }

  ModelInfo& info = model.info;
  DescribeFile(*model.file, &info);
  DescribeNetwork(spec, &info);
  DescribeKernels(*model.kernels, spec, *model.file, options, &info);
  info.n_ctx = options.ctx_size > 0 ? options.ctx_size : spec.n_ctx_train;
  info.threads = options.threads > 0 ? options.threads : ThreadTeam::UsableCores();

  const TargetFacts facts = {.file = *model.file, .sizes = spec, .cache = layout};
  LS_ASSIGN(const DraftMemory draft, PlanDraftMemory(options.speculation, facts, model.draft_files));
  const SpeculationOptions speculation = Settled(options.speculation);
  const int most_drafted = std::max(speculation.draft_n_max, speculation.adaptive_n_max);
  LS_ASSIGN(
      const WorkingSetMemory working_set,
      PlanPartialRetrieval(options.partial_verification, layout, spec.n_layer, spec.n_head, most_drafted));
  model.needs =
      NeedsOf(spec, *model.file, layout, MaxRows(options), info.threads, info.n_ctx, draft, working_set);
  if (options.cache_prompt) model.needs.most_prompt_cache = MostPromptCache(options.cache_ram);
  const uint64_t available = AvailableMemory();
  if (!options.kv_offload.empty()) {
    model.offload = OffloadOf(options, model.needs.kv_chunk, available);
    model.needs.most_kv = model.offload.memory_chunks * model.needs.kv_chunk;
  }
  info.memory = PlanMemory(model.needs, available);
  model.layout = layout;
  model.speeds = MeasureOffload(options.kv_offload, &info.memory);
  return model;
}

struct Text {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: the status says why
  Status chat_template_status;
};

// A template that cannot be used is an error only for those who use it.
Result<Text> LoadText(const GgufFile& file) {
  Text text;
  LS_ASSIGN(TokenizerSpec spec, TokenizerSpecFromGguf(file));
  auto tokenizer = Tokenizer::Create(std::move(spec));
  if (!tokenizer.ok()) {
    return Status(tokenizer.status().code(), file.path() + ": " + tokenizer.status().message());
  }
  text.tokenizer = *tokenizer;
  if (!file.Has("tokenizer.chat_template")) {
    text.chat_template_status =
        Unsupported(file.path() + ": the model has no chat template; give a raw prompt");
    return text;
  }
  LS_ASSIGN(const std::string source, file.GetString("tokenizer.chat_template"));
  auto parsed = ChatTemplate::Parse(source);
  if (parsed.ok()) {
    text.chat_template = *parsed;
  } else {
    text.chat_template_status =
        Status(parsed.status().code(), file.path() + ": " + parsed.status().message());
  }
  return text;
}

class EngineImpl;

class SessionImpl final : public Session {
 public:
  SessionImpl(const EngineImpl* engine, std::unique_ptr<FullCache> cache) : engine_(engine) {
    state_.cache = std::move(cache);
  }
  const std::vector<int32_t>& tokens() const override { return state_.tokens; }
  std::vector<Message>& messages() override { return messages_; }
  const std::vector<Message>& messages() const override { return messages_; }
  void Clear() override {
    state_.Clear();
    messages_.clear();
  }

  const EngineImpl* engine() const { return engine_; }
  SessionState& state() { return state_; }

 private:
  const EngineImpl* engine_;
  SessionState state_;
  std::vector<Message> messages_;
};

constexpr char kMessagesSection[] = "messages";
constexpr uint32_t kMessagesVersion = 1;

std::vector<std::byte> PackMessages(const std::vector<Message>& messages) {
  std::vector<std::string> strings;
  for (const Message& message : messages) {
    strings.push_back(message.role);
    strings.push_back(message.content);
  }
  return PackStrings(strings);
}

// Those of a session file; none if it has none.
Result<std::vector<Message>> MessagesOf(const SessionContents& saved, const std::string& path) {
  std::vector<Message> messages;
  const SessionSection* section = saved.Find(kMessagesSection);
  if (section == nullptr) return messages;
  const std::string name = path + ": the conversation of the session file";
  if (section->damaged) return Corrupt(name + " is damaged; delete the file, or name another session file");
  if (section->version != kMessagesVersion) {
    return Corrupt(name + " is of version " + std::to_string(section->version) + ", and this program reads " +
                   std::to_string(kMessagesVersion));
  }
  LS_ASSIGN(std::vector<std::string> strings, UnpackStrings(section->bytes, name));
  if (strings.size() % 2 != 0) return Corrupt(name + " ends with a role");
  for (size_t i = 0; i < strings.size(); i += 2) {
    messages.push_back({std::move(strings[i]), std::move(strings[i + 1])});
  }
  return messages;
}

class EngineImpl final : public Engine {
 public:
  EngineImpl(ModelInfo info, Text text) : info_(std::move(info)), text_(std::move(text)) {}
  EngineImpl(const EngineImpl&) = delete;
  EngineImpl& operator=(const EngineImpl&) = delete;
  ~EngineImpl() override { KeepLearned(); }

  Status LoadWeights(const Opened& model, const ModelOptions& options);

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
    return text_.tokenizer->Encode(text, {.add_special = add_special, .parse_special = parse_special});
  }
  bool EndsAnswer(int32_t token) const override { return text_.tokenizer->IsEndOfGeneration(token); }
  std::string Detokenize(const std::vector<int32_t>& tokens, bool keep_special) const override {
    return text_.tokenizer->Decode(tokens, keep_special);
  }
  Result<std::vector<int32_t>> PromptTokens(const GenerationRequest& request) const override;
  Result<std::vector<int32_t>> InfillTokens(const InfillText& text,
                                            const InfillLayout& layout) const override {
    return InfillPrompt(*text_.tokenizer, text, layout);
  }
  Result<std::string> ChatPrompt(const GenerationRequest& request) const override;
  Result<std::string> ApplyChatTemplate(const std::vector<Message>& messages, bool add_generation_prompt,
                                        std::string_view template_variables) const override;
  Status PrepareGrammar(const GrammarText& grammar) override { return Compile(grammar).status(); }
  void MeasureCosts(const std::function<bool()>& keep_going) override;

 private:
  Result<SessionImpl*> Own(Session& session) const;
  std::vector<std::pair<std::string, std::string>> SessionsBelongTo(int n_positions) const;
  GenerationParts Parts();
  std::vector<int32_t> EncodePrompt(std::string_view text) const;
  size_t MostPromptTokens(const GenerationRequest& request) const;
  std::string TokenText(int32_t id) const;
  Result<std::shared_ptr<const Grammar>> Compile(const GrammarText& text);
  GrammarVocabulary Vocabulary() const;
  AdaptiveMemory& Memory();
  LearnedCosts Learned();
  void KeepLearned() const;
  Result<Calibration> CalibrateTarget(const std::function<bool()>& keep_going);

  ModelInfo info_;
  Text text_;
  KvLayout layout_;
  std::shared_ptr<ChunkPool> pool_;       // of all sessions
  size_t kept_chunks_ = 0;                // that the plan has for the prompt cache
  std::unique_ptr<PromptCache> prompts_;  // what any of them has evaluated; null: it is not kept
  std::string fingerprint_;               // of the model file
  int batch_size_ = 0, max_rows_ = 0;
  std::unique_ptr<ThreadTeam> team_;  // used by target_, so declared before it
  std::unique_ptr<Target> target_;    // null: vocabulary only
  DraftModels draft_models_;          // made for target_
  std::string calibration_key_;       // empty: measured costs are not kept
  std::optional<MachineCosts> costs_;
  // What adaptive speculation has learned; absent until a generation asks for it.
  std::optional<AdaptiveMemory> memory_;
  uint64_t answers_ = 0;  // that asked for it
  std::mutex grammars_mutex_;
  std::unique_ptr<GrammarCompiler> grammars_;  // null until a request asks for one
};

Status EngineImpl::LoadWeights(const Opened& model, const ModelOptions& options) {
  layout_ = model.spec.kv_layout(options.cache_type_k, options.cache_type_v);
  pool_ = std::make_shared<ChunkPool>(layout_, info_.n_layer, 0, model.offload);
  const size_t of_context = info_.memory.kv_at_context / pool_->chunk_bytes();
  kept_chunks_ = info_.memory.prompt_cache / model.needs.kept_chunk();
  if (options.cache_prompt && of_context + kept_chunks_ > 0) {
    prompts_ = std::make_unique<PromptCache>(
        pool_, PromptCache::Room{.context = of_context, .beside = kept_chunks_});
  }
  batch_size_ = options.batch_size;
  max_rows_ = MaxRows(options);
  fingerprint_ = TargetFingerprint(*model.file);
  if (options.calibration_cache) calibration_key_ = CalibrationKey(info_, options);
  costs_.emplace(options.calibration_cache ? CacheFolder() : "", calibration_key_,
                 [] { return static_cast<int64_t>(std::time(nullptr)); });
  LS_ASSIGN(team_, ThreadTeam::Start(info_.threads));
  ModelLoadOptions load;
  load.kernels = model.kernels;
  load.team = team_.get();
  load.max_rows = MaxRows(options);
  load.on_progress = options.on_progress;
  load.weights_cache = {.folder = options.weights_cache, .on_warning = options.on_warning};
  load.origin = &info_.weights_origin;
  LS_ASSIGN(target_, LoadModel(model.file, model.spec, load));
  draft_models_.SetFiles(model.draft_files);
  if (options.cache_prompt) draft_models_.KeepKeys({.context = of_context, .beside = kept_chunks_});
  draft_models_.SetVocabulary(&text_.tokenizer->spec().tokens);
  draft_models_.SetWeightsCache(load.weights_cache);
  draft_models_.priors().SetSource(PriorsOf(*model.file, text_.tokenizer->spec(), target_->vocab_size()));
  return {};
}

Result<std::unique_ptr<Session>> EngineImpl::NewSession() {
  if (target_ == nullptr) return InvalidArgument(info_.path + ": only the vocabulary is loaded (vocab_only)");
  return std::unique_ptr<Session>(std::make_unique<SessionImpl>(this, MakeFullCache(pool_, info_.n_ctx)));
}

Result<std::unique_ptr<Session>> EngineImpl::Fork(const Session& session) {
  LS_ASSIGN(SessionImpl* const from, Own(const_cast<Session&>(session)));
  LS_ASSIGN(std::unique_ptr<Session> copy, NewSession());
  SessionState& state = static_cast<SessionImpl&>(*copy).state();
  state.cache = from->state().cache->Fork();
  state.tokens = from->state().tokens;
  copy->messages() = from->messages();
  return copy;
}

// All that keys and values of so many positions depend on besides the tokens.
std::vector<std::pair<std::string, std::string>> EngineImpl::SessionsBelongTo(int n_positions) const {
  std::vector<std::pair<std::string, std::string>> to = {
      {"model", info_.architecture + " " + fingerprint_},
      {"context extension", info_.rope_scaling + ", base " + std::to_string(info_.rope_freq_base)}};
  to.insert(to.end(), info_.arithmetic.begin(), info_.arithmetic.end());
  // Once all chunks of a row were merged one by one, which is the same within a stretch.
  constexpr int kStretch = kernels::kStretchChunks * kernels::kChunk;
  if (n_positions > kStretch) to.emplace_back("attention", "merged by " + std::to_string(kStretch));
  return to;
}

Status EngineImpl::SaveSession(const Session& session, const std::string& path) {
  LS_ASSIGN(SessionImpl* const own, Own(const_cast<Session&>(session)));
  const SessionState& state = own->state();
  SessionContents contents{.belongs_to = SessionsBelongTo(state.cache->length()),
                           .tokens = state.tokens,
                           .n_positions = state.cache->length(),
                           .chunk_bytes = pool_->chunk_bytes(),
                           .chunk_positions = kKvChunk,
                           .chunks = {},
                           .sections = {}};
  for (const KvChunkRef& chunk : state.cache->chunks()) {
    contents.chunks.push_back({chunk->data(), pool_->chunk_bytes()});
  }
  std::vector<DraftState> drafts = state.draft_states;
  if (state.drafter != nullptr && state.drafter->Follow(state.tokens).ok())
    drafts = state.drafter->SaveState();
  contents.sections = SectionsOf(drafts);
  const std::vector<std::byte> messages = PackMessages(session.messages());
  if (!session.messages().empty()) {
    contents.sections.push_back({.name = kMessagesSection, .version = kMessagesVersion, .bytes = messages});
  }
  return WriteSessionFile(path, contents);
}

Result<std::unique_ptr<Session>> EngineImpl::LoadSession(const std::string& path) {
  LS_ASSIGN(std::unique_ptr<Session> session, NewSession());
  LS_ASSIGN(const SessionFile file, ReadSessionFile(path));
  const SessionContents& saved = file.contents;
  LS_TRY(CheckBelongs(saved, SessionsBelongTo(saved.n_positions), path));
  const auto n_tokens = static_cast<int>(saved.tokens.size());
  if (n_tokens > info_.n_ctx) {
    return ResourceExhausted(path + ": the session has " + std::to_string(n_tokens) +
                             " tokens, and the context holds " + std::to_string(info_.n_ctx) +
                             ": load with a context size (-c) of at least " + std::to_string(n_tokens));
  }
  const bool fits = saved.chunk_bytes == pool_->chunk_bytes() && saved.chunk_positions == kKvChunk &&
                    std::ranges::all_of(saved.tokens, [this](int32_t token) {
                      return token >= 0 && token < target_->vocab_size();
                    });
  if (!fits) return Corrupt(path + ": the session's tokens or chunks are none of this model's");
  LS_ASSIGN(session->messages(), MessagesOf(saved, path));
  std::vector<KvChunkRef> chunks;
  for (const auto& bytes : saved.chunks) {
    LS_ASSIGN(KvChunkRef chunk, pool_->Take());
    std::memcpy(chunk->data(), bytes.data(), bytes.size());
    chunks.push_back(std::move(chunk));
  }
  SessionState& state = static_cast<SessionImpl&>(*session).state();
  state.tokens = saved.tokens;
  state.draft_states = DraftStatesOf(saved, &state.draft_notice);
  state.cache->Adopt(chunks, saved.n_positions);
  return session;
}

Result<GenerationResult> EngineImpl::Generate(Session& session, const GenerationRequest& request) {
  LS_ASSIGN(SessionImpl* const own, Own(session));
  LS_ASSIGN(const std::vector<int32_t> prompt, PromptTokens(request));
  return RunGeneration(Parts(), own->state(), prompt, request);
}

Result<std::unique_ptr<Generation>> EngineImpl::Start(Session& session, const GenerationRequest& request) {
  LS_ASSIGN(SessionImpl* const own, Own(session));
  LS_ASSIGN(const std::vector<int32_t> prompt, PromptTokens(request));
  return StartGeneration(Parts(), own->state(), prompt, request);
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

Result<SessionImpl*> EngineImpl::Own(Session& session) const {
  auto* own = dynamic_cast<SessionImpl*>(&session);
  if (own == nullptr || own->engine() != this)
    return InvalidArgument("the session belongs to another engine");
  return own;
}

GenerationParts EngineImpl::Parts() {
  GenerationParts parts;
  parts.target = target_.get();
  parts.tokenizer = text_.tokenizer.get();
  parts.prefill_chunk = batch_size_;
  parts.max_rows = max_rows_;
  parts.n_ctx_train = info_.n_ctx_train;
  parts.draft_models = &draft_models_;
  parts.learned = [this] { return Learned(); };
  parts.prompts = prompts_.get();
  parts.grammar = [this](const GrammarText& text) { return Compile(text); };
  return parts;
}

AdaptiveMemory& EngineImpl::Memory() {
  if (!memory_) {
    memory_.emplace(AdaptiveMemory{.costs = costs_->Known(), .drafters = {}});
    if (!calibration_key_.empty()) {
      auto known = ReadLearned(CacheFolder(), calibration_key_);
      if (known.ok()) memory_->drafters = std::move(*known);
    }
  }
  return *memory_;
}

LearnedCosts EngineImpl::Learned() {
  AdaptiveMemory& memory = Memory();
  // So that one that is killed leaves what most of its answers taught.
  constexpr uint64_t kKeepEvery = 64;
  if (++answers_; std::has_single_bit(answers_) || answers_ % kKeepEvery == 0) KeepLearned();
  return {.memory = &memory, .origin = costs_->origin()};
}

// For the programs that come.
void EngineImpl::KeepLearned() const {
  if (!memory_ || calibration_key_.empty()) return;
  const bool any = std::ranges::any_of(memory_->drafters, [](const auto& drafter) {
    return drafter.second.last_used > 0 && !drafter.second.asking.Beliefs().empty();
  });
  // What cannot be kept is learned again.
  if (any) static_cast<void>(WriteLearned(CacheFolder(), calibration_key_, memory_->drafters));
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
    std::unique_ptr<KvCache> cache = MakeFullCache(layout_, info_.n_layer, depth + rows);
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

Result<std::vector<int32_t>> EngineImpl::PromptTokens(const GenerationRequest& request) const {
  const int given = static_cast<int>(!request.prompt.empty()) + static_cast<int>(!request.messages.empty()) +
                    static_cast<int>(!request.tokens.empty());
  if (given == 0) return InvalidArgument("the prompt is empty: there is nothing to continue");
  if (given > 1) return InvalidArgument("give one of prompt, messages and tokens, not several");
  std::vector<int32_t> tokens = request.tokens;
  if (!request.prompt.empty()) tokens = EncodePrompt(request.prompt);
  if (!request.messages.empty()) {
    LS_ASSIGN(const std::string text, ChatPrompt(request));
    tokens = EncodePrompt(text);
  }
  if (const auto most = MostPromptTokens(request); tokens.size() > most)
    tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(most));
  return tokens;
}

size_t EngineImpl::MostPromptTokens(const GenerationRequest& request) const {
  const int wanted = request.truncate_prompt_tokens;
  if (wanted >= 0) return wanted == 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(wanted);
  return static_cast<size_t>(std::max(1, info_.n_ctx - std::max(1, request.n_predict)));
}

Result<std::string> EngineImpl::ChatPrompt(const GenerationRequest& request) const {
  const auto render = [&](const std::vector<Message>& messages) {
    return ApplyChatTemplate(messages, request.prompt_end == PromptEnd::kNewTurn, request.template_variables);
  };
  if (request.prompt_end != PromptEnd::kContinued || request.messages.empty())
    return render(request.messages);
  return ContinuedPrompt(request.messages, render);
}

// What follows is the answer, so no end token is added; a template that writes the begin token itself gets no
// second.
std::vector<int32_t> EngineImpl::EncodePrompt(std::string_view text) const {
  std::vector<int32_t> tokens = text_.tokenizer->Encode(text, {.add_special = false, .parse_special = true});
  const TokenizerSpec& spec = text_.tokenizer->spec();
  if (spec.add_bos && spec.bos >= 0 && (tokens.empty() || tokens.front() != spec.bos)) {
    tokens.insert(tokens.begin(), spec.bos);
  }
  return tokens;
}

std::string EngineImpl::TokenText(int32_t id) const {
  return id >= 0 && id < text_.tokenizer->vocab_size() ? text_.tokenizer->TokenBytes(id) : std::string();
}

Result<std::shared_ptr<const Grammar>> EngineImpl::Compile(const GrammarText& text) {
  {
    const std::lock_guard lock(grammars_mutex_);
    if (grammars_ == nullptr) {
      LS_ASSIGN(grammars_, GrammarCompiler::Create(Vocabulary()));
    }
  }
  return grammars_->Compile(text);
}

// What stands for no text, control tokens above all, is in no constrained answer but for its end.
GrammarVocabulary EngineImpl::Vocabulary() const {
  constexpr int32_t kUnused = 5;  // TokenizerSpec::token_types
  const Tokenizer& tokenizer = *text_.tokenizer;
  const std::vector<int32_t>& types = tokenizer.spec().token_types;
  GrammarVocabulary vocabulary;
  vocabulary.n_logits = target_ != nullptr ? target_->vocab_size() : tokenizer.vocab_size();
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool is_end = tokenizer.IsEndOfGeneration(id);
    const auto i = static_cast<size_t>(id);
    const bool is_text = !is_end && !tokenizer.IsControl(id) && (i >= types.size() || types[i] != kUnused);
    vocabulary.tokens.push_back(is_text ? tokenizer.TokenBytes(id) : std::string());
    if (is_end) vocabulary.end_tokens.push_back(id);
  }
  vocabulary.tokenize = [held = text_.tokenizer](std::string_view text) {
    return held->Encode(text, {.add_special = false, .parse_special = false});
  };
  return vocabulary;
}

Result<std::string> EngineImpl::ApplyChatTemplate(const std::vector<Message>& messages,
                                                  bool add_generation_prompt,
                                                  std::string_view template_variables) const {
  if (text_.chat_template == nullptr) return text_.chat_template_status;
  ChatTemplateInput input;
  for (const Message& message : messages) input.messages.push_back({message.role, message.content});
  input.add_generation_prompt = add_generation_prompt;
  LS_ASSIGN(input.extra_json, TemplateVariables(messages, template_variables));
  input.bos_token = TokenText(text_.tokenizer->spec().bos);
  input.eos_token = TokenText(text_.tokenizer->spec().eos);
  auto rendered = text_.chat_template->Render(input);
  if (!rendered.ok()) {
    return Status(rendered.status().code(), info_.path + ": chat template: " + rendered.status().message());
  }
  // Some begin a thought whatever they are told.
  if (add_generation_prompt && openai::ForbidThinking(template_variables))
    return openai::WithThoughtEnded(*std::move(rendered));
  return rendered;
}

Result<std::unique_ptr<Engine>> LoadVocabulary(const ModelOptions& options) {
  if (options.path.empty()) return InvalidArgument("no model file given");
  LS_ASSIGN(const std::shared_ptr<const GgufFile> file, OpenFile(options.path));
  LS_ASSIGN(Text text, LoadText(*file));
  ModelInfo info;
  DescribeFile(*file, &info);
  info.n_vocab = text.tokenizer->vocab_size();
  return std::unique_ptr<Engine>(std::make_unique<EngineImpl>(std::move(info), std::move(text)));
}

Result<std::unique_ptr<Engine>> LoadAll(const ModelOptions& options) {
  LS_ASSIGN(Opened model, OpenModel(options));
  if (options.on_plan) options.on_plan(model.info);
  LS_TRY(CheckMemory(options.path, model.needs, model.info.memory.available));
  LS_TRY(CheckOffload(options.kv_offload, model.info.memory));
  if (!options.kv_offload_anyway) {
    const uint64_t as_q8 = KvBytesAsQ8(model.layout, model.spec.n_layer, model.info.memory);
    LS_TRY(CheckOffloadPays(options.kv_offload, model.info.memory, as_q8, model.speeds));
  }
  LS_ASSIGN(Text text, LoadText(*model.file));
  if (text.tokenizer->vocab_size() > model.spec.n_vocab) {
    return Corrupt(options.path + ": the tokenizer has " + std::to_string(text.tokenizer->vocab_size()) +
                   " tokens but token_embd.weight only " + std::to_string(model.spec.n_vocab) + " rows");
  }
  if (options.on_warning && model.info.has_chat_template && text.chat_template == nullptr)
    options.on_warning(text.chat_template_status.message());
  auto engine = std::make_unique<EngineImpl>(model.info, std::move(text));
  LS_TRY(engine->LoadWeights(model, options));
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::Load(const ModelOptions& options) {
  try {
    return options.vocab_only ? LoadVocabulary(options) : LoadAll(options);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted(options.path + ": out of memory while loading the model");
  }
}

Result<ModelInfo> Engine::Inspect(const ModelOptions& options) {
  const auto model = OpenModel(options);
  if (model.ok()) return model->info;
  if (model.status().code() != StatusCode::kUnsupported) return model.status();
  LS_ASSIGN(const std::shared_ptr<const GgufFile> file, OpenFile(options.path));
  LS_TRY(CheckStandsAlone(*file));
  const Status network = ReadModelSpec(*file, options.rope, options.bf16_weights, options.attention).status();
  if (network.ok()) return model.status();  // something else is not supported
  ModelInfo info;
  DescribeFile(*file, &info);
  DescribeOtherNetwork(*file, network, &info);
  return info;
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
