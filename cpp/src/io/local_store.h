#pragma once

#include <functional>
#include <memory>
#include <string>

#include "io/backend.h"
#include "io/fork_mark.h"
#include "io/local_files.h"

namespace headpond {

// What the stores of one LocalIo share.
class LocalShared {
 public:
  virtual ~LocalShared() = default;
  virtual LocalFiles& files() = 0;
  // The backend, started at the first call. Null: closed.
  virtual std::shared_ptr<Backend> backend() = 0;
  virtual bool forked() const = 0;
  // Waits for the reads of `root`, and says so once when the kernel keeps some.
  virtual void close_root(LocalRoot& root) = 0;
};

// The files below one directory. `read_now` works on the calling thread, `read`
// goes to the backend; stat and list run on the calling thread.
class LocalStore final : public Store {
 public:
  LocalStore(std::shared_ptr<LocalShared> shared, std::shared_ptr<LocalRoot> root)
      : shared_(std::move(shared)), root_(std::move(root)) {}
  ~LocalStore() override;

  void read(std::span<ReadRequest> requests) override;
  void stat(std::string object, std::function<void(Result<ObjectInfo>)> done) override;
  void list(ListRequest request) override;
  Result<std::size_t> read_now(std::string_view object, const ObjectVersion& expected,
                               std::span<const Piece> pieces, Wait wait) override;
  std::string describe() const override { return root_->describe({}); }
  void close() override;

 private:
  // An error of the call itself: closed, used in a forked child, a name that cannot be.
  std::optional<Error> refuse(std::string_view object) const;
  Result<std::size_t> read_file_now(std::string_view object, const ObjectVersion& expected,
                                    const Piece& piece, Wait wait);
  Result<std::size_t> read_pieces_now(std::string_view object, const ObjectVersion& expected,
                                      std::span<const Piece> pieces, Wait wait);
  Result<bool> fill_now(std::string_view object, const FileHandle& handle, const Piece& piece,
                        ColdMap::Spot spot, Wait wait);
  Error past_end(std::string_view object, const ObjectVersion& expected, const FileHandle& handle,
                 const Piece& piece, std::uint64_t found);

  const std::shared_ptr<LocalShared> shared_;
  const std::shared_ptr<LocalRoot> root_;
};

}  // namespace headpond
