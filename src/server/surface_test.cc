// SPDX-License-Identifier: Apache-2.0
//
// What the server lets others see: pages of elsewhere, names of files, lines of the log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/files.h"
#include "server/file_names.h"
#include "server/origins.h"
#include "server/testing/app_fixture.h"

namespace longspec::server {
namespace {

using longspec::testing::AppTest;
using longspec::testing::Folder;
using longspec::testing::JsonOf;
using longspec::testing::SendTo;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class SurfaceTest : public AppTest {};

std::string HeaderOf(const HttpResponse& response, const std::string& name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

TEST_F(SurfaceTest, PagesOfElsewhereAreRefusedUnlessTheyAreNamed) {
  const auto of = [](const std::string& origin) {
    return Headers{{"Origin", origin}, {"Host", "127.0.0.1:8080"}};
  };
  const json body = Text("the sea", {{"max_tokens", 1}});
  Serve({.api_keys = {"one"}});
  for (const std::string origin : {"https://evil.example", "null", "http://127.0.0.1.evil.example"}) {
    // Before keys, and on routes that need none.
    EXPECT_EQ(Error(Post("/v1/completions", body, of(origin)), 403)["type"], "permission_error") << origin;
    const HttpResponse health = Get("/health", of(origin));
    EXPECT_THAT(std::string(Error(health, 403)["message"]), HasSubstr("--cors-origins"));
    EXPECT_EQ(HeaderOf(health, "Access-Control-Allow-Origin"), "");
    const HttpResponse asked = SendTo(*app_, "OPTIONS", "/v1/completions", "", of(origin))->Wait();
    EXPECT_EQ(asked.status, 403);
    EXPECT_EQ(HeaderOf(asked, "Access-Control-Allow-Methods"), "");
  }
  EXPECT_EQ(Get("/health").status, 200);  // no page at all
  for (const std::string origin : {"http://localhost:3000", "https://127.0.0.1", "http://[::1]:5173"}) {
    const HttpResponse health = Get("/health", of(origin));
    EXPECT_EQ(health.status, 200) << origin;
    EXPECT_EQ(HeaderOf(health, "Access-Control-Allow-Origin"), origin);
    EXPECT_EQ(HeaderOf(health, "Access-Control-Allow-Credentials"), "true");
    EXPECT_EQ(HeaderOf(health, "Vary"), "Origin");
    // Its key is asked for all the same.
    Error(Post("/v1/completions", body, of(origin)), 401);
  }
  Serve({.origins = *Origins::Parse("https://a.example")});
  EXPECT_EQ(Post("/v1/completions", body, of("https://a.example")).status, 200);
  Error(Post("/v1/completions", body, of("https://b.example")), 403);
  Error(Post("/v1/completions", body, of("http://localhost:3000")), 403);
  EXPECT_EQ(Post("/v1/completions", body, of("http://127.0.0.1:8080")).status, 200);  // the server's own
  Serve({.origins = *Origins::Parse("*")});
  EXPECT_EQ(Post("/v1/completions", body, of("https://b.example")).status, 200);
}

TEST_F(SurfaceTest, ABrowserThatAsksIsToldWhatAPageMay) {
  Start({.origins = *Origins::Parse("https://a.example")});
  const auto ask = [&](Headers more) {
    more.emplace_back("Origin", "https://a.example");
    more.emplace_back("Access-Control-Request-Method", "POST");
    return SendTo(*app_, "OPTIONS", "/v1/chat/completions", "", std::move(more))->Wait();
  };
  const HttpResponse plain = ask({});
  EXPECT_EQ(plain.status, 200);
  EXPECT_EQ(HeaderOf(plain, "Access-Control-Allow-Origin"), "https://a.example");
  EXPECT_EQ(HeaderOf(plain, "Access-Control-Allow-Methods"), "GET, POST");
  EXPECT_EQ(HeaderOf(plain, "Access-Control-Allow-Headers"), "*");
  EXPECT_EQ(HeaderOf(plain, "Access-Control-Allow-Credentials"), "true");
  EXPECT_EQ(HeaderOf(plain, "Access-Control-Allow-Private-Network"), "");
  const HttpResponse named = ask({{"Access-Control-Request-Headers", "authorization,content-type"},
                                  {"Access-Control-Request-Private-Network", "true"}});
  EXPECT_EQ(HeaderOf(named, "Access-Control-Allow-Headers"), "authorization,content-type");
  EXPECT_EQ(HeaderOf(named, "Access-Control-Allow-Private-Network"), "true");
  Start({.origins = *Origins::Parse("https://a.example"), .credentials = false});
  EXPECT_EQ(HeaderOf(ask({}), "Access-Control-Allow-Credentials"), "");
}

TEST_F(SurfaceTest, ClientsSeeNoFolders) {
  const Folder folder;
  const std::string path = folder.File("refusing.gguf");
  TinyModelOptions refusing;
  refusing.chat_template = "{{ raise_exception('roles must take turns') }}";
  ASSERT_TRUE(WriteTinyModel(refusing, path).ok());
  Start({.slot_save_path = folder.path()});
  auto engine = Engine::Load({.path = path, .threads = 1, .calibration_cache = false});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  ASSERT_TRUE(app_->SetEngine(std::move(*engine)).ok());
  const json chat = Error(Post("/v1/chat/completions", Chat("hi")), 400);
  EXPECT_THAT(std::string(chat["message"]), HasSubstr("roles must take turns"));
  std::vector<std::string> bodies = {
      chat["message"], Get("/props").body, Post("/slots/0?action=restore", {{"filename", "none.bin"}}).body,
      Post("/apply-template", Chat("hi")).body, Post("/v1/messages", Chat("hi")).body};
  for (const std::string& body : bodies) EXPECT_THAT(body, Not(HasSubstr(folder.path()))) << body;
  EXPECT_THAT(bodies[1], HasSubstr("\"model_path\":\"refusing.gguf\""));
  EXPECT_THAT(bodies[2], HasSubstr("none.bin"));
  // Who runs the server is told.
  {
    const std::lock_guard lock(log_mutex_);
    EXPECT_THAT(lines_[0], HasSubstr(path));
  }
}

TEST(FileNames, OnlyFoldersGo) {
  const FileNames names({"/srv/models/a.gguf", "/var/slots/", "b.gguf", "./c.gguf", "/d.gguf", ""});
  EXPECT_EQ(names.WithoutFolders("/srv/models/a.gguf: bad"), "a.gguf: bad");
  EXPECT_EQ(names.WithoutFolders("/srv/models//a.gguf: bad"), "a.gguf: bad");
  EXPECT_EQ(names.WithoutFolders("/srv/models/priors/p.bin and /var/slots/x"), "priors/p.bin and x");
  EXPECT_EQ(names.WithoutFolders("../c.gguf b.gguf /d.gguf 1/2"), "../c.gguf b.gguf /d.gguf 1/2");
}

TEST(Origins, ListsAreRead) {
  const auto may = [](const char* list, const char* origin, const char* host, bool names_are_own = false) {
    return Origins::Parse(list)->MayCall(origin, host, names_are_own);
  };
  EXPECT_TRUE(may("https://a.example, https://b.example:8/", "https://B.example:8", "x"));
  EXPECT_FALSE(may("https://a.example", "http://a.example", "x"));
  EXPECT_FALSE(may("https://a.example", "https://a.example:8", "x"));
  EXPECT_TRUE(may("null", "null", "x"));
  EXPECT_FALSE(may("localhost", "null", "null"));
  EXPECT_TRUE(may("localhost", "http://app.localhost:9", "x"));
  EXPECT_FALSE(may("localhost", "http://notlocalhost:9", "x"));
  EXPECT_TRUE(may("localhost", "vscode-webview://1a2b", "x"));
  EXPECT_FALSE(may("localhost", "chrome-extension://1a2b", "x"));
  // Its own pages: by address always, by name where names are its own.
  EXPECT_TRUE(may("localhost", "http://10.0.0.2:8080", "10.0.0.2:8080"));
  EXPECT_FALSE(may("localhost", "http://10.0.0.2:8081", "10.0.0.2:8080"));
  EXPECT_FALSE(may("localhost", "http://evil.example:8080", "evil.example:8080"));
  EXPECT_TRUE(may("localhost", "http://llm.lan:8080", "llm.lan:8080", true));
  for (const char* bad : {"a.example", "https://a.example/path", "https://", "://a"})
    EXPECT_THAT(Origins::Parse(bad).status().message(), HasSubstr(std::string("\"") + bad)) << bad;
  EXPECT_TRUE(IsThisMachine("127.0.0.1") && IsThisMachine("::1") && IsThisMachine("LOCALHOST"));
  EXPECT_FALSE(IsThisMachine("0.0.0.0") || IsThisMachine("unix:/run/x.sock") ||
               IsThisMachine("127.evil.example"));
}

TEST_F(SurfaceTest, OneLineInTheLogForEachRequest) {
  Serve();
  Ok("/v1/completions", Text("the sea", {{"max_tokens", 5}}));
  Get("/v1/models");
  // But for what is asked every few seconds.
  for (const char* path : {"/health", "/v1/health", "/metrics", "/slots"}) EXPECT_EQ(Get(path).status, 200);
  app_->BeginDrain();
  Error(Get("/health"), 503);
  std::vector<std::string> lines;
  {
    const std::lock_guard lock(log_mutex_);
    lines = lines_;
  }
  ASSERT_EQ(lines.size(), 2U);
  const json line = json::parse(lines[0]);
  EXPECT_EQ(line["path"], "/v1/completions");
  EXPECT_EQ(line["status"], 200);
  EXPECT_EQ(line["tokens"], 5);
  EXPECT_EQ(line["finish"], "length");
  EXPECT_TRUE(line.contains("first_token_ms"));
  // Where that fails, and where all is asked for, it is said.
  Serve({.api_keys = {"one"}});
  Error(Get("/metrics"), 401);
  Serve({.log_polls = true});
  Get("/health");
  const std::lock_guard lock(log_mutex_);
  EXPECT_EQ(lines_.size(), 4U);
}

}  // namespace
}  // namespace longspec::server
