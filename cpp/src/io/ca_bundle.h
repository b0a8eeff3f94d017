#pragma once

#include <functional>
#include <string>

#include "headpond/result.h"

namespace headpond {

// The certificates that servers are checked against.
struct CaBundle {
  std::string file;    // PEM; or
  std::string folder;  // hashed
  std::string source;  // "ca_file", "SSL_CERT_FILE", "the system", "certifi" ...
};

// Looks in this order: `ca_file`; the variables SSL_CERT_FILE, CURL_CA_BUNDLE and
// SSL_CERT_DIR; where distributions keep them; `fallback` (certifi's, say). All empty:
// none is there, and every https read will fail with that reason.
// `variable`: the environment; empty text: not set.
// Errors: invalid_argument, of a file that was named and cannot be read.
Result<CaBundle> find_ca_bundle(const std::string& ca_file, const std::string& fallback,
                                const std::function<std::string(const char*)>& variable);

}  // namespace headpond
