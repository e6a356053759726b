// SPDX-License-Identifier: Apache-2.0
//
// The log of training has a line for each step, and goes on after a run that was cut off.
#include "train/train_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/testing/files.h"
#include "formats/testing/file_size_limit.h"

namespace longspec::train {
namespace {

using longspec::testing::Folder;
using longspec::testing::ReadText;
using ::testing::HasSubstr;

TrainProgress Progress(int64_t step) {
  return {.step = step,
          .steps = 9,
          .loss = 2.5,
          .mean_loss = 3.0,
          .learning_rate = 1e-4,
          .gradient_norm = 0.5,
          .tokens = 100 * step,
          .end_of_step = true};
}

constexpr char kFirst[] =
    "{\"step\":1,\"tokens\":100,\"loss\":2.5,\"mean_loss\":3,\"lr\":0.0001,\"gradient_norm\":0.5}\n";

TEST(TrainLog, ALineForEachStepAndValidation) {
  const Folder folder;
  const std::string path = folder.File("log");
  {
    TrainLog log;
    ASSERT_TRUE(log.Open(path).ok());
    TrainProgress progress = Progress(1);
    ASSERT_TRUE(log.Add(progress).ok());
    progress.end_of_step = false;  // after a forward pass
    ASSERT_TRUE(log.Add(progress).ok());
    const Validation seen = {
        .all = {.begin = 0,
                .end = 512,
                .rows = 7,
                .loss = 1.0,
                .agreement = {0.5, 0.25},
                .top_4 = {0.75, 0.5},
                .accepted = {0.5, 1.0, 1.5}},
        .buckets = {{.begin = 0, .end = 512, .rows = 7, .loss = 1.5, .agreement = {1.0}}}};
    progress.validation = &seen;
    ASSERT_TRUE(log.Add(progress).ok());
  }
  const std::string both =
      std::string(kFirst) +
      "{\"step\":1,\"tokens\":100,\"validation\":["
      "{\"begin\":0,\"end\":512,\"rows\":7,\"loss\":1.0000,\"agreement\":[0.5000,0.2500],\"top_4\":[0.7500,0."
      "5000],"
      "\"accepted\":[0.5000,1.0000,1.5000]},"
      "{\"begin\":0,\"end\":512,\"rows\":7,\"loss\":1.5000,\"agreement\":[1.0000],\"top_4\":[],"
      "\"accepted\":[0.0000,0.0000,0.0000]}]}\n";
  EXPECT_EQ(ReadText(path), both);
  TrainLog again;
  ASSERT_TRUE(again.Open(path).ok());
  ASSERT_TRUE(again.Add(Progress(1)).ok());
  EXPECT_EQ(ReadText(path), both + kFirst);
}

TEST(TrainLog, WithoutAPathThereIsNone) {
  TrainLog log;
  EXPECT_TRUE(log.Open("").ok());
  EXPECT_TRUE(log.Add(Progress(1)).ok());
}

TEST(TrainLog, GoesOnBehindALineThatWasCutOff) {
  const Folder folder;
  const std::string path = folder.File("log");
  std::ofstream(path) << "{\"step\":";
  TrainLog log;
  ASSERT_TRUE(log.Open(path).ok());
  ASSERT_TRUE(log.Add(Progress(1)).ok());
  EXPECT_EQ(ReadText(path), "{\"step\":\n" + std::string(kFirst));
}

TEST(TrainLog, ErrorsNameTheFile) {
  const Folder folder;
  TrainLog none;
  const Status status = none.Open(folder.File("no/log"));
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_THAT(status.message(), HasSubstr("--log " + folder.File("no/log") + ": cannot be written"));

  TrainLog full;
  ASSERT_TRUE(full.Open("/dev/full").ok());
  const Status write = full.Add(Progress(1));
  EXPECT_EQ(write.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(write.message(), HasSubstr("--log /dev/full: cannot be written: No space left"));

  TrainLog large;
  ASSERT_TRUE(large.Open(folder.File("log")).ok());
  const longspec::testing::FileSizeLimit limit(100);
  ASSERT_TRUE(large.Add(Progress(1)).ok());
  EXPECT_EQ(large.Add(Progress(2)).code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace longspec::train
