# `make demo` and `make test` do all set-up themselves, on a machine that has Rust, Python 3.11,
# a C++ compiler, make and git. They keep their set-up in .venv and target.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.NOTPARALLEL:
.DEFAULT_GOAL := help

PYTHON ?= python3
FUZZ_SECONDS ?= 60
WORLD_SIZE ?= 2
WHEEL_FOR ?= x86_64

VENV := .venv
BIN := $(VENV)/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Containers often set it, and each of hundreds of processes would compile PyTorch's modules again.
unexport PYTHONDONTWRITEBYTECODE

SOURCES := $(wildcard $(shell git ls-files --cached --others --exclude-standard \
	'*.rs' '*.py' '*.pyi' '*.cpp' '*.hpp' '*.h' '*Cargo.toml' Cargo.lock pyproject.toml \
	':!tests' ':!fuzz' ':!examples' ':!*/tests/*'))

# Tests that only GRADWIRE_SLOW=1 adds to `make test`.
SLOW := $(if $(filter 1,$(GRADWIRE_SLOW)),test-oldest test-musl)

say = @printf '\n== %s\n'

.PHONY: help
help:  ## list the targets
	@sed -n 's/^\([a-z.-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

# Compiled while pip downloads PyTorch, if it must. The build that needs it waits for cargo's lock,
# finds it done, and repeats its errors.
demo .venv: MEANWHILE = $(RELEASE)
test test-python: MEANWHILE = cargo test --workspace --locked --no-run

.PHONY: demo
demo: $(VENV)/gradwire.stamp  ## train MNIST over Gloo and over gradwire with losses, side by side
	$(say) 'demo: three training runs of two ranks'
	$(BIN)/python examples/demo.py

.PHONY: test
test: lint doc test-rust test-switch test-python test-torch $(SLOW)  ## run every check: lints, documentation, all tests
	$(say) 'test: everything passed'

.PHONY: lint
lint: lint-rust lint-python  ## check formatting and lints of Rust and Python

.PHONY: lint-rust
lint-rust:
	$(say) 'lint: rustfmt'
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo fmt --manifest-path switch-config/schemas/Cargo.toml --check
	$(say) 'lint: clippy'
	cargo clippy --workspace --all-targets --locked -- -D warnings

.PHONY: lint-python
lint-python: $(VENV)/tests.stamp
	$(say) 'lint: ruff'
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.PHONY: doc
doc:  ## build the documentation of the Rust packages, in target/doc
	$(say) 'doc: rustdoc'
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --lib --no-deps --locked

.PHONY: test-rust
test-rust:  ## run the Rust tests; GRADWIRE_SLOW=1 adds the slow ones
	$(say) 'test: Rust'
	cargo test --workspace --locked

.PHONY: test-switch
test-switch: $(VENV)/tests.stamp  ## check switch configurations against the platforms' models
	$(say) 'test: switch configurations against the models of SONiC and others'
	switch-config/schemas/test.sh lint
	switch-config/schemas/test.sh test

# A process of tests that crashed is not replaced: pytest-xdist would then wait for ever (3.8.0).
.PHONY: test-python
test-python: $(VENV)/tested.stamp  ## run the Python tests, two files at a time
	$(say) 'test: Python'
	$(BIN)/python -m pytest -n 2 --dist loadfile --max-worker-restart 0 -m 'not alone'
	$(BIN)/python -m pytest -m alone
	@echo "left out: the checks on a GPU (python/tests/gpu/run.sh); they last ran: $$(cat python/tests/gpu/last_run)"

# Its packages go before those of the virtual environment, which has the rest.
OLDEST := PYTHONPATH=$(CURDIR)/$(VENV)/oldest $(BIN)/python

.PHONY: test-oldest
test-oldest: $(VENV)/tested.stamp $(VENV)/oldest.stamp  ## run some Python tests with the oldest PyTorch that is claimed; part of the slow tests
	$(say) 'test: Python, with the oldest PyTorch'
	$(OLDEST) -m gradwire.build
	$(OLDEST) -m pytest -m oldest_torch

