// SPDX-License-Identifier: Apache-2.0
//
// Slots: which one an answer is in, and what can be done with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/files.h"
#include "server/testing/app_fixture.h"

namespace longspec::server {
namespace {

using longspec::testing::AppTest;
using longspec::testing::EventsOf;
using longspec::testing::Folder;
using longspec::testing::JsonOf;
using longspec::testing::SendTo;
using nlohmann::json;

class SlotsTest : public AppTest {};

TEST_F(SlotsTest, SlotsAreSavedRestoredAndErased) {
  const Folder folder;
  Serve({.scheduler = {.parallel = 2}, .slot_save_path = folder.path()});
  const json body = Text("the sea and the sky and the land", {{"max_tokens", 8}});
  const json first = Ok("/v1/completions", body);
  const json slots = JsonOf(Get("/slots"));
  ASSERT_EQ(slots.size(), 2U);
  EXPECT_EQ(slots[0]["is_processing"], false);
  EXPECT_EQ(slots[0]["n_decoded"], 8);
  const json saved = Ok("/slots/0?action=save", {{"filename", "a.bin"}});
  EXPECT_EQ(saved["n_saved"], slots[0]["n_prompt_tokens"]);
  EXPECT_GT(saved["n_written"], 0);
  EXPECT_EQ(Ok("/slots/0?action=erase", json::object())["n_erased"], saved["n_saved"]);
  EXPECT_EQ(Ok("/v1/completions", body)["timings"]["cache_n"], 0);
  EXPECT_GT(Ok("/v1/completions", body)["timings"]["cache_n"], 0);
  // In another server.
  Serve({.scheduler = {.parallel = 2}, .slot_save_path = folder.path()});
  EXPECT_EQ(Ok("/slots/1?action=restore", {{"filename", "a.bin"}})["n_restored"], saved["n_saved"]);
  const json again = Ok("/v1/completions", body);
  EXPECT_EQ(again["choices"], first["choices"]);
  EXPECT_EQ(again["timings"]["prompt_n"], 1);
  for (const char* name : {"../a.bin", "a/b", "", ".hidden", "/etc/passwd"})
    Error(Post("/slots/0?action=save", {{"filename", name}}), 400);
  Error(Post("/slots/0?action=restore", {{"filename", "none.bin"}}), 404);
  std::filesystem::resize_file(folder.File("a.bin"), 100);
  Error(Post("/slots/0?action=restore", {{"filename", "a.bin"}}), 400);
  Error(Post("/slots/9?action=erase", json::object()), 400);
  Error(Post("/slots/0?action=burn", json::object()), 400);
  Serve();
  Error(Post("/slots/0?action=save", {{"filename", "a.bin"}}), 501);
}

TEST_F(SlotsTest, AnAnswerSaysInWhichSlotItIs) {
  const Folder folder;
  Serve({.scheduler = {.parallel = 3}, .slots = false, .slot_save_path = folder.path()});
  const auto ask = [&](const std::string& prompt, json fields) {
    fields["n_predict"] = 4;
    return Ok("/completion", Text(prompt, std::move(fields)));
  };
  EXPECT_EQ(ask("the sea", {{"id_slot", 2}})["id_slot"], 2);
  EXPECT_EQ(ask("the land", {{"id_slot", 1}})["id_slot"], 1);
  EXPECT_EQ(ask("a sky", {{"id_slot", 3}})["id_slot"], 0);     // round and round
  EXPECT_EQ(ask("the sea", {{"id_slot", -1}})["id_slot"], 2);  // the one that begins so
  EXPECT_EQ(ask("the sea", json::object())["id_slot"], 2);
  EXPECT_EQ(ask("the sea", {{"slot_id", 1}})["id_slot"], 1);
  Error(Post("/completion", Text("x", {{"id_slot", -2}})), 400);
  Error(Post("/completion", Text("x", {{"id_slot", "a"}})), 400);
  // Each event of a stream says so, too, and a chat's slot can be picked as well.
  const HttpResponse stream = Post("/completion", Text("the land", {{"stream", true}, {"id_slot", 2}}));
  for (const json& event : EventsOf(stream.body)) EXPECT_EQ(event["id_slot"], 2);
  // Whichever API asks.
  const auto n_in = [&](int slot) {
    return Ok("/slots/" + std::to_string(slot) + "?action=erase", json::object())["n_erased"].get<int>();
  };
  for (const int slot : {0, 2, 1}) {
    for (const bool responses : {false, true}) {
      for (int i = 0; i < 3; ++i) n_in(i);
      json body = Chat("a tree of the land", {{"id_slot", slot}});
      if (responses) {
        body["input"] = body["messages"];
        body["max_output_tokens"] = body["max_tokens"];
        body.erase("messages");
        body.erase("max_tokens");
      }
      Ok(responses ? "/v1/responses" : "/v1/messages", body);
      for (int i = 0; i < 3; ++i) EXPECT_EQ(n_in(i) > 0, i == slot) << slot << responses;
    }
  }
  // The first of several answers gets it.
  EXPECT_EQ(ask("the sea", {{"n", 2}, {"id_slot", 1}})[0]["id_slot"], 1);
  // --no-slots leaves these routes.
  Error(Get("/slots"), 501);
  Ok("/v1/chat/completions", Chat("a story", {{"id_slot", 0}}));
  const json saved = Ok("/slots/0?action=save", {{"filename", "chat.bin"}});
  EXPECT_GT(saved["n_saved"], 12);
  EXPECT_EQ(Ok("/slots/0?action=erase", json::object())["n_erased"], saved["n_saved"]);
  EXPECT_EQ(Ok("/slots/2?action=restore", {{"filename", "chat.bin"}})["n_restored"], saved["n_saved"]);
  EXPECT_EQ(Ok("/v1/chat/completions", Chat("a story"))["timings"]["prompt_n"], 1);
}

// Of two clients that name the same slot neither waits for the other.
TEST_F(SlotsTest, ASlotMayHaveSeveralAnswers) {
  Serve({.scheduler = {.parallel = 2}});
  const json endless = Text("the sea", {{"n_predict", 900}, {"stream", true}, {"id_slot", 1}});
  const auto writing = SendTo(*app_, "POST", "/completion", endless.dump(), {}, {.hold = true});
  writing->WaitForBytes();
  writing->GoOn();
  EXPECT_EQ(Ok("/completion", Text("the land", {{"n_predict", 3}, {"id_slot", 1}}))["id_slot"], 1);
  EXPECT_EQ(JsonOf(Get("/slots"))[1]["is_processing"], true);
  writing->GoAway();
  WaitForRest();
  EXPECT_EQ(JsonOf(Get("/slots"))[1]["is_processing"], false);
}

TEST_F(SlotsTest, AFullContextIsSaid) {
  Start();
  auto engine = Engine::Load({.path = Path(), .ctx_size = 64, .threads = 1, .calibration_cache = false});
  ASSERT_TRUE(app_->SetEngine(std::move(*engine)).ok());
  const json whole = Ok("/completion", Text("the sea", {{"n_predict", -1}, {"max_tokens", -1}}));
  EXPECT_EQ(whole["truncated"], true);
  EXPECT_EQ(whole["stop_type"], "limit");
  const int n_prompt = whole["tokens_evaluated"], n = whole["tokens_predicted"];
  EXPECT_EQ(n_prompt + n, 64);
  // Also where the request's limit is met at once with it, and not one token before.
  const auto with = [&](int n_predict) {
    return Ok("/completion", Text("the sea", {{"n_predict", n_predict}}))["truncated"];
  };
  EXPECT_EQ(with(n), true);
  EXPECT_EQ(with(n - 1), false);
}

}  // namespace
}  // namespace longspec::server
