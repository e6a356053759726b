// SPDX-License-Identifier: Apache-2.0
#include "http/http_server.h"

// Boost 1.74's coroutines need this before them.
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstring>
#include <ctime>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "base/print.h"
#include "http/http_date.h"
#include "http/request_head.h"

namespace longspec::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::awaitable;
using boost::system::error_code;
using server::HttpRequest;
using server::HttpResponse;
using Socket = asio::basic_stream_socket<asio::generic::stream_protocol>;
using Clock = std::chrono::steady_clock;
using Parser = beast::http::request_parser<beast::http::string_body>;

constexpr auto kSweep = std::chrono::milliseconds(100);  // how often deadlines are looked at
constexpr size_t kReadAhead = 64 << 10;                  // bytes taken of what a client sends too early
constexpr size_t kSlowestBytesPerSecond = 16 << 10;      // of a body

auto Awaiting(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

Clock::time_point In(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Something was sent that cannot be understood, rather than nothing.
bool IsBadHttp(const error_code& error) {
  return error &&
         error.category() == beast::http::make_error_code(beast::http::error::bad_method).category() &&
         error != beast::http::error::end_of_stream && error != beast::http::error::partial_message;
}

std::string Chunk(const std::string& bytes) { return Print("%zx\r\n", bytes.size()) + bytes + "\r\n"; }

// Each connection is an open file.
void RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

std::string HeadText(const HttpResponse& response, bool keep_alive) {
  std::string text = "HTTP/1.1 " + std::to_string(response.status) + " " +
                     std::string(server::StatusText(response.status)) + "\r\n" +
                     "Server: longspec\r\nDate: " + HttpDate(std::time(nullptr)) +
                     "\r\nContent-Type: " + response.content_type + "\r\n";
  for (const auto& [name, value] : response.headers) {
    // Values may come from a request: no line of them becomes a header of its own.
    if (value.find_first_of("\r\n") == std::string::npos) text += name + ": " + value + "\r\n";
  }
  if (!keep_alive) text += "Connection: close\r\n";
  return text;
}

HttpResponse Refusal(int status, const std::string& message) {
  return {.status = status,
          .body = "{\"error\":{\"code\":" + std::to_string(status) + ",\"message\":\"" + message +
                  "\",\"type\":\"invalid_request_error\"}}\n"};
}

// The way back of one request. What is said is kept here until the connection's coroutine sends it.
class PendingReply final : public server::Reply {
 public:
  struct Format {
    bool keep_alive = true, chunked = true, without_body = false;
  };

  // `wake` is called when there is something to send; from any thread.
  PendingReply(Format format, size_t most_unsent, std::function<void()> wake)
      : format_(format), most_unsent_(most_unsent), wake_(std::move(wake)) {}

  void Send(HttpResponse response) override {
    std::string text = HeadText(response, format_.keep_alive) +
                       "Content-Length: " + std::to_string(response.body.size()) + "\r\n\r\n";
    if (!format_.without_body) text += response.body;
    Add(std::move(text), true);
  }

  void Begin(HttpResponse head, Idle idle) override {
    {
      const std::lock_guard lock(mutex_);
      idle_ = std::move(idle);
    }
    std::string text = HeadText(head, format_.keep_alive && format_.chunked);
    text += format_.chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n";
    Add(std::move(text), false);
  }

  bool Write(std::string bytes) override {
    if (bytes.empty()) return !gone();
    return Add(format_.chunked ? Chunk(bytes) : std::move(bytes), false);
  }

  void End() override { Add(format_.chunked ? "0\r\n\r\n" : "", true); }

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

  // --- For the connection. ---

  // What is to be sent; `ended`: nothing follows.
  std::string Take(bool* ended) {
    const std::lock_guard lock(mutex_);
    *ended = ended_;
    return std::exchange(unsent_, std::string());
  }
  bool gone() const {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  void SetGone() {
    std::function<void()> on_gone;
    {
      const std::lock_guard lock(mutex_);
      if (ended_ || std::exchange(gone_, true)) return;
      on_gone = std::move(on_gone_);
      unsent_.clear();
    }
    if (on_gone) on_gone();
  }
  bool lags() const {
    const std::lock_guard lock(mutex_);
    return lags_;
  }
  // Adds what is sent where nothing else was for long enough.
  void Ping(Clock::time_point now) {
    {
      const std::lock_guard lock(mutex_);
      if (idle_.seconds <= 0 || ended_ || gone_ || now < last_ + std::chrono::seconds(idle_.seconds)) return;
    }
    Write(idle_.bytes);
  }

 private:
  bool Add(std::string text, bool last) {
    {
      const std::lock_guard lock(mutex_);
      if (gone_ || ended_) return false;
      // A whole response is as long as it is; of a stream only so much waits.
      if (!last && unsent_.size() + text.size() > most_unsent_) {
        lags_ = true;
      } else {
        unsent_ += text;
        ended_ = last;
        last_ = Clock::now();
      }
      if (last) on_gone_ = nullptr;
    }
    wake_();
    return !lags();
  }

  const Format format_;
  const size_t most_unsent_;
  const std::function<void()> wake_;
  mutable std::mutex mutex_;
  std::string unsent_;
  Idle idle_;
  Clock::time_point last_ = Clock::now();
  bool ended_ = false, gone_ = false, lags_ = false;
  std::function<void()> on_gone_;
};

// Bytes of one body among those of all.
class BodyLease {
 public:
  explicit BodyLease(std::shared_ptr<std::atomic<size_t>> all) : all_(std::move(all)) {}
  ~BodyLease() { *all_ -= bytes_; }
  BodyLease(const BodyLease&) = delete;
  BodyLease& operator=(const BodyLease&) = delete;

  void GrowTo(size_t bytes) { *all_ += bytes - std::exchange(bytes_, bytes); }

 private:
  const std::shared_ptr<std::atomic<size_t>> all_;
  size_t bytes_ = 0;
};

class ServerImpl;

// One client. Everything happens on the server's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ServerImpl& server, Socket socket, std::string client)
      : server_(server),
        socket_(std::move(socket)),
        client_(std::move(client)),
        wake_(socket_.get_executor()) {}
  ~Connection();

  awaitable<void> Run();
  void Close() {
    error_code ignored;
    socket_.close(ignored);
    wake_.cancel();
  }
  // There is something to send. A client that lags may not even take what is being sent.
  void Wake() {
    if (reply_ != nullptr && reply_->lags()) Close();
    wake_.cancel();
  }
  void Sweep(Clock::time_point now) {
    if (deadline_ && now >= *deadline_) return Close();
    if (reply_ != nullptr) reply_->Ping(now);
  }
  // Closes it as soon as nothing is under way.
  void Drain() {
    draining_ = true;
    if (is_waiting_) Close();
  }

 private:
  awaitable<bool> Serve();
  awaitable<error_code> SkipBlankLines();
  awaitable<bool> ReadBody(Parser& parser, BodyLease& lease, error_code& error);
  awaitable<void> Watch(std::shared_ptr<PendingReply> reply);
  awaitable<bool> Answer(std::shared_ptr<PendingReply> reply);
  awaitable<bool> SendAll(std::string text);
  awaitable<bool> Refuse(int status, std::string message);

  ServerImpl& server_;
  Socket socket_;
  const std::string client_;
  beast::flat_buffer buffer_;
  asio::steady_timer wake_;  // cancelled when a reply has something to send
  std::optional<Clock::time_point> deadline_;
  std::shared_ptr<PendingReply> reply_;
  bool draining_ = false, is_waiting_ = false, is_watching_ = false;
};

class ServerImpl final : public HttpServer {
 public:
  ServerImpl(const HttpOptions& options, server::Handler handler)
      : options_(options), handler_(std::move(handler)), acceptor_(context_), sweeper_(context_) {}

  ~ServerImpl() override {
    ServerImpl::Stop();
    if (!unix_path_.empty()) unlink(unix_path_.c_str());
  }

  void Stop() override {
    asio::post(context_, [this] {
      error_code ignored;
      stopping_ = true;
      acceptor_.close(ignored);
      sweeper_.cancel();
      room_.cancel();
      for (Connection* connection : connections_) connection->Close();
    });
    if (thread_.joinable()) thread_.join();
  }

  Status Listen() {
    const std::string path = UnixPath(options_.host);
    return path.empty() ? ListenTcp() : ListenUnix(path);
  }

  void StartThread() {
    asio::co_spawn(context_, Accept(), asio::detached);
    asio::co_spawn(context_, SweepAll(), asio::detached);
    thread_ = std::thread([this] { context_.run(); });
  }

  std::string url() const override { return url_; }
  int n_connections() const override { return n_connections_; }
  void StopAccepting() override {
    asio::post(context_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
      for (Connection* connection : connections_) connection->Drain();
    });
  }

  // --- For connections. ---
  const HttpOptions& options() const { return options_; }
  const server::Handler& handler() const { return handler_; }
  bool is_draining() const { return !acceptor_.is_open(); }
  const std::shared_ptr<std::atomic<size_t>>& buffered() const { return buffered_; }
  void Add(Connection* connection) {
    connections_.insert(connection);
    Count();
  }
  void Remove(Connection* connection) {
    connections_.erase(connection);
    Count();
    room_.cancel();
  }
  // Wakes a connection's coroutine; from any thread.
  void Post(std::function<void()> work) { asio::post(context_, std::move(work)); }

 private:
  using Acceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;

  // Empty: it is no Unix socket.
  static std::string UnixPath(const std::string& host) {
    if (host.starts_with("unix:")) return host.substr(5);
    return host.ends_with(".sock") ? host : std::string();
  }

  template <typename Endpoint>
  Status Bind(const Endpoint& endpoint, bool reuse) {
    error_code error;
    acceptor_.open(endpoint.protocol(), error);
    if (!error && reuse) acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) return {};
    error_code ignored;
    acceptor_.close(ignored);
    return IoError(error.message());
  }

  Status ListenTcp() {
    asio::ip::tcp::resolver resolver(context_);
    error_code error;
    const auto found = resolver.resolve(options_.host, std::to_string(options_.port), error);
    const std::string where = options_.host + ":" + std::to_string(options_.port);
    if (error) return InvalidArgument("--host " + options_.host + ": " + error.message());
    Status status;
    for (const auto& entry : found) {
      status = Bind(asio::generic::stream_protocol::endpoint(entry.endpoint()), true);
      if (!status.ok()) continue;
      // The port may have been chosen by the system.
      const auto local = acceptor_.local_endpoint();
      asio::ip::tcp::endpoint bound;
      bound.resize(local.size());
      std::memcpy(bound.data(), local.data(), local.size());
      const std::string host = bound.address().to_string();
      url_ = "http://" + (bound.address().is_v6() ? "[" + host + "]" : host) + ":" +
             std::to_string(bound.port());
      return {};
    }
    return IoError("cannot listen on " + where + ": " + status.message());
  }

  Status ListenUnix(const std::string& path) {
    if (path.empty() || path.size() >= sizeof(sockaddr_un{}.sun_path))
      return InvalidArgument("--host " + options_.host + ": the path of a socket has from 1 to " +
                             std::to_string(sizeof(sockaddr_un{}.sun_path) - 1) + " bytes");
    // A socket that nobody listens at is what is left of a server that was killed.
    struct stat entry {};
    if (lstat(path.c_str(), &entry) == 0) {
      if (!S_ISSOCK(entry.st_mode))
        return IoError("cannot listen on " + path + ": there is a file of this name");
      asio::local::stream_protocol::socket probe(context_);
      error_code error;
      probe.connect(asio::local::stream_protocol::endpoint(path), error);
      if (!error) return IoError("cannot listen on " + path + ": another process does");
      unlink(path.c_str());
    }
    const Status bound =
        Bind(asio::generic::stream_protocol::endpoint(asio::local::stream_protocol::endpoint(path)), false);
    if (!bound.ok()) return IoError("cannot listen on " + path + ": " + bound.message());
    unix_path_ = path;
    url_ = "unix:" + path;
    return {};
  }

  void Count() {
    n_connections_ = static_cast<int>(connections_.size());
    if (options_.on_connections) options_.on_connections(n_connections_);
  }

  awaitable<void> Accept() {
    while (acceptor_.is_open()) {
      if (n_connections_ >= options_.most_connections) {
        error_code ignored;
        room_.expires_after(std::chrono::seconds(1));
        co_await room_.async_wait(Awaiting(ignored));
        continue;
      }
      error_code error;
      asio::generic::stream_protocol::endpoint peer;
      Socket socket = co_await acceptor_.async_accept(peer, Awaiting(error));
      if (error == asio::error::operation_aborted || !acceptor_.is_open()) break;
      if (error) {  // too many open files, for one
        error_code ignored;
        room_.expires_after(std::chrono::milliseconds(100));
        co_await room_.async_wait(Awaiting(ignored));
        continue;
      }
      auto connection = std::make_shared<Connection>(*this, std::move(socket), NameOf(peer));
      Add(connection.get());
      asio::co_spawn(
          context_, [connection] { return connection->Run(); }, asio::detached);
    }
  }

  static std::string NameOf(const asio::generic::stream_protocol::endpoint& peer) {
    const int family = peer.data()->sa_family;
    if (family != AF_INET && family != AF_INET6) return "unix";
    asio::ip::tcp::endpoint address;
    address.resize(peer.size());
    std::memcpy(address.data(), peer.data(), peer.size());
    return address.address().to_string();
  }

  awaitable<void> SweepAll() {
    while (!stopping_) {
      error_code ignored;
      sweeper_.expires_after(kSweep);
      co_await sweeper_.async_wait(Awaiting(ignored));
      const auto now = Clock::now();
      const std::set<Connection*> all = connections_;
      for (Connection* connection : all) connection->Sweep(now);
    }
  }

  const HttpOptions options_;
  const server::Handler handler_;
  asio::io_context context_{1};
  Acceptor acceptor_;
  asio::steady_timer sweeper_;
  asio::steady_timer room_{context_};  // cancelled when a connection ends
  std::set<Connection*> connections_;
  std::atomic<int> n_connections_{0};
  // Bytes of bodies that are in memory; a lease may outlive the server.
  const std::shared_ptr<std::atomic<size_t>> buffered_ = std::make_shared<std::atomic<size_t>>(0);
  bool stopping_ = false;
  std::string url_, unix_path_;
  std::thread thread_;
};

