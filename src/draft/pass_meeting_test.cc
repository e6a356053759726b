// SPDX-License-Identifier: Apache-2.0
//
// Whose passes are run together.
#include "draft/pass_meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <new>

#include "base/clock.h"
#include "base/size.h"

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

}  // namespace
}  // namespace longspec::testing
