// SPDX-License-Identifier: Apache-2.0
//
// HTTP/1.1 over TCP or a Unix socket: one thread for all connections, a coroutine for each (Boost.Beast and
// Asio). Requests go to a handler whole; a connection is read from while it is answered, so that a client
// that goes away is noticed at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "longspec/status.h"
#include "server/exchange.h"

namespace longspec::http {

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, a name, or a Unix socket: "unix:/path" or "/path.sock"
  int port = 8080;                 // 0: any that is free
  size_t most_header_bytes = 16 << 10;
  size_t most_body_bytes = size_t{64} << 20;
  size_t most_buffered_bytes = size_t{512} << 20;  // bodies of all requests until they have been understood
  size_t most_unsent_bytes = size_t{8} << 20;      // of a stream; a client that lags more is given up
  int most_connections = 1024;
  int header_seconds = 30;   // a request's head must be whole by then, or the next one have begun
  int write_seconds = 3600;  // a client that takes nothing for so long is given up
  std::function<void(int)> on_connections = {};  // how many there are now
};

class HttpServer {
 public:
  // Listens from here on. `handler` is called on the server's thread.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, server::Handler handler);
  virtual ~HttpServer() = default;  // REQUIRES: nobody holds a Reply any more

  virtual std::string url() const = 0;  // "http://127.0.0.1:8080", "unix:/path"
  // No new connections; those that wait for a request are closed, the others after their response.
  virtual void StopAccepting() = 0;
  virtual int n_connections() const = 0;
  // Closes what is open and waits for the thread: the handler is not called any more, and what is written to
  // replies is lost.
  virtual void Stop() = 0;
};

}  // namespace longspec::http