Connection::~Connection() { server_.Remove(this); }

awaitable<void> Connection::Run() {
  const auto self = shared_from_this();
  error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  bool more = true;
  while (more) {
    more = co_await Serve();
    if (draining_ || server_.is_draining()) break;
  }
  // What was said is sent before the end is; what the client still says is not waited for.
  socket_.shutdown(asio::socket_base::shutdown_send, ignored);
  Close();
}

// Those that some clients send behind a body belong to no request. Behind an error nothing may be read: it
// would be waited for.
awaitable<error_code> Connection::SkipBlankLines() {
  error_code error;
  while (!error) {
    const auto bytes = buffer_.cdata();
    const std::string_view text(static_cast<const char*>(bytes.data()), bytes.size());
    const size_t blank = std::min(text.find_first_not_of("\r\n"), text.size());
    const bool found = blank < text.size();
    buffer_.consume(blank);
    if (found) break;
    const auto space = buffer_.prepare(4096);
    const size_t n = co_await socket_.async_read_some(space, Awaiting(error));
    buffer_.commit(n);
  }
  co_return error;
}

// One request and its response. False: the connection has ended.
awaitable<bool> Connection::Serve() {
  Parser parser;
  parser.header_limit(static_cast<std::uint32_t>(server_.options().most_header_bytes));
  parser.body_limit(server_.options().most_body_bytes);
  deadline_ = In(server_.options().header_seconds);
  is_waiting_ = true;
  error_code error = co_await SkipBlankLines();
  if (!error) co_await beast::http::async_read_header(socket_, buffer_, parser, Awaiting(error));
  is_waiting_ = false;
  if (error == beast::http::error::header_limit) {
    co_return co_await Refuse(431, "the head of the request is longer than " +
                                       std::to_string(server_.options().most_header_bytes) + " bytes");
  }
  if (error == beast::http::error::body_limit) {
    co_return co_await Refuse(413, "the body of the request is longer than " +
                                       std::to_string(server_.options().most_body_bytes) + " bytes");
  }
  if (error == beast::http::error::bad_version)
    co_return co_await Refuse(505, "HTTP/1.0 and 1.1 are spoken here");
  if (IsBadHttp(error)) co_return co_await Refuse(400, "this is not HTTP: " + error.message());
  if (error) co_return false;

  HttpRequest request;
  request.method = std::string(parser.get().method_string());
  for (const auto& field : parser.get())
    request.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  const std::string target(parser.get().target());
  const bool is_new = parser.get().version() >= 11;
  if (const auto fault = ReadHead(target, is_new, &request))
    co_return co_await Refuse(fault->status, fault->message);
  auto lease = std::make_shared<BodyLease>(server_.buffered());
  const bool body_was_read = co_await ReadBody(parser, *lease, error);
  if (!body_was_read) co_return false;
  auto message = parser.release();
  request.body = std::move(message.body());
  request.body_lease = std::move(lease);
  request.client = client_;

  const bool keep_alive = is_new && message.keep_alive() && !draining_ && !server_.is_draining();
  const PendingReply::Format format{
      .keep_alive = keep_alive, .chunked = is_new, .without_body = request.method == "HEAD"};
  const auto reply = std::make_shared<PendingReply>(format, server_.options().most_unsent_bytes,
                                                    [&server = server_, connection = weak_from_this()] {
                                                      server.Post([connection] {
                                                        if (const auto alive = connection.lock())
                                                          alive->Wake();
                                                      });
                                                    });
  reply_ = reply;
  server_.handler()(std::move(request), reply);
  const bool answered = co_await Answer(reply);
  reply_ = nullptr;
  co_return answered&& keep_alive;
}

