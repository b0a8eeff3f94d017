#include "headpond/memory_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "io/allocate_whole.h"
#include "io/text.h"

namespace headpond {
namespace {

constexpr std::size_t kPage = 1024;          // names per page of a listing
constexpr std::size_t kAhead = 12;           // pieces prefetched before their copy
constexpr std::size_t kPrefetchBytes = 320;  // of each; the CPU's own prefetcher takes over then

void prefetch(const std::byte* from, std::size_t bytes) {
  const std::size_t stop = std::min(bytes, kPrefetchBytes);
  for (std::size_t at = 0; at < stop; at += 64) __builtin_prefetch(from + at, 0, 0);
}

// Random rows miss every cache, so the copy of one row hides the latency of later ones.
// Returns the number of pieces that lie inside; the caller reports the next one.
std::size_t gather(std::span<const std::byte> bytes, std::span<const Piece> pieces) {
  const auto fits = [&](const Piece& piece) {
    return piece.offset <= bytes.size() && piece.out.size() <= bytes.size() - piece.offset;
  };
  for (std::size_t i = 0; i < std::min(kAhead, pieces.size()); ++i) {
    if (fits(pieces[i])) prefetch(bytes.data() + pieces[i].offset, pieces[i].out.size());
  }
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    if (!fits(piece)) return i;
    if (i + kAhead < pieces.size() && fits(pieces[i + kAhead])) {
      prefetch(bytes.data() + pieces[i + kAhead].offset, pieces[i + kAhead].out.size());
    }
    if (!piece.out.empty())
      std::memcpy(piece.out.data(), bytes.data() + piece.offset, piece.out.size());
  }
  return pieces.size();
}

}  // namespace

void MemoryStore::put(std::string object, std::vector<std::byte> bytes) {
  auto owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  const std::span<const std::byte> view(*owned);
  put(std::move(object), view, std::move(owned));
}

void MemoryStore::put(std::string object, std::span<const std::byte> bytes,
                      std::shared_ptr<const void> hold) {
  objects_.insert_or_assign(std::move(object), Object{bytes, std::move(hold), ++generation_});
}

ObjectVersion MemoryStore::version_of(const Object& object) {
  ObjectVersion version;
  version.size = object.bytes.size();
  version.mtime_ns = static_cast<std::int64_t>(object.generation);
  return version;
}

Result<const MemoryStore::Object*> MemoryStore::find(std::string_view object,
                                                     const ObjectVersion& expected) const {
  if (closed_.load(std::memory_order_relaxed)) {
    return Error(ErrorCode::closed, "the store is closed").at_uri(describe() + printable(object));
  }
  const auto found = objects_.find(object);
  if (found == objects_.end()) {
    return Error(ErrorCode::not_found, "no such object").at_uri(describe() + printable(object));
  }
  if (!expected.is_any() && !expected.accepts(version_of(found->second))) {
    return Error(ErrorCode::object_changed, "the object changed: expected " + to_string(expected) +
                                                ", found " + to_string(version_of(found->second)))
        .at_uri(describe() + printable(object));
  }
  return &found->second;
}

void MemoryStore::read(std::span<ReadRequest> requests) {
  for (auto& taken : requests) {
    ReadRequest request = std::move(taken);
    const ByteRange range{request.offset, request.offset + request.out.size()};
    if (request.stop.stop_requested()) {
      request.done(Error(ErrorCode::cancelled, "cancelled")
                       .at_uri(describe() + printable(request.object))
                       .at_range(range));
      continue;
    }
    auto object = find(request.object, request.expected);
    if (!object) {
      request.done(std::move(object).error().at_range(range));
      continue;
    }
    const auto bytes = (*object)->bytes;
    if (request.allocate) {
      if (auto taken = allocate_whole(request, bytes.size()); !taken) {
        request.done(std::move(taken)
                         .error()
                         .at_uri(describe() + printable(request.object))
                         .at_range({0, bytes.size()}));
        continue;
      }
    }
    const auto start = std::min<std::uint64_t>(request.offset, bytes.size());
    const auto size = std::min<std::uint64_t>(request.out.size(), bytes.size() - start);
    if (size > 0) std::memcpy(request.out.data(), bytes.data() + start, size);
    request.done(ReadOutcome{size, version_of(**object)});
  }
}

void MemoryStore::stat(std::string object, std::function<void(Result<ObjectInfo>)> done) {
  auto found = find(object, {});
  if (!found) return done(std::move(found).error());
  done(ObjectInfo{std::move(object), version_of(**found)});
}

namespace {

// Has the name a part that begins with "." in or behind the prefix's last part?
bool is_hidden(std::string_view name, std::string_view prefix) {
  const auto last = prefix.rfind('/');
  const auto tail = name.substr(last == std::string_view::npos ? 0 : last + 1);
  return tail.starts_with('.') || tail.find("/.") != std::string_view::npos;
}

}  // namespace

void MemoryStore::list(ListRequest request) {
  if (closed_)
    return request.page(Error(ErrorCode::closed, "the store is closed").at_uri(describe()));
  std::vector<ObjectInfo> page;
  for (auto at = objects_.lower_bound(request.prefix); at != objects_.end(); ++at) {
    if (!at->first.starts_with(request.prefix)) break;
    if (request.stop.stop_requested()) break;
    if (request.skip_hidden && is_hidden(at->first, request.prefix)) continue;
    if (request.wanted && !request.wanted(at->first)) continue;
    page.push_back({at->first, version_of(at->second)});
    if (page.size() == kPage) request.page(std::exchange(page, {}));
  }
  if (request.stop.stop_requested())
    return request.page(Error(ErrorCode::cancelled, "cancelled").at_uri(describe()));
  if (!page.empty()) request.page(std::move(page));
  request.page(std::vector<ObjectInfo>());
}

Result<std::size_t> MemoryStore::read_now(std::string_view object, const ObjectVersion& expected,
                                          std::span<const Piece> pieces, Wait) {
  auto found = find(object, expected);
  if (!found) return std::move(found).error();
  const std::size_t filled = gather((*found)->bytes, pieces);
  if (filled == pieces.size()) return filled;
  const Piece& bad = pieces[filled];
  const bool size_known = expected.size != ObjectVersion::kAnySize;
  return Error(
             size_known ? ErrorCode::object_changed : ErrorCode::corrupt_data,
             "the range reaches past the object's end at " + std::to_string((*found)->bytes.size()))
      .at_uri(describe() + printable(object))
      .at_range({bad.offset, bad.offset + bad.out.size()});
}

std::string MemoryStore::describe() const { return "memory://"; }

void MemoryStore::close() { closed_ = true; }

}  // namespace headpond
