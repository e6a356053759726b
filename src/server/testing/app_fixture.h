// SPDX-License-Identifier: Apache-2.0
//
// A test of the server without sockets, over a tiny random model.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/testing/files.h"
#include "base/testing/soon.h"
#include "formats/tiny_model.h"
#include "server/app.h"
#include "server/testing/fake_client.h"

namespace longspec::testing {

class AppTest : public ::testing::Test {
 protected:
  using json = nlohmann::json;
  using App = server::App;
  using AppOptions = server::AppOptions;
  using Headers = server::Headers;
  using HttpResponse = server::HttpResponse;

  static void SetUpTestSuite() {
    TinyModelOptions options;
    options.context_length = 4096;  // that of tools has to fit
    ASSERT_TRUE(WriteTinyModel(options, Path()).ok());
  }
  static std::string Path() {
    static const Folder folder;
    return folder.File("app_test.gguf");
  }

  static std::unique_ptr<Engine> Load(ModelOptions options = {.cache_ram = 64}) {
    options.path = Path();
    options.threads = 1;
    options.calibration_cache = false;
    auto engine = Engine::Load(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(*engine);
  }

  // An app that serves.
  App& Serve(AppOptions options = {}) {
    Start(std::move(options));
    const Status ready = app_->SetEngine(Load());
    EXPECT_TRUE(ready.ok()) << ready.message();
    return *app_;
  }
  // One that has no engine yet.
  App& Start(AppOptions options = {}) {
    options.scheduler.cache_bytes = 64 << 20;
    app_ = std::make_unique<App>(std::move(options), &log_);
    return *app_;
  }

  HttpResponse Get(const std::string& target, Headers headers = {}) {
    return SendTo(*app_, "GET", target, "", std::move(headers))->Wait();
  }
  HttpResponse Post(const std::string& target, const json& body, Headers headers = {}) {
    return SendTo(*app_, "POST", target, body.dump(), std::move(headers))->Wait();
  }
  json Ok(const std::string& target, const json& body) {
    const HttpResponse response = Post(target, body);
    EXPECT_EQ(response.status, 200) << response.body;
    return JsonOf(response);
  }
  json Error(const HttpResponse& response, int status) {
    EXPECT_EQ(response.status, status) << response.body;
    json error = JsonOf(response)["error"];
    EXPECT_EQ(error["code"], status);
    EXPECT_TRUE(error["message"].is_string());
    return error;
  }

  static json Chat(const std::string& text, json fields = json::object()) {
    json body = {{"messages", json::array({{{"role", "user"}, {"content", text}}})},
                 {"max_tokens", 12},
                 {"temperature", 0.8},
                 {"seed", 7}};
    body.update(fields);
    return body;
  }
  static json Text(const std::string& prompt, json fields = json::object()) {
    json body = {
        {"prompt", prompt}, {"max_tokens", 12}, {"temperature", 0.8}, {"seed", 7}, {"ignore_eos", true}};
    body.update(fields);
    return body;
  }
  // Waits until nobody's answers are to come.
  void WaitForRest() const {
    ExpectSoon([&] { return app_->n_unended() == 0; }, "answers are to come");
  }
  // The same of what is counted after a round.
  void ExpectSoonZero(const std::string& gauge) const {
    ExpectSoon([&] { return app_->metrics().Value(gauge) == 0; }, gauge);
  }

  std::mutex log_mutex_;
  std::vector<std::string> lines_;
  server::AccessLog log_{server::LogForm::kJson, [this](const std::string& line) {
                           const std::lock_guard lock(log_mutex_);
                           lines_.push_back(line);
                         }};
  std::unique_ptr<App> app_;
};

}  // namespace longspec::testing