# musl's C types differ from glibc's. `cargo check` links nothing, so the host's C compiler is enough.
MUSL := x86_64-unknown-linux-musl
MUSL_PACKAGES := -p gradwire-transport -p gradwire-runtime -p gradwire-python -p gradwire-cli

.PHONY: test-musl
test-musl:  ## check that the library and the command compile for musl, as Alpine has it; part of the slow tests
	$(say) 'test: the library and the command for musl'
	if timeout 120 rustup target add $(MUSL); then \
	    CC_x86_64_unknown_linux_musl=cc CXX_x86_64_unknown_linux_musl=c++ \
	        cargo check --locked --target $(MUSL) $(MUSL_PACKAGES); \
	else \
	    echo 'left out: rustup is not there, or cannot fetch the standard library for musl'; \
	fi

.PHONY: test-vm
test-vm:  ## test the rendered tc, and RDMA, on a Linux in QEMU; part of the slow tests
	$(say) 'test: a switch and RDMA devices in the test machine'
	GRADWIRE_SLOW=1 cargo test -p gradwire-cli --locked --test test_machine -- --nocapture

.PHONY: test-torch
test-torch: $(VENV)/tested.stamp  ## run PyTorch's own tests over gradwire, with WORLD_SIZE (2) ranks
	$(say) 'test: the suite in PyTorch, $(WORLD_SIZE) ranks, gradwire in the place of Gloo'
	$(BIN)/python python/tests/pytorch/run.py --world $(WORLD_SIZE)

.PHONY: test-staged
test-staged: $(VENV)/tested.stamp  ## run PyTorch's tests and ours with every CPU tensor on the way of a device's; for the night
	$(say) 'test: every CPU tensor through the stager'
	GRADWIRE_STAGE=host $(BIN)/python python/tests/pytorch/run.py --world $(WORLD_SIZE)
	GRADWIRE_STAGE=host $(BIN)/python -m pytest -n 2 --dist loadfile --max-worker-restart 0 -m 'not alone'

.PHONY: test-frameworks
test-frameworks: $(VENV)/tested.stamp $(VENV)/frameworks.stamp  ## run the examples of Lightning, DeepSpeed and Ray Train beside Gloo; not part of make test
	$(say) 'test: Lightning, DeepSpeed and Ray Train'
	PYTHONPATH=$(CURDIR)/$(VENV)/frameworks $(BIN)/python examples/frameworks.py

.PHONY: test-matrix
test-matrix: $(VENV)/tested.stamp  ## run some Python tests with the oldest and newest PyTorch on two versions of Python; for the night
	$(say) 'test: the oldest and the newest PyTorch, on the oldest Python and a new one'
	packaging/matrix.sh

.PHONY: test-aarch64
test-aarch64: target/packaging/bin/auditwheel  ## run the command and the core's tests, built for aarch64, under QEMU; for the night
	packaging/aarch64.sh

.PHONY: bench
bench: $(VENV)/bench.stamp  ## measure the cost of a packet, and all-reduces with Gloo beside them
	$(say) 'bench: the protocol alone'
	cargo bench -p gradwire-benches --locked
	$(say) 'bench: all-reduce within this machine'
	for ranks in 2 4; do \
	    $(BIN)/gradwire perf all-reduce -n $$ranks -b 4K -e 64M -f 4 --against gloo; \
	done
	$(say) 'bench: all-reduce between network namespaces, and with loss (both need root)'
	if [ "$$(id -u)" = 0 ]; then \
	    for ranks in 2 4; do \
	        $(BIN)/gradwire perf all-reduce -n $$ranks -b 4K -e 64M -f 4 --against gloo --netns; \
	    done; \
	    $(BIN)/gradwire perf loss -n 2 --bytes 8M --against gloo --netns; \
	else \
	    echo 'left out: this user is not root'; \
	fi
	$(say) 'bench: training and small all-reduces through PyTorch'
	$(BIN)/python benches/through_pytorch.py
	$(say) 'bench: the order of 64 all-reduces at once'
	$(BIN)/gradwire perf buckets -n 2 --buckets 64 --total 256M

