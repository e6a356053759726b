# What is compiled for NVIDIA's cards, by nvcc alone: CMake's own support of the language asks for a whole toolkit, and
# nvcc is to be had without one. LONGSPEC_CUDA is AUTO (where nvcc is found), ON or OFF. The runtime is linked statically;
# it asks for the driver when a program starts to use a card.
set(LONGSPEC_CUDA "OFF" CACHE STRING "Build what runs on NVIDIA's cards: ON, OFF, or AUTO where nvcc is found")
set(LONGSPEC_CUDA_ARCHITECTURES 80 90 CACHE STRING "Compute capabilities, times ten")
set(LONGSPEC_HAS_CUDA OFF)
if(LONGSPEC_CUDA)
  find_program(LONGSPEC_NVCC nvcc HINTS ENV LONGSPEC_CUDA_ROOT PATH_SUFFIXES bin)
  if(NOT LONGSPEC_NVCC AND NOT LONGSPEC_CUDA STREQUAL "AUTO")
    message(FATAL_ERROR "LONGSPEC_CUDA needs nvcc of CUDA 13.0: put its folder into PATH or name CUDA's in "
      "LONGSPEC_CUDA_ROOT, or build with -DLONGSPEC_CUDA=OFF")
  endif()
  if(LONGSPEC_NVCC)
    get_filename_component(cuda_root ${LONGSPEC_NVCC} REALPATH)
    get_filename_component(cuda_root ${cuda_root} DIRECTORY)
    get_filename_component(cuda_root ${cuda_root} DIRECTORY)
    find_library(LONGSPEC_CUDART cudart_static HINTS ${cuda_root} PATH_SUFFIXES lib64 lib lib/x86_64-linux-gnu)
    set(LONGSPEC_HAS_CUDA ON)
  endif()
endif()

# -fmad=false is part of the law of arithmetic; flushing, quotients and roots are IEEE's by default and said here.
set(LONGSPEC_NVCC_FLAGS -std=c++20 -O3 --expt-relaxed-constexpr -fmad=false -ftz=false -prec-div=true -prec-sqrt=true
  -Xptxas=-v,-warn-spills
  -Xcompiler=-ffp-contract=off,-fPIC -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include -I.)

foreach(architecture IN LISTS LONGSPEC_CUDA_ARCHITECTURES)
  list(APPEND LONGSPEC_NVCC_FLAGS -gencode=arch=compute_${architecture},code=sm_${architecture})
endforeach()

# Object files of .cu files, in `objects`, once files in LONGSPEC_CUDA_GENERATED are made.
function(longspec_cuda_objects objects)
  set(all "")
  foreach(source IN LISTS ARGN)
    get_filename_component(name ${source} NAME)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND sh -c "\"$@\" > ${object}.log 2>&1 || { cat ${object}.log; false; }" sh
        ${LONGSPEC_NVCC} ${LONGSPEC_NVCC_FLAGS} -ccbin ${CMAKE_CXX_COMPILER} -MD -MF ${object}.d
        -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
      DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} ${LONGSPEC_CUDA_GENERATED} DEPFILE ${object}.d VERBATIM
      COMMENT "Compiling ${source} for GPUs")
    list(APPEND all ${object})
  endforeach()
  set(${objects} ${all} PARENT_SCOPE)
endfunction()
