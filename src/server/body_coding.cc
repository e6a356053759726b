// SPDX-License-Identifier: Apache-2.0
#include "server/body_coding.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "base/check.h"

namespace longspec::server {
namespace {

using api::Error;

constexpr size_t kPieceBytes = size_t{64} << 10;

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

  // False: it is damaged or cut short, or has more than most_bytes, which then are in *out.
  bool Run(std::string& coded, size_t most_bytes, std::string* out) {
    stream_.next_in = reinterpret_cast<Bytef*>(coded.data());
    stream_.avail_in = static_cast<uInt>(coded.size());
    while (true) {
      const size_t done = out->size();
      const size_t room = std::min(std::max(kPieceBytes, done), most_bytes - done);
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

std::variant<std::string, Error> DecodedBody(std::string_view coding, std::string body, size_t most_bytes) {
  const std::string name = LowerAscii(coding);
  if (name.empty() || name == "identity") return body;
  if (name != "gzip" && name != "x-gzip" && name != "deflate") {
    return Error{.status_code = 415,
                 .message = "Content-Encoding \"" + name.substr(0, 40) +
                            "\" is not supported: it may be one of " + std::string(kBodyCodings)};
  }
  std::string decoded;
  // One byte more than may be tells a body of just so many bytes from a longer one.
  if (Inflater().Run(body, most_bytes + 1, &decoded) && decoded.size() <= most_bytes) return decoded;
  if (decoded.size() > most_bytes) {
    return Error{.status_code = 413,
                 .message = "the body has more than " + std::to_string(most_bytes) + " bytes when decoded",
                 .code = "request_too_large"};
  }
  return Error{.message = "the body is not whole, or not " + name + " as its Content-Encoding says",
               .code = "invalid_value"};
}

}  // namespace longspec::server