.PHONY: fuzz
fuzz: target/tools/bin/cargo-fuzz  ## run each fuzz target for FUZZ_SECONDS (60)
	for target in aggregator codec decode receiver; do \
	    printf '\n== fuzz: %s, %s s\n' "$$target" "$(FUZZ_SECONDS)"; \
	    RUSTC_BOOTSTRAP=1 target/tools/bin/cargo-fuzz run "$$target" -- \
	        -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -print_final_stats=1; \
	done

target/tools/bin/cargo-fuzz:
	$(say) 'fuzz: install cargo-fuzz'
	cargo install cargo-fuzz@0.13.2 --locked --root target/tools

.PHONY: .venv
.venv: $(VENV)/gradwire.stamp  ## make the virtual environment, with gradwire in it

# Python compiles the modules that are imported; compiling all 12,000 takes pip most of a minute.
PIP := $(BIN)/python -m pip install --no-deps --no-compile --progress-bar off

$(VENV)/requirements.stamp: requirements.txt
	@mkdir -p target
	@$(if $(MEANWHILE),($(MEANWHILE)) >target/meanwhile.log 2>&1 </dev/null &)
	$(say) 'venv: Python packages (PyTorch is large: the first time takes minutes)'
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements.txt
	@touch $@

$(VENV)/tests.stamp: requirements-test.txt $(VENV)/requirements.stamp
	$(say) 'venv: Python packages for the tests'
	$(PIP) -r requirements-test.txt
	@touch $@

$(VENV)/oldest.stamp: requirements-oldest.txt $(VENV)/requirements.stamp
	$(say) 'venv: the oldest PyTorch that is claimed'
	rm -rf $(VENV)/oldest
	$(PIP) --target $(VENV)/oldest -r requirements-oldest.txt
	@touch $@

$(VENV)/frameworks.stamp: examples/requirements-frameworks.txt $(VENV)/tests.stamp
	$(say) 'venv: Lightning, DeepSpeed and parts of Ray Train'
	rm -rf $(VENV)/frameworks
	$(PIP) --target $(VENV)/frameworks -r examples/requirements-frameworks.txt
	@touch $@

INSTALL := $(BIN)/python -m pip install --no-deps --no-build-isolation --force-reinstall .

# The environment holds one build of gradwire: that of the newest stamp, which takes the others away.
STAMPS := $(VENV)/gradwire.stamp $(VENV)/tested.stamp $(VENV)/bench.stamp

# Link-time optimisation saves a fifth of a packet's instructions and takes as long as the rest of
# the build. The demo is built without it; `pip install .` and `make bench` with it.
QUICK_LINK := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
	CARGO_PROFILE_RELEASE_DEBUG=none

# What the wheel holds, compiled with a sight of cargo's progress, which pip hides.
RELEASE = $(QUICK_LINK) cargo build --release --locked -p gradwire-python -p gradwire-cli

$(VENV)/gradwire.stamp: $(VENV)/requirements.stamp $(SOURCES)
	$(say) 'venv: gradwire, optimised build: some 300 packages, minutes the first time'
	rm -rf build $(STAMPS)
	$(RELEASE)
	$(say) 'venv: the wheel of gradwire'
	$(QUICK_LINK) $(INSTALL)
	$(say) 'venv: the PyTorch binding'
	$(BIN)/python -m gradwire.build
	@touch $@

# The Python tests run what `cargo test` has built, with its assertions: nothing is compiled twice.
$(VENV)/tested.stamp: $(VENV)/tests.stamp $(SOURCES)
	$(say) 'venv: gradwire, as the tests run it'
	rm -rf build $(STAMPS)
	SETUPTOOLS_RUST_CARGO_PROFILE=dev $(INSTALL)
	$(say) 'venv: the PyTorch binding'
	$(BIN)/python -m gradwire.build
	@touch $@

