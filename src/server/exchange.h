// SPDX-License-Identifier: Apache-2.0
//
// What the server sees of HTTP: a request that has arrived, and the way back to who sent it. Behind Reply
// stand sockets (http/http_server.h) or a test.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace longspec::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // of the target, without the query
  std::string query;   // "action=save"; empty: none
  Headers headers;
  std::string body;
  // Counts the body among what all requests hold: let go of it together with the body. May be null.
  std::shared_ptr<const void> body_lease = nullptr;
  std::string client;  // address, for logs

  std::string_view Header(std::string_view name) const;  // names in any case; empty: not there
  std::string QueryValue(std::string_view name) const;   // as it is written; empty: not there
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json; charset=utf-8";
  Headers headers = {};
  std::string body = {};
};

// Thread-safe. Either Send is called, once, or Begin, then Write any number of times, then End.
class Reply {
 public:
  virtual ~Reply() = default;
  virtual void Send(HttpResponse response) = 0;

  // The head of a response whose length is not known yet. If nothing is written for so many seconds, `idle`
  // is sent; 0: it is not.
  struct Idle {
    std::string bytes;
    int seconds = 0;
  };
  virtual void Begin(HttpResponse head, Idle idle) = 0;
  // False: the client has gone, or took so little that it was given up. Never waits.
  virtual bool Write(std::string bytes) = 0;
  virtual void End() = 0;

  // Called once if the client goes before the response has ended; at once if it has gone. From any thread.
  virtual void OnGone(std::function<void()> on_gone) = 0;
};

// Takes requests; must return soon, and may answer later. Called from one thread.
using Handler = std::function<void(HttpRequest request, std::shared_ptr<Reply> reply)>;

// The words that HTTP has for a status, such as "Not Found".
std::string_view StatusText(int status);

}  // namespace longspec::server
