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
  add_link_options(-fsanitize=${LONGSPEC_SANITIZE})
endif()
install(TARGETS longspec_warnings EXPORT longspec_targets)
