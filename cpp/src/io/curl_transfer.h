#pragma once

#include <curl/curl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "io/curl_reactor.h"

namespace headpond {

struct CurlFree {
  void operator()(CURL* easy) const { curl_easy_cleanup(easy); }
};
struct ListFree {
  void operator()(curl_slist* list) const { curl_slist_free_all(list); }
};
using CurlList = std::unique_ptr<curl_slist, ListFree>;

// One transfer under way, with a handle that is used again for later ones.
struct TransferLoop::Transfer {
  std::unique_ptr<CURL, CurlFree> easy;
  Clock* clock = nullptr;
  HttpCounts* counts = nullptr;
  TransferHandler* handler = nullptr;  // null: not under way
  std::size_t place = 0;               // among the active ones
  std::uint64_t number = 0;            // of the transfer

  ResponseHead head;
  std::string if_match;
  curl_slist if_match_line{};
  std::array<char, CURL_ERROR_SIZE> error{};

  Clock::Time started{};
  Clock::Time heard{};                // last sign of life, once connected
  std::optional<Clock::Time> window;  // begin of the one that bytes are counted in
  std::uint64_t window_bytes = 0;
  std::uint64_t head_bytes = 0;
  std::uint64_t head_bytes_max = 0;
  bool connected = false;
  bool head_done = false;
  bool public_only = false;
  bool local_refused = false;
  bool stopped = false;  // by the handler
  bool head_too_long = false;
  int socket_error = 0;

  void hear(std::uint64_t bytes) {
    heard = clock->now();
    if (!window) window = heard;
    window_bytes += bytes;
  }
};

// The options that hold for every transfer, on a new handle. `share` and `addresses` outlive it.
void set_up(TransferLoop::Transfer& transfer, const ReactorOptions& options, CURLSH* share,
            curl_slist* addresses);
// Those of one request. `headers` are the user's, and outlive the transfer.
void prepare(TransferLoop::Transfer& transfer, const TransferRequest& request, curl_slist* headers);
// Forgets that request.
void reset(TransferLoop::Transfer& transfer);
// What libcurl's end of it means.
TransferEnd end_of(const TransferLoop::Transfer& transfer, CURLcode code);

}  // namespace headpond