// The rest of the request. A body that grows too slowly, or beyond what all may have, is not waited for.
awaitable<bool> Connection::ReadBody(Parser& parser, BodyLease& lease, error_code& error) {
  const auto announced = parser.content_length();
  const double seconds = server_.options().header_seconds;
  const auto fewest = static_cast<size_t>(seconds * kSlowestBytesPerSecond);  // in so many seconds
  size_t n_counted = 0;
  deadline_ = In(seconds);
  if (announced && *server_.buffered() + *announced > server_.options().most_buffered_bytes) {
    co_await Refuse(503, "too many bytes of requests wait already: try again later");
    co_return false;
  }
  const auto expect = parser.get()[beast::http::field::expect];
  if (beast::iequals(expect, "100-continue") && !parser.is_done()) {
    const bool sent = co_await SendAll("HTTP/1.1 100 Continue\r\n\r\n");
    if (!sent) co_return false;
  }
  while (!parser.is_done()) {
    co_await beast::http::async_read_some(socket_, buffer_, parser, Awaiting(error));
    if (error == beast::http::error::body_limit) {
      co_await Refuse(413, "the body of the request is longer than " +
                               std::to_string(server_.options().most_body_bytes) + " bytes");
      co_return false;
    }
    if (IsBadHttp(error)) {
      co_await Refuse(400, "this is not HTTP: " + error.message());
      co_return false;
    }
    if (error) co_return false;
    lease.GrowTo(parser.get().body().size());
    if (parser.get().body().size() >= n_counted + fewest) {
      n_counted = parser.get().body().size();
      deadline_ = In(seconds);
    }
    if (*server_.buffered() > server_.options().most_buffered_bytes) {
      co_await Refuse(503, "too many bytes of requests wait already: try again later");
      co_return false;
    }
  }
  co_return true;
}

