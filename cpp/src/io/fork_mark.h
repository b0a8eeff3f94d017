#pragma once

namespace headpond {

// Tells a forked child that it is one, for the price of a load: a page that the
// kernel wipes in children (MADV_WIPEONFORK, Linux 4.14), else getpid().
class ForkMark {
 public:
  ForkMark();
  ~ForkMark();
  ForkMark(const ForkMark&) = delete;
  ForkMark& operator=(const ForkMark&) = delete;

  // True in every process but the one that made this object.
  bool forked() const { return page_ != nullptr ? *page_ == 0 : slow_forked(); }

 private:
  bool slow_forked() const;
  volatile unsigned char* page_ = nullptr;
  int owner_;
};

}  // namespace headpond
