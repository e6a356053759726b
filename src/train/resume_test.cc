// SPDX-License-Identifier: Apache-2.0
//
// A run that was stopped, killed or out of disk: what is left of it, and that it ends in the same weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "formats/testing/file_size_limit.h"
#include "train/testing/rig.h"

namespace longspec::train {
namespace {

namespace fs = std::filesystem;
using longspec::testing::FileSizeLimit;
using testing::Fill;
using ::testing::HasSubstr;
using testing::ReadText;
using testing::Rig;
using testing::WriteText;

constexpr const char* kFiles[] = {"checkpoint.bin", "config.json", "model.safetensors"};

std::string Checkpoint(const Rig& rig) { return ReadText(CheckpointPath(rig.options.output)); }

TEST(Train, AStoppedRunEndsInTheSameWeights) {
  const std::vector<int> lengths = {48, 17, 30};
  Rig whole({}, lengths);
  ASSERT_TRUE(whole.Run().ok());
  for (const int passes : {1, 5, 8}) {  // in the first step, in a later one, at its end
    Rig rig({}, lengths);
    int stops = 0;
    while (true) {
      const auto trained = rig.Run(passes + stops);
      if (trained.ok()) break;
      ASSERT_EQ(trained.status().code(), StatusCode::kCancelled) << trained.status().message();
      EXPECT_FALSE(rig.Weights().empty());
      ASSERT_LT(++stops, 40);
    }
    EXPECT_GE(stops, 2);
    EXPECT_EQ(rig.Weights(), whole.Weights()) << passes;
    EXPECT_EQ(ReadText(CheckpointPath(rig.options.output)), ReadText(CheckpointPath(whole.options.output)));
  }
}

TEST(Train, ADoneRunStaysDone) {
  Rig rig;
  ASSERT_TRUE(rig.Run().ok());
  const std::string weights = rig.Weights();
  ASSERT_TRUE(rig.Run().ok());
  EXPECT_EQ(rig.losses.size(), 12U);
  EXPECT_EQ(rig.Weights(), weights);
  rig.options.learning_rate = 1e-3;
  EXPECT_THAT(rig.Error(), HasSubstr("a run with other options"));
}

// Whenever a run is killed: the checkpoint is of one step, whole; the draft beside it may be of another; and
// what was being written lies about in parts.
TEST(Train, WhatAKillLeavesBehindChangesNothing) {
  Rig whole;
  ASSERT_TRUE(whole.Run().ok());
  Rig rig;
  const fs::path output = rig.options.output, early = rig.folder.File("early"),
                 late = rig.folder.File("late");
  ASSERT_FALSE(rig.Run(8).ok());  // the end of step 4: two calls each
  fs::copy(output, early);
  ASSERT_FALSE(rig.Run(6).ok());
  fs::copy(output, late);
  ASSERT_NE(ReadText(early / kFiles[0]), ReadText(late / kFiles[0]));
  ASSERT_NE(ReadText(early / kFiles[2]), ReadText(late / kFiles[2]));
  struct Left {
    fs::path checkpoint, config, model;  // empty: not there
  };
  for (const Left& left : {Left{late, early, early}, Left{late, late, early}, Left{late, {}, {}},
                           Left{late, late, {}}, Left{early, late, late}, Left{{}, late, late}}) {
    fs::remove_all(output);
    fs::create_directories(output);
    const fs::path from[] = {left.checkpoint, left.config, left.model};
    for (int i = 0; i < 3; ++i) {
      if (!from[i].empty()) fs::copy(from[i] / kFiles[i], output / kFiles[i]);
      const std::string bytes = ReadText(late / kFiles[i]);
      WriteText(output / (std::string(kFiles[i]) + ".tmp"), bytes.substr(0, bytes.size() / 2));
    }
    const auto trained = rig.Run();
    ASSERT_TRUE(trained.ok()) << trained.status().message();
    for (const char* file : kFiles) {
      EXPECT_EQ(ReadText(output / file), ReadText(fs::path(whole.options.output) / file)) << file;
      EXPECT_FALSE(fs::exists(output / (std::string(file) + ".tmp"))) << file;
    }
  }
}

TEST(Train, AFullDiskKeepsTheLastCheckpoint) {
  Rig whole, rig;
  ASSERT_TRUE(whole.Run().ok());
  ASSERT_FALSE(rig.Run(8).ok());
  const std::string checkpoint = Checkpoint(rig), weights = rig.Weights();
  // The checkpoint is three times as long as the draft.
  const auto run_with = [&](size_t bytes) {
    const FileSizeLimit limit(bytes);
    return rig.Run().status();
  };
  Status status = run_with(checkpoint.size() / 2);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr(CheckpointPath(rig.options.output) + ": cannot be written"));
  EXPECT_EQ(Checkpoint(rig), checkpoint);
  EXPECT_EQ(rig.Weights(), weights);
  // No room for the draft either way: what was saved before it is whole.
  fs::remove(fs::path(rig.options.output) / "model.safetensors");
  const std::string blocked = rig.options.output + "/model.safetensors.tmp";
  fs::create_directory(blocked);
  status = rig.Run().status();
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr(blocked + ": cannot be created"));
  fs::remove(blocked);
  ASSERT_TRUE(rig.Run().ok());
  EXPECT_EQ(rig.Weights(), whole.Weights());
  EXPECT_EQ(Checkpoint(rig), Checkpoint(whole));
  for (const char* file : kFiles) EXPECT_FALSE(fs::exists(rig.options.output + "/" + file + ".tmp")) << file;
}

