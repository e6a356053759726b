// SPDX-License-Identifier: Apache-2.0
//
// An app that serves a tiny random model, without sockets.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/testing/files.h"
#include "formats/tiny_model.h"
#include "server/app.h"
#include "server/testing/fake_client.h"

namespace longspec::testing {

class ServedApp {
 public:
  explicit ServedApp(const std::string& name, TinyModelOptions model = {}, server::AppOptions serving = {}) {
    model.context_length = 1024;
    ModelOptions options;
    options.path = folder_.File(name + ".gguf");
    EXPECT_TRUE(WriteTinyModel(model, options.path).ok());
    options.threads = 1;
    options.cache_ram = 64;
    options.calibration_cache = false;
    auto engine = Engine::Load(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    serving.scheduler.cache_bytes = 64 << 20;
    app_ = std::make_unique<server::App>(std::move(serving), &log_);
    EXPECT_TRUE(app_->SetEngine(std::move(*engine)).ok());
  }

  server::HttpResponse Send(const std::string& target, const std::string& body,
                            server::Headers headers = {}) {
    return SendTo(*app_, "POST", target, body, std::move(headers))->Wait();
  }
  nlohmann::json Ok(const std::string& target, const nlohmann::json& body) {
    const server::HttpResponse response = Send(target, body.dump());
    EXPECT_EQ(response.status, 200) << target << " " << body << ": " << response.body;
    return JsonOf(response);
  }
  // The message of a refusal.
  std::string Refusal(const std::string& target, const nlohmann::json& body) {
    const server::HttpResponse response = Send(target, body.dump());
    EXPECT_EQ(response.status, 400) << target << " " << body << ": " << response.body;
    return JsonOf(response)["error"].value("message", "");
  }

 private:
  const Folder folder_;
  server::AccessLog log_{server::LogForm::kJson, [](const std::string&) {}};
  std::unique_ptr<server::App> app_;
};

}  // namespace longspec::testing
