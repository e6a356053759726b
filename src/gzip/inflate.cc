// SPDX-License-Identifier: Apache-2.0
#include "gzip/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace longspec {
namespace {

constexpr size_t kInflatedPiece = size_t{64} << 10;

// zlib's, which tells gzip from its own form by itself.
class Inflater {
 public:
  Inflater() {
    constexpr int kWindowBits = 15, kEitherForm = 32;
    LS_CHECK(inflateInit2(&stream_, kWindowBits + kEitherForm) == Z_OK);
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  bool Run(std::string& coded, size_t most_bytes, std::string* out) {
    stream_.next_in = reinterpret_cast<Bytef*>(coded.data());
    stream_.avail_in = static_cast<uInt>(coded.size());
    while (true) {
      const size_t done = out->size();
      const size_t room = std::min(std::max(kInflatedPiece, done), most_bytes - done);
      if (room == 0) return false;
      out->resize(done + room);
      stream_.next_out = reinterpret_cast<Bytef*>(out->data() + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      out->resize(done + room - stream_.avail_out);
      if (result == Z_STREAM_END) {
        if (stream_.avail_in == 0) return true;
        if (inflateReset(&stream_) != Z_OK) return false;  // gzip files may follow each other
      } else if (result != Z_OK || (stream_.avail_in == 0 && stream_.avail_out > 0)) {
        return false;
      }
    }
  }

 private:
  z_stream stream_ = {};
};

}  // namespace

bool Inflate(std::string coded, size_t most_bytes, std::string* out) {
  return Inflater().Run(coded, most_bytes, out);
}

}  // namespace longspec
