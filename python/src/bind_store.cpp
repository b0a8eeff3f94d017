#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "headpond/store.h"
#include "text.h"
#include "typed.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

constexpr std::chrono::milliseconds kSignalCheck{100};

struct Place {
  std::shared_ptr<Store> store;
  std::string object;
  std::string uri;  // for messages
};

// Objects are read below the root of their scheme and authority, so that one store serves all.
Place find(Engine& engine, const std::string& uri_text) {
  const auto uri = value_or_raise(Uri::parse(uri_text));
  Uri root = uri;
  root.path = "/";
  root.query.clear();
  auto object = uri.path;
  if (uri.scheme == "http" || uri.scheme == "https") {
    // The rest of the URL as it was written: "//" may mean something to the server.
    if (object.starts_with("/")) object.erase(0, 1);
    if (!uri.query.empty()) object += "?" + uri.query;
  } else {
    while (object.starts_with("/")) object.erase(0, 1);
  }
  return {value_or_raise(engine.stores().open(root)), std::move(object), uri.to_string()};
}

// Results of requests in flight. Shared with the requests, so that an interrupted wait is safe.
template <class T>
class Gather {
 public:
  explicit Gather(std::size_t count) : results_(count), open_(count) {}

  void put(std::size_t index, Result<T> result) {
    const std::lock_guard lock(mutex_);
    results_[index] = std::move(result);
    if (--open_ == 0) done_.notify_all();
  }

  // Without the GIL. False when `open` requests are left after the time.
  bool wait(std::optional<std::chrono::milliseconds> time) {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return open_ == 0; };
    if (time) return done_.wait_for(lock, *time, ready);
    done_.wait(lock, ready);
    return true;
  }

  std::vector<std::optional<Result<T>>>& results() { return results_; }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<std::optional<Result<T>>> results_;
  std::size_t open_;
};

// Waits for all; a signal's exception stops the requests first and is raised after their end,
// because they write into memory of the caller.
template <class T>
void wait_for_all(Gather<T>& gather, StopSource& stop) {
  for (;;) {
    bool done = false;
    {
      py::gil_scoped_release released;
      done = gather.wait(kSignalCheck);
    }
    if (done) return;
    if (PyErr_CheckSignals() == 0) continue;
    stop.request_stop();
    {
      py::gil_scoped_release released;
      gather.wait(std::nullopt);
    }
    raise_python();
  }
}

ObjectInfo stat_object(const Place& place) {
  SignalWatch signals;
  Result<ObjectInfo> info = [&] {
    py::gil_scoped_release released;
    return stat_blocking(*place.store, place.object, signals.go_on());
  }();
  signals.raise();
  return value_or_raise(std::move(info));
}

NamedValues info_dict(const ObjectInfo& info, const std::string& uri) {
  NamedValues dict;
  dict["uri"] = text(uri);
  dict["size"] = info.version.size;
  dict["mtime_ns"] =
      info.version.mtime_ns == 0 ? py::object(py::none()) : py::int_(info.version.mtime_ns);
  dict["etag"] = info.version.etag.empty() ? py::object(py::none()) : text(info.version.etag);
  return dict;
}

struct Range {
  Place place;
  ByteRange range;
  ObjectVersion expected;
  std::span<std::byte> out;
  bool whole = false;                // the answer says its size
  std::unique_ptr<std::byte[]> own;  // memory for it: without the GIL there are no bytes objects
};

// On a thread of the store.
std::span<std::byte> allocate_for(Range& range, std::uint64_t size) {
  range.own.reset(new (std::nothrow) std::byte[size]);
  if (range.own == nullptr) return {};
  range.out = {range.own.get(), static_cast<std::size_t>(size)};
  range.range.stop = size;
  return range.out;
}

// Reads every range whole, all in flight at once; the first error in order is raised.
void read_ranges(std::vector<Range>& ranges) {
  auto gather = std::make_shared<Gather<ReadOutcome>>(ranges.size());
  StopSource stop;
  {
    py::gil_scoped_release released;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      Range& range = ranges[i];
      ReadRequest request;
      request.object = range.place.object;
      request.offset = range.range.start;
      request.out = range.out;
      if (range.whole) {
        request.allocate = [&range](std::uint64_t size) { return allocate_for(range, size); };
      }
      request.expected = range.expected;
      request.stop = stop.get_token();
      request.done = [gather, i](Result<ReadOutcome> outcome) {
        gather->put(i, std::move(outcome));
      };
      range.place.store->read({&request, 1});
    }
  }
  wait_for_all(*gather, stop);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const Range& range = ranges[i];
    const auto outcome = value_or_raise(std::move(*gather->results()[i]));
    if (outcome.bytes < range.range.size()) {
      raise(
          Error(ErrorCode::invalid_argument, "the range ends past the object's end at " +
                                                 std::to_string(range.range.start + outcome.bytes))
              .at_uri(range.place.uri)
              .at_range(range.range));
    }
  }
}

