#pragma once

// Policies of a cache of equal blocks, replayed over a trace: what the best possible one reaches,
// and what headpond's, LRU and random reach. Jobs are stepped in a fixed order, one access a step.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace headpond::simulation {

constexpr std::uint64_t kNoUse = std::numeric_limits<std::uint64_t>::max();

struct Access {
  std::uint32_t job = 0;
  std::uint32_t block = 0;
};

// Jobs over the same blocks: which block each uses at each of its positions, and how many of its
// positions a round of all jobs steps through.
struct Job {
  std::vector<std::uint32_t> blocks;
  std::uint32_t speed = 1;
};

class Trace {
 public:
  std::uint32_t blocks = 0;
  std::vector<Job> jobs;
  std::vector<Access> accesses;

  // Steps each job to the end of its positions, in turn.
  static Trace of(std::uint32_t blocks, std::vector<Job> jobs) {
    Trace trace(blocks, std::move(jobs));
    std::vector<std::size_t> cursors(trace.jobs.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (std::uint32_t job = 0; job < trace.jobs.size(); ++job)
        for (std::uint32_t i = 0; i < trace.jobs[job].speed; ++i)
          moved = trace.step(job, cursors) || moved;
    }
    return trace;
  }
  // The same speeds, but whose turn it is is drawn.
  static Trace drawn(std::uint32_t blocks, std::vector<Job> jobs, std::uint64_t seed) {
    Trace trace(blocks, std::move(jobs));
    std::vector<std::uint32_t> turns;
    std::size_t left = 0;
    for (std::uint32_t job = 0; job < trace.jobs.size(); ++job) {
      turns.insert(turns.end(), trace.jobs[job].speed, job);
      left += trace.jobs[job].blocks.size();
    }
    std::vector<std::size_t> cursors(trace.jobs.size());
    std::mt19937_64 random(seed);
    while (left > 0) left -= trace.step(turns[random() % turns.size()], cursors);
    return trace;
  }

 private:
  Trace(std::uint32_t block_count, std::vector<Job> all)
      : blocks(block_count), jobs(std::move(all)) {}
  bool step(std::uint32_t job, std::vector<std::size_t>& cursors) {
    if (cursors[job] == jobs[job].blocks.size()) return false;
    accesses.push_back({job, jobs[job].blocks[cursors[job]++]});
    return true;
  }
};

// For each position the next one with the same block, kNoUse at the end.
inline std::vector<std::uint64_t> next_uses(const std::vector<std::uint32_t>& order,
                                            std::uint32_t blocks) {
  std::vector<std::uint64_t> next(order.size());
  std::vector<std::uint64_t> coming(blocks, kNoUse);
  for (std::size_t i = order.size(); i-- > 0;) next[i] = std::exchange(coming[order[i]], i);
  return next;
}

// Hits of the accesses from `count_from` on; the ones before fill the cache.
struct Outcome {
  std::uint64_t hits = 0;
  std::uint64_t accesses = 0;
  double rate() const { return static_cast<double>(hits) / static_cast<double>(accesses); }
};

// Replays a trace. A policy has bool access(step, const Access&): was it a hit?
template <class Policy>
Outcome replay(const Trace& trace, std::size_t count_from, std::size_t count_to, Policy&& policy) {
  Outcome outcome;
  for (std::size_t step = 0; step < trace.accesses.size(); ++step) {
    const bool hit = policy.access(step, trace.accesses[step]);
    if (step < count_from || step >= count_to) continue;
    ++outcome.accesses;
    outcome.hits += hit;
  }
  return outcome;
}

// Belady's choice with bypass: knows all accesses of all jobs to come, keeps what is used soonest.
class Optimum {
 public:
  Optimum(const Trace& trace, std::size_t capacity)
      : capacity_(capacity), place_(trace.blocks, kAbsent) {
    std::vector<std::uint32_t> order;
    for (const Access& access : trace.accesses) order.push_back(access.block);
    next_ = next_uses(order, trace.blocks);
  }
  bool access(std::size_t step, const Access& access) {
    const std::uint64_t next = next_[step];
    const std::uint64_t place = std::exchange(place_[access.block], kAbsent);
    const bool hit = place != kAbsent;
    if (hit) kept_.erase({place, access.block});
    if (next == kNoUse) return hit;
    if (!hit && kept_.size() == capacity_) {
      const auto last = std::prev(kept_.end());
      if (last->first < next) return hit;  // it is not worth it
      place_[last->second] = kAbsent;
      kept_.erase(last);
    }
    kept_.insert({next, access.block});
    place_[access.block] = next;
    return hit;
  }

 private:
  static constexpr std::uint64_t kAbsent = kNoUse;
  std::size_t capacity_;
  std::vector<std::uint64_t> next_;
  std::vector<std::uint64_t> place_;  // the next use of a kept block
  std::set<std::pair<std::uint64_t, std::uint32_t>> kept_;
};

class Lru {
 public:
  Lru(const Trace& trace, std::size_t capacity)
      : capacity_(capacity), places_(trace.blocks, kept_.end()) {}
  bool access(std::size_t, const Access& access) {
    auto& place = places_[access.block];
    const bool hit = place != kept_.end();
    if (hit) {
      kept_.erase(place);
    } else if (kept_.size() == capacity_) {
      places_[kept_.back()] = kept_.end();
      kept_.pop_back();
    }
    kept_.push_front(access.block);
    place = kept_.begin();
    return hit;
  }

