#include "support/scripted_origin.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <stdexcept>

namespace headpond {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::string http_date(std::time_t time) {
  std::tm parts = {};
  gmtime_r(&time, &parts);
  char text[64];
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return text;
}

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 206:
      return "Partial Content";
    case 404:
      return "Not Found";
    case 412:
      return "Precondition Failed";
    case 416:
      return "Range Not Satisfiable";
    case 503:
      return "Service Unavailable";
    default:
      return "Whatever";
  }
}

void reset(UniqueFd& fd) {
  const linger now = {1, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  fd.reset();
}

}  // namespace

ScriptedOrigin::ScriptedOrigin(std::shared_ptr<Clock> clock) : clock_(std::move(clock)) {
  listen();
}

ScriptedOrigin::~ScriptedOrigin() = default;

void ScriptedOrigin::listen() {
  listener_ = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port_);
  socklen_t size = sizeof address;
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_.get(), 1024) != 0 ||
      getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw std::runtime_error("the scripted origin cannot listen");
  port_ = ntohs(address.sin_port);
}

void ScriptedOrigin::put(const std::string& target, const Bytes& bytes) {
  const std::lock_guard lock(mutex_);
  ++puts_;
  objects_[target] = {bytes, "\"v" + std::to_string(puts_) + "\"",
                      http_date(1'700'000'000 + puts_)};
}

void ScriptedOrigin::script(Script script) {
  const std::lock_guard lock(mutex_);
  script_ = std::move(script);
}

void ScriptedOrigin::down() {
  const std::lock_guard lock(mutex_);
  listener_.reset();
  for (auto& connection : connections_) reset(connection->fd);  // swept by the next step
}

void ScriptedOrigin::up() {
  const std::lock_guard lock(mutex_);
  if (!listener_) listen();
}

std::vector<OriginRequest> ScriptedOrigin::log() const {
  const std::lock_guard lock(mutex_);
  return log_;
}

std::size_t ScriptedOrigin::connections() const {
  const std::lock_guard lock(mutex_);
  return accepted_;
}

std::size_t ScriptedOrigin::open_connections() const {
  const std::lock_guard lock(mutex_);
  return connections_.size();
}

std::uint64_t ScriptedOrigin::sent() const {
  const std::lock_guard lock(mutex_);
  return sent_;
}

Clock::Time ScriptedOrigin::next_event() const {
  const std::lock_guard lock(mutex_);
  const auto now = clock_->now();
  auto next = Clock::Time::max();
  for (const auto& connection : connections_) {
    if (connection->answering && !connection->mute && connection->next_send > now)
      next = std::min(next, connection->next_send);
  }
  return next;
}

bool ScriptedOrigin::step(int wait_ms) {
  std::vector<pollfd> polls;
  {
    const std::lock_guard lock(mutex_);
    const auto now = clock_->now();
    if (listener_) polls.push_back({listener_.get(), POLLIN, 0});
    for (const auto& connection : connections_) {
      const bool due = connection->answering && !connection->mute && connection->next_send <= now;
      polls.push_back(
          {connection->fd.get(), static_cast<short>(due ? POLLIN | POLLOUT : POLLIN), 0});
    }
  }
  if (::poll(polls.data(), polls.size(), wait_ms) <= 0) return false;
  const std::lock_guard lock(mutex_);
  bool busy = listener_ && accept_all();
  for (auto& connection : connections_) {
    busy |= receive(*connection);
    while (connection->fd && parse(*connection)) busy = true;
    busy |= send(*connection);
  }
  std::erase_if(connections_, [](const auto& connection) { return !connection->fd; });
  return busy;
}

bool ScriptedOrigin::accept_all() {
  bool any = false;
  for (;;) {
    const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return any;
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    auto connection = std::make_unique<Connection>();
    connection->fd = UniqueFd(fd);
    connection->number = ++accepted_;
    connections_.push_back(std::move(connection));
    any = true;
  }
}

bool ScriptedOrigin::receive(Connection& connection) {
  char buffer[4096];
  bool any = false;
  while (connection.fd) {
    const auto got = ::recv(connection.fd.get(), buffer, sizeof buffer, 0);
    if (got > 0) {
      connection.in.append(buffer, static_cast<std::size_t>(got));
      any = true;
    } else if (got == 0 || errno != EAGAIN) {
      connection.fd.reset();
      any = true;
    } else {
      break;
    }
  }
  return any;
}

// One request, when the one before is answered.
bool ScriptedOrigin::parse(Connection& connection) {
  const auto end = connection.in.find("\r\n\r\n");
  if (connection.answering || end == std::string::npos) return false;
  OriginRequest request;
  request.connection = connection.number;
  request.at = clock_->now();
  std::size_t at = 0;
  while (at < end) {
    const auto stop = connection.in.find("\r\n", at);
    const std::string line = connection.in.substr(at, stop - at);
    if (at == 0) {
      const auto first = line.find(' ');
      const auto second = line.find(' ', first + 1);
      request.method = line.substr(0, first);
      request.target = line.substr(first + 1, second - first - 1);
    } else if (const auto colon = line.find(':'); colon != std::string::npos) {
      request.headers[lower(line.substr(0, colon))] = line.substr(std::min(colon + 2, line.size()));
    }
    at = stop + 2;
  }
  connection.in.erase(0, end + 4);
  request.number = ++counts_[request.method + request.target];
  log_.push_back(request);
  answer(connection, std::move(request));
  return true;
}

void ScriptedOrigin::answer(Connection& connection, OriginRequest request) {
  const OriginAnswer answer = script_ ? script_(request) : OriginAnswer();
  connection.answering = true;
  connection.mute = answer.silent;
  connection.reset = answer.reset;
  if (answer.drop) {
    if (answer.reset) {
      reset(connection.fd);
    } else {
      connection.fd.reset();
    }
    return;
  }
  std::size_t head_bytes = 0;
  connection.out = answer.raw ? *answer.raw : compose(request, answer, head_bytes);
  connection.sent = 0;
  connection.stop = connection.out.size();
  connection.close_after = answer.close_after || answer.until_close || answer.cut_at || answer.raw;
  if (answer.cut_at) connection.stop = std::min(connection.stop, head_bytes + *answer.cut_at);
  if (answer.stall_at) {
    connection.stop = std::min(connection.stop, head_bytes + *answer.stall_at);
    connection.close_after = false;
  }
  connection.segment = answer.segment;
  connection.head_bytes = answer.segment_head ? 0 : head_bytes;
  connection.between = answer.between;
  connection.next_send = clock_->now() + answer.delay;
}

std::string ScriptedOrigin::compose(const OriginRequest& request, const OriginAnswer& answer,
                                    std::size_t& head_bytes) const {
  int status = 200;
  std::vector<std::string> headers = {"Accept-Ranges: bytes"};
  std::string body;
  const auto found = objects_.find(request.target);
  if (found == objects_.end()) {
    status = 404;
    body = "nothing here";
  } else {
    const Object& object = found->second;
    headers.push_back("ETag: " + object.etag);
    headers.push_back("Last-Modified: " + object.modified);
    body.assign(reinterpret_cast<const char*>(object.bytes.data()), object.bytes.size());
    const std::string match = request.header("if-match");
    unsigned long long first = 0;
    unsigned long long last = 0;
    if (!match.empty() && match != object.etag) {
      status = 412;
      body = "another version";
    } else if (!answer.ignore_range && std::sscanf(request.header("range").c_str(),
                                                   "bytes=%llu-%llu", &first, &last) == 2) {
      const std::string total = std::to_string(body.size());
      if (first >= body.size()) {
        status = 416;
        headers.push_back("Content-Range: bytes */" + total);
        body.clear();
      } else {
        status = 206;
        last = std::min<unsigned long long>(last, body.size() - 1);
        headers.push_back("Content-Range: bytes " + std::to_string(first) + "-" +
                          std::to_string(last) + "/" + total);
        body = body.substr(first, last - first + 1);
      }
    }
  }
  if (answer.status != 0) status = answer.status;
  if (answer.body) body = *answer.body;
  if (answer.chunked) {
    headers.push_back("Transfer-Encoding: chunked");
  } else if (!answer.until_close) {
    headers.push_back("Content-Length: " + std::to_string(body.size()));
  }
  std::string text = "HTTP/1.1 " + std::to_string(status) + " " + reason_of(status) + "\r\n";
  for (const auto& header : headers) {
    const std::string out = "-" + header.substr(0, header.find(':'));
    if (std::find(answer.headers.begin(), answer.headers.end(), out) == answer.headers.end())
      text += header + "\r\n";
  }
  for (const auto& header : answer.headers) {
    if (!header.starts_with("-")) text += header + "\r\n";
  }
  text += "\r\n";
  head_bytes = text.size();
  if (request.method == "HEAD") return text;
  if (answer.chunked) {
    for (std::size_t at = 0; at < body.size(); at += 1000) {
      char size[16];
      std::snprintf(size, sizeof size, "%zx\r\n", std::min<std::size_t>(1000, body.size() - at));
      text += size + body.substr(at, 1000) + "\r\n";
    }
    text += "0\r\n\r\n";
  } else {
    text += body;
  }
  return text + answer.extra;
}

bool ScriptedOrigin::send(Connection& connection) {
  bool any = false;
  while (connection.fd && connection.answering && !connection.mute &&
         connection.next_send <= clock_->now()) {
    if (connection.sent < connection.stop) {
      std::size_t size = connection.stop - connection.sent;
      if (connection.sent < connection.head_bytes) {
        size = std::min(size, connection.head_bytes - connection.sent);
      } else if (connection.segment > 0) {
        size = std::min(size, connection.segment);
      }
      const auto sent =
          ::send(connection.fd.get(), connection.out.data() + connection.sent, size, MSG_NOSIGNAL);
      if (sent < 0 && errno == EAGAIN) return any;
      any = true;
      if (sent < 0) {
        connection.fd.reset();
        return any;
      }
      connection.sent += static_cast<std::size_t>(sent);
      sent_ += static_cast<std::uint64_t>(sent);
      connection.next_send += connection.between;
      if (connection.sent < connection.stop) {
        if (connection.segment > 0) return any;
        continue;
      }
    }
    if (connection.close_after) {
      if (connection.reset) {
        headpond::reset(connection.fd);
      } else {
        connection.fd.reset();
      }
      return true;
    }
    connection.mute = connection.stop < connection.out.size();
    connection.answering = connection.mute;
    return any;
  }
  return any;
}

}  // namespace headpond
