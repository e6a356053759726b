// SPDX-License-Identifier: Apache-2.0
#include "gzip/line_source.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/status_macros.h"

namespace longspec {
namespace {

constexpr size_t kMaxLineBytes = size_t{256} << 20;

// zlib reads plain files as they are.
class ZlibLines final : public LineSource {
 public:
  ZlibLines(std::string path, gzFile file, uint64_t n_bytes)
      : path_(std::move(path)), file_(file), n_bytes_(n_bytes) {}
  ~ZlibLines() override { gzclose(file_); }
  ZlibLines(const ZlibLines&) = delete;
  ZlibLines& operator=(const ZlibLines&) = delete;

  Result<bool> Next(std::string* line) override {
    do {
      LS_ASSIGN(const bool more, NextRaw(line));
      if (!more) return false;
    } while (line->empty());
    return true;
  }

  int64_t line_number() const override { return line_number_; }

  double share_read() const override {
    if (n_bytes_ == 0) return 1.0;
    return std::min(1.0, static_cast<double>(gzoffset(file_)) / static_cast<double>(n_bytes_));
  }

 private:
  Result<bool> NextRaw(std::string* line) {
    line->clear();
    ++line_number_;
    while (true) {
      if (begin_ == end_) {
        LS_TRY(Fill());
        if (end_ == 0) return !line->empty();
      }
      const char* from = buffer_.data() + begin_;
      const auto* newline = static_cast<const char*>(std::memchr(from, '\n', end_ - begin_));
      const size_t n = newline == nullptr ? end_ - begin_ : static_cast<size_t>(newline - from);
      line->append(from, n);
      begin_ += n + (newline == nullptr ? 0 : 1);
      if (line->size() > kMaxLineBytes) {
        return Corrupt(path_ + ":" + std::to_string(line_number_) + ": a line of more than " +
                       std::to_string(kMaxLineBytes >> 20) + " MiB");
      }
      if (newline == nullptr) continue;
      if (!line->empty() && line->back() == '\r') line->pop_back();
      return true;
    }
  }

  Status Fill() {
    const int n = gzread(file_, buffer_.data(), static_cast<unsigned>(buffer_.size()));
    int error = Z_OK;
    const char* message = gzerror(file_, &error);
    if (n < 0 || (error != Z_OK && error != Z_STREAM_END)) {
      if (error == Z_ERRNO) return IoError(path_ + ": " + std::strerror(errno));
      return Corrupt(path_ + ": broken gzip data: " + (error == Z_BUF_ERROR ? "it ends too early" : message));
    }
    begin_ = 0;
    end_ = static_cast<size_t>(n);
    return {};
  }

  const std::string path_;
  const gzFile file_;
  const uint64_t n_bytes_;
  std::array<char, 1 << 16> buffer_;
  size_t begin_ = 0, end_ = 0;
  int64_t line_number_ = 0;
};

}  // namespace

Result<std::unique_ptr<LineSource>> OpenLines(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return IoError(path + ": is a folder, expected a file of JSON lines");
  }
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return IoError(path + ": " + std::strerror(errno == 0 ? ENOMEM : errno));
  const uintmax_t n_bytes = std::filesystem::file_size(path, error);
  return std::unique_ptr<LineSource>(std::make_unique<ZlibLines>(path, file, error ? 0 : n_bytes));
}

}  // namespace longspec
