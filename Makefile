# Thin: each target says in `make help` what it does; the work is CMake's, setup/'s and
# tests/run.sh's. `make demo` and `make test` do all set-up on a fresh Debian 12 or Ubuntu 24.04.

JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
PRESET ?= release
BUILD = build/$(PRESET)
PYTHON = .venv/bin/python

.PHONY: help demo build test nightly gpu format lint install clean
.DEFAULT_GOAL := help

help:  ## This list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1	/p' Makefile | expand -t 10

demo: build  ## Set up, build, and run the main job on real files of this machine
	@$(PYTHON) examples/demo.py

build:  ## Set up and build (PRESET=release); leaves .venv/bin/penstock
	@setup/install.sh demo
	@test -f $(BUILD)/build.ninja || cmake --preset $(PRESET) --log-level=WARNING \
	    -DPENSTOCK_PYTHON=ON -DPython_EXECUTABLE=$(CURDIR)/$(PYTHON) -DPENSTOCK_TESTS=OFF
	@cmake --build $(BUILD) -j $(JOBS)
	@setup/link-python.sh $(BUILD)
