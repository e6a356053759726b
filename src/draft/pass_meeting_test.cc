// SPDX-License-Identifier: Apache-2.0
//
// Whose passes are run together, and that drafts are the same whoever else drafts: scores compared to the
// bit.
#include "draft/pass_meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <new>

#include "base/clock.h"
#include "base/size.h"
#include "draft/testing/batch_sequence.h"
#include "draft/testing/block_drafts.h"
#include "draft/testing/eagle_scene.h"

namespace longspec::testing {
namespace {

using ::testing::ElementsAre;

// Passes that only say who was in them.
struct Log {
  std::vector<std::vector<char>> passes;
  Status result;
  bool out_of_memory = false;
  double ms = 0;  // that each takes
};

struct NamedRows final : MeetingRows {
  NamedRows(Log* to, char who, const void* of, int of_form = 0)
      : log(to), name(who), model(of), form(of_form) {}
  Key key() const override { return {.model = model, .form = form}; }
  Status Run(std::span<MeetingRows* const> together) override {
    SpendMs(log->ms);
    log->passes.emplace_back();
    for (MeetingRows* const rows : together)
      log->passes.back().push_back(static_cast<NamedRows*>(rows)->name);
    if (log->out_of_memory) throw std::bad_alloc();
    return log->result;
  }
  bool is_costly() const override { return costly; }
  Log* log;
  char name;
  const void* model;
  int form;
  bool costly = false;
};

// So many passes of a model, one after the other.
DraftTask Levels(PassMeeting& meeting, Log& log, char name, int n, const void* model, bool forms = false) {
  for (int level = 0; level < n; ++level) {
    NamedRows rows(&log, name, model, forms ? level : 0);
    LS_CO_TRY(co_await meeting.Join(rows));
  }
  co_return Status();
}

struct Ended {
  std::vector<Status> results;
  std::vector<double> ms;
};

Ended RunAll(PassMeeting& meeting, int n, const std::function<DraftTask(int)>& begin) {
  Ended ended;
  meeting.Run(n, begin, [&](int, DraftTask& task, double ms) {
    ended.results.push_back(task.Result());
    ended.ms.push_back(ms);
  });
  return ended;
}

TEST(PassMeeting, RowsOfOneModelShareAPass) {
  PassMeeting meeting;
  Log log;
  const Ended ended = RunAll(meeting, 3, [&](int i) {
    return Levels(meeting, log, static_cast<char>('a' + i), std::array{3, 1, 2}[Z(i)], &log);
  });
  EXPECT_THAT(log.passes, ElementsAre(ElementsAre('a', 'b', 'c'), ElementsAre('a', 'c'), ElementsAre('a')));
  EXPECT_EQ(meeting.n_passes(), 3);
  for (const Status& result : ended.results) EXPECT_TRUE(result.ok());
}

TEST(PassMeeting, OtherModelsAndFormsHavePassesOfTheirOwn) {
  PassMeeting meeting;
  Log log;
  const int other = 0;
  RunAll(meeting, 4, [&](int i) {
    return Levels(meeting, log, static_cast<char>('a' + i), 2,
                  i % 2 == 0 ? &log : static_cast<const void*>(&other));
  });
  EXPECT_THAT(log.passes, ElementsAre(ElementsAre('a', 'c'), ElementsAre('b', 'd'), ElementsAre('a', 'c'),
                                      ElementsAre('b', 'd')));
  log.passes.clear();
  RunAll(meeting, 2,
         [&](int i) { return Levels(meeting, log, static_cast<char>('a' + i), 1 + i, &log, true); });
  EXPECT_THAT(log.passes, ElementsAre(ElementsAre('a', 'b'), ElementsAre('b')));
}

TEST(PassMeeting, ACostlyPassWaitsForAllWhoAreOnTheirWayToIt) {
  PassMeeting meeting;
  Log log;
  const int dear = 0;
  // After so many passes of a small model, twice.
  RunAll(meeting, 3, [&](int i) -> DraftTask {
    const char name = static_cast<char>('a' + i);
    for (int turn = 0; turn < 2; ++turn) {
      LS_CO_TRY(co_await Levels(meeting, log, name, i, &log));
      NamedRows rows(&log, name, &dear);
      rows.costly = true;
      LS_CO_TRY(co_await meeting.Join(rows));
    }
    co_return Status();
  });
  const std::vector<std::vector<char>> turn = {{'b', 'c'}, {'c'}, {'a', 'b', 'c'}};
  EXPECT_THAT(log.passes, ElementsAre(turn[0], turn[1], turn[2], turn[0], turn[1], turn[2]));
}

TEST(PassMeeting, OneAloneDoesNotWait) {
  PassMeeting meeting;
  Log log;
  EXPECT_TRUE(RunNow(Levels(meeting, log, 'x', 2, &log)).ok());
  RunAll(meeting, 1, [&](int) { return Levels(meeting, log, 'a', 2, &log); });
  EXPECT_EQ(log.passes.size(), 4U);
}

TEST(PassMeeting, AnErrorEndsThoseInThePassAndNobodyElse) {
  PassMeeting meeting;
  Log bad, good;
  bad.result = IoError("the pass failed");
  const Ended ended = RunAll(meeting, 4, [&](int i) -> DraftTask {
    if (i == 3) return ResourceExhausted("never began");
    return Levels(meeting, i == 1 ? good : bad, static_cast<char>('a' + i), 2, i == 1 ? &good : &bad);
  });
  EXPECT_EQ(ended.results[0].code(), StatusCode::kIo);
  EXPECT_TRUE(ended.results[1].ok());
  EXPECT_EQ(ended.results[2].code(), StatusCode::kIo);
  EXPECT_EQ(ended.results[3].code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(bad.passes.size(), 1U);
  EXPECT_EQ(good.passes.size(), 2U);
}

TEST(PassMeeting, WhatADraftThrowsIsThrownWhereItsResultIsTaken) {
  PassMeeting meeting;
  Log log;
  const auto throws = [&]() -> DraftTask {
    NamedRows rows(&log, 'a', &log);
    LS_CO_TRY(co_await meeting.Join(rows));
    throw std::bad_alloc();
  };
  int thrown = 0;
  meeting.Run(
      2, [&](int i) { return i == 0 ? throws() : Levels(meeting, log, 'b', 2, &log); },
      [&](int i, DraftTask& task, double) {
        try {
          EXPECT_TRUE(task.Result().ok());
          EXPECT_EQ(i, 1);
        } catch (const std::bad_alloc&) {
          EXPECT_EQ(i, 0);
          ++thrown;
        }
      });
  EXPECT_EQ(thrown, 1);
}

TEST(PassMeeting, NoMemoryForAPassIsAnErrorOfItsDrafts) {
  PassMeeting meeting;
  Log log;
  log.out_of_memory = true;
  for (const int n : {1, 2}) {
    const Ended ended = RunAll(meeting, n, [&](int) { return Levels(meeting, log, 'a', 2, &log); });
    for (const Status& result : ended.results) EXPECT_EQ(result.code(), StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(log.passes.size(), 2U);
}

// What a pass takes is shared by those that were in it.
TEST(PassMeeting, TimeIsShared) {
  PassMeeting meeting;
  const SimulatedClock clock;
  Log log;
  log.ms = 10;
  double inside = 0;
  const auto timed = [&]() -> DraftTask {
    const double start = meeting.Ms();
    LS_CO_TRY(co_await Levels(meeting, log, 'a', 1, &log));
    inside = meeting.Ms() - start;
    co_return Status();
  };
  const Ended ended =
      RunAll(meeting, 2, [&](int i) { return i == 0 ? timed() : Levels(meeting, log, 'b', 2, &log); });
  EXPECT_THAT(ended.ms, ElementsAre(5, 15));
  EXPECT_EQ(inside, 5);
}

TEST(DraftTask, NobodyNeedsToRunIt) {
  Log log;
  PassMeeting meeting;
  { const DraftTask dropped = Levels(meeting, log, 'a', 1, &log); }
  EXPECT_TRUE(log.passes.empty());
  EXPECT_TRUE(DraftTask().Result().ok());
  DraftTask moved = Levels(meeting, log, 'a', 1, &log);
  moved = DraftTask(IoError("other"));
  EXPECT_EQ(moved.Result().code(), StatusCode::kIo);
}

// ---- Drafts of real kinds

// Sequences of one target, which have read their texts, and their drafters.
class Group {
 public:
  Group(TinyTarget* tiny, const SpeculationOptions& options, int n) : options_(options) {
    models_.SetVocabulary(&kVocabulary);
    for (int i = 0; i < n; ++i) {
      auto one = std::make_unique<BatchSequence>(&tiny->target(), tiny->NewCache(1000), options, &models_,
                                                 *Sampler::Create({.seed = 1}, tiny->config.n_vocab),
                                                 RandomTokens(20 + 90 * (i % 5), 5 + Z(i)));
      BatchDecoder decoder(&tiny->target());
      Turn turn{.sequence = &one->sequence, .max_rows = 64, .max_tokens = 1};
      while (one->sequence.n_missing() > 1) {
        turn.max_rows = std::min(64, one->sequence.n_missing() - 1);
        EXPECT_TRUE(decoder.Run({&turn, 1}).ok() && turn.status.ok());
      }
      all_.push_back(std::move(one));
    }
  }

  using Trees = std::vector<std::vector<TreeNode>>;

  Trees Alone() const {
    Trees trees;
    for (const auto& one : all_) {
      TokenTree tree(one->tokens.back());
      EXPECT_TRUE(one->drafter->Propose(Budget(), one->tokens, tree).ok());
      trees.emplace_back(tree.nodes().begin(), tree.nodes().end());
    }
    return trees;
  }

  Trees Together() {
    std::vector<TokenTree> trees;
    for (const auto& one : all_) trees.emplace_back(one->tokens.back());
    const DraftBudget budget = Budget();
    meeting.Run(
        static_cast<int>(all_.size()),
        [&](int i) { return all_[Z(i)]->drafter->Draft(budget, all_[Z(i)]->tokens, trees[Z(i)], meeting); },
        [](int, DraftTask& task, double) { EXPECT_TRUE(task.Result().ok()); });
    Trees all;
    for (const TokenTree& tree : trees) all.emplace_back(tree.nodes().begin(), tree.nodes().end());
    return all;
  }

  PassMeeting meeting;

 private:
  DraftBudget Budget() const { return {.max_nodes = options_.draft_n_max, .max_depth = 8}; }

  static std::vector<std::string> TokensOfTiny() {
    const auto bytes = TinyModelBytes({});
    return *(*GgufFile::Parse(*bytes, "tiny"))->GetStrings("tokenizer.ggml.tokens");
  }

  static inline const std::vector<std::string> kVocabulary = TokensOfTiny();
  const SpeculationOptions options_;
  DraftModels models_;
  std::vector<std::unique_ptr<BatchSequence>> all_;
};

void ExpectSameTrees(const Group::Trees& some, const Group::Trees& others) {
  ASSERT_EQ(some.size(), others.size());
  for (size_t i = 0; i < some.size(); ++i) {
    ASSERT_EQ(some[i].size(), others[i].size()) << i;
    EXPECT_GT(some[i].size(), 1U) << i;
    for (size_t n = 0; n < some[i].size(); ++n) {
      EXPECT_EQ(some[i][n].token, others[i][n].token);
      EXPECT_EQ(some[i][n].parent, others[i][n].parent);
      EXPECT_EQ(some[i][n].score, others[i][n].score);
    }
  }
}

// So many sequences with such trees, and how many passes their levels and rows need.
struct Case {
  const char* tree;
  int n, n_passes;
};
// The last: levels of 1, 12 and 12 rows for each of 5, and 32 rows in a pass.
constexpr Case kOneDraft[] = {{"chain", 5, 4}, {"4,4", 3, 2}, {"12,12,12", 5, 1 + 2 + 2}};
constexpr Case kOneOfSeveral[] = {{"chain", 5, 8}, {"4", 3, 5}};

void ExpectTheSameTogether(TinyTarget* tiny, SpeculationOptions options, std::span<const Case> cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(options.type) + " " + c.tree);
    options.tree = c.tree;
    options.draft_n_max = options.tree == "chain" ? 4 : 24;
    Group group(tiny, options, c.n);
    const Group::Trees alone = group.Alone();
    ExpectSameTrees(group.Together(), alone);
    EXPECT_LE(group.meeting.n_passes(), c.n_passes);
    ExpectSameTrees(group.Alone(), alone);
  }
}

TEST(PassMeeting, LongspecDraftsAreTheSameTogether) {
  for (const char* more : {"", ", \"longspec_own_keys\": true"}) {
    for (const int threads : {1, 2}) {
      TinyTarget tiny({}, {}, threads);
      const Folder folder;
      SpeculationOptions options;
      options.type = "longspec";
      options.draft_model = WriteDraftFolder(folder, tiny.config, RandomDraft(tiny.config, 64, 3), more);
      ExpectTheSameTogether(&tiny, options, kOneDraft);
      options.type = "ppm,longspec";
      ExpectTheSameTogether(&tiny, options, kOneOfSeveral);
    }
  }
}

TEST(PassMeeting, EagleDraftsAreTheSameTogether) {
  std::vector<int64_t> some;
  for (int64_t t = 3; t < 380; t += 2) some.push_back(t);
  for (const bool third : {false, true}) {
    SmallEagle eagle({.eagle3 = third}, some);
    ExpectTheSameTogether(&eagle.tiny, eagle.Options(""), kOneDraft);
  }
}

// Kinds whose drafts read states of the target, with heads of their own.
TEST(PassMeeting, DraftsOfStatesAreTheSameTogether) {
  constexpr OwnHeads kHeads;
  for (const std::string name : {"beagle", "exit", "exit_of_final", "medusa"}) {
    const std::string kind = name == "exit_of_final" ? "exit" : name;
    for (const int threads : {1, 2}) {
      TinyTarget tiny({.n_layers = 4}, {}, threads);
      const Folder folder;
      const DraftTensors tensors = kind == "beagle" ? RandomBeagle(tiny.config, kHeads, 9)
                                   : kind == "exit" ? RandomExit(tiny.config, kHeads, 9, name != kind)
                                                    : RandomMedusa(tiny.config, 4, 9, {1});
      SpeculationOptions options;
      options.type = kind;
      options.draft_model = WriteBlockDraft(folder, kind, tiny.config, tensors, kHeads, {},
                                            kind == "exit" ? ", \"longspec_exit_layer\": 1" : "");
      options.draft_weights = "f32";
      ExpectTheSameTogether(&tiny, options, kOneDraft);
      // A head is asked once, whatever it is asked for: 20 sequences and 8 rows in a pass.
      if (kind == "medusa") ExpectTheSameTogether(&tiny, options, {{{"4,4", 20, 2}}});
      options.type = "ppm," + kind;
      ExpectTheSameTogether(&tiny, options, kOneOfSeveral);
    }
  }
}

TEST(PassMeeting, DraftsOfALanguageModelAreTheSameTogether) {
  for (const int threads : {1, 2}) {
    TinyTarget tiny({.n_layers = 4}, {}, threads);
    const Folder folder;
    SpeculationOptions options;
    options.type = "lm";
    options.draft_model = folder.File("draft.gguf");
    ASSERT_TRUE(WriteTinyModel({.seed = 9}, options.draft_model).ok());
    ExpectTheSameTogether(&tiny, options, kOneDraft);
    // Many sequences' branches are more rows than a pass of it has.
    ExpectTheSameTogether(&tiny, options, {{{"12,12", 45, 3}}});
  }
}

// The target over a part of each sequence's cache. Passes of a drafter inside that is a model meet, too.
TEST(PassMeeting, DraftsOfPartsOfTheCacheAreTheSameTogether) {
  for (const std::string inner : {"", "none", "ppm", "lm"}) {
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(inner);
      TinyTarget tiny({.n_layers = 2}, {}, threads);
      const Folder folder;
      SpeculationOptions options;
      options.type = inner.empty() ? "magicdec" : "partial";
      options.draft_n_max = 4;
      options.magicdec_sink = options.partial_sink = 16;
      options.magicdec_window = options.partial_window = 32;
      options.partial_budget = 64;
      options.partial_inner = inner;
      if (inner == "lm") {
        options.draft_model = folder.File("draft.gguf");
        ASSERT_TRUE(WriteTinyModel({.seed = 9}, options.draft_model).ok());
      }
      Group group(&tiny, options, 5);
      const Group::Trees alone = group.Alone();
      ExpectSameTrees(group.Together(), alone);
      // A pass for each level of the longest chain; the one inside guesses as far as there is room: 3, 2, 1.
      EXPECT_LE(group.meeting.n_passes(), inner == "lm" ? 4 + 3 + 2 + 1 : 4);
      ExpectSameTrees(group.Alone(), alone);
    }
  }
}

}  // namespace
}  // namespace longspec::testing
