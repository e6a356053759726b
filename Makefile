# Thin, over the presets of CMakePresets.json: every target can be run by hand with cmake, ninja and python3.
# `make help` lists the targets.

MODEL   ?= coder
PREFIX  ?= /usr/local
PROGRAM := build/release/longspec
# Where `model` puts it.
GGUF     = $(shell python3 tools/get_model --path $(MODEL))
SOURCES  = $(shell git ls-files '*.cc' '*.h')

.DEFAULT_GOAL := release
.PHONY: trainer release model demo test test-all test-arm coverage fuzz bench format tidy install clean help

release:        ## Build build/release/longspec (the default); CUDA=1: for NVIDIA's cards as well
	@tools/setup.sh build
	@tools/setup.sh model && python3 tools/get_xgrammar \
	  || echo "warning: no xgrammar; structured output is left out" >&2
	@tools/build.sh release
ifeq ($(CUDA),1)
	@tools/setup.sh test
	@tools/build.sh cuda-release
	@tools/build.sh cuda cuda_check kernels_cuda_test gpu_cuda_test
endif

trainer:        ## Fetch LibTorch and build build/trainer/longspec-train, longspec-write
	@tools/setup_trainer.sh

model:          ## Fetch a model into models/: MODEL=coder (the default), coder-0.5b, smollm2, gemma3
	@tools/setup.sh model
	@python3 tools/get_model $(PROGRESS) $(MODEL)

demo:           ## Fetch, build, and write the same texts with speculation and without
	@tools/setup.sh build model
	@$(MAKE) --no-print-directory -j2 release model PROGRESS=--lines
	@LONGSPEC=$(PROGRAM) MODEL=$(GGUF) tools/demo.sh

# What run_tests.py is asked for: nothing is every test, once.
test-all: STAGES = all
test:           ## Build and run every test; ends with "N passed, N failed"
test-all:       ## The same, and again under AddressSanitizer, UBSan and ThreadSanitizer, and fuzzing
test test-all:
	@tools/setup.sh test || { echo "0 passed, 1 failed"; exit 1; }
	@tools/setup.sh model && python3 tools/get_model smollm2 \
	  || echo "warning: no model of the tests; those that need it are skipped" >&2
	@python3 tools/get_xgrammar || echo "warning: no xgrammar; structured output is not tested" >&2
	@python3 tools/run_tests.py $(STAGES)

test-arm:       ## Build and run the tests below the engine for AArch64, under emulation
	@tools/setup.sh arm || { echo "0 passed, 1 failed"; exit 1; }
	@python3 tools/run_tests.py arm

coverage:       ## Line coverage of each module; fails below 80 %
	@tools/setup.sh coverage
	@tools/setup.sh model && python3 tools/get_model smollm2 \
	  || echo "warning: no model of the tests; those that need it are skipped" >&2
	@python3 tools/coverage.py

fuzz:           ## Fuzz each parser for LONGSPEC_FUZZ_SECONDS (60)
	@tools/setup.sh test
	@LONGSPEC_FUZZ_SECONDS=$${LONGSPEC_FUZZ_SECONDS:-60} python3 tools/run_tests.py fuzz

bench: release model  ## Prefill, decode and the cost of rows on this machine
	@$(PROGRAM) bench -m $(GGUF)

format:         ## Format all C++ files in place
	@tools/setup.sh lint
	@clang-format-14 -i $(SOURCES)

tidy:           ## Run clang-tidy over all modules
	@tools/setup.sh test lint
	@cmake --preset ci -B build/tidy -DLONGSPEC_PRECOMPILE=OFF -DLONGSPEC_UNITY=OFF >/dev/null
	@printf '%s\n' $(filter %.cc,$(SOURCES)) | grep '^src/' | grep -v -e '_fuzz.cc$$' -e '^src/train/' -e '^src/http/' \
	  | xargs -P "$$(nproc)" -n 4 clang-tidy --quiet --extra-arg=-Wno-unknown-warning-option -p build/tidy

install: release  ## Install under PREFIX (/usr/local)
	@cmake --install build/release --prefix $(PREFIX)

clean:          ## Remove everything that was built (models stay)
	@rm -rf build

help:           ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18
