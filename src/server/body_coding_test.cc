// SPDX-License-Identifier: Apache-2.0
//
// Bodies that were sent compressed are those that were meant, and no bomb goes off.
#include "server/body_coding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gzip/testing/compressed.h"

namespace longspec::server {
namespace {

using api::Error;
using longspec::testing::Compressed;
using ::testing::HasSubstr;

std::string Text(std::string_view coding, const std::string& body, size_t most = 1000) {
  const auto decoded = DecodedBody(coding, body, most);
  const auto* text = std::get_if<std::string>(&decoded);
  return text != nullptr ? *text : "error: " + std::get<Error>(decoded).message;
}

int StatusOf(std::string_view coding, const std::string& body, size_t most = 1000) {
  const auto decoded = DecodedBody(coding, body, most);
  const auto* error = std::get_if<Error>(&decoded);
  return error == nullptr ? 200 : error->status_code;
}

TEST(BodyCoding, WhatIsNotCodedIsAsItIs) {
  EXPECT_EQ(Text("", "{}"), "{}");
  EXPECT_EQ(Text("Identity", "{}"), "{}");
}

TEST(BodyCoding, GzipAndDeflate) {
  std::string long_text;
  for (int i = 0; i < 100'000; ++i) long_text += std::to_string(i);
  for (const std::string& text : {std::string(), std::string("{}"), long_text}) {
    EXPECT_EQ(Text("gzip", Compressed(text, true), 1'000'000), text);
    EXPECT_EQ(Text("X-GZIP", Compressed(text, true), 1'000'000), text);
    EXPECT_EQ(Text("deflate", Compressed(text, false), 1'000'000), text);
  }
  EXPECT_EQ(Text("gzip", Compressed("[1,", true) + Compressed(" 2]", true)), "[1, 2]");
}

TEST(BodyCoding, NoMoreIsMadeThanThereMayBe) {
  EXPECT_EQ(Text("gzip", Compressed(std::string(1000, 'a'), true)), std::string(1000, 'a'));
  EXPECT_EQ(StatusOf("gzip", Compressed(std::string(1001, 'a'), true)), 413);
  std::string bomb = Compressed(std::string(size_t{64} << 20, '\0'), true);
  EXPECT_LT(bomb.size(), 100'000U);
  EXPECT_EQ(StatusOf("gzip", bomb), 413);
}

TEST(BodyCoding, MistakesAreNamed) {
  EXPECT_EQ(StatusOf("br", "x"), 415);
  EXPECT_THAT(Text("br", "x"),
              HasSubstr("\"br\" is not supported: it may be one of gzip, deflate, identity"));
  EXPECT_EQ(StatusOf("gzip, gzip", "x"), 415);
  const std::string coded = Compressed(std::string(300, 'a') + "bcd", true);
  EXPECT_EQ(StatusOf("gzip", coded.substr(0, coded.size() - 1)), 400);
  EXPECT_EQ(StatusOf("gzip", coded + "x"), 400);
  EXPECT_EQ(StatusOf("gzip", ""), 400);
  EXPECT_EQ(StatusOf("gzip", "{}"), 400);
}

}  // namespace
}  // namespace longspec::server
