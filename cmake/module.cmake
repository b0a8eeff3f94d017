add_library(hp_warnings INTERFACE)
target_compile_options(hp_warnings INTERFACE -Wall -Wextra -Wconversion -Werror)
# g++ 12 sees overlaps in "x" + std::string that are not there (GCC bug 105651).
target_compile_options(hp_warnings INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# Same results on every machine and in every twin of a vector loop.
target_compile_options(hp_warnings INTERFACE -ffp-contract=off)

# hp_module(NAME HEADERS public.h ... SOURCES a.cpp ... DEPENDS hp_x ... LIBRARIES lib ...)
#
# One static library per layer. A module sees the headers of its own layer and
# of those it depends on, and no others: its public and private headers are
# linked into an include folder of the module, so that an upward include does
# not compile. DEPENDS are layers (and go on to dependants); LIBRARIES are the
# third-party libraries that only this module may use.
function(hp_module name)
  cmake_parse_arguments(ARG "" "" "HEADERS;SOURCES;DEPENDS;LIBRARIES" ${ARGN})
  set(include ${CMAKE_BINARY_DIR}/include/${name})
  file(MAKE_DIRECTORY ${include}/headpond)
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/cpp/src/${name} ${include}/${name} SYMBOLIC)
  foreach(header ${ARG_HEADERS})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/cpp/include/headpond/${header} ${include}/headpond/${header} SYMBOLIC)
  endforeach()
  add_library(hp_${name} STATIC ${ARG_SOURCES})
  target_include_directories(hp_${name} PUBLIC ${include})
  target_link_libraries(hp_${name} PUBLIC ${ARG_DEPENDS} tl::expected PRIVATE hp_warnings ${ARG_LIBRARIES})
endfunction()
