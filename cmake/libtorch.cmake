# longspec_torch: LibTorch as `pip install torch` has it, for the trainer only.
#
# LONGSPEC_TORCH_DIR is the folder site-packages/torch; by default that of LONGSPEC_TRAINER_PYTHON, else of python3. The
# package's own CMake files ask for a CUDA toolkit with compiler where the wheel was built with CUDA, even if nothing of it
# is used; here the libraries are linked by name. With the wheel's CUDA libraries installed the program can use a GPU,
# without them it runs on the CPU: the source is the same.
set(LONGSPEC_TRAINER_PYTHON "python3" CACHE STRING "Python that has torch, for LONGSPEC_BUILD_TRAINER")
if(NOT LONGSPEC_TORCH_DIR)
  execute_process(
    COMMAND ${LONGSPEC_TRAINER_PYTHON} -c
      "import importlib.util as u, os; s = u.find_spec('torch'); print(os.path.dirname(s.origin) if s else '', end='')"
    OUTPUT_VARIABLE torch_dir RESULT_VARIABLE failed)
  if(failed OR NOT torch_dir)
    message(FATAL_ERROR "LONGSPEC_BUILD_TRAINER: ${LONGSPEC_TRAINER_PYTHON} has no torch. tools/setup_trainer.sh installs it; "
                        "or set LONGSPEC_TRAINER_PYTHON or LONGSPEC_TORCH_DIR (.../site-packages/torch).")
  endif()
  set(LONGSPEC_TORCH_DIR ${torch_dir} CACHE PATH "The folder site-packages/torch")
endif()
foreach(file include/torch/csrc/api/include/torch/torch.h lib/libtorch_cpu.so lib/libc10.so)
  if(NOT EXISTS ${LONGSPEC_TORCH_DIR}/${file})
    message(FATAL_ERROR "LONGSPEC_TORCH_DIR: ${LONGSPEC_TORCH_DIR} has no ${file}")
  endif()
endforeach()

# What the wheel's own dependencies would bring: without them libtorch_cuda cannot be loaded.
set(torch_cuda OFF)
if(EXISTS ${LONGSPEC_TORCH_DIR}/lib/libtorch_cuda.so AND EXISTS ${LONGSPEC_TORCH_DIR}/../nvidia/cudnn)
  set(torch_cuda ON)
endif()
option(LONGSPEC_TRAINER_CUDA "Link the trainer with LibTorch's CUDA libraries" ${torch_cuda})

add_library(longspec_torch INTERFACE)
target_include_directories(longspec_torch SYSTEM INTERFACE
  ${LONGSPEC_TORCH_DIR}/include ${LONGSPEC_TORCH_DIR}/include/torch/csrc/api/include)
# What these libraries need in turn is found by their own search paths when the program starts.
target_link_options(longspec_torch INTERFACE -Wl,--unresolved-symbols=ignore-in-shared-libs)
target_link_libraries(longspec_torch INTERFACE ${LONGSPEC_TORCH_DIR}/lib/libtorch_cpu.so ${LONGSPEC_TORCH_DIR}/lib/libc10.so)
if(LONGSPEC_TRAINER_CUDA)
  # Nothing names a symbol of it: its kernels register themselves.
  target_link_libraries(longspec_torch INTERFACE
    -Wl,--push-state,--no-as-needed ${LONGSPEC_TORCH_DIR}/lib/libtorch_cuda.so ${LONGSPEC_TORCH_DIR}/lib/libc10_cuda.so
    -Wl,--pop-state)
endif()
message(STATUS "Trainer: LibTorch in ${LONGSPEC_TORCH_DIR}, CUDA ${LONGSPEC_TRAINER_CUDA}")
