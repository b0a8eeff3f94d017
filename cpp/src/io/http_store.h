#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headpond/result.h"
#include "io/http_counts.h"
#include "io/http_url.h"
#include "io/name_check.h"
#include "io/remote_call.h"
#include "io/transfer_loop.h"

namespace headpond {

// Reads and stats of the objects below one http(s) URL: builds the requests, follows
// redirects, checks every answer, and puts the bodies where they belong.
class HttpAttempts final : public Attempts, public std::enable_shared_from_this<HttpAttempts> {
 public:
  HttpAttempts(UrlParts root, std::string query, std::shared_ptr<TransferLoop> loop,
               std::shared_ptr<HttpCounts> counts, NameCheck name_check);
  ~HttpAttempts() override;

  void start(RemoteCall& call, AttemptListener& listener) override;
  void cancel(RemoteCall& call) override;
  std::string describe(const std::string& object) const override;

 private:
  class Attempt;

  // Whether the name exists that an attempt could not look up; asked once at a time.
  void ask_about_name(Attempt& attempt, std::uint64_t number, const std::string& host);
  void settle_names(NameState state);

  const UrlParts root_;
  const std::string prefix_;  // of every URL
  const std::string query_;   // of the root's, for names that have none
  const std::shared_ptr<TransferLoop> loop_;
  const std::shared_ptr<HttpCounts> counts_;
  std::vector<std::unique_ptr<Attempt>> attempts_;
  std::vector<Attempt*> free_;
  const NameCheck name_check_;
  std::vector<std::pair<Attempt*, std::uint64_t>> unnamed_;  // wait for the answer
};

}  // namespace headpond
