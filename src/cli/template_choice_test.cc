// SPDX-License-Identifier: Apache-2.0
#include "cli/template_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace longspec::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class TemplateFile {
 public:
  explicit TemplateFile(const std::string& text) { std::ofstream(path()) << text; }
  ~TemplateFile() { std::filesystem::remove(path()); }
  static std::string path() { return ::testing::TempDir() + "/longspec_template_choice_test.jinja"; }
};

TEST(TemplateChoice, IsANameATextOrAFile) {
  EXPECT_EQ(*ReadTemplateChoice({}), "");
  EXPECT_EQ(*ReadTemplateChoice({.name_or_source = "{{ messages }}"}), "{{ messages }}");
  EXPECT_THAT(*ReadTemplateChoice({.name_or_source = "chatml"}), HasSubstr("<|im_start|>"));
  const TemplateFile file("{{ messages[0].content }}\n");
  EXPECT_EQ(*ReadTemplateChoice({.file = TemplateFile::path()}), "{{ messages[0].content }}\n");
}

TEST(TemplateChoice, WhatIsWrongIsSaidInALine) {
  const auto error = [](const TemplateChoice& choice) {
    const std::string message = ReadTemplateChoice(choice).status().message();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    return message;
  };
  EXPECT_THAT(error({.name_or_source = "chatlm"}),
              StartsWith("--chat-template: chat template 'chatlm': it is "));
  EXPECT_THAT(error({.name_or_source = "{% for m in messages %}"}),
              StartsWith("--chat-template: chat template, line 1: "));
  EXPECT_EQ(error({.name_or_source = "chatml", .file = "x"}),
            "--chat-template and --chat-template-file: give one of them");
  EXPECT_EQ(error({.file = "/no/such.jinja"}),
            "--chat-template-file: cannot read /no/such.jinja: No such file or directory");
  const TemplateFile file("a\n{{ b | nofilter }}");
  EXPECT_THAT(error({.file = TemplateFile::path()}),
              StartsWith("--chat-template-file " + TemplateFile::path() + ": chat template, line 2: "));
}

}  // namespace
}  // namespace longspec::cli