// Reads while a request is answered: an end means that nobody waits for the answer any more. What comes of a
// next request is kept.
awaitable<void> Connection::Watch(std::shared_ptr<PendingReply> reply) {
  const auto self = shared_from_this();
  is_watching_ = true;
  while (buffer_.size() < kReadAhead) {
    error_code error;
    const auto space = buffer_.prepare(4096);
    const size_t n = co_await socket_.async_read_some(space, Awaiting(error));
    buffer_.commit(n);
    if (error == asio::error::operation_aborted) break;
    if (error) {
      reply->SetGone();
      wake_.cancel();
      break;
    }
  }
  is_watching_ = false;
  wake_.cancel();
}

// Sends what is said until all is. False: the client has gone.
awaitable<bool> Connection::Answer(std::shared_ptr<PendingReply> reply) {
  deadline_.reset();
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this(), reply] { return self->Watch(reply); },
      asio::detached);
  bool alive = true;
  while (true) {
    bool ended = false;
    std::string text = reply->Take(&ended);
    if (!text.empty()) {
      const bool sent = co_await SendAll(std::move(text));
      if (!sent) {
        alive = false;
        break;
      }
      continue;
    }
    if (ended) break;
    if (reply->gone() || reply->lags() || !socket_.is_open()) {
      alive = false;
      break;
    }
    error_code ignored;
    wake_.expires_at(Clock::time_point::max());
    co_await wake_.async_wait(Awaiting(ignored));
  }
  if (!alive) {
    reply->SetGone();
    Close();
  }
  // The watcher's read ends before the next request is read.
  while (is_watching_) {
    error_code ignored;
    if (socket_.is_open()) socket_.cancel(ignored);
    wake_.expires_after(std::chrono::milliseconds(50));
    co_await wake_.async_wait(Awaiting(ignored));
  }
  co_return alive;
}

