// For comparing pixels with another library: reads paths from standard input, decodes
// each with the image decoder, writes the raw pixels (NHWC, uint8) of all to the file
// named by the first argument, and prints one line a picture: the box that was taken
// (left top width height), the size that it was resized to, the cut (left top) of that,
// and whether the result was mirrored.
//
//   decode_tool OUT train|center|none SIZE SEED [exif]
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "decode/crop.h"
#include "decode/jpeg_reader.h"
#include "headpond/decoder.h"

using namespace headpond;

namespace {

std::vector<std::byte> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const auto view = std::as_bytes(std::span(bytes));
  return {view.begin(), view.end()};
}

void print_view(const decode::View& view) {
  std::cout << view.x.first << ' ' << view.y.first << ' ' << view.x.length << ' ' << view.y.length
            << ' ' << view.x.resized << ' ' << view.y.resized << ' ' << view.x.cut_first << ' '
            << view.y.cut_first << ' ' << view.x.mirrored << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::cerr << "usage: decode_tool OUT train|center|none SIZE SEED [exif]\n";
    return 2;
  }
  const std::string mode = argv[2];
  ImageOptions options;
  options.crop = mode == "center" ? ImageOptions::Crop::center
                 : mode == "none" ? ImageOptions::Crop::none
                                  : ImageOptions::Crop::random_resized;
  options.height = options.width = static_cast<std::uint32_t>(std::stoul(argv[3]));
  options.flip = mode == "train";
  options.exif = argc > 5;
  if (mode == "center") options.resize = options.height * 256 / 224;
  const auto decoder = make_image_decoder(options);
  if (!decoder) {
    std::cerr << decoder.error().to_string() << '\n';
    return 2;
  }
  std::ofstream pixels(argv[1], std::ios::binary);
  std::vector<std::byte> out((*decoder)->output_bytes_max(0));
  SampleContext context{std::stoull(argv[4]), 0, 0};
  Scratch scratch;
  decode::JpegReader reader;
  for (std::string path; std::getline(std::cin, path); ++context.sample) {
    const auto record = read_file(path);
    const auto written = (*decoder)->decode(record, context, out, scratch);
    if (!written) {
      std::cout << "error " << written.error().to_string() << '\n';
      continue;
    }
    const auto stored = reader.open(record, decode::JpegReader::Exif::keep);
    const auto shown = decode::shown_size(*stored, options.exif ? reader.orientation() : 1);
    SampleRandom random(context.seed, context.epoch, context.sample);
    print_view(decode::choose_view(options, shown, random));
    pixels.write(reinterpret_cast<const char*>(out.data()),
                 static_cast<std::streamsize>(out.size()));
  }
}
