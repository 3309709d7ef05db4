# Thin targets over tools/ and CMake's presets. Each sets the machine up first; tools/setup is quick once that is done.
# Variables: SUMPTER_PYTHON (an environment with torch; remembered), JOBS, ARGS (options of demo and bench-*).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
JOBS ?= $(shell nproc)
SUMPTER := build/release/bin/sumpter
PYTHON = $(shell cat build/python)
# Checkouts in different folders share what ccache has compiled.
export CCACHE_BASEDIR := $(CURDIR)
export CCACHE_NOHASHDIR := 1
export CCACHE_SLOPPINESS := pch_defines,time_macros

.PHONY: help build core demo test check prove format wheel clean bench-kernels bench-exchange bench-input bench-train \
  bench-peers bench-ddp bench-collectives
help:
	@echo "make build    the command: $(SUMPTER)"
	@echo "make core     everything that needs no torch, and its tests, in build/core"
	@echo "make demo     trains on Fashion-MNIST with two replicas and shows the weights"
	@echo "make test     all tests but the long ones"
	@echo "make check    formatting, clang-tidy, the core's tests under the address and the thread sanitizer"
	@echo "make prove    the long tests, with their tables"
	@echo "make bench-kernels | bench-exchange | bench-input | bench-train | bench-peers   [ARGS=--json]"
	@echo "make bench-ddp | bench-collectives   the torch.distributed backend against gloo (docs/benchmarks.md)   [ARGS=--json]"
	@echo "make format   clang-format over all C++"
	@echo "make wheel    the Python package for this Python and its torch, in dist/"
	@echo "make clean    removes what was built (not .venv)"

build:
	@tools/setup
	@cmake --preset release >build/configure.log || { cat build/configure.log; exit 1; }
	@cmake --build --preset release -j $(JOBS)

core:
	@tools/setup core
	@tools/core core

# Both runners, whatever the first one says.
test: build
	@status=0; \
	ctest --preset release -j $(JOBS) --exclude-regex '(^|[./])Prove' || status=1; \
	$(PYTHON) -m pytest -q -m 'not prove' tests || status=1; \
	exit $$status

check:
	@tools/setup check
	tools/check

prove: build
	tools/prove

demo: build
	@mkdir -p demo
	$(SUMPTER) train --model lenet --data /usr/share/datasets/fashion-mnist --devices cpu:2 --batch-size 128 --epochs 2 \
	  --learning-rate 0.05 --weights demo/lenet.safetensors $(ARGS)
	@$(PYTHON) tools/show_weights.py demo/lenet.safetensors

bench-kernels bench-exchange bench-input bench-train: build
	@$(SUMPTER) bench $(subst bench-,,$@) $(ARGS)

bench-peers: build
	@tools/setup peers
	@$(PYTHON) bench/peers/run.py $(ARGS)

bench-ddp: build
	@$(PYTHON) bench/ddp.py $(ARGS)

bench-collectives: build
	@$(if $(filter --no-mpi,$(ARGS)),:,tools/setup peers)
	@$(PYTHON) bench/collectives.py $(ARGS)

format:
	@tools/setup check
	@tools/check --files | xargs clang-format -i

wheel:
	@tools/setup
	@$(PYTHON) -c 'import scikit_build_core' || { echo 'make: $(PYTHON) has no scikit-build-core: install it with its pip' >&2; exit 1; }
	@$(PYTHON) -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir dist .
	@ls dist/sumpter-*.whl

clean:
	@if [ -d build ]; then find build -mindepth 1 -maxdepth 1 ! -name python -exec rm -rf {} +; fi
	@rm -rf demo dist
