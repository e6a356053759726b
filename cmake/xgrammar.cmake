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

# A copy of a source file with a statement before each of some places, given as pairs (place, statement): its long
# loops count their work, so that a grammar from a stranger cannot hold a thread for longer than it may, and what it
# would get wrong is told.
function(longspec_patched_source name result)
  file(READ ${LONGSPEC_XGRAMMAR_DIR}/cpp/${name} text)
  list(LENGTH ARGN n)
  math(EXPR last "${n} - 1")
  foreach(i RANGE 0 ${last} 2)
    math(EXPR j "${i} + 1")
    list(GET ARGN ${i} place)
    list(GET ARGN ${j} statement)
    string(FIND "${text}" "${place}" found)
    if(found EQUAL -1)
      message(FATAL_ERROR "${LONGSPEC_XGRAMMAR_DIR}/cpp/${name} has no \"${place}\": other sources than those of "
                          "version ${LONGSPEC_XGRAMMAR_VERSION}?")
    endif()
    string(REPLACE "${place}" "${statement}; ${place}" text "${text}")
  endforeach()
  set(copy ${PROJECT_BINARY_DIR}/xgrammar/${name})
  file(WRITE ${copy}.in "#include \"grammar/xgrammar_guard.h\"\n${text}")
  configure_file(${copy}.in ${copy} COPYONLY)
  set(${result} ${copy} PARENT_SCOPE)
endfunction()

file(GLOB sources ${LONGSPEC_XGRAMMAR_DIR}/cpp/*.cc ${LONGSPEC_XGRAMMAR_DIR}/cpp/converter_ext/*.cc
     ${LONGSPEC_XGRAMMAR_DIR}/cpp/support/*.cc)
list(FILTER sources EXCLUDE REGEX "/(earley_parser|fsm|grammar_compiler|json_schema_converter)[.]cc$")
set(a_little "longspec::XgrammarTick(1)")
set(more "longspec::XgrammarTick(4)")
set(much "longspec::XgrammarTick(256)")
longspec_patched_source(earley_parser.cc earley_parser
  "tmp_process_state_queue_.pop()" ${a_little} "Scan(state, ch)" ${a_little})
longspec_patched_source(fsm.cc fsm
  "queue.pop()" ${a_little} "dfa.AddState()" ${much} "int n = result.NumStates()" ${much}
  "auto edges_to_i" ${more} "auto node_edges" ${more})
longspec_patched_source(grammar_compiler.cc grammar_compiler
  "tmp_rejected_indices_.clear()" "longspec::XgrammarTick(1024)")
# What a pattern becomes that its automata cannot match may hold quotation marks that end the string.
longspec_patched_source(json_schema_converter.cc json_schema_converter
  "return AddSubGrammar(Grammar::FromEBNF(RegexToEBNF(regex)))"
  "if (json_string) longspec::XgrammarWarn(\"a pattern that is too large, or needs quotation marks, backslashes or control characters: \" + regex)")
add_library(longspec_xgrammar STATIC ${sources} ${earley_parser} ${fsm} ${grammar_compiler} ${json_schema_converter}
  ${PROJECT_SOURCE_DIR}/src/grammar/xgrammar_guard.cc)
target_include_directories(longspec_xgrammar SYSTEM PUBLIC
  $<BUILD_INTERFACE:${LONGSPEC_XGRAMMAR_DIR}/include>
  $<BUILD_INTERFACE:${LONGSPEC_XGRAMMAR_DIR}/3rdparty/dlpack/include>)
target_include_directories(longspec_xgrammar SYSTEM PRIVATE
  ${PROJECT_SOURCE_DIR}/src ${LONGSPEC_XGRAMMAR_DIR}/cpp ${LONGSPEC_XGRAMMAR_DIR}/3rdparty/picojson)
# What it would print, and where its checks fail, is told to src/grammar/xgrammar_guard.cc.
target_compile_definitions(longspec_xgrammar PRIVATE XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0
  XGRAMMAR_LOG_CUSTOMIZE=1)
# Its warnings and its arithmetic (hashes that overflow) are its own business; addresses and threads are checked.
target_compile_options(longspec_xgrammar PRIVATE -w $<$<CONFIG:Debug>:-O0>)  # no test spends its time there
if(LONGSPEC_SANITIZE)
  target_compile_options(longspec_xgrammar PRIVATE -fno-sanitize=undefined,float-cast-overflow)
endif()
target_link_libraries(longspec_xgrammar PUBLIC Threads::Threads)
set_target_properties(longspec_xgrammar PROPERTIES CXX_STANDARD 17)
longspec_join(longspec_xgrammar 8 ${LONGSPEC_XGRAMMAR_DIR}/cpp/converter_ext/minimax_m3.cc)  # a name twice
