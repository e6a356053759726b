# One function: a module of src/ is its sources, the modules it may include, and the tests beside them.
#
#   longspec_module(kv SOURCES full_cache.cc DEPS attention kernels LIBS PkgConfig::X)
#
# makes the object library longspec_kv and, from every *_test.cc in the folder, the program kv_test.
# tools/check_layers.py compares DEPS with the includes and with the floors.
#
# UNITY n says that the sources may be compiled n at a time as one file, which LONGSPEC_UNITY does: most of what the
# compiler does for them is the same headers and templates. TEST_UNITY n says it of the tests. ALONE names files that
# may not. HOT says that instructions of the module are counted: joined files would be optimised together, so an
# optimised build leaves its sources apart. COLD says that no test spends its time in the module: it is compiled with
# LONGSPEC_COLD_OPTIONS. Debug presets have -O0 there, which with sanitizers takes the compiler half as long as -O1.
# TEPID says the same of a debug build alone: an optimised program does spend time there.
# HEADERS are precompiled for the module, instead of those that others begin with.
# COROUTINES says that it has some, or its tests: clang 14 cannot compile them with a check of calls through pointers.

set(LONGSPEC_COLD_OPTIONS "-O1" CACHE STRING "Compiler options for modules in which a program spends no time")
set(LONGSPEC_HOT_OPTIONS "-O3" CACHE STRING "Compiler options for modules in which an optimised program spends its time")
option(LONGSPEC_UNITY "Compile sources of a module together: less work from nothing, more after a small change" OFF)

# Joins sources of a target, `batch` at a time; those of `alone` stay as they are. CMake's own UNITY_BUILD does the same,
# but writes whole paths into the joined files: a compiler cache would not know them again in another copy of the
# repository.
function(longspec_join target batch alone)
  if(NOT LONGSPEC_UNITY OR NOT batch)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  set(joined_folder ${CMAKE_CURRENT_BINARY_DIR}/joined)
  set(source_root ${PROJECT_SOURCE_DIR}/src)
  list(TRANSFORM alone PREPEND "${folder}/" REGEX "^[^/]")
  set(kept "")
  set(includes "")
  foreach(source IN LISTS sources)
    get_filename_component(path ${source} ABSOLUTE BASE_DIR ${folder})
    if(path IN_LIST alone)
      list(APPEND kept ${source})
      continue()
    endif()
    # As the compiler is told to look for it, or from the joined file on.
    set(from ${joined_folder})
    cmake_path(IS_PREFIX source_root ${path} is_own)
    if(is_own)
      set(from ${source_root})
    endif()
    file(RELATIVE_PATH path ${from} ${path})
    list(APPEND includes "#include \"${path}\"\n")
  endforeach()
  list(LENGTH includes n_all)
  set(end 0)
  while(end LESS n_all)
    list(SUBLIST includes ${end} ${batch} part)
    list(LENGTH part n)
    math(EXPR end "${end} + ${n}")
    list(JOIN part "" text)
    set(joined ${joined_folder}/${target}_${end}.cc)
    file(CONFIGURE OUTPUT ${joined} CONTENT "${text}" @ONLY)
    list(APPEND kept ${joined})
  endwhile()
  set_property(TARGET ${target} PROPERTY SOURCES ${kept})
endfunction()

function(longspec_module name)
  cmake_parse_arguments(ARG "COLD;COROUTINES;HOT;TEPID" "UNITY;TEST_UNITY" "SOURCES;ALONE;DEPS;LIBS;HEADERS;TEST_DEPS;TEST_LIBS" ${ARGN})
  set(target longspec_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)
  target_link_libraries(${target} PRIVATE longspec_warnings)
  foreach(dep IN LISTS ARG_DEPS)
    target_link_libraries(${target} PUBLIC longspec_${dep})
  endforeach()
  target_link_libraries(${target} PUBLIC ${ARG_LIBS})
  file(GLOB fuzzers CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_fuzz.cc)
  if(NOT LONGSPEC_BUILD_FUZZERS)
    set(fuzzers "")
  endif()
  if(ARG_COLD OR (ARG_TEPID AND CMAKE_BUILD_TYPE STREQUAL Debug))
    target_compile_options(${target} PRIVATE ${LONGSPEC_COLD_OPTIONS})
    if(fuzzers)
      longspec_precompile(${target} longspec_fuzzed_headers)
    else()
      longspec_precompile(${target} longspec_cold_headers)
    endif()
  elseif(ARG_HOT AND NOT CMAKE_BUILD_TYPE STREQUAL Debug)
    target_compile_options(${target} PRIVATE ${LONGSPEC_HOT_OPTIONS})
    longspec_precompile(${target} longspec_hot_headers)
    if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # 12 sees copies in precompiled strings that are none, as for -Wrestrict
      target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-array-bounds)
    endif()
  elseif(ARG_HEADERS)
    target_precompile_headers(${target} PRIVATE ${ARG_HEADERS})
  elseif(NOT fuzzers)
    longspec_precompile(${target} longspec_standard_headers)
  endif()
  set(coroutine_options "")
  if(ARG_COROUTINES AND LONGSPEC_SANITIZE)
    set(coroutine_options $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  endif()
  target_compile_options(${target} PRIVATE ${coroutine_options})
  set_property(GLOBAL APPEND PROPERTY LONGSPEC_MODULES ${target})
  if(NOT ARG_HOT OR CMAKE_BUILD_TYPE STREQUAL Debug)
    longspec_join(${target} "${ARG_UNITY}" "${ARG_ALONE}")
  endif()

  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  if(LONGSPEC_BUILD_TESTS AND tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE ${target} longspec_source_path longspec_warnings ${ARG_TEST_LIBS}
      GTest::gmock GTest::gtest_main)
    foreach(dep IN LISTS ARG_TEST_DEPS)
      target_link_libraries(${name}_test PRIVATE longspec_${dep})
    endforeach()
    target_link_options(${name}_test PRIVATE ${LONGSPEC_TEST_LINK_OPTIONS})
    longspec_join(${name}_test "${ARG_TEST_UNITY}" "${ARG_ALONE}")
    target_compile_options(${name}_test PRIVATE ${coroutine_options})
    target_compile_options(${name}_test PRIVATE -O0)  # a test's time goes into what it tests, and into compiling it
    set_target_properties(${name}_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    longspec_precompile(${name}_test longspec_test_headers)
    set_target_properties(${name}_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    add_test(NAME ${name}_test COMMAND ${name}_test)
  endif()

  if(fuzzers)
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)  # what a fuzzer is led by
    foreach(source IN LISTS fuzzers)
      get_filename_component(program ${source} NAME_WE)
      add_executable(${program} ${source})
      target_link_libraries(${program} PRIVATE ${target} longspec_warnings)
      target_compile_options(${program} PRIVATE -fPIC ${LONGSPEC_COLD_OPTIONS} -fsanitize=fuzzer-no-link)
      longspec_precompile(${program} longspec_fuzzed_headers)
      target_link_options(${program} PRIVATE -fsanitize=fuzzer)
      set_target_properties(${program} PROPERTIES
        POSITION_INDEPENDENT_CODE OFF RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    endforeach()
  endif()
endfunction()
