# Headers that many files include, parsed once instead of in every file. Left out where a
# compiler cache is in use that would not keep files with them (tools/build.sh tells ccache to); a target whose flags
# differ falls back to the headers themselves (with g++; clang stops there, so such a target asks for none).

set(precompile_default ON)
if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT DEFINED ENV{CCACHE_SLOPPINESS})
  set(precompile_default OFF)
endif()
option(LONGSPEC_PRECOMPILE "Precompile headers that many files include" ${precompile_default})
if(LONGSPEC_PRECOMPILE AND CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")  # the same file whenever it was made
endif()

# longspec_headers(name PIC on|off LIBS ... HEADERS ...) declares a set of headers for longspec_precompile(target name);
# PIC is what the targets have that use it.
function(longspec_headers name)
  cmake_parse_arguments(ARG "" "PIC" "LIBS;HEADERS;OPTIONS" ${ARGN})
  if(NOT LONGSPEC_PRECOMPILE)
    return()
  endif()
  file(WRITE ${PROJECT_BINARY_DIR}/${name}.cc.in "// Exists so that its headers are compiled.\n")
  configure_file(${PROJECT_BINARY_DIR}/${name}.cc.in ${PROJECT_BINARY_DIR}/${name}.cc COPYONLY)
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE longspec_warnings ${ARG_LIBS})
  target_compile_options(${name} PRIVATE ${ARG_OPTIONS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  set_target_properties(${name} PROPERTIES PCH_WARN_INVALID OFF POSITION_INDEPENDENT_CODE ${ARG_PIC})
endfunction()

function(longspec_precompile target headers)
  if(TARGET ${headers})
    target_precompile_headers(${target} REUSE_FROM ${headers})
    set_target_properties(${target} PROPERTIES PCH_WARN_INVALID OFF)
  endif()
endfunction()
