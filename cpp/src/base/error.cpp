#include "headpond/error.h"

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

namespace headpond {
namespace {

constexpr std::array kKinds{
    ErrorKind{ErrorCode::invalid_argument, "HP0001", "InvalidArgument", "An argument is wrong.",
              "Read the message: it names the argument and what it may be."},
    ErrorKind{ErrorCode::unsupported, "HP0002", "Error", "headpond cannot do this.",
              "Use the way that the message names, or ask for the feature."},
    ErrorKind{ErrorCode::not_found, "HP0101", "NotFound", "An object does not exist.",
              "Check the path; if files were deleted after listing, open the dataset again or use "
              "on_error=\"skip\"."},
    ErrorKind{ErrorCode::access_denied, "HP0102", "AccessDenied", "An object may not be read.",
              "Check owner, mode and mount of the file for the user that trains."},
    ErrorKind{ErrorCode::not_regular, "HP0103", "InvalidArgument",
              "A directory, FIFO, socket or device stands where a file should be.",
              "Leave it out with pattern=, or remove it from the list."},
    ErrorKind{ErrorCode::object_changed, "HP0104", "ObjectChanged",
              "An object changed after the dataset was opened.",
              "Datasets are read as of their opening: write changed data under new names, or open "
              "the dataset again."},
    ErrorKind{ErrorCode::io_failed, "HP0105", "Error", "The device or the kernel refused a read.",
              "Look at dmesg and the disk's health; the read was tried twice."},
    ErrorKind{
        ErrorCode::timed_out, "HP0106", "Timeout", "A read took longer than its deadline.",
        "The message names the slowest request; raise timeout= if that storage may be so slow."},
    ErrorKind{ErrorCode::unavailable, "HP0107", "Unavailable", "A store does not answer.",
              "Check that the server is up and reachable from this machine."},
    ErrorKind{ErrorCode::resource_limit, "HP0108", "Error",
              "A limit of the process or machine is reached.",
              "The message names the limit (file handles, threads, memory) and its value; raise "
              "it, or lower headpond's options."},
    ErrorKind{ErrorCode::corrupt_data, "HP0201", "CorruptData",
              "Bytes are not what their format says.",
              "Restore the named object from its source; on_error=\"skip\" or \"replace\" trains "
              "on without the sample."},
    ErrorKind{ErrorCode::wrong_type, "HP0202", "CorruptData",
              "A record is of another kind than the pipeline expects.",
              "Convert or remove the named object, or leave it out with pattern=."},
    ErrorKind{ErrorCode::state_mismatch, "HP0301", "InvalidArgument",
              "A loader state does not belong to this loader.",
              "Load the state into the dataset, seed and shuffle it was taken from; batch size, "
              "ranks and prefetch may differ."},
    ErrorKind{ErrorCode::too_many_errors, "HP0302", "Error",
              "More samples failed than max_errors allows.",
              "report().errors lists them; mend the data or raise max_errors."},
    ErrorKind{ErrorCode::cancelled, "HP0401", "Error", "The read was cancelled.",
              "Something closed the loader while a batch was in flight."},
    ErrorKind{ErrorCode::closed, "HP0402", "Error", "The object is closed.",
              "Make a new loader; a second iter() replaces the first iterator."},
    ErrorKind{ErrorCode::forked, "HP0403", "Error",
              "An iterator of the parent process is used in a forked child.",
              "Start a new iteration in the child: it gets an engine of its own."},
    ErrorKind{ErrorCode::internal, "HP0901", "Error", "A bug in headpond.",
              "Please report it with the message and the output of hp.info()."},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < kKinds.size(); ++i) {
    if (static_cast<std::size_t>(kKinds[i].code) != i) return false;
  }
  return true;
}
static_assert(in_order(), "the table follows the enumeration");
static_assert(kKinds.size() == static_cast<std::size_t>(ErrorCode::internal) + 1);

ErrorCode code_of(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return ErrorCode::not_found;
    case EACCES:
    case EPERM:
      return ErrorCode::access_denied;
    case ELOOP:
    case ENAMETOOLONG:
    case EINVAL:
      return ErrorCode::invalid_argument;
    case EISDIR:
      return ErrorCode::not_regular;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case EAGAIN:
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return ErrorCode::resource_limit;
    case ESTALE:
      return ErrorCode::object_changed;
    case ETIMEDOUT:
      return ErrorCode::timed_out;
    case ECANCELED:
      return ErrorCode::cancelled;
    default:
      return ErrorCode::io_failed;
  }
}

}  // namespace

std::span<const ErrorKind> error_kinds() { return kKinds; }

const ErrorKind& kind_of(ErrorCode code) { return kKinds[static_cast<std::size_t>(code)]; }

struct Error::Data {
  ErrorCode code;
  std::string message;
  std::vector<std::string> doing;  // innermost first
  std::optional<std::string> uri;
  std::optional<ByteRange> range;
  std::optional<std::uint64_t> sample_index;
};

Error::Error(ErrorCode code, std::string message)
    : data_(new Data{code, std::move(message), {}, {}, {}, {}}) {}
Error::Error(const Error& other) : data_(std::make_unique<Data>(*other.data_)) {}
Error& Error::operator=(const Error& other) {
  if (this != &other) data_ = std::make_unique<Data>(*other.data_);
  return *this;
}
Error::Error(Error&&) noexcept = default;
Error& Error::operator=(Error&&) noexcept = default;
Error::~Error() = default;

Error&& Error::in(std::string doing) && {
  data_->doing.push_back(std::move(doing));
  return std::move(*this);
}
Error&& Error::at_uri(std::string uri) && {
  if (!data_->uri) data_->uri = std::move(uri);
  return std::move(*this);
}
Error&& Error::at_range(ByteRange range) && {
  if (!data_->range) data_->range = range;
  return std::move(*this);
}
Error&& Error::at_sample(std::uint64_t index) && {
  if (!data_->sample_index) data_->sample_index = index;
  return std::move(*this);
}

ErrorCode Error::code() const { return data_->code; }
const std::string& Error::message() const { return data_->message; }
const std::optional<std::string>& Error::uri() const { return data_->uri; }
const std::optional<ByteRange>& Error::range() const { return data_->range; }
const std::optional<std::uint64_t>& Error::sample_index() const { return data_->sample_index; }

std::string Error::to_string() const {
  std::string text;
  for (auto doing = data_->doing.rbegin(); doing != data_->doing.rend(); ++doing) {
    if (!text.empty()) text += ": ";
    text += *doing;
  }
  if (data_->uri) {
    if (!text.empty()) text += " of ";
    text += *data_->uri;
    if (data_->range) text += headpond::to_string(*data_->range);
  }
  if (!text.empty()) text += ": ";
  return text + data_->message;
}

Error system_error(int error_number, std::string_view doing, std::string_view object) {
  // message() of the generic category is thread-safe, strerror is not.
  std::string text(doing);
  if (!object.empty()) text.append(" ").append(object);
  text += ": " + std::generic_category().message(error_number);
  return Error(code_of(error_number), std::move(text));
}

}  // namespace headpond
