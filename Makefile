# The entry point for developers. `make` alone lists the targets.

PREFIX  ?= /usr/local
DESTDIR ?=
TARGET  := $(or $(CARGO_TARGET_DIR),target)
NETVALE := $(TARGET)/release/netvale
BENCH   := $(TARGET)/release/netvale-bench

.DEFAULT_GOAL := help
.PHONY: help build build-bench deb rpm static image dist publish-check demo test test-system test-long check docs bench papers fuzz fuzz-asan fuzz-coverage soak fmt install clean

help: ## list the targets
	@echo "netvale: make TARGET"
	@sed -n 's/^\([a-z-]*\):.* ## /  \1\t/p' Makefile | expand -t 16

build: ## release binary and libraries, target/release
	@scripts/install-deps.sh rust
	cargo build --release --package netvale-cli --package netvale-capi --package netvale-pcap --package netvale-cni

build-bench: ## release build of the benchmark, which is a program of its own
	cargo build --release --package netvale-bench

deb: ## Debian packages, target/packages
	@scripts/install-deps.sh deb
	@scripts/package.sh deb

rpm: ## rpm packages, target/packages
	@scripts/install-deps.sh rpm
	@scripts/package.sh rpm

static: ## the command alone, for any Linux of this architecture, target/packages
	@scripts/install-deps.sh static
	@scripts/package-static.sh

image: ## container image, for `podman load`, target/packages
	@scripts/install-deps.sh static
	@scripts/package-image.sh

dist: ## release tarball with all that a build needs, target/packages
	@scripts/package-dist.sh

publish-check: ## whether the crates can be published; publishes nothing
	@scripts/publish-check.sh

demo: ## real traffic across a switch, in under a minute
	@scripts/install-deps.sh demo
	@$(MAKE) --no-print-directory build
	@$(NETVALE) demo

test: ## build, unit and crate tests, doc tests, loom models, fuzz targets' kept inputs; takes cargo and a compiler, not root
	@scripts/install-deps.sh test
	@scripts/test.sh

test-system: ## guests, kernel judges, unmodified programs, guide, packages, Python, a short soak; takes root
	@scripts/install-deps.sh test-system
	@scripts/test-system.sh

test-long: ## Miri, fuzzing, a long soak, the tarball, other compilers and architectures
	@scripts/install-deps.sh test-long
	@scripts/test-long.sh

check: ## format, lints, docs, layers, unsafe gate, instructions a frame, dependencies
	@scripts/install-deps.sh check
	@scripts/check.sh

docs: ## the book (target/book/html), with its links checked
	@scripts/install-deps.sh docs
	@scripts/docs.sh

bench: ## measure against the peers, then write the report
	@scripts/install-deps.sh bench
	@$(MAKE) --no-print-directory build build-bench
	@$(BENCH) pipe vale tap latency idle compat --against all --save $(TARGET)/bench.jsonl
	@$(BENCH) report $(TARGET)/bench.jsonl --out $(TARGET)/bench-report

papers: ## run the papers' experiments (root, hours; continues where it was interrupted), and write their page
	@scripts/papers.sh

fuzz: ## fuzz every target for FUZZ_SECONDS (default 60) each
	@scripts/install-deps.sh test-long
	@scripts/fuzz.sh all $(or $(FUZZ_SECONDS),60)

fuzz-asan: ## the same under AddressSanitizer, where there is a nightly compiler
	@scripts/install-deps.sh test-long
	@scripts/fuzz-asan.sh $(or $(FUZZ_SECONDS),60)

fuzz-coverage: ## which lines of each crate the kept inputs of the fuzz targets reach
	@scripts/install-deps.sh test-long
	@scripts/fuzz-coverage.sh

soak: ## a daemon with all kinds of ports under random attack for MINUTES (default 10); SEED repeats one
	@scripts/install-deps.sh test-system
	@scripts/soak.sh $(or $(MINUTES),10)

fmt: ## format the code
	@cargo fmt --all
	@cargo fmt --manifest-path fuzz/Cargo.toml

install: ## binary, libraries, headers, man pages, completions, unit; PREFIX (/usr/local) and DESTDIR
	@scripts/install.sh "$(DESTDIR)" "$(PREFIX)" "$(TARGET)/release"

clean: ## remove what was built
	@cargo clean
	@rm -rf fuzz/target fuzz/artifacts fuzz/corpus
