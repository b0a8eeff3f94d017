// JPEG pictures to training crops with nothing but the physical work. --mode
//   read     pread into a reused buffer
//   entropy  + Huffman decoding of the whole picture, nothing else (all rows skipped)
//   decode   + the whole picture to RGB
//   full     decode, then the resize of the crop
//   partial  only the rows and columns of the crop, then the resize
//   scaled   partial at 1/2, 1/4, 1/8 where the crop stays at least as large as the result
// --folder DIR  --view train (RandomResizedCrop 224 of a seeded generator) | eval (Resize 256,
// CenterCrop 224)  --threads N  --repeats N
//
// One decompressor a thread serves all files, and a broken file ends the program. The
// resize is the product's own inner loops, the fastest there are here: what the comparison
// shows is what the product adds around libjpeg-turbo and them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>

#include "decode/libjpeg.h"
#include "decode/resize.h"
#include "measure.h"

using namespace headpond::limits;
namespace decode = headpond::decode;

namespace {

constexpr std::uint32_t kSide = 224;
constexpr std::uint32_t kResize = 256;

struct Options {
  std::string mode;
  bool eval;
  std::uint64_t repeats;
};

struct File {
  std::string path;
  std::size_t size;
};

std::vector<File> list_files(const std::string& folder) {
  std::vector<File> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".jpg" || extension == ".jpeg" || extension == ".JPEG") {
      files.push_back({entry.path().string(), entry.file_size()});
    }
  }
  std::sort(files.begin(), files.end(),
            [](const File& a, const File& b) { return a.path < b.path; });
  return files;
}

// One axis: `length` pixels from `first` on become `resized`, of which kSide from `cut` on
// are wanted.
struct Span {
  std::uint32_t first, length, resized, cut;
};

struct Crop {
  Span x, y;
};

Crop train_crop(std::uint32_t width, std::uint32_t height, std::mt19937_64& random) {
  std::uniform_real_distribution<double> area(0.08, 1.0);
  std::uniform_real_distribution<double> log_ratio(std::log(3.0 / 4.0), std::log(4.0 / 3.0));
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area(random) * width * height;
    const double ratio = std::exp(log_ratio(random));
    const auto w = static_cast<std::uint32_t>(std::nearbyint(std::sqrt(target * ratio)));
    const auto h = static_cast<std::uint32_t>(std::nearbyint(std::sqrt(target / ratio)));
    if (w == 0 || h == 0 || w > width || h > height) continue;
    const auto left = static_cast<std::uint32_t>(random() % (width - w + 1));
    const auto top = static_cast<std::uint32_t>(random() % (height - h + 1));
    return {{left, w, kSide, 0}, {top, h, kSide, 0}};
  }
  const std::uint32_t side = std::min(width, height);
  return {{(width - side) / 2, side, kSide, 0}, {(height - side) / 2, side, kSide, 0}};
}

Crop eval_crop(std::uint32_t width, std::uint32_t height) {
  const auto longer = [](std::uint32_t a, std::uint32_t b) {
    return static_cast<std::uint32_t>(std::uint64_t{kResize} * a / b);
  };
  const std::uint32_t to_width = width <= height ? kResize : longer(width, height);
  const std::uint32_t to_height = width <= height ? longer(height, width) : kResize;
  return {{0, width, to_width, (to_width - kSide) / 2},
          {0, height, to_height, (to_height - kSide) / 2}};
}

decode::AxisRequest request(const Span& span, std::uint32_t shrink) {
  return {static_cast<double>(span.first) / shrink,
          static_cast<double>(span.first + span.length) / shrink,
          span.resized,
          span.cut,
          kSide,
          false};
}

