#include "io/ca_bundle.h"

#include <map>

#include "support/catch.h"
#include "support/temp_dir.h"

using namespace headpond;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("certificates are looked for in the stated order") {
  const TempDir dir;
  for (const char* name : {"argument.pem", "ssl.pem", "curl.pem", "certifi.pem"})
    dir.write(name, "x");
  std::map<std::string, std::string> variables;
  const auto find = [&](const std::string& ca_file) {
    return find_ca_bundle(ca_file, dir.path("certifi.pem"), [&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::string() : found->second;
    });
  };
  // The system's, or where there is none the fall-back.
  auto none = find("");
  REQUIRE(none);
  CHECK((none->source == "the system" || none->file == dir.path("certifi.pem")));
  variables["SSL_CERT_DIR"] = dir.path();
  CHECK(find("")->folder == dir.path());
  variables["CURL_CA_BUNDLE"] = dir.path("curl.pem");
  CHECK(find("")->file == dir.path("curl.pem"));
  variables["SSL_CERT_FILE"] = dir.path("ssl.pem");
  CHECK(find("")->file == dir.path("ssl.pem"));
  CHECK(find(dir.path("argument.pem"))->file == dir.path("argument.pem"));
  for (const std::string& missing : {dir.path("missing"), std::string("/nowhere/x")}) {
    auto refused = find(missing);
    REQUIRE(!refused);
    CHECK(refused.error().code() == ErrorCode::invalid_argument);
    CHECK_THAT(refused.error().message(), ContainsSubstring(missing));
  }
  variables["SSL_CERT_FILE"] = dir.path("missing");
  auto refused = find("");
  REQUIRE(!refused);
  CHECK_THAT(refused.error().message(), ContainsSubstring("SSL_CERT_FILE"));
}