TEST(Train, ALossThatIsNoNumberKeepsTheLastCheckpoint) {
  Rig rig;
  ASSERT_FALSE(rig.Run(9).ok());
  std::string bytes = Checkpoint(rig);
  Fill("self_attn.q_proj.weight", std::numeric_limits<float>::infinity(), &bytes);
  WriteText(CheckpointPath(rig.options.output), bytes);
  const std::string weights = rig.Weights();
  EXPECT_THAT(rig.Error(), HasSubstr("step 5: the loss is no finite number"));
  EXPECT_EQ(Checkpoint(rig), bytes);
  EXPECT_EQ(rig.Weights(), weights);
}

// Values of self-attention that an output projection of zeros keeps from the loss, but not from the gradient
// of that projection.
TEST(Train, GradientsThatAreNoNumbersKeepTheLastCheckpoint) {
  Rig rig;
  ASSERT_FALSE(rig.Run(9).ok());
  std::string bytes = Checkpoint(rig);
  Fill("self_attn.v_proj.bias", 1e30F, &bytes);
  Fill("self_attn.o_proj.weight", 0.0F, &bytes);
  WriteText(CheckpointPath(rig.options.output), bytes);
  const std::string weights = rig.Weights();
  const size_t steps = rig.losses.size();
  const Status status = rig.Run().status();
  EXPECT_EQ(status.code(), StatusCode::kCorrupt);
  EXPECT_THAT(status.message(), HasSubstr("step 5: the gradients are no finite number"));
  EXPECT_EQ(rig.losses.size(), steps);
  EXPECT_EQ(Checkpoint(rig), bytes);
  EXPECT_EQ(rig.Weights(), weights);
}

TEST(Train, AFinishedRunIsValidatedAndElseLeftAlone) {
  Rig rig;
  ASSERT_TRUE(rig.Run().ok());
  const std::string bytes = Checkpoint(rig);
  rig.options.validation = rig.options.features;
  std::vector<int64_t> steps, rows;
  const auto summary = Train(rig.options, [&](const TrainProgress& progress) {
    steps.push_back(progress.step);
    rows.push_back(progress.validation == nullptr ? 0 : progress.validation->all.rows);
    return true;
  });
  ASSERT_TRUE(summary.ok()) << summary.status().message();
  EXPECT_EQ(summary->tokens, 0);
  EXPECT_THAT(steps, ::testing::ElementsAre(summary->steps));
  EXPECT_THAT(rows, ::testing::ElementsAre(::testing::Gt(0)));
  EXPECT_EQ(Checkpoint(rig), bytes);
}

TEST(Train, AnotherFileIsNoCheckpoint) {
  Rig rig;
  std::filesystem::create_directories(rig.options.output);
  SafetensorsWriter writer;
  ASSERT_TRUE(writer.Write(CheckpointPath(rig.options.output)).ok());
  EXPECT_THAT(rig.Error(), HasSubstr("not a checkpoint of longspec-train"));
  writer.SetMetadata("longspec.trainer", "{}");
  ASSERT_TRUE(writer.Write(CheckpointPath(rig.options.output)).ok());
  EXPECT_THAT(rig.Error(), HasSubstr("malformed"));
}

// Warm-up, stable, decay: a run that has decayed goes on from before that with more steps, as one that was
// never asked for fewer.
TEST(Train, AStableRunIsContinued) {
  const auto prepare = [](Rig& rig) {
    rig.options.schedule = Schedule::kStableDecay;
    rig.options.stable_decay = {.warmup = 2, .decay_share = 0.25};
  };
  Rig whole, rig;
  prepare(whole);
  prepare(rig);
  whole.options.steps = 16;
  ASSERT_TRUE(whole.Run().ok());
  rig.options.steps = 8;
  ASSERT_TRUE(rig.Run().ok());
  const std::string short_run = rig.Weights();
  EXPECT_NE(short_run, whole.Weights());
  rig.options.steps = 16;
  ASSERT_TRUE(rig.Run().ok());
  EXPECT_EQ(rig.losses.size(), 8U + 10U);  // from step 6 on
  EXPECT_EQ(rig.Weights(), whole.Weights());
  // Stopped, and at once in its decay by a smaller number of steps: what has not decayed is kept.
  Rig stopped;
  prepare(stopped);
  stopped.options.steps = 16;
  EXPECT_EQ(stopped.Run(12).status().code(), StatusCode::kCancelled);  // at the end of step 6
  EXPECT_EQ(stopped.last.step, 6);
  stopped.options.steps = 8;  // decays from step 6 on
  ASSERT_TRUE(stopped.Run().ok());
  EXPECT_EQ(stopped.Weights(), short_run);
  stopped.options.steps = 16;
  ASSERT_TRUE(stopped.Run().ok());
  EXPECT_EQ(stopped.Weights(), whole.Weights());
  // Back to where it did not come from it cannot go.
  rig.options.steps = 8;
  EXPECT_THAT(rig.Error(), HasSubstr("--steps 8: the run in"));
  rig.options.steps = 16;
  ASSERT_TRUE(rig.Run().ok());
  EXPECT_EQ(rig.losses.size(), 18U);
}

}  // namespace
}  // namespace longspec::train
