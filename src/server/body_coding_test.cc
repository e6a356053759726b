// SPDX-License-Identifier: Apache-2.0
#include "server/body_coding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

namespace longspec::server {
namespace {

using api::Error;
using ::testing::HasSubstr;

std::string Coded(const std::string& text, bool gzip) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, gzip ? 15 + 16 : 15, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string coded(deflateBound(&stream, text.size()), '\0');
  std::string in = text;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(coded.data());
  stream.avail_out = static_cast<uInt>(coded.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  coded.resize(coded.size() - stream.avail_out);
  deflateEnd(&stream);
  return coded;
}

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
    EXPECT_EQ(Text("gzip", Coded(text, true), 1'000'000), text);
    EXPECT_EQ(Text("X-GZIP", Coded(text, true), 1'000'000), text);
    EXPECT_EQ(Text("deflate", Coded(text, false), 1'000'000), text);
  }
  EXPECT_EQ(Text("gzip", Coded("[1,", true) + Coded(" 2]", true)), "[1, 2]");
}

TEST(BodyCoding, NoMoreIsMadeThanThereMayBe) {
  EXPECT_EQ(Text("gzip", Coded(std::string(1000, 'a'), true)), std::string(1000, 'a'));
  EXPECT_EQ(StatusOf("gzip", Coded(std::string(1001, 'a'), true)), 413);
  std::string bomb = Coded(std::string(size_t{64} << 20, '\0'), true);
  EXPECT_LT(bomb.size(), 100'000U);
  EXPECT_EQ(StatusOf("gzip", bomb), 413);
}

TEST(BodyCoding, MistakesAreNamed) {
  EXPECT_EQ(StatusOf("br", "x"), 415);
  EXPECT_THAT(Text("br", "x"),
              HasSubstr("\"br\" is not supported: it may be one of gzip, deflate, identity"));
  EXPECT_EQ(StatusOf("gzip, gzip", "x"), 415);
  const std::string coded = Coded(std::string(300, 'a') + "bcd", true);
  EXPECT_EQ(StatusOf("gzip", coded.substr(0, coded.size() - 1)), 400);
  EXPECT_EQ(StatusOf("gzip", coded + "x"), 400);
  EXPECT_EQ(StatusOf("gzip", ""), 400);
  EXPECT_EQ(StatusOf("gzip", "{}"), 400);
}

}  // namespace
}  // namespace longspec::server
