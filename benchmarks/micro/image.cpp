// The image decoder over a folder, one thread, files read by pread into one buffer: what
// limit_jpeg does without the product, so the two are compared in interleaved runs.
//   --folder DIR  --view train|eval  --repeats N  --layout nhwc|nchw  --dtype uint8|float32|float16
// Prints one line of JSON; --repeats 1 includes what is done once (tables of scratch memory).
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "../limits/measure.h"
#include "headpond/decoder.h"

using namespace headpond;
using namespace headpond::limits;

namespace {

std::vector<std::string> list_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".jpg" || extension == ".jpeg" || extension == ".JPEG") {
      files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::size_t read_file(const std::string& path, std::vector<std::byte>& buffer) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (fd < 0 || fstat(fd, &status) != 0) fail("open " + path);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (buffer.size() < size) buffer.resize(size);
  if (pread(fd, buffer.data(), size, 0) != status.st_size) fail("pread " + path);
  close(fd);
  return size;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments(argc, argv);
  const auto files = list_files(arguments.text("folder", "."));
  const std::string view = arguments.text("view", "train");
  const std::uint64_t repeats = arguments.number("repeats", 3);
  ImageOptions options;
  options.crop = view == "eval" ? ImageOptions::Crop::center : ImageOptions::Crop::random_resized;
  options.flip = view == "train";
  if (arguments.text("layout", "nhwc") == "nchw") options.layout = ImageOptions::Layout::nchw;
  const auto dtype = parse_dtype(arguments.text("dtype", "uint8"));
  arguments.finish();
  if (!dtype) {
    std::fprintf(stderr, "%s\n", dtype.error().to_string().c_str());
    return 2;
  }
  options.dtype = *dtype;
  if (options.dtype != DType::uint8) {
    options.mean = {123.675f, 116.28f, 103.53f};
    options.std = {58.395f, 57.12f, 57.375f};
  }
  const auto decoder = make_image_decoder(options);
  if (!decoder) {
    std::fprintf(stderr, "%s\n", decoder.error().to_string().c_str());
    return 2;
  }

  Scratch scratch;
  std::vector<std::byte> record;
  std::vector<std::byte> out((*decoder)->output_bytes_max(0));
  const Meter meter;
  for (std::uint64_t epoch = 0; epoch < repeats; ++epoch) {
    for (std::uint64_t i = 0; i < files.size(); ++i) {
      const std::size_t size = read_file(files[i], record);
      const auto written =
          (*decoder)->decode(std::span(record).first(size), {0, epoch, i}, out, scratch);
      if (!written) {
        std::fprintf(stderr, "%s: %s\n", files[i].c_str(), written.error().to_string().c_str());
        return 1;
      }
      keep(out.data());
    }
  }
  const Usage usage = meter.stop();
  const std::uint64_t images = files.size() * repeats;
  print_result("image_decoder", images, images * out.size(), 1, usage,
               ", \"view\": \"" + view + "\", \"cpu_s_per_1000\": " +
                   std::to_string(usage.cpu_s * 1000 / static_cast<double>(images)));
}
