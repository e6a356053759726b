# Flags every target of the project shares. -ffp-contract=off is part of the law of arithmetic: a fused multiply-add
# happens where the source says std::fma and nowhere else. Designated initialisers name what differs from the defaults,
# so missing ones are no mistake.
add_library(longspec_warnings INTERFACE)
target_compile_options(longspec_warnings INTERFACE
  -ffp-contract=off -fno-fast-math -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wno-psabi -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${LONGSPEC_WERROR}>:-Werror>)
if(LONGSPEC_SANITIZE)
  add_compile_options(-fsanitize=${LONGSPEC_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    # Relative, as a compiler cache wants it: copies of the repository share what is compiled.
    file(RELATIVE_PATH unchecked ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR}/cmake/unchecked.txt)
    add_compile_options(-fsanitize-ignorelist=${unchecked})
  endif()
  add_link_options(-fsanitize=${LONGSPEC_SANITIZE})
endif()
# For what is not shipped: takes a quarter of the time, most of all with what sanitizers add.
find_program(LONGSPEC_FAST_LINKER ld.lld)
if(LONGSPEC_FAST_LINKER)
  set(LONGSPEC_TEST_LINK_OPTIONS -fuse-ld=lld)
endif()
if(LONGSPEC_SANITIZE)
  add_link_options(${LONGSPEC_TEST_LINK_OPTIONS})
endif()
install(TARGETS longspec_warnings EXPORT longspec_targets)
