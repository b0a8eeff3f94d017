#include "io/curl_transfer.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>

#include "io/http_counts.h"
#include "io/http_url.h"
#include "io/text.h"

namespace headpond {

using Transfer = TransferLoop::Transfer;

namespace {

constexpr std::uint64_t kBufferMin = 16 << 10;
constexpr std::uint64_t kBufferMax = 256 << 10;
// For the next of a host's addresses only: libcurl gives each half of what is left.
constexpr long kAddressesMs = 3000;

std::size_t on_head_line(char* data, std::size_t size, std::size_t count, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  const std::string_view line(data, size * count);
  transfer.hear(line.size());
  transfer.head_bytes += line.size();
  if (transfer.head_bytes > transfer.head_bytes_max) {
    transfer.head_too_long = true;
    return 0;
  }
  if (transfer.head_done) return line.size();  // a trailer
  if (line != "\r\n" && line != "\n") {
    transfer.head.add_line(line);
    return line.size();
  }
  if (transfer.head.status() < 200) return line.size();
  transfer.head_done = true;
  transfer.stopped = !transfer.handler->on_head(transfer.head);
  return transfer.stopped ? 0 : line.size();
}

std::size_t on_body_bytes(char* data, std::size_t size, std::size_t count, void* context) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  const std::size_t bytes = size * count;
  transfer.hear(bytes);
  HttpCounts::add(transfer.counts->bytes, bytes);
  transfer.stopped = !transfer.handler->on_body(std::as_bytes(std::span(data, bytes)));
  return transfer.stopped ? 0 : bytes;
}

// Close-on-exec, and not to where a redirect may not lead.
curl_socket_t open_socket(void* context, curlsocktype, struct curl_sockaddr* address) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  if (transfer.public_only && is_local_address(address->addr)) {
    transfer.local_refused = true;
    return CURL_SOCKET_BAD;
  }
  const int fd = ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
  if (fd < 0) transfer.socket_error = errno;
  return fd;
}

// Before the request is sent, on new and used connections alike.
int on_connected(void* context, char* peer, char*, int, int) {
  Transfer& transfer = *static_cast<Transfer*>(context);
  if (transfer.public_only && is_local_address(peer)) {
    transfer.local_refused = true;
    return CURL_PREREQFUNC_ABORT;
  }
  transfer.connected = true;
  transfer.heard = transfer.clock->now();
  return CURL_PREREQFUNC_OK;
}

bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

// Whether a transfer failed because this process has no file handle or memory left: the error
// number, else 0. libcurl says so of its own sockets only. A look-up of a name or certificates
// that cannot be opened fail in their own words, so it is tried out.
int what_is_missing(const Transfer& transfer, CURLcode code) {
  if (is_shortage(transfer.socket_error)) return transfer.socket_error;
  switch (code) {
    case CURLE_OUT_OF_MEMORY:
      return ENOMEM;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_FAILED_INIT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_CACERT_BADFILE: {
      const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      const int error = fd < 0 ? errno : 0;
      if (fd >= 0) ::close(fd);
      return is_shortage(error) ? error : 0;
    }
    default:
      return 0;
  }
}

// A handshake that was cut may succeed next time; OpenSSL has one code for all.
bool was_cut(std::string_view error) {
  constexpr std::array<std::string_view, 5> kCuts = {"SYSCALL", "reset by peer", "Broken pipe",
                                                     "unexpected eof", "timed out"};
  return std::any_of(kCuts.begin(), kCuts.end(),
                     [error](std::string_view words) { return error.find(words) != error.npos; });
}

TransferResult result_of(CURLcode code, std::string_view error) {
  switch (code) {
    case CURLE_OK:
      return TransferResult::complete;
    case CURLE_COULDNT_RESOLVE_HOST:
      return TransferResult::unresolved;
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
      return TransferResult::not_connected;
    case CURLE_SSL_CONNECT_ERROR:
      return was_cut(error) ? TransferResult::not_connected : TransferResult::tls_refused;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
    case CURLE_SSL_ENGINE_INITFAILED:
      return TransferResult::tls_refused;
    case CURLE_URL_MALFORMAT:  // says nothing of the host
    case CURLE_FAILED_INIT:
    case CURLE_BAD_FUNCTION_ARGUMENT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_UNSUPPORTED_PROTOCOL:  // HTTP/0.9
    case CURLE_BAD_CONTENT_ENCODING:
      return TransferResult::wrong_answer;
    default:  // PARTIAL_FILE, GOT_NOTHING, RECV_ERROR, SEND_ERROR, HTTP2, HTTP2_STREAM ...
      return TransferResult::broken;
  }
}

}  // namespace

