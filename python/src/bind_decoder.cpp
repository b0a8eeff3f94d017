#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "headpond/dataset.h"
#include "headpond/decoder.h"
#include "typed.h"

namespace py = pybind11;

namespace headpond::python {
namespace {

using BoundDecoder = std::shared_ptr<Decoder>;
BoundDecoder bound(std::shared_ptr<const Decoder> decoder) {
  return std::const_pointer_cast<Decoder>(std::move(decoder));
}

BoundDecoder image_decoder(std::uint32_t height, std::uint32_t width, const std::string& crop,
                           std::optional<std::uint32_t> resize, std::pair<double, double> scale,
                           std::pair<double, double> ratio, bool flip, bool exif,
                           const std::string& layout, const std::string& dtype,
                           std::vector<float> mean, std::vector<float> std) {
  ImageOptions options;
  options.height = height;
  options.width = width;
  options.crop = crop == "center" ? ImageOptions::Crop::center
                 : crop == "none" ? ImageOptions::Crop::none
                                  : ImageOptions::Crop::random_resized;
  options.resize = resize;
  options.scale_min = scale.first;
  options.scale_max = scale.second;
  options.ratio_min = ratio.first;
  options.ratio_max = ratio.second;
  options.flip = flip;
  options.exif = exif;
  options.layout = layout == "nchw" ? ImageOptions::Layout::nchw : ImageOptions::Layout::nhwc;
  options.dtype = value_or_raise(parse_dtype(dtype));
  options.mean = std::move(mean);
  options.std = std::move(std);
  return bound(value_or_raise(make_image_decoder(options)));
}

// None where the bytes stay as they are.
BoundDecoder named_decoder(const std::string& name, const Dataset& dataset,
                           const std::string& field, const py::bytes& first) {
  const auto index = value_or_raise(dataset.field_index(field));
  const std::string_view bytes = first;
  return bound(value_or_raise(
      make_named_decoder(name, dataset.fields()[index],
                         {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()})));
}

py::typing::Optional<IntTuple> shape(const Decoder& decoder) {
  const auto& field = decoder.output();
  if (!field.shape) return py::typing::Optional<IntTuple>(py::none());
  py::tuple extents(field.shape->size());
  for (std::size_t i = 0; i < field.shape->size(); ++i) extents[i] = py::int_((*field.shape)[i]);
  return py::typing::Optional<IntTuple>(std::move(extents));
}

}  // namespace

void bind_decoder(py::module_& module) {
  py::class_<Decoder, BoundDecoder>(module, "Decoder")
      .def_property_readonly(
          "dtype", [](const Decoder& d) { return std::string(name_of(d.output().dtype)); })
      .def_property_readonly("shape", &shape)
      .def(
          "decode",
          [](const Decoder& decoder, const py::bytes& record, std::uint64_t seed,
             std::uint64_t epoch, std::uint64_t sample) {
            const std::string_view bytes = record;
            std::vector<std::byte> out(decoder.output_bytes_max(bytes.size()));
            Scratch scratch;
            Result<std::uint64_t> written = [&] {
              py::gil_scoped_release released;
              return decoder.decode(
                  {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()},
                  {seed, epoch, sample}, out, scratch);
            }();
            return py::bytes(reinterpret_cast<const char*>(out.data()),
                             value_or_raise(std::move(written)));
          },
          py::arg("record"), py::arg("seed"), py::arg("epoch"), py::arg("sample"));
  module.def("image_decoder", &image_decoder, py::arg("height"), py::arg("width"), py::arg("crop"),
             py::arg("resize"), py::arg("scale"), py::arg("ratio"), py::arg("flip"),
             py::arg("exif"), py::arg("layout"), py::arg("dtype"), py::arg("mean"), py::arg("std"));
  module.def("named_decoder", &named_decoder, py::arg("name"), py::arg("dataset"), py::arg("field"),
             py::arg("first"));
}

}  // namespace headpond::python
