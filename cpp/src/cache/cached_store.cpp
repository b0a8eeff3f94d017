#include "cache/cached_store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stop_token>
#include <utility>
#include <vector>

namespace headpond {
namespace {

constexpr std::chrono::seconds kCloseLimit{2};

Error object_ended(const std::string& uri, ByteRange range) {
  return Error(ErrorCode::object_changed, "the object ends before its size")
      .in("reading")
      .at_uri(uri)
      .at_range(range);
}

ByteRange range_of(const Piece& piece) { return {piece.offset, piece.offset + piece.out.size()}; }

// What is done in parts that end in any order, on any thread. It begins with one part, of whoever
// starts the others.
class Parts {
 public:
  void add(std::size_t parts) { left_.fetch_add(parts, std::memory_order_relaxed); }
  // True for the part that ends last; `first_error` is then whole.
  bool end(Result<void> part) {
    if (!part) {
      const std::lock_guard lock(mutex_);
      if (!error_) error_ = std::move(part).error();
    }
    return left_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  std::optional<Error>& first_error() { return error_; }

 private:
  std::atomic<std::size_t> left_ = 1;
  std::mutex mutex_;
  std::optional<Error> error_;
};

}  // namespace

struct CachedStore::Shared {
  std::shared_ptr<Store> inner;
  std::shared_ptr<BlockCache> cache;
  InFlight in_flight;
  StopSource closing;
};

// The bytes of a block come from its objects, one read for each that the range touches.
class CachedStore::Source final : public BlockSource {
 public:
  Source(std::shared_ptr<Store> store, std::vector<std::string> names)
      : store_(std::move(store)), names_(std::move(names)) {}

  void fetch(const Block& block, std::uint64_t offset, std::span<std::byte> out,
             const StopToken& stop, std::function<void(Result<void>)> done) override {
    struct Fetch {
      Parts parts;
      std::function<void(Result<void>)> done;

      void part_done(Result<void> part) {
        if (!parts.end(std::move(part))) return;
        auto& error = parts.first_error();
        done(error ? Result<void>(std::move(*error)) : Result<void>());
      }
    };
    const auto fetch = std::make_shared<Fetch>();
    fetch->done = std::move(done);
    std::vector<ReadRequest> requests;
    const ByteRange wanted{offset, offset + out.size()};
    std::uint64_t start = 0;
    for (std::size_t i = 0; i < block.extents.size() && start < wanted.stop; ++i) {
      const BlockExtent& extent = block.extents[i];
      const ByteRange part{std::max(start, wanted.start),
                           std::min(start + extent.range.size(), wanted.stop)};
      if (part.start < part.stop) {
        ReadRequest request;
        request.object = names_[i];
        request.offset = extent.range.start + part.start - start;
        request.out = out.subspan(part.start - wanted.start, part.size());
        request.expected = extent.version;
        request.stop = stop;
        const ByteRange range{request.offset, request.offset + part.size()};
        request.done = [fetch, range, store = store_,
                        name = names_[i]](Result<ReadOutcome> outcome) {
          if (!outcome) return fetch->part_done(std::move(outcome).error());
          if (outcome->bytes == range.size()) return fetch->part_done({});
          fetch->part_done(object_ended(store->describe() + name, range));
        };
        requests.push_back(std::move(request));
      }
      start += extent.range.size();
    }
    fetch->parts.add(requests.size());
    store_->read(requests);
    fetch->part_done({});
  }

 private:
  const std::shared_ptr<Store> store_;
  const std::vector<std::string> names_;  // by extent
};

// A read on its way; its parts end in any order.
struct CachedStore::Request {
  struct Stop {
    Request* request;
    void operator()() const {
      request->stop.request_stop();
      request->shared->cache->cancel_stopped();
    }
  };

  std::shared_ptr<Shared> shared;
  ReadRequest asked;
  ReadOutcome outcome;
  StopSource stop;
  std::optional<std::stop_callback<Stop>> on_stop;
  std::optional<std::stop_callback<Stop>> on_close;
  Parts parts;

