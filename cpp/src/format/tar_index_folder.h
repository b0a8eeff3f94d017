#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "format/tar_index.h"
#include "headpond/log.h"
#include "headpond/object_version.h"

namespace headpond {

// The indexes of tar shards, kept in a folder, one file per shard and version.
//
// A missing one is built under a record lock, so that the other processes of the
// machine wait for it instead of reading the shard as well; the kernel drops a dead
// builder's lock, and one that is alive is waited for as long as `patience`, then
// both build. It is published by a rename. One that is damaged or not of its
// shard is built again, with a warning. Where the folder cannot be written, indexes
// live in memory. Safe from any thread.
class TarIndexFolder {
 public:
  static constexpr std::chrono::milliseconds kPatience = std::chrono::seconds(60);

  // "": no folder. `log` may be null.
  TarIndexFolder(std::string folder, std::shared_ptr<LogQueue> log,
                 std::chrono::milliseconds patience = kPatience);

  struct Shard {
    std::string uri;  // identity and messages; see object_key
    ObjectVersion version;
    TarWalker::Read read;
    // An index of this version from elsewhere, asked for before the shard is walked.
    std::function<std::optional<std::vector<std::byte>>()> shipped = nullptr;
  };
  // `proceed` is asked now and then, also while waiting; false: cancelled.
  // Errors: of `read` and of build_tar_index, with the shard's URI.
  Result<std::shared_ptr<const TarIndex>> get(const Shard& shard,
                                              const std::function<bool()>& proceed) const;

  // Where the index of this shard and version lies; "" without a folder.
  std::string path_of(const std::string& uri, const ObjectVersion& version) const;
  // The index kept for this version, or null.
  Result<std::shared_ptr<const TarIndex>> find(const std::string& uri,
                                               const ObjectVersion& version) const;
  // Keeps an index that was made elsewhere, and returns it ready for use; the one that is
  // there already, if another process was faster.
  Result<std::shared_ptr<const TarIndex>> keep(const std::string& uri, const ObjectVersion& version,
                                               std::vector<std::byte> image) const;

 private:
  Result<std::shared_ptr<const TarIndex>> publish(const std::string& uri,
                                                  const ObjectVersion& version,
                                                  std::shared_ptr<const TarIndex> index) const;
  Result<std::shared_ptr<const TarIndex>> build(const Shard& shard,
                                                const std::function<bool()>& proceed) const;
  Result<std::shared_ptr<const TarIndex>> build_and_publish(
      const Shard& shard, const std::string& path, const std::function<bool()>& proceed) const;
  void remove_unused() const;
  void log(LogLevel level, const std::string& key, std::string text) const;

  mutable std::once_flag unused_removed_;
  std::string folder_;
  std::shared_ptr<LogQueue> log_;
  std::chrono::milliseconds patience_;
};

// What an index says it was made for.
Digest digest_of(const ObjectVersion& version);

}  // namespace headpond
