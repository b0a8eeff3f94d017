#pragma once

// libjpeg-turbo's headers, in the order they need: jpeglib.h wants size_t and FILE,
// jerror.h wants jpeglib.h. Only for .cpp files of this module and for tests.
// clang-format off
#include <cstddef>
#include <cstdio>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
