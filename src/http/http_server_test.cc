// SPDX-License-Identifier: Apache-2.0
//
// What clients may do to sockets: be slow, silent, greedy, early, gone. Limits are small here, so that they
// are met.
#include "http/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <thread>

#include "base/testing/files.h"
#include "base/testing/soon.h"
#include "http/http_date.h"

namespace longspec::http {
namespace {

using longspec::testing::ExpectSoon;
using server::HttpRequest;
using server::Reply;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kPatienceMs = 20000;

class Client {
 public:
  explicit Client(const HttpServer& server, int receive_buffer = 0) {
    const std::string url = server.url();
    if (url.starts_with("unix:")) {
      fd_ = socket(AF_UNIX, SOCK_STREAM, 0);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::strncpy(address.sun_path, url.c_str() + 5, sizeof(address.sun_path) - 1);
      EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
      return;
    }
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { Close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Send(const std::string& text) const {
    EXPECT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // Until it has come, or the connection ends: what came.
  std::string ReadUntil(const std::string& text) const {
    std::string got;
    char buffer[4096];
    while (text.empty() || got.find(text) == std::string::npos) {
      pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
      if (poll(&waiting, 1, kPatienceMs) <= 0) {
        ADD_FAILURE() << "nothing more came after: " << got;
        break;
      }
      const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
      if (n <= 0) break;
      got.append(buffer, static_cast<size_t>(n));
    }
    return got;
  }
  std::string ReadAll() const { return ReadUntil(""); }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

class HttpServerTest : public ::testing::Test {
 protected:
  HttpServerTest() { options_.port = 0; }
  ~HttpServerTest() override {
    if (server_ != nullptr) server_->Stop();
    replies_.clear();
  }

  HttpServer& Start() {
    auto started = HttpServer::Start(options_, [this](HttpRequest request, std::shared_ptr<Reply> reply) {
      if (request.path == "/hold") {
        reply->OnGone([this] { ++n_gone_; });
        const std::lock_guard lock(mutex_);
        replies_.push_back(std::move(reply));
        changed_.notify_all();
        return;
      }
      if (request.path == "/keep") {
        const std::lock_guard lock(mutex_);
        kept_lease_ = request.body_lease;
      }
      reply->Send({.content_type = "text/plain",
                   .headers = {{"X-Echo", std::string(request.Header("x-ECHO"))},
                               {"X-Host", std::string(request.Header("host"))}},
                   .body = request.method + " " + request.path + "?" + request.query + " " +
                           std::to_string(request.body.size())});
    });
    EXPECT_TRUE(started.ok()) << started.status().message();
    server_ = std::move(*started);
    return *server_;
  }

  // Of the request to /hold that came as the n-th.
  std::shared_ptr<Reply> Held(size_t n = 0) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::milliseconds(kPatienceMs), [&] { return replies_.size() > n; }));
    return replies_.at(n);
  }

  HttpOptions options_;
  std::unique_ptr<HttpServer> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Reply>> replies_;
  std::atomic<int> n_gone_{0};
  std::shared_ptr<const void> kept_lease_;  // of a body of a request to /keep
};

constexpr const char* kHold = "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n";

TEST_F(HttpServerTest, ARequestAndItsResponse) {
  const Client client(Start());
  client.Send(
      "POST /a/b?c=d HTTP/1.1\r\nHost: x\r\nx-echo: hi\r\nContent-Length: 5\r\nConnection: "
      "close\r\n\r\n12345");
  const std::string answer = client.ReadAll();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Echo: hi\r\n"));
  EXPECT_THAT(answer, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(answer, ::testing::EndsWith("\r\n\r\nPOST /a/b?c=d 5"));
}

// As requests to a proxy have it, and as a proxy may send them on.
TEST_F(HttpServerTest, ATargetMayNameItsHost) {
  Start();
  const std::pair<const char*, const char*> targets[] = {{"http://there:80/a/b?c=d", "GET /a/b?c=d 0"},
                                                         {"HTTP://there:80/a", "GET /a? 0"},
                                                         {"https://there:80", "GET /? 0"},
                                                         {"http://there:80?c=d", "GET /?c=d 0"},
                                                         {"/a?b=http://c/", "GET /a?b=http://c/ 0"}};
  for (const auto& [target, answer] : targets) {
    const Client client(*server_);
    client.Send("GET " + std::string(target) + " HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    const std::string got = client.ReadAll();
    EXPECT_THAT(got, ::testing::EndsWith(answer));
    EXPECT_THAT(got, HasSubstr(target[0] == '/' ? "X-Host: here\r\n" : "X-Host: there:80\r\n"));
  }
}

TEST_F(HttpServerTest, BlankLinesBeforeARequestAreNone) {
  const Client client(Start());
  client.Send("\r\n");
  client.Send("\r\n\nPOST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("POST /a? 2"), HasSubstr("200 OK"));
  client.Send("GET /b HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("GET /b? 0"), HasSubstr("200 OK"));
}

// What it says is not answered, and nothing behind it is read as a request.
TEST_F(HttpServerTest, AHeadThatIsNotByTheBook) {
  Start();
  const std::string get = "GET /a HTTP/1.1\r\n", post = "POST /a HTTP/1.1\r\nHost: x\r\n";
  const std::string next = "GET /next HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::pair<std::string, const char*> heads[] = {
      {get + "\r\n", "400"},
      {get + "Host: a\r\nhost: b\r\n\r\n", "400"},
      {"GET a HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET * HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"GET http:///a HTTP/1.1\r\nHost: x\r\n\r\n", "400"},
      {"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n", "400"},
      {post + "Transfer-Encoding: gzip\r\n\r\n", "501"},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"},
      {post + "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\na", "501"},
      {post + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\na", "400"},
      {"POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"}};
  for (const auto& [head, status] : heads) {
    const Client client(*server_);
    client.Send(head + next);
    const std::string answer = client.ReadAll();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 " + std::string(status))) << head;
    EXPECT_THAT(answer, ::testing::Not(HasSubstr("/next"))) << head;
  }
  const Client old(*server_), all(*server_);
  old.Send("GET /a HTTP/1.0\r\n\r\n");
  EXPECT_THAT(old.ReadAll(), StartsWith("HTTP/1.1 200 "));
  all.Send("OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(all.ReadAll(), ::testing::EndsWith("OPTIONS *? 0"));
}

TEST_F(HttpServerTest, ResponsesHaveADate) {
  EXPECT_EQ(HttpDate(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(HttpDate(1709210096), "Thu, 29 Feb 2024 12:34:56 GMT");
  const Client client(Start());
  client.Send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("GET /x"), HasSubstr(" GMT\r\n"));
}

TEST_F(HttpServerTest, AStreamGoesOutAsItIsWritten) {
  const Client client(Start());
  client.Send(kHold);
  const auto reply = Held();
  reply->Begin({.content_type = "text/event-stream"}, {});
  EXPECT_TRUE(reply->Write("one"));
  EXPECT_THAT(client.ReadUntil("one"), HasSubstr("Transfer-Encoding: chunked\r\n\r\n3\r\none"));
  EXPECT_TRUE(reply->Write("two"));
  EXPECT_THAT(client.ReadUntil("two"), HasSubstr("3\r\ntwo"));
  // A request that comes too early waits for its turn.
  client.Send("GET /next HTTP/1.1\r\nHost: x\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  reply->End();
  EXPECT_THAT(client.ReadUntil("GET /next"), HasSubstr("0\r\n\r\nHTTP/1.1 200 OK"));
  EXPECT_EQ(n_gone_, 0);
}

TEST_F(HttpServerTest, ASilentStreamIsKeptAlive) {
  const Client client(Start());
  client.Send(kHold);
  Held()->Begin({}, {.bytes = ": ping\n\n", .seconds = 1});
  EXPECT_THAT(client.ReadUntil(": ping"), HasSubstr(": ping"));
}

TEST_F(HttpServerTest, WhoGoesAwayIsNoticed) {
  Client client(Start());
  client.Send(kHold);
  const auto reply = Held();
  EXPECT_EQ(n_gone_, 0);
  client.Close();
  ExpectSoon([&] { return n_gone_ == 1; }, "a client that is known to be gone");
  reply->Begin({}, {});
  EXPECT_FALSE(reply->Write("too late"));
  int again = 0;
  reply->OnGone([&again] { ++again; });
  EXPECT_EQ(again, 1);
  ExpectSoon([&] { return server_->n_connections() == 0; }, "no connections");
}

TEST_F(HttpServerTest, ASlowClientIsGivenUpAndTheOthersAreNot) {
  options_.most_unsent_bytes = 1 << 20;
  Start();
  const Client slow(*server_, 4096), other(*server_);
  slow.Send(kHold);
  const auto reply = Held();
  reply->Begin({}, {});
  const std::string piece(64 << 10, 'x');
  bool taken = true;
  for (int i = 0; i < 2000 && taken; ++i) {
    taken = reply->Write(piece);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_FALSE(taken);
  ExpectSoon([&] { return n_gone_ == 1; }, "a client that is known to be gone");
  other.Send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(other.ReadUntil("GET /x"), HasSubstr("200 OK"));
}

TEST_F(HttpServerTest, AClientThatTakesNothingIsGivenUp) {
  options_.write_seconds = 1;
  Start();
  const Client client(*server_, 4096);
  client.Send(kHold);
  const auto reply = Held();
  reply->Send({.body = std::string(64 << 20, 'x')});
  ExpectSoon([&] { return server_->n_connections() == 0; }, "no connections");
}

TEST_F(HttpServerTest, AHeadThatNeverEndsIsNotWaitedFor) {
  options_.header_seconds = 1;
  Start();
  const Client dribbling(*server_), silent(*server_);
  dribbling.Send("GET /x HT");
  EXPECT_EQ(dribbling.ReadAll(), "");
  EXPECT_EQ(silent.ReadAll(), "");
  ExpectSoon([&] { return server_->n_connections() == 0; }, "no connections");
}

TEST_F(HttpServerTest, ABodyThatNeverEndsIsNotWaitedFor) {
  options_.header_seconds = 1;
  // However long it is said to be, and however quickly it began.
  const std::string large = "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 60000000\r\n\r\n";
  for (const std::string& begun :
       {std::string("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf"), large + "half",
        large + std::string(1'000'000, 'x')}) {
    const Client client(Start());
    client.Send(begun);
    EXPECT_EQ(client.ReadAll(), "");
  }
}

// Headers and bodies that are too long are refused by their status, a body that grows in chunks as well.
TEST_F(HttpServerTest, Limits) {
  options_.most_header_bytes = 1000;
  options_.most_body_bytes = 1000;
  Start();
  const Client header(*server_), body(*server_), grown(*server_);
  header.Send("GET /x HTTP/1.1\r\nX: " + std::string(2000, 'x') + "\r\n\r\n");
  EXPECT_THAT(header.ReadAll(), StartsWith("HTTP/1.1 431 "));
  body.Send("POST /x HTTP/1.1\r\nContent-Length: 1001\r\n\r\n" + std::string(1001, 'x'));
  EXPECT_THAT(body.ReadAll(), StartsWith("HTTP/1.1 413 "));
  grown.Send("POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" +
             std::string(1001, 'x') + "\r\n0\r\n\r\n");
  EXPECT_THAT(grown.ReadAll(), StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, BodiesOfAllTogetherAreLimited) {
  options_.most_buffered_bytes = 1500;
  Start();
  Client first(*server_);
  const Client second(*server_);
  first.Send("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + std::string(999, 'x'));
  // It has been read when the next one is refused; until then it may not have been.
  std::string answer;
  for (int i = 0; i < 100 && !answer.starts_with("HTTP/1.1 503 "); ++i) {
    const Client next(*server_);
    next.Send("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n" +
              std::string(1000, 'x'));
    answer = next.ReadAll();
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 503 "));
  first.Send("x");
  EXPECT_THAT(first.ReadUntil("POST /x"), HasSubstr("200 OK"));
  second.Send("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n" + std::string(1000, 'x'));
  EXPECT_THAT(second.ReadUntil("POST /x"), HasSubstr("200 OK"));
}

TEST_F(HttpServerTest, ABodyCountsUntilItIsLetGo) {
  options_.most_buffered_bytes = 1500;
  Start();
  const Client first(*server_);
  const std::string rest =
      " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\nConnection: close\r\n\r\n" + std::string(1000, 'x');
  first.Send("POST /keep" + rest);
  EXPECT_THAT(first.ReadAll(), HasSubstr("200 OK"));
  const auto answer = [&] {
    const Client next(*server_);
    next.Send("POST /x" + rest);
    return next.ReadAll();
  };
  EXPECT_THAT(answer(), StartsWith("HTTP/1.1 503 "));
  {
    const std::lock_guard lock(mutex_);
    kept_lease_ = nullptr;
  }
  EXPECT_THAT(answer(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, MoreConnectionsWait) {
  options_.most_connections = 2;
  Start();
  auto first = std::make_unique<Client>(*server_);
  const Client second(*server_), third(*server_);
  for (const Client* client : std::initializer_list<const Client*>{first.get(), &second, &third})
    client->Send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_THAT(first->ReadUntil("GET /x"), HasSubstr("200 OK"));
  EXPECT_THAT(second.ReadUntil("GET /x"), HasSubstr("200 OK"));
  EXPECT_EQ(server_->n_connections(), 2);
  first.reset();
  EXPECT_THAT(third.ReadUntil("GET /x"), HasSubstr("200 OK"));
}

TEST_F(HttpServerTest, DrainingEndsWhatIsIdleAndLetsTheRestEnd) {
  Start();
  const Client idle(*server_), busy(*server_);
  busy.Send(kHold);
  const auto reply = Held();
  server_->StopAccepting();
  EXPECT_EQ(idle.ReadAll(), "");
  reply->Send({.body = "done"});
  EXPECT_THAT(busy.ReadAll(), ::testing::EndsWith("done"));
  ExpectSoon([&] { return server_->n_connections() == 0; }, "no connections");
}

TEST_F(HttpServerTest, HeadersOfAResponseCannotBeMadeUp) {
  const Client client(Start());
  client.Send("GET /x HTTP/1.1\r\nHost: x\r\nX-Echo: a\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("GET /x"), HasSubstr("X-Echo: a\r\n"));
  const Client held(*server_);
  held.Send(kHold);
  Held()->Send({.headers = {{"X-A", "b\r\nX-C: d"}}, .body = "end"});
  EXPECT_THAT(held.ReadUntil("end"), ::testing::Not(HasSubstr("X-C")));
}

TEST_F(HttpServerTest, ManyAtOnce) {
  Start();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 500; ++i) clients.push_back(std::make_unique<Client>(*server_));
  for (const auto& client : clients) client->Send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
  for (const auto& client : clients) EXPECT_THAT(client->ReadUntil("GET /x"), HasSubstr("200 OK"));
  EXPECT_EQ(server_->n_connections(), 500);
  clients.clear();
  ExpectSoon([&] { return server_->n_connections() == 0; }, "no connections");
}

TEST_F(HttpServerTest, AUnixSocketAndWhatStandsInItsWay) {
  const longspec::testing::Folder folder;
  const std::string path = folder.File("http.sock");
  options_.host = "unix:" + path;
  {
    const Client client(Start());
    EXPECT_EQ(server_->url(), "unix:" + path);
    client.Send("GET /x HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(client.ReadUntil("GET /x"), HasSubstr("200 OK"));
  }
  EXPECT_THAT(HttpServer::Start(options_, {}).status().message(), HasSubstr("another process does"));
  server_->Stop();
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  std::filesystem::create_directory(path);
  EXPECT_THAT(HttpServer::Start(options_, {}).status().message(), HasSubstr("there is a file of this name"));
  options_.host = "unix:" + std::string(200, 'x');
  EXPECT_THAT(HttpServer::Start(options_, {}).status().message(), HasSubstr("from 1 to"));
}

TEST_F(HttpServerTest, APlaceThatCannotBeListenedAt) {
  Start();
  HttpOptions taken;
  const std::string url = server_->url();
  taken.port = std::stoi(url.substr(url.rfind(':') + 1));
  EXPECT_THAT(HttpServer::Start(taken, {}).status().message(), HasSubstr("Address already in use"));
  taken.host = "no.such.host.invalid";
  EXPECT_THAT(HttpServer::Start(taken, {}).status().message(), HasSubstr("--host no.such.host.invalid"));
}

}  // namespace
}  // namespace longspec::http