void set_up(Transfer& transfer, const ReactorOptions& options, CURLSH* share,
            curl_slist* addresses) {
  transfer.easy.reset(curl_easy_init());
  transfer.head_bytes_max = options.limits.head_bytes;
  CURL* easy = transfer.easy.get();
  const auto set = [easy](CURLoption option, auto value) { curl_easy_setopt(easy, option, value); };
  void* context = &transfer;
  set(CURLOPT_PRIVATE, context);
  set(CURLOPT_ERRORBUFFER, transfer.error.data());
  set(CURLOPT_HEADERFUNCTION, &on_head_line);
  set(CURLOPT_HEADERDATA, context);
  set(CURLOPT_WRITEFUNCTION, &on_body_bytes);
  set(CURLOPT_WRITEDATA, context);
  set(CURLOPT_OPENSOCKETFUNCTION, &open_socket);
  set(CURLOPT_OPENSOCKETDATA, context);
  set(CURLOPT_PREREQFUNCTION, &on_connected);
  set(CURLOPT_PREREQDATA, context);
  set(CURLOPT_SHARE, share);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_QUICK_EXIT, 1L);  // a look-up that hangs holds nothing up
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_PROXY, "");
  set(CURLOPT_NOPROXY, "*");
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  set(CURLOPT_USERAGENT, "headpond");
  set(CURLOPT_ACCEPT_ENCODING, "identity");
  set(CURLOPT_HTTP_CONTENT_DECODING, 0L);
  set(CURLOPT_HTTP09_ALLOWED, 0L);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, kAddressesMs);
  set(CURLOPT_SSL_VERIFYPEER, 1L);
  set(CURLOPT_SSL_VERIFYHOST, 2L);
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  set(CURLOPT_CAINFO, options.ca_file.empty() ? nullptr : options.ca_file.c_str());
  set(CURLOPT_CAPATH, options.ca_folder.empty() ? nullptr : options.ca_folder.c_str());
  if (addresses != nullptr) set(CURLOPT_RESOLVE, addresses);
}

void prepare(Transfer& transfer, const TransferRequest& request, curl_slist* headers) {
  CURL* easy = transfer.easy.get();
  curl_easy_setopt(easy, CURLOPT_URL, request.url.c_str());
  curl_easy_setopt(easy, request.head ? CURLOPT_NOBODY : CURLOPT_HTTPGET, 1L);
  std::array<char, 48> range{};
  if (request.range) {
    std::snprintf(range.data(), range.size(), "%llu-%llu",
                  static_cast<unsigned long long>(request.range->first),
                  static_cast<unsigned long long>(request.range->last));
  }
  curl_easy_setopt(easy, CURLOPT_RANGE, request.range ? range.data() : nullptr);
  curl_slist* lines = request.own_headers ? headers : nullptr;
  if (!request.if_match.empty()) {
    transfer.if_match = "If-Match: " + request.if_match;
    transfer.if_match_line = {transfer.if_match.data(), lines};
    lines = &transfer.if_match_line;
  }
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, lines);
  // Only TLS can agree on HTTP/2, and only there waiting for the agreement is short.
  const bool streams = request.many_streams && request.url.starts_with("https");
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION,
                   static_cast<long>(streams ? CURL_HTTP_VERSION_2TLS : CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_PIPEWAIT, streams ? 1L : 0L);
  // libcurl makes and frees it for every transfer.
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE,
                   static_cast<long>(std::clamp(request.bytes, kBufferMin, kBufferMax)));
  curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, request.fresh ? 1L : 0L);
  curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, request.fresh ? 0L : 60L);
}

void reset(Transfer& transfer) {
  transfer.handler = nullptr;
  transfer.head = {};
  transfer.window.reset();
  transfer.window_bytes = transfer.head_bytes = 0;
  transfer.connected = transfer.head_done = transfer.public_only = false;
  transfer.local_refused = transfer.stopped = transfer.head_too_long = false;
  transfer.socket_error = 0;
  transfer.error[0] = '\0';
}

TransferEnd end_of(const Transfer& transfer, CURLcode code) {
  TransferEnd end;
  const std::string_view error(transfer.error.data());
  end.result = result_of(code, error);
  if (end.result == TransferResult::complete) return end;
  if (transfer.stopped) {
    end.result = TransferResult::stopped;
    return end;
  }
  end.reason = printable(error.empty() ? curl_easy_strerror(code) : error);
  // libcurl's word for a line of more than 100 KB; since 8.6 CURLE_TOO_LARGE, which 7.88 lacks.
  constexpr auto kTooLarge = static_cast<CURLcode>(100);
  const bool line_too_long = (code == CURLE_OUT_OF_MEMORY || code == kTooLarge) &&
                             transfer.connected && !transfer.head_done;
  if (transfer.head_too_long || line_too_long) {
    end.result = TransferResult::wrong_answer;
    end.reason = "the head of the answer is longer than " +
                 std::to_string(transfer.head_bytes_max) + " bytes";
  } else if (transfer.local_refused) {
    end.result = TransferResult::local_address;
    end.reason = "a local address";
  } else if (const int missing = what_is_missing(transfer, code); missing != 0) {
    end.result = TransferResult::resource_limit;
    end.reason = system_error(missing, "connecting").message();
    if (missing == EMFILE) end.reason += " (\"ulimit -n\" is the limit)";
  }
  return end;
}

}  // namespace headpond
