# `make help` lists what there is. Everything is built under build/ and dist/.

PYTHON ?= python3
PREFIX ?= /usr/local

# One virtual environment for all; its tools come first, cmake too if the machine has none.
VENV := build/venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check --quiet
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
PEERS_PIP := build/peers/bin/python -m pip --disable-pip-version-check --quiet

# All that building needs of CUDA is cuda.h, of any CUDA 12. It is taken from NVIDIA's wheel, unless CUDA_INCLUDE says where
# there is one. For go itself it is a flag.
ifndef CUDA_INCLUDE
CUDA_INCLUDE := $(CURDIR)/build/cuda
endif
CUDA_H := $(if $(filter $(CURDIR)/build/cuda,$(CUDA_INCLUDE)),build/cuda/cuda.h)
export CUDA_INCLUDE
export CGO_CPPFLAGS := -I$(CUDA_INCLUDE)

# What the library and the wheel are made of.
GO_DIRS := $(wildcard capi cuda internal program pyfeed readers)
LIBRARY_SOURCES := $(wildcard go.mod go.sum) capi/build.sh capi/exports.map \
	$(shell find $(GO_DIRS) -name '*_test.go' -prune -o -name '*.go' -print -o -name '*.[achS]' -print)
INSTALLED := $(wildcard capi/*.h capi/*.hpp capi/pyfeed/*.hpp cmake/*)
WHEEL_SOURCES := $(LIBRARY_SOURCES) $(INSTALLED) setup.py pyproject.toml MANIFEST.in README.md \
	$(wildcard $(foreach folder,native pyfeed pyfeed_worker pyfeed_worker/native,$(addprefix python/$(folder)/*.,c h py pyi)))
C_FILES = $(shell find capi cuda pyfeed python/native python/pyfeed_worker/native tests examples benchmarks -name '*.[ch]' -o -name '*.[ch]pp')

GENERATOR := $(if $(shell command -v ninja),-G Ninja)
# Configures and builds a CMake project: $(call cmake,source,build directory,prefix,more options)
define cmake
	cmake -S $(1) -B $(2) $(GENERATOR) -DCMAKE_PREFIX_PATH="$(CURDIR)/$(3)" $(4)
	cmake --build $(2) --parallel $(shell nproc)
endef

.DELETE_ON_ERROR:
.PHONY: help go-env lib install demo demo-files demo-cpp wheel sdist bench bench-peers instructions clean format \
	lint lint-go lint-c lint-python test test-go test-cpp test-python test-wheel test-adapters \
	test-modes test-modes-go test-modes-cpp fuzz test-fuzz test-long

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- Building -------------------------------------------------------------------------------

lib: build/lib/libpyfeed.so.0 ## the shared library, build/lib/libpyfeed.so.0

build/lib/libpyfeed.so.0: $(LIBRARY_SOURCES) | $(CUDA_H)
	capi/build.sh $@

build/asan/lib/libpyfeed.so.0: $(LIBRARY_SOURCES) | $(CUDA_H)
	capi/build.sh $@ -asan

# Library, headers, CMake package and pkg-config file, for what builds against them here.
build/prefix/.done build/asan/prefix/.done: %prefix/.done: %lib/libpyfeed.so.0 $(INSTALLED)
	cmake/install.sh $< $(@D)
	touch $@

install: build/lib/libpyfeed.so.0 ## library, headers, CMake package and pkg-config file into PREFIX (and DESTDIR)
	cmake/install.sh $< "$(DESTDIR)$(PREFIX)"

build/cuda/cuda.h: requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --no-deps -c requirements-dev.txt nvidia-cuda-runtime-cu12
	mkdir -p $(@D)
	cp $(VENV)/lib/python3*/site-packages/nvidia/cuda_runtime/include/cuda.h $@

build/venv/.tools: requirements-dev.txt | build/cuda/cuda.h
	$(PIP) install -r requirements-dev.txt
	command -v cmake >/dev/null || $(PIP) install cmake==4.4.4
	touch $@

# The wheel is always made from the sdist, so that each proves the other.
dist/.done: $(WHEEL_SOURCES) | build/venv/.tools
	rm -f dist/pyfeed-*
	python -m build --quiet --no-isolation --outdir dist .
	touch $@

wheel: dist/.done ## the wheel, dist/pyfeed-*.whl
sdist: dist/.done ## the source distribution, dist/pyfeed-*.tar.gz

build/venv/.pyfeed: dist/.done
	$(PIP) install --force-reinstall --no-deps dist/pyfeed-*.whl
	touch $@

go-env: | $(CUDA_H) ## what go needs to be told: eval "$$(make -s go-env)", then go test ./... and the like
	@echo "export CUDA_INCLUDE='$(CUDA_INCLUDE)' CGO_CPPFLAGS='$(CGO_CPPFLAGS)'"

# ---- Running --------------------------------------------------------------------------------

build/recognize_digits/executor.so: build/prefix/.done build/venv/.tools $(wildcard examples/recognize_digits/*)
	$(call cmake,examples/recognize_digits,build/recognize_digits,build/prefix)
	touch $@

demo: build/venv/.pyfeed build/recognize_digits/executor.so ## set everything up, then train on handwritten digits
	python examples/recognize_digits/train.py

# What we are compared with is large, and nothing else needs it: an environment of its own. What cannot be installed is
# left out here, and named in the tables.
build/peers/.tools: requirements-peers.txt
	$(PYTHON) -m venv build/peers
	$(PEERS_PIP) install -r $< || sed '/^#/d' $< | while read -r peer; do \
		$(PEERS_PIP) install "$$peer" || echo "$$peer cannot be installed"; \
	done
	touch $@

build/recognize_digits_files/train: build/prefix/.done build/venv/.tools \
		$(wildcard examples/recognize_digits_files/*) examples/recognize_digits/network.hpp
	$(call cmake,examples/recognize_digits_files,build/recognize_digits_files,build/prefix)
	touch $@

demo-files: build/venv/.pyfeed build/recognize_digits_files/train ## the same from files, with no Python in the process that trains
	python examples/recognize_digits_files/write_files.py build/recognize_digits_files/digits
	build/recognize_digits_files/train build/recognize_digits_files/digits

build/recognize_digits_program/train: build/prefix/.done build/venv/.tools \
		$(wildcard examples/recognize_digits_program/*) examples/recognize_digits/network.hpp
	$(call cmake,examples/recognize_digits_program,build/recognize_digits_program,build/prefix)
	touch $@

# Names of files in a program are relative to where it runs: both run here.
demo-cpp: build/venv/.pyfeed build/recognize_digits_program/train ## the same as a program: built in Python, run by C++ without it
	python examples/recognize_digits_files/write_files.py build/recognize_digits_program/digits
	python examples/recognize_digits_program/build_program.py build/recognize_digits_program/digits
	build/recognize_digits_program/train build/recognize_digits_program/digits

WORKLOADS := batches files cold_start interruption training_loop

# Each to its end, whatever becomes of the others: $(call benchmarks,PYTHON,WORKLOADS,OPTIONS,FOLDER).
define benchmarks
@failed=; for workload in $(2); do \
	echo "$$workload: from $$(date +%T)"; \
	$(1) benchmarks/$$workload.py $(3) --json $(4)/$$workload.json $(BENCH_OPTIONS) || failed="$$failed $$workload"; \
done; test -z "$$failed" || { echo "failed:$$failed" >&2; false; }
endef

bench: build/venv/.pyfeed ## measure beside what Python and NumPy have, some minutes; writes build/bench/*.json
	$(call benchmarks,python,$(WORKLOADS) program_overhead,,build/bench)

bench-peers: dist/.done build/peers/.tools ## the same beside all peers, an hour or so; writes build/bench-peers/
	$(PEERS_PIP) install --force-reinstall --no-deps dist/pyfeed-*.whl
	$(call benchmarks,build/peers/bin/python,$(WORKLOADS),--libraries all,build/bench-peers)
	build/peers/bin/python benchmarks/complete.py build/bench-peers

instructions: build/prefix/.done ## count instructions of what is done often, beside those in benchmarks/instructions.json
	$(PYTHON) benchmarks/instructions.py --prefix build/prefix

# ---- Checking -------------------------------------------------------------------------------

# Two chains at a time, pytest first: it mostly waits, and what it waits for is the other's processor time. Each library and
# each test is compiled once. A failure does not stop the others. `make test-modes` has the modes that need another build.
test: ## every push: lint, and all tests but those below; 10 minutes on two cores from empty caches
	$(MAKE) --no-print-directory -k -j2 --output-sync=target test-python test-go test-cpp lint test-wheel

lint: lint-go lint-c lint-python ## formatters and linters, in check mode; type check

lint-go:
	@files=$$(gofmt -l $(GO_DIRS) tests); test -z "$$files" || { echo "not formatted, run make format:" $$files; false; }

lint-c: build/venv/.tools
	clang-format --dry-run -Werror --ferror-limit=1 $(C_FILES)
	$(CC) -fsyntax-only -Wall -Wextra -Werror -DPy_LIMITED_API=0x030B0000 -Icapi \
		$$(python -c 'import numpy, sysconfig; print("-isystem", sysconfig.get_path("include"), "-isystem", numpy.get_include())') \
		-Ipython/native python/native/*.c python/pyfeed_worker/native/*.c

lint-python: build/venv/.tools
	ruff format --check .
	ruff check .
	mypy

format: build/venv/.tools ## let the formatters do it
	gofmt -w $(GO_DIRS) tests
	ruff format .
	ruff check --fix .
	clang-format -i $(C_FILES)

# Race detector, cgo's checks, poisoned memory and all of vet in one build: each mode by itself would compile everything again.
# Tests that try everything, or draw thousands, try less if they are to be short; test-modes has the same build do all of it.
GO_TEST := GOEXPERIMENT=cgocheck2 go test -race -tags pfdebug -vet=all -shuffle=on
test-go: | $(CUDA_H) ## Go tests: vetted, with the race detector, cgo's checks and freed memory poisoned
	$(GO_TEST) -short ./...

# The compiler takes most of the time here: -O2 would multiply it, and what is under test is elsewhere.
QUICK := -DCMAKE_C_FLAGS=-g1 -DCMAKE_CXX_FLAGS=-g1
SANITIZED := -DCMAKE_C_FLAGS="-g1 -fsanitize=address" -DCMAKE_CXX_FLAGS="-g1 -fsanitize=address"

test-cpp: export PYFEED_STRESS_TUPLES := 20000
test-cpp: build/prefix/.done build/venv/.tools ## C++ tests and the C++ example, against the library as it is released
	$(call cmake,tests/cpp,build/cpp,build/prefix,$(QUICK))
	ctest --test-dir build/cpp --output-on-failure
	$(call cmake,examples/cpp_feed,build/cpp_feed,build/prefix)
	ctest --test-dir build/cpp_feed --output-on-failure

test-python: build/venv/.pyfeed ## Python tests, against the installed wheel
	python -m pytest
	python -m mypy.stubtest pyfeed pyfeed_worker --concise --ignore-disjoint-bases --allowlist tests/python/stubtest.allowlist

test-wheel: dist/.done ## what the wheel holds, needs and claims; that it works with nothing else there
	tests/wheel/check.sh dist/pyfeed-*.whl

# What numbers and tensors other frameworks make: their packages are gigabytes, and nothing else needs them.
ADAPTERS_PIP := build/adapters/bin/python -m pip --disable-pip-version-check --quiet

build/adapters/.tools: requirements-adapters.txt
	$(PYTHON) -m venv build/adapters
	$(ADAPTERS_PIP) install --no-compile -r $<
	touch $@

test-adapters: dist/.done build/adapters/.tools ## what needs PyTorch, JAX or Ray, in an environment of its own
	$(ADAPTERS_PIP) install --force-reinstall --no-deps dist/pyfeed-*.whl
	build/adapters/bin/python -m pytest tests/adapters

# The same tests in other builds, and the fuzzers for a moment: what .ci/run has time for, and few changes break.
test-modes: test-modes-go test-modes-cpp test-fuzz ## Go's long tests, and without race detector; C++ under AddressSanitizer; a short run of every fuzzer

test-modes-go: | $(CUDA_H)
	$(GO_TEST) ./...
	go vet ./...
	go test -shuffle=on $$(go list ./... | grep -v /tests/)

# Leaks: Go keeps what it needs until the process ends, which no leak checker can know.
test-modes-cpp: export ASAN_OPTIONS := detect_leaks=0
test-modes-cpp: build/prefix/.done build/asan/prefix/.done build/venv/.tools
	$(call cmake,tests/cpp,build/asan/cpp,build/asan/prefix,$(QUICK) -DPYFEED_SANITIZE=address)
	PYFEED_STRESS_TUPLES=20000 ctest --test-dir build/asan/cpp --output-on-failure
	$(call cmake,examples/cpp_feed,build/asan/cpp_feed,build/asan/prefix,$(SANITIZED))
	ctest --test-dir build/asan/cpp_feed --output-on-failure
	$(call cmake,tests/cpp,build/cpp,build/prefix,$(QUICK))
	env -u PYFEED_STRESS_TUPLES ctest --test-dir build/cpp --output-on-failure --tests-regex Stress

# Every fuzzer for so long, one after the other. What one finds, it leaves in its testdata/fuzz: add it to git.
FUZZTIME ?= 60s
fuzz: | $(CUDA_H) ## fuzz formats and programs: make fuzz FUZZTIME=10m
	@set -e; grep -rl '^func Fuzz' $(GO_DIRS) --include='*_test.go' | while read -r file; do \
		for f in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' "$$file"); do \
			echo "fuzz: $$f in $${file%/*}"; \
			go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "./$${file%/*}" </dev/null; \
		done; \
	done

# Rounds drawn from SEED (0: by the clock), JOBS parts at a time, for so many MINUTES. PARTS names some of them.
MINUTES ?= 10
JOBS ?= $(shell nproc)
SEED ?= 0
test-long: build/venv/.pyfeed ## the reliability campaign: make test-long MINUTES=180 JOBS=2 SEED=1
	python -m tests.long.campaign --minutes $(MINUTES) --jobs $(JOBS) --seed $(SEED) $(PARTS:%=--part %)

test-fuzz: ## a short run of every fuzzer; their corpora are part of test-go
	$(MAKE) --no-print-directory fuzz FUZZTIME=20000x

clean: ## remove all that was built
	rm -rf build dist python/*.egg-info python/pyfeed/lib python/pyfeed/include python/pyfeed*/*.so
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
