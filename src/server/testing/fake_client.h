// SPDX-License-Identifier: Apache-2.0
//
// A client without sockets: sends requests to an App, waits for what comes, and goes away when told to.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/app.h"

namespace longspec::testing {

struct FakeReplyOptions {
  std::chrono::milliseconds before_begin = {};  // how long a head takes until it is on its way
  // Whoever writes is kept in Write from the first bytes on, until GoOn or GoAway. That is the engine's
  // thread: what waits meanwhile goes on waiting, however busy the machine is.
  bool hold = false;
};

class FakeReply final : public server::Reply {
 public:
  explicit FakeReply(FakeReplyOptions options = {})
      : before_begin_(options.before_begin), hold_(options.hold) {}

  void Send(server::HttpResponse response) override {
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(begun_ || ended_) << "a second response";
    response_ = std::move(response);
    ended_ = true;
    changed_.notify_all();
  }
  void Begin(server::HttpResponse head, Idle idle) override {
    std::this_thread::sleep_for(before_begin_);
    const std::lock_guard lock(mutex_);
    EXPECT_FALSE(begun_ || ended_) << "a second response";
    response_ = std::move(head);
    idle_seconds_ = idle.seconds;
    begun_ = true;
    changed_.notify_all();
  }
  bool Write(std::string bytes) override {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(begun_ && !ended_) << "written outside a response: " << bytes;
    if (gone_) return false;
    response_.body += bytes;
    changed_.notify_all();
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return gone_ || !hold_; })) << "held for ever";
    return !gone_;
  }
  void End() override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(begun_ && !ended_);
    ended_ = true;
    changed_.notify_all();
  }
  void OnGone(std::function<void()> on_gone) override {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      if (!gone_) {
        on_gone_ = std::move(on_gone);
        return;
      }
    }
    on_gone();
  }

  void GoAway() {
    std::function<void()> on_gone;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      if (!ended_) on_gone = std::exchange(on_gone_, nullptr);
      changed_.notify_all();
    }
    if (on_gone) on_gone();
  }
  void GoOn() {
    const std::lock_guard lock(mutex_);
    hold_ = false;
    changed_.notify_all();
  }

  // Waits until `done` is true of what has come so far.
  server::HttpResponse WaitUntil(const std::function<bool(const std::string& body, bool ended)>& done) {
    std::unique_lock lock(mutex_);
    const bool in_time = changed_.wait_for(lock, kPatience, [&] { return done(response_.body, ended_); });
    EXPECT_TRUE(in_time) << "no answer in time, but so far: " << response_.body;
    return response_;
  }
  server::HttpResponse Wait() {
    return WaitUntil([](const std::string&, bool ended) { return ended; });
  }
  // For the first bytes of events, and for the head before them: then the request has been taken.
  void WaitForBytes() {
    WaitUntil([](const std::string& body, bool) { return !body.empty(); });
  }
  void WaitForHead() {
    WaitUntil([this](const std::string&, bool ended) { return begun_ || ended; });
  }
  int idle_seconds() const { return idle_seconds_; }

 private:
  static constexpr std::chrono::seconds kPatience{60};
  const std::chrono::milliseconds before_begin_;
  std::mutex mutex_;
  std::condition_variable changed_;
  server::HttpResponse response_;
  std::function<void()> on_gone_;
  int idle_seconds_ = -1;
  bool hold_ = false, begun_ = false, ended_ = false, gone_ = false;
};

inline std::shared_ptr<FakeReply> SendTo(server::App& app, const std::string& method,
                                         const std::string& target, const std::string& body = "",
                                         server::Headers headers = {}, FakeReplyOptions options = {}) {
  const size_t question = std::min(target.find('?'), target.size());
  auto reply = std::make_shared<FakeReply>(options);
  app.Handle({.method = method,
              .path = target.substr(0, question),
              .query = target.substr(std::min(question + 1, target.size())),
              .headers = std::move(headers),
              .body = body,
              .client = "test"},
             reply);
  return reply;
}

inline nlohmann::json JsonOf(const server::HttpResponse& response) {
  auto json = nlohmann::json::parse(response.body, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << response.body;
  return json;
}

// The data of a stream's events: their JSON, and a string where it is none ("[DONE]").
inline std::vector<nlohmann::json> EventsOf(const std::string& body) {
  std::vector<nlohmann::json> events;
  for (size_t begin = 0; begin < body.size();) {
    const size_t end = body.find("\n\n", begin);
    EXPECT_NE(end, std::string::npos) << "an event that does not end: " << body.substr(begin);
    if (end == std::string::npos) break;
    std::string event = body.substr(begin, end - begin);
    if (event.starts_with("event: ")) event.erase(0, event.find('\n') + 1);
    EXPECT_TRUE(event.starts_with("data: ") || event.starts_with(":")) << event;
    if (event.starts_with("data: ")) {
      auto json = nlohmann::json::parse(event.substr(6), nullptr, false);
      events.push_back(json.is_discarded() ? nlohmann::json(event.substr(6)) : json);
    }
    begin = end + 2;
  }
  return events;
}

}  // namespace longspec::testing
