#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "headpond/log.h"
#include "io/cache_policy.h"
#include "io/local_files.h"
#include "io/ring.h"
#include "io/staging.h"

namespace headpond {

// Cold reads on a ring: the states of each request between its start and its end.
// For the reactor's thread alone.
//
// - A whole small file is one chain (open, read size + 1 bytes, close) on a direct
//   descriptor; afterwards a stat of the path, now in memory, gives the version. An
//   answer other than the expected one is looked at again by the pool.
// - A range takes a handle from the cache or opens the file on the ring, and is cut
//   at multiples of 512 KiB. Large ranges go through staging with O_DIRECT where the
//   file allows it, others straight to their place.
//
// Only success, short reads, EINTR, EAGAIN and ECANCELED are settled here. A read
// with any other answer is handed to `give_up`, which reads it again by blocking
// calls: so errors have one origin, and an operation that this kernel or a filter
// refuses costs time and never a read. After 16 refusals in a row such operations
// are not tried any more.
class RingReads {
 public:
  // `give_up` takes reads that the ring cannot settle; called on this thread.
  RingReads(std::shared_ptr<LocalFiles> files, Ring& ring, unsigned depth,
            std::shared_ptr<LogQueue> log, std::function<void(LocalRead)> give_up);
  ~RingReads();

  // Queues a read; `pump` starts it in its turn.
  void add(LocalRead read) { waiting_.push_back(std::move(read)); }
  // Finishes the waiting reads that are stopped.
  void drop_stopped();
  // Starts what there is room for.
  void pump();
  // A completion whose token came from here.
  void complete(const Completion& completion);

  // No read is waiting or under way.
  bool idle() const { return waiting_.empty() && active_ == 0; }
  bool fixed_buffers() const { return fixed_blocks_ > 0; }

 private:
  struct Active;     // one read under way
  struct Operation;  // one request to the kernel of a range
  // Gives operations up after many refusals in a row.
  struct Health {
    unsigned refused = 0;
    bool off = false;
  };
  enum class Part : std::uint64_t {
    operation = 0,
    chain_open = 1,
    chain_read = 2,
    chain_close = 3
  };
  static std::uint64_t token(const void* object, Part part) {
    return reinterpret_cast<std::uintptr_t>(object) | static_cast<std::uint64_t>(part);
  }

  void start(Active& active);
  void start_chain(Active& active, const char* path);
  void start_range(Active& active);
  void complete_chain(Active& active, Part part, int result);
  void finish_chain(Active& active);
  bool version_after_chain(Active& active, ObjectVersion& version);

  void opened(Operation& operation, int result);
  void issue();
  bool issue_next(Active& active);
  void stop_issuing(Active& active);
  void submit(Operation& operation);
  void complete_read(Operation& operation, int result);
  void take_buffered(Operation& operation, std::size_t bytes);
  void take_direct(Operation& operation, std::size_t bytes);
  bool is_direct_refusal(Operation& operation, int result);
  bool open_direct(Active& active);
  void make_staging();
  void end_part(Operation& operation);
  void end_range(Active& active);

  Operation* take_operation(Active& active, RingCall call);
  void release(Operation& operation);

  void finish(Active& active, Result<ReadOutcome> outcome);
  void hand_over(Active& active, int result);
  void release(Active& active);
  void note(Health& health, bool good, int result, const char* what);
  void say_once(const char* key, std::string text);

  const std::shared_ptr<LocalFiles> files_;
  Ring& ring_;
  const std::shared_ptr<LogQueue> log_;
  const std::function<void(LocalRead)> give_up_;
  Counters& counters_;

  std::deque<LocalRead> waiting_;
  std::vector<std::unique_ptr<Active>> actives_;
  std::vector<Active*> free_actives_;
  std::size_t active_ = 0;
  std::vector<unsigned> free_slots_;  // direct descriptors
  std::vector<std::unique_ptr<Operation>> operations_;
  std::vector<Operation*> free_operations_;
  std::deque<Active*> issuing_;  // ranges with parts not yet given to the ring

  Staging staging_;
  bool staging_tried_ = false;
  std::size_t fixed_blocks_ = 0;  // of staging, registered
  CachePolicy policy_;
  Health chains_;
  Health opens_;
  Health reads_;
};

}  // namespace headpond
