# Targets call CMake, setup/ and tests/run.py; `make help` says what each does. `make demo` and
# `make test` do all set-up on a fresh Debian 12 or Ubuntu 24.04.

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
PRESET ?= release
# Kernels go through nvcc only if this machine could run them: five architectures take minutes.
CUDA ?= $(if $(wildcard /dev/nvidiactl),AUTO,OFF)
BUILD = build/$(PRESET)
PYTHON = .venv/bin/python
CXX_SOURCES = $(shell find include src workloads bench tests frontends examples cmake \
    -name '*.h' -o -name '*.cuh' -o -name '*.cc' -o -name '*.cu')

.PHONY: help demo build test ci test-all nightly gpu strangers docs format lint install dist clean
.DEFAULT_GOAL := help

help:  ## This list
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1	/p' Makefile | expand -t 10

# Prints one line for each step; on a terminal ninja shows its progress in another.
define compile
	@setup/install.sh demo
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET) --log-level=WARNING -DPENSTOCK_PYTHON=ON \
	    -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) -DPENSTOCK_TESTS=OFF -DPENSTOCK_CUDA=$(CUDA) >/dev/null
	@echo "build: $(1), $(JOBS) files at once"
	@cmake --build $(BUILD) -j $(JOBS) --target $(2) -- $$([ -t 1 ] || echo --quiet)
endef

demo:  ## Set up, build, and scan real files of this machine
	$(call compile,the library and the Python package,penstock_runtime)
	@setup/link-python.sh $(BUILD)
	@$(PYTHON) examples/demo.py

build:  ## Set up and build, benchmarks too (PRESET=release); leaves .venv/bin/penstock
	$(call compile,the library and the Python package and benchmarks,penstock_runtime penstock_benchmarks)
	@setup/link-python.sh $(BUILD) benchmarks
	@echo "build: the command is .venv/bin/penstock (try: .venv/bin/penstock check)"

test:  ## Set up, build, run all tests and the quick checks: before each change
	@setup/install.sh test
	@$(PYTHON) tests/run.py

ci:  ## Do the same with the short form of the sanitizers (three quarters of an hour), as CI does
	@setup/install.sh test
	@$(PYTHON) tests/run.py --ci

test-all:  ## Do the same with all tests under the sanitizers, and clang-tidy (an hour)
	@setup/install.sh test
	@$(PYTHON) tests/run.py --all

nightly:  ## Do test-all with the long forms of the tests, build the wheel, and fuzz for an hour
	@setup/install.sh nightly
	@$(PYTHON) tests/run.py --nightly

gpu:  ## Build for and run the tests on the CUDA device of this machine
	@setup/install.sh gpu
	@$(PYTHON) tests/run.py --gpu

strangers:  ## Run other people's suites alone and under Penstock (PENSTOCK_STRANGERS: their copies)
	@$(PYTHON) -m tests.strangers

docs:  ## Build the documentation as a site, build/site; dead links are errors
	@setup/install.sh docs
	@$(PYTHON) docs/charts.py --check
	@$(PYTHON) docs/headers.py --check
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict
	@echo "docs: build/site/index.html"

format:  ## Format all sources in place
	@setup/install.sh test
	@.venv/bin/clang-format -i $(CXX_SOURCES)
	@.venv/bin/ruff format -q .

lint:  ## Run the checks that execute nothing: tidy, formats, ruff, mypy, clang-tidy
	@setup/install.sh test
	@$(PYTHON) tests/run.py --only tidy,python-lint,cxx-format,build-release,cxx-lint

install:  ## Install library, headers, Python package and command under PREFIX (/usr/local)
	$(call compile,the library and the Python package,penstock_runtime)
	@cmake --install $(BUILD) --prefix $(PREFIX) >/dev/null
	@echo "install: command, Python package, library, headers, CMake package, penstock.pc in $(PREFIX)"

dist:  ## Build the source distribution and the wheel of this version into dist/
	@setup/install.sh dist
	@$(PYTHON) -m build --outdir dist .
	@ls dist

clean:  ## Remove everything that was built; .venv stays
	@rm -rf build