 private:
  std::size_t capacity_;
  std::list<std::uint32_t> kept_;
  std::vector<std::list<std::uint32_t>::iterator> places_;
};

class Random {
 public:
  Random(const Trace& trace, std::size_t capacity)
      : capacity_(capacity), kept_(trace.blocks, false) {}
  bool access(std::size_t, const Access& access) {
    if (kept_[access.block]) return true;
    if (list_.size() < capacity_) {
      list_.push_back(access.block);
    } else {
      auto& victim = list_[random_() % capacity_];
      kept_[victim] = false;
      victim = access.block;
    }
    kept_[access.block] = true;
    return false;
  }

 private:
  std::size_t capacity_;
  std::vector<bool> kept_;
  std::vector<std::uint32_t> list_;
  std::mt19937_64 random_{1};
};

// What headpond does (cpp/src/cache/eviction.h), said as plainly as possible: each job tells its
// cursor, its rate and the next position of each block; the block goes that is needed last in
// seconds, of equals the lower one; the incoming one stays out unless that is later than its own.
// With n blocks kept, the farthest max(1, n / 1024) are looked for once per that many choices.
// A job takes `batch` positions at a time: it opens the blocks of them that are there, tells that
// they are used, then lets the missing ones in, each once.
class NextUse {
 public:
  NextUse(const Trace& trace, std::size_t capacity, std::size_t batch = 1)
      : trace_(trace), capacity_(capacity), batch_(batch), kept_(trace.blocks, false) {
    for (const Job& job : trace.jobs) {
      Told told;
      told.next_of_position = next_uses(job.blocks, trace.blocks);
      told.next.assign(trace.blocks, kNoUse);
      for (std::size_t i = job.blocks.size(); i-- > 0;) told.next[job.blocks[i]] = i;
      told.rate = job.speed;
      told_.push_back(std::move(told));
    }
  }

  bool access(std::size_t, const Access& access) {
    Told& told = told_[access.job];
    if (told.position == told.cursor) use_batch(access.job);
    return told.hits[told.position++ - (told.cursor - told.hits.size())];
  }

  const std::vector<bool>& kept() const { return kept_; }
  std::uint64_t next(std::uint32_t job, std::uint32_t block) const {
    return told_[job].next[block];
  }
  std::uint64_t cursor(std::uint32_t job) const { return told_[job].cursor; }

  double seconds_until(std::uint32_t block) const {
    double seconds = std::numeric_limits<double>::infinity();
    for (const Told& told : told_) {
      const std::uint64_t next = told.next[block];
      if (next == kNoUse) continue;
      const std::uint64_t ahead = next > told.cursor ? next - told.cursor : 0;
      seconds = std::min(seconds, static_cast<double>(ahead) / told.rate);
    }
    return seconds;
  }

 private:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};
  struct Told {
    std::vector<std::uint64_t> next_of_position;
    std::vector<std::uint64_t> next;
    std::uint64_t position = 0;
    std::uint64_t cursor = 0;
    std::vector<bool> hits;  // of the positions of the batch, which ends at the cursor
    double rate = 1;
  };

  void use_batch(std::uint32_t job) {
    Told& told = told_[job];
    const std::vector<std::uint32_t>& order = trace_.jobs[job].blocks;
    const std::uint64_t first = told.cursor;
    told.hits.clear();
    for (; told.cursor < std::min<std::uint64_t>(order.size(), first + batch_); ++told.cursor) {
      told.hits.push_back(kept_[order[told.cursor]]);
      told.next[order[told.cursor]] = told.next_of_position[told.cursor];
    }
    std::set<std::uint32_t> missed, let_in;
    for (std::size_t i = 0; i < told.hits.size(); ++i) {
      const std::uint32_t block = order[first + i];
      if (told.hits[i]) continue;
      if (!missed.insert(block).second)
        told.hits[i] = let_in.count(block) != 0;
      else if (admit(block))
        let_in.insert(block);
    }
  }

  bool admit(std::uint32_t block) {
    if (size_ == capacity_) {
      const std::uint32_t victim = choose(seconds_until(block));
      if (victim == kNobody) return false;
      kept_[victim] = false;
      --size_;
    }
    kept_[block] = true;
    ++size_;
    return true;
  }

  std::uint32_t choose(double incoming) {
    if (choices_left_ == 0 || candidates_.empty()) look();
    --choices_left_;
    const std::uint32_t last = candidates_.back();
    if (!(seconds_until(last) > incoming)) return kNobody;
    candidates_.pop_back();
    return last;
  }
  void look() {
    std::vector<std::pair<double, std::uint32_t>> all;
    for (std::uint32_t block = 0; block < trace_.blocks; ++block)
      if (kept_[block]) all.emplace_back(-seconds_until(block), block);
    choices_left_ = std::max<std::size_t>(1, all.size() / 1024);
    const auto stop = all.begin() + static_cast<std::ptrdiff_t>(choices_left_);
    std::partial_sort(all.begin(), stop, all.end());
    candidates_.clear();
    for (std::size_t i = choices_left_; i-- > 0;) candidates_.push_back(all[i].second);
  }

  const Trace& trace_;
  std::size_t capacity_;
  std::size_t batch_;
  std::vector<bool> kept_;
  std::size_t size_ = 0;
  std::vector<Told> told_;
  std::vector<std::uint32_t> candidates_;  // the last goes first
  std::size_t choices_left_ = 0;
};

}  // namespace headpond::simulation
