#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "headpond/http_options.h"
#include "support/scripted_origin.h"
#include "support/store_conformance.h"

namespace headpond {

// An HttpIo as engines have it, and a scripted origin on a thread of its own, in real
// time.
class HttpFixture : public StoreFixture {
 public:
  explicit HttpFixture(HttpOptions options = {})
      : clock(std::make_shared<SystemClock>()),
        origin(clock),
        log(std::make_shared<LogQueue>()),
        io(make_http_io(options, clock, log)) {
    opened = *io->open(*Uri::parse(origin.url()));
    thread_ = std::thread([this] {
      while (!stopping_) origin.step(5);
    });
  }
  ~HttpFixture() override {
    io->close();
    stopping_ = true;
    thread_.join();
  }

  Store& store() override { return *opened; }
  void put(const std::string& object, const Bytes& bytes) override {
    origin.put("/" + object, bytes);
  }
  bool has_blocking_path() const override { return false; }
  bool can_list() const override { return false; }

  std::shared_ptr<Clock> clock;
  ScriptedOrigin origin;
  std::shared_ptr<LogQueue> log;
  std::shared_ptr<HttpIo> io;
  std::shared_ptr<Store> opened;

 private:
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace headpond
