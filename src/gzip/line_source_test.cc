// SPDX-License-Identifier: Apache-2.0
//
// Lines of plain and of compressed files are the same lines; errors name the file.
#include "gzip/line_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "base/testing/files.h"
#include "gzip/testing/compressed.h"

namespace longspec {
namespace {

using testing::Compressed;
using ::testing::HasSubstr;

using Lines = std::vector<std::pair<int64_t, std::string>>;  // by number

Result<Lines> Read(const std::string& path) {
  auto source = OpenLines(path);
  if (!source.ok()) return source.status();
  Lines lines;
  double share = 0;
  for (std::string line;;) {
    const auto more = (*source)->Next(&line);
    if (!more.ok()) return more.status();
    EXPECT_GE((*source)->share_read(), share);
    share = (*source)->share_read();
    if (!*more) break;
    lines.emplace_back((*source)->line_number(), line);
  }
  EXPECT_EQ(share, 1.0);
  return lines;
}

TEST(LineSource, PlainAndCompressedLinesAreTheSame) {
  const testing::Folder folder;
  const std::string big(200'000, 'x');
  const std::string text = "a\r\n\n" + big + "\n\r\n \nlast";
  const Lines expected = {{1, "a"}, {3, big}, {5, " "}, {6, "last"}};
  EXPECT_EQ(*Read(folder.Write("plain", text)), expected);
  EXPECT_EQ(*Read(folder.Write("a.gz", Compressed(text))), expected);
  EXPECT_EQ(*Read(folder.Write("empty", "")), Lines());
  EXPECT_EQ(*Read(folder.Write("empty.gz", Compressed(""))), Lines());
}

TEST(LineSource, ErrorsNameTheFile) {
  const testing::Folder folder;
  const auto error = [&](const std::string& path, StatusCode code) {
    const Status status = Read(path).status();
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_THAT(status.message(), HasSubstr(path));
    return status.message();
  };
  EXPECT_THAT(error(folder.File("absent"), StatusCode::kIo), HasSubstr("No such file"));
  EXPECT_THAT(error(folder.path(), StatusCode::kIo), HasSubstr("is a folder"));
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += std::to_string(i * 7919 % 10007) + "\n";
  std::string bytes = Compressed(text);
  const size_t middle = bytes.size() / 2;
  EXPECT_THAT(error(folder.Write("cut.gz", bytes.substr(0, middle)), StatusCode::kCorrupt),
              HasSubstr("broken gzip data: it ends too early"));
  bytes[middle] = static_cast<char>(~bytes[middle]);
  bytes[middle + 1] = static_cast<char>(~bytes[middle + 1]);
  EXPECT_THAT(error(folder.Write("broken.gz", bytes), StatusCode::kCorrupt), HasSubstr("broken gzip data"));
}

}  // namespace
}  // namespace longspec