awaitable<bool> Connection::SendAll(std::string text) {
  size_t sent = 0;
  while (sent < text.size()) {
    error_code error;
    deadline_ = In(server_.options().write_seconds);
    sent += co_await socket_.async_write_some(asio::buffer(text.data() + sent, text.size() - sent),
                                              Awaiting(error));
    deadline_.reset();
    if (error) co_return false;
  }
  co_return true;
}

// An answer to what cannot be handled; the connection ends with it.
awaitable<bool> Connection::Refuse(int status, std::string message) {
  const HttpResponse response = Refusal(status, message);
  std::string text = HeadText(response, false) + "Content-Length: " + std::to_string(response.body.size()) +
                     "\r\n\r\n" + response.body;
  co_await SendAll(std::move(text));
  // A client that is still sending would lose the answer if the connection were closed with bytes unread.
  error_code error;
  socket_.shutdown(asio::socket_base::shutdown_send, error);
  deadline_ = In(2);
  while (!error) {
    buffer_.consume(buffer_.size());
    const auto space = buffer_.prepare(16384);
    co_await socket_.async_read_some(space, Awaiting(error));
  }
  co_return false;
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options, server::Handler handler) {
  RaiseFileLimit();
  auto impl = std::make_unique<ServerImpl>(options, std::move(handler));
  const Status listening = impl->Listen();
  if (!listening.ok()) return listening;
  impl->StartThread();
  return std::unique_ptr<HttpServer>(std::move(impl));
}

}  // namespace longspec::http