// What one thread needs, kept from file to file.
class Worker {
 public:
  Worker(const Options& options, std::uint64_t seed) : options_(options), random_(seed) {
    info_.err = jpeg_std_error(&errors_);
    errors_.emit_message = [](j_common_ptr, int) {};
    jpeg_create_decompress(&info_);
    out_.resize(kSide * kSide * 3);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { jpeg_destroy_decompress(&info_); }

  void run(const File& file) {
    read(file);
    if (options_.mode == "read") return keep(record_.data());
    jpeg_mem_src(&info_, record_.data(), static_cast<unsigned long>(file.size));
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = JCS_EXT_RGBX;
    if (options_.mode == "entropy") {
      jpeg_start_decompress(&info_);
      // All rows but the last: skipping to the end would decode nothing.
      jpeg_skip_scanlines(&info_, info_.output_height - 1);
    } else if (options_.mode == "decode") {
      decode_all();
    } else {
      draw(options_.eval ? eval_crop(info_.image_width, info_.image_height)
                         : train_crop(info_.image_width, info_.image_height, random_));
    }
    jpeg_abort_decompress(&info_);
    keep(out_.data());
  }

 private:
  void read(const File& file) {
    if (record_.size() < file.size) record_.resize(file.size);
    const int fd = open(file.path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail("open " + file.path);
    if (pread(fd, record_.data(), file.size, 0) != static_cast<ssize_t>(file.size)) {
      fail("pread " + file.path);
    }
    close(fd);
  }

  // Off the alignment with which libjpeg-turbo writes past the caches.
  std::uint8_t* row(std::uint32_t y) { return rows_.data() + y % kept_ * stride_ + 8; }

  void prepare_rows(std::uint32_t kept) {
    kept_ = kept;
    stride_ = (std::size_t{info_.output_width} * 4 + decode::kSlackBytes + 63) / 64 * 64;
    const std::size_t needed = stride_ * kept + decode::kSlackBytes;
    if (rows_.size() < needed) rows_.resize(needed);
  }

  void read_rows(std::uint32_t& have, std::uint32_t end) {
    while (have < end) {
      JSAMPROW to = row(have);
      have += jpeg_read_scanlines(&info_, &to, 1);
    }
  }

  void decode_all() {
    jpeg_start_decompress(&info_);
    prepare_rows(1);
    std::uint32_t have = 0;
    read_rows(have, info_.output_height);
  }

  std::uint32_t shrink_for(const Crop& crop) const {
    if (options_.mode != "scaled") return 1;
    for (std::uint32_t shrink = 8; shrink > 1; shrink /= 2) {
      if (crop.x.length / shrink >= crop.x.resized && crop.y.length / shrink >= crop.y.resized) {
        return shrink;
      }
    }
    return 1;
  }

  void draw(const Crop& crop) {
    const std::uint32_t shrink = shrink_for(crop);
    const decode::Axis columns = decode::plan_axis(request(crop.x, shrink), scratch_, 0);
    const decode::Axis lines = decode::plan_axis(request(crop.y, shrink), scratch_, 2);
    info_.scale_num = 1;
    info_.scale_denom = shrink;
    jpeg_start_decompress(&info_);
    JDIMENSION left = columns.begin;
    std::uint32_t skipped = lines.begin;
    if (options_.mode == "full") {
      left = 0;
      skipped = 0;
    } else {
      JDIMENSION width = columns.end - columns.begin;
      if (width < info_.output_width) jpeg_crop_scanline(&info_, &left, &width);
      if (skipped > 0) jpeg_skip_scanlines(&info_, skipped);
    }
    prepare_rows(lines.taps);
    resize(columns, lines, (columns.begin - left) * 4, lines.begin - skipped);
  }

  void resize(const decode::Axis& columns, const decode::Axis& lines, std::size_t skip_bytes,
              std::uint32_t skip_rows) {
    const decode::ResizeKernels& kernels = decode::best_kernels();
    const std::size_t bytes = std::size_t{columns.end - columns.begin} * 4;
    words_.resize(std::max(words_.size(), bytes + columns.taps * 4 + decode::kSlackBytes));
    pointers_.resize(lines.taps);
    std::uint32_t have = 0;
    for (std::uint32_t y = 0; y < kSide; ++y) {
      const std::uint32_t first = skip_rows + lines.starts[y];
      const std::uint32_t end = std::min(first + lines.taps, skip_rows + lines.end - lines.begin);
      read_rows(have, end);
      for (std::uint32_t t = 0; t < lines.taps; ++t) {
        pointers_[t] = row(std::min(first + t, end - 1)) + skip_bytes;
      }
      kernels.vertical(pointers_.data(), lines.weights.data() + std::size_t{y} * lines.taps,
                       lines.taps, bytes, words_.data());
      kernels.horizontal(words_.data(), columns, pixels_);
      kernels.pack_rgb(pixels_, kSide, out_.data() + std::size_t{y} * kSide * 3);
    }
  }

  const Options& options_;
  std::mt19937_64 random_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  headpond::Scratch scratch_;
  std::vector<unsigned char> record_;
  std::vector<std::uint8_t> rows_, out_;
  std::uint8_t pixels_[kSide * 4];
  std::vector<std::int16_t> words_;
  std::vector<const std::uint8_t*> pointers_;
  std::size_t stride_ = 0;
  std::uint32_t kept_ = 1;
};

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const auto files = list_files(arguments.text("folder", "."));
  const std::string view = arguments.text("view", "train");
  const Options options{arguments.text("mode", "partial"), view == "eval",
                        arguments.number("repeats", 1)};
  const std::uint64_t threads = arguments.number("threads", 1);
  arguments.finish();

  std::vector<std::unique_ptr<Worker>> workers(threads);
  const Usage usage = run_threads(
      threads,
      [&](std::uint64_t thread) { workers[thread] = std::make_unique<Worker>(options, thread); },
      [&](std::uint64_t thread) {
        for (std::uint64_t repeat = 0; repeat < options.repeats; ++repeat) {
          for (std::size_t i = thread; i < files.size(); i += threads)
            workers[thread]->run(files[i]);
        }
      });
  std::uint64_t bytes = 0;
  for (const File& file : files) bytes += file.size;
  const std::uint64_t images = files.size() * options.repeats;
  print_result("jpeg_" + options.mode, images, bytes * options.repeats, threads, usage,
               ", \"view\": \"" + view + "\", \"cpu_s_per_1000\": " +
                   std::to_string(usage.cpu_s * 1000 / static_cast<double>(images)));
}
