// SPDX-License-Identifier: Apache-2.0
//
// Nobody who writes to the log waits for who reads it.
#include "server/log_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <string>
#include <thread>

namespace longspec::server {
namespace {

class LogWriterTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe(ends_.data()), 0); }
  void TearDown() override {
    CloseReader();
    close(ends_[1]);
  }
  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }
  // What comes until the writing end is closed.
  std::string ReadAll() {
    close(ends_[1]);
    ends_[1] = -1;
    std::string text;
    std::array<char, 4096> piece{};
    for (ssize_t n = 0; (n = read(ends_[0], piece.data(), piece.size())) > 0;)
      text.append(piece.data(), static_cast<size_t>(n));
    return text;
  }
  static LogWriterOptions Options(size_t most_bytes, int drain_ms = 1000) {
    return {.most_bytes = most_bytes, .drain_ms = drain_ms, .dropped_line = [](int64_t n) {
              return "dropped " + std::to_string(n);
            }};
  }

  std::array<int, 2> ends_{-1, -1};
};

TEST_F(LogWriterTest, WritesLinesInTheirOrderAndAllOfThemAtTheEnd) {
  std::string expected;
  {
    LogWriter writer(ends_[1]);
    for (int i = 0; i < 100; ++i) {
      writer.Write("line " + std::to_string(i));
      expected += "line " + std::to_string(i) + "\n";
    }
  }
  EXPECT_EQ(ReadAll(), expected);
}

TEST_F(LogWriterTest, ALineMayBeLongerThanAPipe) {
  const std::string line(200000, 'x');
  std::string text;
  std::thread reader([&] {
    std::array<char, 4096> piece{};
    while (text.size() < line.size() + 1) {
      const ssize_t n = read(ends_[0], piece.data(), piece.size());
      if (n <= 0) break;
      text.append(piece.data(), static_cast<size_t>(n));
    }
  });
  {
    LogWriter writer(ends_[1], Options(1 << 20, 60000));
    writer.Write(line);
    reader.join();
  }
  EXPECT_EQ(text, line + "\n");
}

// A terminal that is stopped, a supervisor that does not read its pipe.
TEST_F(LogWriterTest, NobodyWaitsForAReaderThatTakesNothing) {
  const std::string line(999, 'x');
  {
    LogWriter writer(ends_[1], Options(100000, 100));
    for (int i = 0; i < 1000; ++i) writer.Write(line);  // a megabyte
  }
  const std::string text = ReadAll();
  EXPECT_GT(text.size(), 4096U);
  EXPECT_LT(text.size(), 200000U);
}

TEST_F(LogWriterTest, WhatWasDroppedIsCounted) {
  const std::string line(9999, 'x');
  std::string text;
  {
    LogWriter writer(ends_[1], Options(100000, 60000));
    for (int i = 0; i < 100; ++i) writer.Write(line);
    std::array<char, 4096> piece{};
    while (text.find("dropped") == std::string::npos) {
      const ssize_t n = read(ends_[0], piece.data(), piece.size());
      ASSERT_GT(n, 0);
      text.append(piece.data(), static_cast<size_t>(n));
    }
  }
  text += ReadAll();
  const size_t at = text.find("dropped ");
  const auto n_written = static_cast<int>(at / (line.size() + 1));
  EXPECT_GE(n_written, 10);
  EXPECT_EQ(std::stoi(text.substr(at + 8)), 100 - n_written);
  EXPECT_EQ(text.back(), '\n');
}

TEST_F(LogWriterTest, AReaderThatHasGoneIsNoError) {
  CloseReader();
  std::signal(SIGPIPE, SIG_IGN);  // as the program does
  LogWriter writer(ends_[1]);
  for (int i = 0; i < 10; ++i) writer.Write("line");
}

}  // namespace
}  // namespace longspec::server
