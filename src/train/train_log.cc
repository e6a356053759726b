// SPDX-License-Identifier: Apache-2.0
#include "train/train_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace longspec::train {
namespace {

std::string Number(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

std::string Beginning(const TrainProgress& p) {
  return "{\"step\":" + std::to_string(p.step) + ",\"tokens\":" + std::to_string(p.tokens);
}

std::string StepLine(const TrainProgress& p) {
  return Beginning(p) + ",\"loss\":" + Number("%.6g", p.loss) +
         ",\"mean_loss\":" + Number("%.6g", p.mean_loss) + ",\"lr\":" + Number("%.6g", p.learning_rate) +
         ",\"gradient_norm\":" + Number("%.6g", p.gradient_norm) + "}\n";
}

std::string Shares(const char* name, const std::vector<double>& shares) {
  std::string text = std::string(",\"") + name + "\":[";
  for (size_t i = 0; i < shares.size(); ++i) text += (i == 0 ? "" : ",") + Number("%.4f", shares[i]);
  return text + "]";
}

std::string BucketText(const ValidationBucket& b) {
  return "{\"begin\":" + std::to_string(b.begin) + ",\"end\":" + std::to_string(b.end) +
         ",\"rows\":" + std::to_string(b.rows) + ",\"loss\":" + Number("%.4f", b.loss) +
         Shares("agreement", b.agreement) + Shares("top_4", b.top_4) +
         Shares("accepted", {b.accepted.chain, b.accepted.tree_8, b.accepted.tree_16}) + "}";
}

std::string ValidationLine(const TrainProgress& p) {
  std::string text = Beginning(p) + ",\"validation\":[" + BucketText(p.validation->all);
  for (const ValidationBucket& bucket : p.validation->buckets) text += "," + BucketText(bucket);
  return text + "]}\n";
}

}  // namespace

TrainLog::~TrainLog() {
  if (fd_ >= 0) close(fd_);
}

Status TrainLog::Open(const std::string& path) {
  if (path.empty()) return {};
  path_ = path;
  fd_ = open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0) return IoError("--log " + path + ": cannot be written: " + std::strerror(errno));
  char last = '\n';
  const off_t size = lseek(fd_, 0, SEEK_END);
  if (size > 0 && pread(fd_, &last, 1, size - 1) == 1 && last != '\n') return Write("\n");
  return {};
}

Status TrainLog::Add(const TrainProgress& progress) {
  if (fd_ < 0) return {};
  if (progress.validation != nullptr) return Write(ValidationLine(progress));
  return progress.end_of_step ? Write(StepLine(progress)) : Status();
}

Status TrainLog::Write(const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t n = write(fd_, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      const std::string message = "--log " + path_ + ": cannot be written: " + std::strerror(error);
      const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
      return full ? ResourceExhausted(message) : IoError(message);
    }
    rest.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace longspec::train
