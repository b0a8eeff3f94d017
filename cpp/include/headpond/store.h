#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "headpond/object_version.h"
#include "headpond/result.h"
#include "headpond/stop_token.h"
#include "headpond/uri.h"

namespace headpond {

struct ReadOutcome {
  std::uint64_t bytes = 0;  // written to `out`: its size, less only where the object ends
  ObjectVersion version;    // that was read
};

struct ReadRequest {
  std::string object;  // relative to the store's root; bytes, "/" between parts
  std::uint64_t offset = 0;
  std::span<std::byte> out;  // valid until `done` has run
  ObjectVersion expected;    // any: the outcome says which
  StopToken stop;
  std::function<void(Result<ReadOutcome>)> done;
  // For an object wanted whole whose size is not known; `offset` is then 0 and `out`
  // empty. Runs at most once, before `done`, on a thread of the store, and must not
  // block. Returns memory of exactly `size` bytes, valid until `done` has run; anything
  // else is a refusal, and the read ends with resource_limit. Where a server does not say the
  // size before the end, the store holds the bytes until then, at most 32 MiB of all such
  // reads together: a larger object is unsupported, and what does not fit beside others waits.
  std::function<std::span<std::byte>(std::uint64_t size)> allocate = nullptr;
};

struct ObjectInfo {
  std::string name;
  ObjectVersion version;  // its size is known
};

struct ListRequest {
  std::string prefix;  // of the name; "": everything
  // Leave out names below the prefix with a part that begins with "."; such folders are not
  // entered.
  bool skip_hidden = false;
  // What to leave out. A name that ends with "/" stands for a folder: refused, nothing below it
  // is wanted either, and it need not be entered. Called from several threads at once.
  std::function<bool(std::string_view name)> wanted;
  // Give also the folders below which nothing is given, with a name that ends with "/" and no
  // version. A store that knows no folders has none.
  bool empty_folders = false;
  StopToken stop;
  // Called with pages in name order, then once with an empty page or an error.
  std::function<void(Result<std::vector<ObjectInfo>>)> page;
};

// One part of an object for `read_now`.
struct Piece {
  std::uint64_t offset = 0;
  std::span<std::byte> out;
};

// What `read_now` may do when the bytes are not in memory.
enum class Wait : std::uint8_t {
  never,    // nothing: give up at that piece
  allowed,  // block in the read: the caller has its own thread for it
};

// A namespace of immutable objects readable by byte range: a directory, a
// bucket, a web server, memory. Safe to call from any thread.
class Store {
 public:
  virtual ~Store() = default;

  // Starts every read and returns at once; the requests are moved from. Each
  // `done` runs exactly once, on a thread of the store: `out.size()` bytes, or
  // less only where the object ends. It must not block.
  // Errors: not_found; access_denied; not_regular; object_changed (not the
  // expected version); io_failed; unavailable (worth retrying); corrupt_data
  // (wrong range sent); resource_limit; cancelled. All name object and range.
  virtual void read(std::span<ReadRequest> requests) = 0;

  virtual void stat(std::string object, std::function<void(Result<ObjectInfo>)> done) = 0;
  virtual void list(ListRequest request) = 0;

  // Reads pieces of one object on the calling thread and returns how many
  // leading pieces were filled. Fewer than asked: with Wait::never the next one
  // would wait (it is not in memory), with Wait::allowed this store has no
  // blocking path; use `read`. A piece that reaches past the object's end is
  // object_changed when `expected` knows a size, else corrupt_data.
  virtual Result<std::size_t> read_now(std::string_view object, const ObjectVersion& expected,
                                       std::span<const Piece> pieces, Wait wait) = 0;

  // Does each answer cost a round trip through a network? Then nothing is asked object by
  // object that can come with the data.
  virtual bool is_remote() const { return false; }

  // "file:///data" and such, for messages.
  virtual std::string describe() const = 0;

  // Cancels what is in flight, waits until no `done` is outstanding (2 s at most
  // for a read that the kernel does not give back), and refuses further reads
  // with `closed`. The `done` of a read that was not given back never runs, and
  // what it holds is never freed: let it hold the memory behind `out`. Idempotent.
  virtual void close() = 0;
};

// Asked a few times in 200 ms by who waits; false: it is not wanted any more.
using GoOn = std::function<bool()>;

// Blocking forms, for callers with a thread to spare: opening a dataset, ds[i]. They end with
// `cancelled` where `go_on` says false.
Result<ReadOutcome> read_blocking(Store& store, std::string_view object, std::uint64_t offset,
                                  std::span<std::byte> out, const ObjectVersion& expected = {},
                                  const GoOn& go_on = {});
Result<ObjectInfo> stat_blocking(Store& store, std::string_view object, const GoOn& go_on = {});
Result<std::vector<ObjectInfo>> list_blocking(Store& store, std::string_view prefix = {});

class BlockMap;  // of the cache; only handed on here

// Whether reads go through the node's cache.
enum class Caching : std::uint8_t {
  no,
  yes,
  if_remote,
};

// Which store serves a URI's scheme. An ordinary object, owned by the engine;
// stores are made once per root and shared. Safe to call from any thread.
class StoreRegistry {
 public:
  // `root` is a directory-like URI; the store reads objects below it.
  using Factory = std::function<Result<std::shared_ptr<Store>>(const Uri& root)>;
  // A store around another one that reads through a cache; the same one where there is none.
  // `blocks`: how what will be read of it is cut, as far as that is known, else null.
  using Wrap = std::function<std::shared_ptr<Store>(std::shared_ptr<Store> store, const Uri& root,
                                                    std::shared_ptr<const BlockMap> blocks)>;

  void add(std::string scheme, Factory make);
  // What stores opened as Caching::yes are wrapped in.
  void add_cache(Wrap wrap);

  // Errors: unsupported, naming the known schemes; whatever the factory says.
  Result<std::shared_ptr<Store>> open(const Uri& root);
  // The same through the node's cache, if there is one and `caching` says so; a store of its own
  // for each call.
  Result<std::shared_ptr<Store>> open(const Uri& root, Caching caching,
                                      std::shared_ptr<const BlockMap> blocks = nullptr);
  // Closes every store that was opened; opens nothing more.
  void close();

 private:
  Result<std::shared_ptr<Store>> open_locked(const Uri& root);

  std::mutex mutex_;
  std::map<std::string, Factory, std::less<>> factories_;
  Wrap wrap_;
  std::map<Uri, std::shared_ptr<Store>> stores_;
  std::vector<std::weak_ptr<Store>> cached_;  // around those of stores_
  bool closed_ = false;
};

}  // namespace headpond