$(VENV)/bench.stamp: $(VENV)/requirements.stamp $(SOURCES)
	$(say) 'venv: gradwire, as users install it'
	rm -rf build $(STAMPS)
	$(INSTALL)
	$(say) 'venv: the PyTorch binding'
	$(BIN)/python -m gradwire.build
	@touch $@

# The generator of the site has an environment of its own.
target/site/bin/mkdocs: site/requirements.txt
	$(say) 'site: its generator'
	$(PYTHON) -m venv target/site
	target/site/bin/python -m pip install --no-deps --progress-bar off -r site/requirements.txt
	@touch $@

.PHONY: site
site: doc target/site/bin/mkdocs  ## build the site, in out/site/html; a dead link is an error
	$(say) 'site: pages'
	cargo build -p gradwire-cli --locked
	target/site/bin/python site/stage.py --command target/debug/gradwire --rust target/doc --out out/site
	NO_MKDOCS_2_WARNING=1 target/site/bin/mkdocs build --strict --config-file out/site/mkdocs.yml
	@echo 'open out/site/html/index.html, or: $(PYTHON) -m http.server --directory out/site/html'

.PHONY: look
look:  ## draw the reports with Chromium, into out/look, and check them with axe, where npm is
	$(say) 'look: reports in a browser'
	cargo build -p gradwire-cli --locked
	$(PYTHON) site/look.py --command target/debug/gradwire --out out/look $(PAGES)

# Zig's linker, auditwheel and their parts, apart from the environment of the tests.
target/packaging/bin/auditwheel: packaging/requirements.txt
	$(say) 'wheel: Zig and auditwheel'
	$(PYTHON) -m venv target/packaging
	target/packaging/bin/python -m pip install --no-deps --progress-bar off -r packaging/requirements.txt
	@touch $@

# The linker strips what is for another processor: this one's `strip` cannot.
OTHER := $(filter-out $(shell uname -m),$(WHEEL_FOR))
.PHONY: wheel
wheel: $(VENV)/oldest.stamp target/packaging/bin/auditwheel  ## build a wheel for other machines in dist; WHEEL_FOR=aarch64 for that processor
	$(say) 'wheel: the core and the command, linked for an older glibc'
	$(if $(OTHER),rustup target add $(OTHER)-unknown-linux-gnu)
	rm -rf build out/wheel
	PATH=$(CURDIR)/target/packaging/bin:$$PATH CARGO=$(CURDIR)/packaging/cargo-old-glibc \
	    CARGO_BUILD_TARGET=$(WHEEL_FOR)-unknown-linux-gnu _PYTHON_HOST_PLATFORM=linux-$(WHEEL_FOR) \
	    $(if $(OTHER),CARGO_PROFILE_RELEASE_STRIP=debuginfo) \
	    $(BIN)/python -m pip wheel --no-deps --no-build-isolation --wheel-dir out/wheel .
	$(say) 'wheel: its tag, and the bindings for the newest and the oldest PyTorch'
	PATH=$(CURDIR)/target/packaging/bin:$$PATH $(BIN)/python packaging/wheel.py out/wheel/*.whl \
	    --torch $(VENV)/oldest --out dist

# The same build as the wheel's, so that the package suits older releases of Debian and Ubuntu, too.
DEB := target/x86_64-unknown-linux-gnu/release/gradwire

.PHONY: deb
deb: target/packaging/bin/auditwheel  ## build a Debian package of the command in dist, with completions and man pages
	$(say) 'deb: the command, its completions and man pages'
	PATH=$(CURDIR)/target/packaging/bin:$$PATH packaging/cargo-old-glibc build --release --locked \
	    --target x86_64-unknown-linux-gnu -p gradwire-cli
	packaging/deb.sh $(DEB) dist

.PHONY: clean
clean:  ## remove all build outputs and the virtual environment
	rm -rf target fuzz/target build out $(VENV)
