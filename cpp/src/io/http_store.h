#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "headpond/result.h"
#include "io/http_counts.h"
#include "io/http_url.h"
#include "io/name_check.h"
#include "io/remote_call.h"
#include "io/transfer_loop.h"
#include "io/unsized_body.h"

namespace headpond {

// What the stores of one loop have in common. For the loop's thread alone.
struct HttpShared {
  std::set<std::string, std::less<>> names;  // of hosts that have answered
  UnsizedTotal unsized;
};

// Reads and stats of the objects below one http(s) URL: builds the requests, follows
// redirects, checks every answer, and puts the bodies where they belong.
class HttpAttempts final : public Attempts, public std::enable_shared_from_this<HttpAttempts> {
 public:
  HttpAttempts(UrlParts root, std::string query, std::shared_ptr<TransferLoop> loop,
               std::shared_ptr<HttpShared> shared, std::shared_ptr<HttpCounts> counts,
               NameCheck name_check);
  ~HttpAttempts() override;

  void start(RemoteCall& call, AttemptListener& listener) override;
  void cancel(RemoteCall& call) override;
  std::string describe(const std::string& object) const override;

 private:
  class Attempt;

  // A name that is looked up once more, to tell why it was not found.
  struct Question {
    std::uint64_t number = 0;
    std::vector<std::pair<Attempt*, std::uint64_t>> attempts;  // that wait for the answer
  };

  void ask_about_name(Attempt& attempt, std::uint64_t number, const std::string& host);
  void settle_name(const std::string& host, std::uint64_t number, NameState state);
  void note_name(const std::string& url, bool at_root);

  const UrlParts root_;
  const std::string prefix_;  // of every URL
  const std::string query_;   // of the root's, for names that have none
  const std::shared_ptr<TransferLoop> loop_;
  const std::shared_ptr<HttpShared> shared_;
  const std::shared_ptr<HttpCounts> counts_;
  std::vector<std::unique_ptr<Attempt>> attempts_;
  std::vector<Attempt*> free_;
  const NameCheck name_check_;
  std::map<std::string, Question> questions_;
  std::uint64_t questions_asked_ = 0;
  bool root_noted_ = false;  // among the names
};

}  // namespace headpond
