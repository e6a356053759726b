# longspec_xgrammar: the C++ core of xgrammar (Apache-2.0), which compiles grammars for src/grammar. Its sources are
# those of a fixed version, which tools/get_xgrammar fetches and checks; no Python, no torch. Its own build files are
# not used: they want Python, link-time optimisation and warnings of their own.
#
# LONGSPEC_GRAMMAR is on where the sources are. Without them everything else is there, and requests for structured
# output are refused by name.
set(LONGSPEC_XGRAMMAR_VERSION 0.2.8)
set(LONGSPEC_XGRAMMAR_DIR ${PROJECT_SOURCE_DIR}/third_party/xgrammar-${LONGSPEC_XGRAMMAR_VERSION}
  CACHE PATH "Sources of xgrammar ${LONGSPEC_XGRAMMAR_VERSION} (tools/get_xgrammar)")
set(sources_are_there OFF)
if(EXISTS ${LONGSPEC_XGRAMMAR_DIR}/cpp/grammar_matcher.cc AND LONGSPEC_BUILD_ENGINE)
  set(sources_are_there ON)
endif()
# Sources that come later turn it on, so what was found is not kept; what the user says is.
if(NOT DEFINED LONGSPEC_GRAMMAR)
  set(LONGSPEC_HAS_GRAMMAR ${sources_are_there})
  if(NOT sources_are_there AND LONGSPEC_BUILD_ENGINE)
    message(STATUS "Structured output: OFF, since ${LONGSPEC_XGRAMMAR_DIR} is not there (tools/get_xgrammar fetches it)")
  endif()
elseif(LONGSPEC_GRAMMAR AND NOT sources_are_there)
  message(FATAL_ERROR "LONGSPEC_GRAMMAR is ON, but ${LONGSPEC_XGRAMMAR_DIR} has no sources of xgrammar "
                      "${LONGSPEC_XGRAMMAR_VERSION}. tools/get_xgrammar fetches them; or set LONGSPEC_XGRAMMAR_DIR.")
else()
  set(LONGSPEC_HAS_GRAMMAR ${LONGSPEC_GRAMMAR})
endif()
if(NOT LONGSPEC_HAS_GRAMMAR)
  return()
endif()

# What is compiled is a copy with the edits of xgrammar_edits.cmake.
set(copies ${PROJECT_BINARY_DIR}/xgrammar/cpp)
include(${CMAKE_CURRENT_LIST_DIR}/xgrammar_edits.cmake)
file(GLOB_RECURSE files RELATIVE ${LONGSPEC_XGRAMMAR_DIR}/cpp ${LONGSPEC_XGRAMMAR_DIR}/cpp/*)
foreach(file IN LISTS files)
  longspec_copy_edited(${file})
endforeach()
longspec_check_edits()

file(GLOB sources ${LONGSPEC_XGRAMMAR_DIR}/cpp/*.cc ${LONGSPEC_XGRAMMAR_DIR}/cpp/converter_ext/*.cc
     ${LONGSPEC_XGRAMMAR_DIR}/cpp/support/*.cc)
list(TRANSFORM LONGSPEC_XGRAMMAR_LEFT_OUT PREPEND ${LONGSPEC_XGRAMMAR_DIR}/cpp/ OUTPUT_VARIABLE left_out)
list(REMOVE_ITEM sources ${left_out})
list(TRANSFORM sources REPLACE "^${LONGSPEC_XGRAMMAR_DIR}/cpp" ${copies})
add_library(longspec_xgrammar STATIC ${sources} ${PROJECT_SOURCE_DIR}/src/grammar/xgrammar_guard.cc
  ${PROJECT_SOURCE_DIR}/src/grammar/xgrammar_strings.cc)
target_include_directories(longspec_xgrammar SYSTEM PUBLIC
  $<BUILD_INTERFACE:${LONGSPEC_XGRAMMAR_DIR}/include>
  $<BUILD_INTERFACE:${LONGSPEC_XGRAMMAR_DIR}/3rdparty/dlpack/include>)
target_include_directories(longspec_xgrammar SYSTEM PRIVATE
  ${PROJECT_SOURCE_DIR}/src ${copies} ${LONGSPEC_XGRAMMAR_DIR}/3rdparty/picojson)
# What it would print, and where its checks fail, is told to src/grammar/xgrammar_guard.cc.
target_compile_definitions(longspec_xgrammar PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0
  XGRAMMAR_LOG_CUSTOMIZE=1)
# Its warnings and its arithmetic (hashes that overflow) are its own business; addresses and threads are checked.
# Nothing spends its time there. Functions that a sanitizer names have names, and no lines.
target_compile_options(longspec_xgrammar PRIVATE -w "$<IF:$<CONFIG:Debug>,-O0;-g0,-O1>")
if(LONGSPEC_SANITIZE)
  target_compile_options(longspec_xgrammar PRIVATE -fno-sanitize=undefined,float-cast-overflow)
endif()
target_link_libraries(longspec_xgrammar PUBLIC Threads::Threads longspec_pattern)
# Its types that are not whole yet are none that C++20 takes where clang compiles it.
set_target_properties(longspec_xgrammar PROPERTIES CXX_STANDARD 17)
longspec_join(longspec_xgrammar 15 "")