  void part_done(Result<void> part) {
    if (!parts.end(std::move(part))) return;
    on_stop.reset();
    on_close.reset();
    if (!shared->in_flight.begin_done()) return;
    if (auto& error = parts.first_error()) {
      asked.done(std::move(*error));
    } else {
      asked.done(std::move(outcome));
    }
    asked = {};
    shared->in_flight.end_done();
  }
};

CachedStore::CachedStore(std::shared_ptr<Store> inner, std::shared_ptr<BlockCache> cache,
                         const Uri& root, std::shared_ptr<const BlockMap> blocks)
    : shared_(std::make_shared<Shared>()), prefix_(root.to_string()), blocks_(std::move(blocks)) {
  shared_->inner = std::move(inner);
  shared_->cache = std::move(cache);
}

CachedStore::~CachedStore() { close(); }

// Where a small object lies in the block that it shares with its neighbours.
std::optional<BlockMap::Place> CachedStore::bundle_of(std::string_view object,
                                                      const ObjectVersion& version) const {
  if (blocks_ == nullptr || version.size >= kBundledBelowBytes) return std::nullopt;
  const auto index = blocks_->list().find(object);
  if (!index || blocks_->list().version(*index) != version) return std::nullopt;
  const auto place = blocks_->place(*index, 0);
  if (!blocks_->key(place.block)) return std::nullopt;
  return place;
}

// --- reads

void CachedStore::read(std::span<ReadRequest> requests) {
  for (ReadRequest& asked : requests) {
    const ObjectVersion& version = asked.expected;
    const auto refuse = [&](Error error) {
      const ReadRequest refused = std::move(asked);
      refused.done(std::move(error).in("reading"));
    };
    if (shared_->in_flight.closed()) {
      refuse(closed(asked.object));
      continue;
    }
    if (!is_cacheable(version) || asked.offset >= version.size) {
      shared_->inner->read(std::span(&asked, 1));
      continue;
    }
    std::span<std::byte> out = asked.out;
    if (asked.allocate && out.empty()) {
      out = asked.allocate(version.size);
      if (out.size() != version.size) {
        refuse(Error(ErrorCode::resource_limit, "no memory was given for the object")
                   .at_uri(object_identity(prefix_, asked.object)));
        continue;
      }
    }
    out = out.first(std::min<std::uint64_t>(out.size(), version.size - asked.offset));
    if (out.empty()) {
      const ReadRequest nothing = std::move(asked);
      nothing.done(ReadOutcome{0, nothing.expected});
    } else if (!shared_->in_flight.enter(1)) {
      refuse(closed(asked.object));
    } else {
      read_blocks(std::move(asked), out);
    }
  }
}

std::shared_ptr<BlockSource> CachedStore::source_of(std::uint64_t block) const {
  std::vector<std::string> names;
  const auto objects = blocks_->objects(block);
  for (std::uint64_t i = objects.first; i < objects.stop; ++i) {
    if (blocks_->list().object_size(i) == 0) continue;
    names.emplace_back();
    blocks_->list().name(i, names.back());
  }
  return std::make_shared<Source>(shared_->inner, std::move(names));
}

void CachedStore::keep(std::uint64_t block, const StopToken& stop,
                       std::function<void(Result<void>)> done) {
  auto described = blocks_->block(block);
  if (!described) {
    return done(Error(ErrorCode::unsupported,
                      "the store gives no ETag and no time that tells the object's version"));
  }
  BlockRead read;
  read.block = std::make_shared<const Block>(*std::move(described));
  read.source = source_of(block);
  read.stop = stop;
  read.done = std::move(done);
  shared_->cache->read(std::move(read));
}

void CachedStore::read_blocks(ReadRequest asked, std::span<std::byte> out) {
  const auto request = std::make_shared<Request>();
  request->shared = shared_;
  request->asked = std::move(asked);
  request->outcome = {out.size(), request->asked.expected};
  const ObjectVersion& version = request->outcome.version;
  const std::string& object = request->asked.object;
  const std::uint64_t first = request->asked.offset;
  if (request->asked.stop.stop_possible())
    request->on_stop.emplace(request->asked.stop, Request::Stop{request.get()});
  request->on_close.emplace(shared_->closing.get_token(), Request::Stop{request.get()});

  BlockRead part;
  {
    const std::lock_guard lock(following_);
    part.uses = uses_.lock();
  }
  std::uint64_t first_block = 0;  // of a large object, in the map
  if (part.uses != nullptr && version.size >= kBundledBelowBytes) {
    const auto index = blocks_->list().find(object);
    if (index) first_block = blocks_->place(*index, 0).block;
    if (!index) part.uses = nullptr;
  }
  part.stop = request->stop.get_token();
  part.done = [request](Result<void> outcome) { request->part_done(std::move(outcome)); };
  std::vector<BlockRead> parts;
  if (const auto place = bundle_of(object, version)) {
    part.block = std::make_shared<const Block>(*blocks_->block(place->block));
    part.source = source_of(place->block);
    part.offset = place->offset + first;
    part.place = place->block;
    part.out = out;
    parts.push_back(std::move(part));
  } else {
    const std::string uri = object_identity(prefix_, object);
    part.source = std::make_shared<Source>(shared_->inner, std::vector<std::string>{object});
    for (std::uint64_t at = first; at < first + out.size();) {
      const ByteRange range = block_range(at, version.size);
      const std::uint64_t stop = std::min(first + out.size(), range.stop);
      part.block = std::make_shared<const Block>(make_block({{uri, version, range}}));
      part.offset = at - range.start;
      part.place = first_block + at / kBlockBytes;
      part.out = out.subspan(at - first, stop - at);
      parts.push_back(part);
      at = stop;
    }
  }
  request->parts.add(parts.size());
  for (BlockRead& read : parts) shared_->cache->read(std::move(read));
  request->part_done({});
}

// --- what is here already

bool CachedStore::read_block_now(std::string_view object, const ObjectVersion& version,
                                 const Digest& digest, ByteRange block,
                                 std::span<const Piece> parts, Wait wait) {
  const BlockPart whole{digest, block};
  return shared_->cache->read_now(block_key({&whole, 1}), parts, wait, [&] {
    return make_block({{object_identity(prefix_, object), version, block}});
  });
}

bool CachedStore::read_bundle_now(const BlockMap::Place& place, std::span<const Piece> pieces,
                                  Wait wait) {
  std::vector<Piece> parts(pieces.begin(), pieces.end());
  for (Piece& part : parts) part.offset += place.offset;
  return shared_->cache->read_now(*blocks_->key(place.block), parts, wait,
                                  [&] { return *blocks_->block(place.block); });
}

Result<std::size_t> CachedStore::read_now(std::string_view object, const ObjectVersion& expected,
                                          std::span<const Piece> pieces, Wait wait) {
  if (shared_->in_flight.closed()) return closed(object);
  if (!is_cacheable(expected)) return std::size_t{0};
  for (const Piece& piece : pieces) {
    if (range_of(piece).stop > expected.size)
      return object_ended(object_identity(prefix_, object), range_of(piece));
  }
  if (const auto place = bundle_of(object, expected))
    return read_bundle_now(*place, pieces, wait) ? pieces.size() : 0;
  const Digest digest = object_digest(object_identity(prefix_, object), expected);
  const auto read = [&](ByteRange block, std::span<const Piece> parts) {
    return read_block_now(object, expected, digest, block, parts, wait);
  };
  std::vector<Piece> parts;  // neighbours in one block
  std::size_t next = 0;
  while (next < pieces.size()) {
    const std::size_t filled = next;
    const ByteRange block = block_range(pieces[next].offset, expected.size);
    parts.clear();
    while (next < pieces.size() && pieces[next].offset >= block.start &&
           range_of(pieces[next]).stop <= block.stop) {
      parts.push_back({pieces[next].offset - block.start, pieces[next].out});
      ++next;
    }
    if (!parts.empty()) {
      if (!read(block, parts)) return filled;
      continue;
    }
    const Piece& piece = pieces[next++];  // over several blocks
    for (std::uint64_t at = 0; at < piece.out.size();) {
      const ByteRange range = block_range(piece.offset + at, expected.size);
      const std::uint64_t bytes =
          std::min<std::uint64_t>(piece.out.size() - at, range.stop - (piece.offset + at));
      const Piece part{piece.offset + at - range.start, piece.out.subspan(at, bytes)};
      if (!read(range, {&part, 1})) return filled;
      at += bytes;
    }
  }
  return next;
}

// --- the rest

Error CachedStore::closed(std::string_view object) const {
  return Error(ErrorCode::closed, "the store is closed").at_uri(object_identity(prefix_, object));
}

void CachedStore::stat(std::string object, std::function<void(Result<ObjectInfo>)> done) {
  if (shared_->in_flight.closed()) return done(closed(object));
  shared_->inner->stat(std::move(object), std::move(done));
}

void CachedStore::list(ListRequest request) {
  if (shared_->in_flight.closed()) return request.page(closed(request.prefix));
  shared_->inner->list(std::move(request));
}

bool CachedStore::is_remote() const { return shared_->inner->is_remote(); }

std::string CachedStore::describe() const { return shared_->inner->describe(); }

void CachedStore::follow(std::weak_ptr<const BlockUses> uses) {
  const std::lock_guard lock(following_);
  uses_ = std::move(uses);
}

const std::shared_ptr<BlockCache>& CachedStore::cache() const { return shared_->cache; }

// The store itself has other readers.
void CachedStore::close() {
  shared_->closing.request_stop();
  shared_->in_flight.close(kCloseLimit);
}

}  // namespace headpond
