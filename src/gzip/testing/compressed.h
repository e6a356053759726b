// SPDX-License-Identifier: Apache-2.0
//
// For tests: compressed bytes.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

namespace longspec::testing {

// As gzip, or in zlib's own form.
inline std::string Compressed(std::string text, bool gzip = true) {
  constexpr int kWindowBits = 15, kGzip = 16, kMemory = 8;
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, gzip ? kWindowBits + kGzip : kWindowBits,
                         kMemory, Z_DEFAULT_STRATEGY),
            Z_OK);
  std::string compressed(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(text.data());
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(compressed.data());
  stream.avail_out = static_cast<uInt>(compressed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  compressed.resize(compressed.size() - stream.avail_out);
  deflateEnd(&stream);
  return compressed;
}

}  // namespace longspec::testing