using Request = std::tuple<py::bytes, std::optional<std::uint64_t>, std::optional<std::uint64_t>>;

Range resolve(Engine& engine, const Request& request) {
  Range range;
  range.place = find(engine, std::string(std::get<0>(request)));
  range.range.start = std::get<1>(request).value_or(0);
  if (const auto stop = std::get<2>(request)) {
    range.range.stop = *stop;
  } else if (range.range.start == 0 && range.place.store->is_remote()) {
    range.whole = true;  // one request instead of two
  } else {
    const auto info = stat_object(range.place);
    range.expected = info.version;
    range.range.stop = std::max(info.version.size, range.range.start);
  }
  if (range.range.stop < range.range.start) {
    raise(Error(ErrorCode::invalid_argument, "stop " + std::to_string(range.range.stop) +
                                                 " lies before start " +
                                                 std::to_string(range.range.start))
              .at_uri(range.place.uri));
  }
  return range;
}

// Of a range's size, with these bytes in it; without any they go there later.
py::object new_bytes(const std::byte* from, Range& range) {
  const auto size = static_cast<Py_ssize_t>(range.range.size());
  PyObject* bytes = PyBytes_FromStringAndSize(reinterpret_cast<const char*>(from), size);
  if (bytes == nullptr) raise_python();
  if (from == nullptr) {
    range.out = {reinterpret_cast<std::byte*>(PyBytes_AS_STRING(bytes)), range.range.size()};
  }
  return py::reinterpret_steal<py::object>(bytes);
}

py::typing::List<py::bytes> read_many(const PyEngine& engine,
                                      const std::vector<Request>& requests) {
  std::vector<py::object> filled;
  std::vector<Range> ranges;
  for (const auto& request : requests) {
    Range range = resolve(*engine.get(), request);
    filled.push_back(range.whole ? py::object() : new_bytes(nullptr, range));
    ranges.push_back(std::move(range));
  }
  read_ranges(ranges);
  py::typing::List<py::bytes> values;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    Range& range = ranges[i];
    values.append(range.whole ? new_bytes(range.own.get(), range) : filled[i]);
    range.own.reset();
  }
  return values;
}

std::uint64_t read_into(const PyEngine& engine, const py::bytes& uri, std::uint64_t start,
                        const py::buffer& out) {
  const auto info = out.request(/*writable=*/true);
  const auto size = static_cast<std::uint64_t>(info.size * info.itemsize);
  if (PyBuffer_IsContiguous(info.view(), 'C') == 0) {
    raise(Error(ErrorCode::invalid_argument, "out must be C-contiguous"));
  }
  std::vector<Range> ranges;
  ranges.push_back(resolve(*engine.get(), {uri, start, start + size}));
  ranges.front().out = {static_cast<std::byte*>(info.ptr), size};
  read_ranges(ranges);
  return size;
}

NamedValues stat(const PyEngine& engine, const py::bytes& uri) {
  const auto place = find(*engine.get(), std::string(uri));
  return info_dict(stat_object(place), place.uri);
}

py::typing::List<NamedValues> list(const PyEngine& engine, const py::bytes& uri_text) {
  const auto uri = value_or_raise(Uri::parse(std::string(uri_text)));
  const auto store = value_or_raise(engine.get()->stores().open(uri));
  Result<std::vector<ObjectInfo>> listed = [&] {
    py::gil_scoped_release released;
    return list_blocking(*store);
  }();
  py::typing::List<NamedValues> infos;
  for (const auto& info : value_or_raise(std::move(listed))) {
    infos.append(info_dict(info, uri.join(info.name).to_string()));
  }
  return infos;
}

}  // namespace

void bind_store(py::module_& module) {
  module.def("read_many", &read_many, py::arg("engine"), py::arg("ranges"));
  module.def("read_into", &read_into, py::arg("engine"), py::arg("uri"), py::arg("start"),
             py::arg("out"));
  module.def("stat_object", &stat, py::arg("engine"), py::arg("uri"));
  module.def("list_objects", &list, py::arg("engine"), py::arg("uri"));
}

}  // namespace headpond::python
