# Every target sets itself up: the environment, its dependencies and, where the machine has none, a C++ compiler.
# A stamp file under .venv remembers what was done, so that a second run starts at once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

VENV ?= .venv
# One pinned PyTorch, the CPU build. Where pip's index offers only the CUDA build of this version (gigabytes), add the
# CPU index of PyTorch to PIP_EXTRA_INDEX_URL, or say TORCH=<path of a wheel>.
TORCH ?= torch==2.13.0
# A file on which to run only some of the tests: make test TESTS=tests/core
TESTS ?= tests
WORKERS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input install --quiet
PYTEST := $(BIN)/python -m pytest
EXTRAS := tune bench cuda dev
SOURCES := $(shell find src -type f -not -name '*.pyc' -not -path '*/__pycache__/*' 2>/dev/null | sed 's/ /\\ /g')
DEVICE_TEXT := $(shell find src -type f \( -name '*.h' -o -name '*.c' \))
# Stamps that carry what they stand for in their name: another PyTorch, or a source file added or removed, is a new stamp.
checksum = $(shell printf '%s' '$(1)' | cksum | cut -d' ' -f1)
TORCH_STAMP := $(VENV)/.torch-$(call checksum,$(TORCH))
WHEEL_STAMP := $(VENV)/.wheel-$(call checksum,$(SOURCES))

.PHONY: help
help: ## say what each target does (this text)
	@echo "Tracea: make demo shows it, make test proves it. Every target sets itself up."
	@echo
	@awk -F ':[^#]*## ' '/^[a-z-]+:[^#]*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  TESTS=tests/core make test     run some of the tests"
	@echo "  TRACEA_SEED=7 make test        replay a run's random inputs (each run prints its seed)"
	@echo "  TORCH=torch==2.12.0 make test  against another PyTorch"
	@echo "  PYTHON=python3.12 make venv    with another Python (3.11 to 3.13)"

.PHONY: demo
demo: $(WHEEL_STAMP) ## capture, fuse, tune, verify and time an MLP block against PyTorch
	$(BIN)/tracea optimize examples/mlp.py:build

.PHONY: test
test: $(WHEEL_STAMP) ## build the wheel, install it, and run the tests against it
	$(PYTEST) -n $(WORKERS) --dist worksteal --durations=25 --durations-min=5 $(TESTS)

.PHONY: nightly
nightly: $(WHEEL_STAMP) $(VENV)/.cross ## run the slow tests too (minutes; some need tools that few machines have)
	$(PYTEST) -n $(WORKERS) --dist worksteal -m "slow or not slow" -o faulthandler_timeout=1800 $(TESTS)

.PHONY: check
check: check-format check-lint check-types check-imports check-size check-words ## format, lint, types, import order, file sizes, words

.PHONY: check-format
check-format: $(VENV)/.setup
	$(BIN)/ruff format --check .
	$(if $(DEVICE_TEXT),$(BIN)/clang-format --dry-run --Werror $(DEVICE_TEXT))

.PHONY: check-lint
check-lint: $(VENV)/.setup
	$(BIN)/ruff check .

.PHONY: check-types
check-types: $(VENV)/.setup
	$(BIN)/pyright

.PHONY: check-imports
check-imports: $(VENV)/.setup
	PYTHONPATH=src $(BIN)/lint-imports --no-cache

.PHONY: check-size
check-size: $(VENV)/.setup
	$(BIN)/python tools/check_file_size.py

.PHONY: check-words
check-words: $(VENV)/.setup
	$(BIN)/python tools/check_words.py

.PHONY: format
format: $(VENV)/.setup ## format Python and device headers, and fix what the linter can
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	$(if $(DEVICE_TEXT),$(BIN)/clang-format -i $(DEVICE_TEXT))

.PHONY: bench
bench: $(WHEEL_STAMP) ## measure against the peers, interleaved, and write benchmarks/results
	$(BIN)/tracea bench --suite gemm --against torch,onnxruntime
	$(BIN)/tracea bench --suite rows --against torch,onnxruntime

