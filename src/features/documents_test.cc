// SPDX-License-Identifier: Apache-2.0
//
// Documents for training are read from plain and compressed files; mistakes have a file and a line.
#include "features/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/files.h"
#include "gzip/testing/compressed.h"

namespace longspec {
namespace {

using ::testing::HasSubstr;

TEST(ParseTrainingDocument, KnowsThreeForms) {
  const auto text = ParseTrainingDocument(R"({"id": 1, "text": "a\nb"})", "f:1");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->text, "a\nb");
  EXPECT_TRUE(text->messages.empty());
  const auto pair = ParseTrainingDocument(R"({"prompt": "p", "answer": "a", "text": "unused"})", "f:1");
  ASSERT_TRUE(pair.ok());
  ASSERT_EQ(pair->messages.size(), 2U);
  EXPECT_EQ(pair->messages[0].role, "user");
  EXPECT_EQ(pair->messages[1].role, "assistant");
  EXPECT_EQ(pair->messages[1].content, "a");
  for (const std::string key : {"messages", "conversation"}) {
    const auto chat =
        ParseTrainingDocument("{\"" + key + R"(": [{"role": "system", "content": "s"}]})", "f:1");
    ASSERT_TRUE(chat.ok());
    ASSERT_EQ(chat->messages.size(), 1U);
    EXPECT_EQ(chat->messages[0].content, "s");
  }
}

TEST(ParseTrainingDocument, ErrorsNameTheLine) {
  const auto error = [](const std::string& json) {
    const auto document = ParseTrainingDocument(json, "file.jsonl:12");
    EXPECT_THAT(document.status().message(), HasSubstr("file.jsonl:12: "));
    return document.status().message();
  };
  EXPECT_THAT(error("{"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error(std::string(100, '[')), HasSubstr("not a JSON object"));
  EXPECT_THAT(error("{}"), HasSubstr("expected \"text\""));
  EXPECT_THAT(error(R"({"text": 1})"), HasSubstr("\"text\" must be a string"));
  EXPECT_THAT(error(R"({"prompt": "a", "answer": null})"), HasSubstr("\"answer\" must be a string"));
  EXPECT_THAT(error(R"({"messages": []})"), HasSubstr("not empty"));
  EXPECT_THAT(error(R"({"messages": [1]})"), HasSubstr("must be an object"));
  EXPECT_THAT(error(R"({"messages": [{"role": "user"}]})"), HasSubstr("\"content\" must be a string"));
}

std::vector<std::string> TextsOf(const std::vector<std::string>& paths) {
  DocumentSource source(paths);
  std::vector<std::string> texts;
  TrainingDocument document;
  double share = 0.0;
  while (true) {
    const auto more = source.Next(&document);
    EXPECT_TRUE(more.ok()) << more.status().message();
    if (!more.ok() || !*more) break;
    texts.push_back(document.text);
    EXPECT_GE(source.share_read(), share);
    share = source.share_read();
  }
  EXPECT_EQ(source.share_read(), 1.0);
  return texts;
}

TEST(DocumentSource, ReadsPlainAndCompressedFiles) {
  const testing::Folder folder;
  const std::string big(200000, 'x');
  const std::string lines = "{\"text\":\"a\"}\r\n\n{\"text\":\"" + big + "\"}\n{\"text\":\"last\"}";
  const std::vector<std::string> expected = {"a", big, "last"};
  const std::string plain = folder.Write("a.jsonl", lines),
                    gzip = folder.Write("a.jsonl.gz", testing::Compressed(lines));
  EXPECT_EQ(TextsOf({plain}), expected);
  EXPECT_EQ(TextsOf({gzip}), expected);
  EXPECT_EQ(TextsOf({folder.Write("empty", ""), gzip, folder.Write("empty2", "\n")}), expected);
  EXPECT_EQ(TextsOf({}), std::vector<std::string>());
}

TEST(DocumentSource, SkipsWithoutLooking) {
  const testing::Folder folder;
  DocumentSource source({folder.Write("a", "not json\n{\"text\":\"b\"}\n")});
  EXPECT_TRUE(*source.Skip());
  TrainingDocument document;
  EXPECT_TRUE(*source.Next(&document));
  EXPECT_EQ(document.text, "b");
  EXPECT_FALSE(*source.Skip());
}

TEST(DocumentSource, SaysWhereADocumentIsThatIsWrong) {
  const testing::Folder folder;
  const std::string path = folder.Write("a", "{\"text\":\"a\"}\n\n{\"text\":\"b\"}\n");
  DocumentSource source({path});
  TrainingDocument document;
  ASSERT_TRUE(*source.Next(&document) && *source.Next(&document));
  const auto wrong = source.Located(Result<int>(Unsupported("no template")));
  EXPECT_EQ(wrong.status().code(), StatusCode::kUnsupported);
  EXPECT_EQ(wrong.status().message(), path + ":3: no template");
  EXPECT_EQ(*source.Located(Result<int>(7)), 7);
}

TEST(DocumentSource, ErrorsNameTheFile) {
  const testing::Folder folder;
  TrainingDocument document;
  const auto error = [&](const std::string& path) {
    DocumentSource source({path});
    std::string message;
    while (message.empty()) {
      const auto more = source.Next(&document);
      if (more.ok() && !*more) return std::string("none");
      message = more.status().message();
    }
    EXPECT_THAT(message, HasSubstr(path));
    return message;
  };
  EXPECT_THAT(error(folder.path() + "/absent"), HasSubstr("No such file"));
  EXPECT_THAT(error(folder.path()), HasSubstr("is a folder"));
  EXPECT_THAT(error(folder.Write("b", "{\"text\":\"\"}\n\n{}\n")), HasSubstr("b:3: expected"));
  const std::string bytes = testing::Compressed("{\"text\":\"a\"}\n{\"text\":\"b\"}\n");
  EXPECT_THAT(error(folder.Write("cut.gz", bytes.substr(0, bytes.size() - 9))), HasSubstr("gzip"));
}

}  // namespace
}  // namespace longspec
