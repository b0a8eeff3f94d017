#include "io/ca_bundle.h"

#include <unistd.h>

#include <array>
#include <cerrno>

#include "io/text.h"

namespace headpond {
namespace {

bool is_readable(const std::string& path) { return access(path.c_str(), R_OK) == 0; }

Error unreadable(const std::string& path, const char* whose) {
  return Error(ErrorCode::invalid_argument,
               std::string(whose) + "=" +
                   system_error(errno, printable(path) + " cannot be read").message());
}

}  // namespace

Result<CaBundle> find_ca_bundle(const std::string& ca_file, const std::string& fallback,
                                const std::function<std::string(const char*)>& variable) {
  if (!ca_file.empty()) {
    if (!is_readable(ca_file)) return unreadable(ca_file, "ca_file");
    return CaBundle{ca_file, {}, "ca_file"};
  }
  for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE"}) {
    const std::string file = variable(name);
    if (file.empty()) continue;
    if (!is_readable(file)) return unreadable(file, name);
    return CaBundle{file, {}, name};
  }
  if (const std::string folder = variable("SSL_CERT_DIR"); !folder.empty()) {
    if (!is_readable(folder)) return unreadable(folder, "SSL_CERT_DIR");
    return CaBundle{{}, folder, "SSL_CERT_DIR"};
  }
  constexpr std::array<const char*, 6> kFiles = {
      "/etc/ssl/certs/ca-certificates.crt",                 // Debian, Arch
      "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  // Fedora, RHEL
      "/etc/pki/tls/certs/ca-bundle.crt",                   // RHEL 6
      "/etc/ssl/ca-bundle.pem",                             // SUSE
      "/etc/ssl/cert.pem",                                  // Alpine
      "/var/lib/ca-certificates/ca-bundle.pem",
  };
  for (const char* file : kFiles) {
    if (is_readable(file)) return CaBundle{file, {}, "the system"};
  }
  if (!fallback.empty() && is_readable(fallback)) return CaBundle{fallback, {}, "certifi"};
  return CaBundle{};
}

}  // namespace headpond