# No environment of its own: it takes the machine's Python with its torch, and a folder of wheels for what is missing.
GPU_PYTHON ?= python3
GPU_WHEELS ?= wheels
GPU_SITE := build/gpu-site
GPU_FLAGS ?=
GPU_IS_DRY = $(findstring --driver null,$(subst =, ,$(GPU_FLAGS)))
# What no device took part in is no result: it stays out of the folder that is committed.
GPU_RESULTS = $(if $(GPU_IS_DRY),build/gpu-dry-run,benchmarks/results)
.PHONY: gpu
gpu: ## on a machine with an NVIDIA GPU, offline, ten minutes: prove by hardware, tune, time against cuBLAS and Triton
	$(GPU_PYTHON) tools/check_gpu_setup.py --wheels '$(GPU_WHEELS)' --site $(GPU_SITE) $(if $(GPU_IS_DRY),--without-device)
	PYTHONPATH=src:$(GPU_SITE) $(GPU_PYTHON) -m tracea bench --suite gpu --output $(GPU_RESULTS) $(GPU_FLAGS)

.PHONY: gpu-wheels
gpu-wheels: $(VENV)/.python ## download the wheels that `make gpu` carries to a machine without a network
	$(VENV)/bin/python tools/check_gpu_setup.py --download '$(GPU_WHEELS)'

.PHONY: gpu-matrix
gpu-matrix: $(WHEEL_STAMP) ## judge every CUDA kernel on every architecture without a GPU, and write docs/gpu-matrix.md
	$(BIN)/python tools/gpu_matrix.py --jobs $(WORKERS)

.PHONY: gpu-mutants
gpu-mutants: $(WHEEL_STAMP) ## judge every mechanical mistake in the GPU kernels without a GPU, and write docs/gpu-mutants.md
	$(BIN)/python tools/gpu_mutants.py --jobs $(WORKERS) --check

.PHONY: golden
golden: $(WHEEL_STAMP) ## accept the emitted text of every kernel as the new tests/golden
	$(PYTEST) -m golden --update-golden $(TESTS)
	git --no-pager diff --stat -- tests/golden

.PHONY: wheel
wheel: $(WHEEL_STAMP) ## build the wheel and install it in the environment

.PHONY: venv
venv: $(VENV)/.setup ## make the environment of the other targets, which `make wheel` installs tracea into

.PHONY: clean
clean: ## remove the environment and everything that was built
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis

# The interpreter: the first that runs and is in range.
$(VENV)/.python:
	@for candidate in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	  if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then \
	    [[ -x $(BIN)/python ]] || "$$candidate" -m venv $(VENV); touch $@; exit 0; \
	  fi; \
	done; \
	echo "no Python from 3.11 to 3.13 with venv was found. Remedy: install one and say PYTHON=<its path> make venv" >&2; exit 1

$(TORCH_STAMP): $(VENV)/.python
	@echo "installing $(TORCH)"
	rm -f $(VENV)/.torch-*
	$(PIP) '$(TORCH)'
	@touch $@

$(VENV)/.setup: pyproject.toml tools/list_requirements.py $(TORCH_STAMP)
	$(BIN)/python tools/list_requirements.py $(EXTRAS) > $(VENV)/requirements.txt
	@if ! command -v g++ > /dev/null && ! command -v clang++ > /dev/null; then \
	  echo "no g++ and no clang++ on PATH: taking the compiler of the ziglang wheel"; \
	  $(BIN)/python tools/list_requirements.py compiler >> $(VENV)/requirements.txt; \
	fi
	@echo "installing the tools and the dependencies of the extras $(EXTRAS)"
	$(PIP) --requirement $(VENV)/requirements.txt
	@touch $@

# The slow tests compile for AArch64 too; its emulator is the system's, and without it they are skipped, not passed.
$(VENV)/.cross: $(VENV)/.setup
	$(BIN)/python tools/list_requirements.py compiler > $(VENV)/requirements-cross.txt
	$(PIP) --requirement $(VENV)/requirements-cross.txt
	@command -v qemu-aarch64 > /dev/null || echo "no qemu-aarch64: NEON will not be checked. Remedy: apt-get install qemu-user" >&2
	@touch $@

# Not editable: what is tested is what a user installs, headers included.
$(WHEEL_STAMP): $(VENV)/.setup README.md LICENSE $(SOURCES)
	rm -rf dist $(VENV)/.wheel-*
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log >&2; exit 1; }
	$(PIP) --no-deps --force-reinstall dist/*.whl
	@touch $@
