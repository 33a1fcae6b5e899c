# moeflux: the targets a person remembers.  Meson and ninja do the work; `make help` lists
# what there is, CONTRIBUTING.md explains it.

# Debian's Meson first: a Python manager's directory may stand before it in PATH.
MESON   := $(firstword $(wildcard /usr/bin/meson) meson)
PYTHON  := $(firstword $(wildcard /usr/bin/python3) python3)
PREFIX  ?= /usr/local
SECONDS ?= 60
comma   := ,

# Sanitizers slow a program down five to twenty times, and compiling too: three kernel sets
# instead of all, and tests of the suite `slow` stay out.  Warnings are the release build's part.
sanitize := -Doptimization=1 -Ddebug=false -Dwerror=false -Db_lundef=false -Dtests=enabled -Dweb=disabled \
	-Dkernel_sets=generic,avx2,avx512bf16,neoni8mm
setup     = test -f $(1)/build.ninja || $(3) $(MESON) setup $(1) $(2)
# A build without the tests, from a time when what they need was missing, is configured anew.
add_tests = grep -q test_support $(1)/build.ninja || $(MESON) configure $(1) -Dtests=enabled
# Builds and runs the tests in directory $(1) (options $(2) of `meson test`, which builds only what
# the tests need), and counts them.
run_tests = rm -f $(1)/meson-logs/testlog.json; $(MESON) test -C $(1) --print-errorlogs $(2); \
	$(PYTHON) tools/test_summary.py $(1)

.PHONY: all demo test test-programs soak agents cuda-test test-arm check format asan tsan fuzz bench install dist deb deps clean help

all: ## build the program and the library: build/moeflux
	@tools/deps.sh build
	@$(call setup,build,--prefix=$(PREFIX))
	@ninja -C build

demo: all ## let the embedded model tell a story
	@tools/demo.sh build/moeflux

test: ## build, run every test, count them
	@tools/deps.sh test
	@$(call setup,build,--prefix=$(PREFIX) -Dtests=enabled)
	@$(call add_tests,build)
	@ninja -C build
	@$(call run_tests,build)

test-programs:
	@tools/deps.sh test
	@$(call setup,build,--prefix=$(PREFIX) -Dtests=enabled)
	@$(call add_tests,build)
	@ninja -C build

soak: ## the long tests that `make test` leaves out: before a release, or overnight
	@tools/deps.sh test
	@$(call setup,build,--prefix=$(PREFIX) -Dtests=enabled)
	@$(call add_tests,build)
	@ninja -C build
	@$(call run_tests,build,--suite soak)

agents: all ## coding agents from npm (hundreds of megabytes), each with a command, against serve
	@MOEFLUX_BUILD=build $(PYTHON) tests/server/agents.py build/moeflux

cuda-test: test-programs ## what needs an NVIDIA device; the log is build/cuda-test.log
	@$(PYTHON) tests/cuda/device.py build build/cuda-test.log || test $$? = 77

test-arm: ## the kernels' tests, built for 64-bit ARM and run under qemu
	@tools/deps.sh arm
	@$(call setup,build/arm,--cross-file tools/aarch64.ini -Dkernels_only=true)
	@$(call run_tests,build/arm,)

check: ## formatting, include order, sizes, words, cppcheck, clang-tidy
	@tools/deps.sh check
	@$(call setup,build,--prefix=$(PREFIX) -Dtests=enabled)
	@$(call add_tests,build)
	@tools/check.sh build

format: ## rewrite the sources as .clang-format wants them
	@tools/deps.sh check
	@tools/sources.sh | xargs clang-format -i

asan: ## the tests under AddressSanitizer, LeakSanitizer and UndefinedBehaviorSanitizer
	@tools/deps.sh test
	@$(call setup,build/asan,$(sanitize) -Db_sanitize=address$(comma)undefined)
	@$(call run_tests,build/asan,--no-suite slow --no-suite soak --timeout-multiplier 5)

tsan: ## the tests that start threads under ThreadSanitizer
	@tools/deps.sh test
	@$(call setup,build/tsan,$(sanitize) -Db_sanitize=thread)
	@$(call run_tests,build/tsan,--suite threads --timeout-multiplier 10)

fuzz: ## let libFuzzer look for crashes: make fuzz TARGET=json SECONDS=60
	@tools/deps.sh check
	@$(call setup,build/fuzz,$(sanitize) -Dfuzz=true -Db_sanitize=address$(comma)undefined,CC=clang CXX=clang++)
	@ninja -C build/fuzz fuzzers
	@tools/fuzz.sh build/fuzz $(SECONDS) $(TARGET)

bench: all ## measure; CSV with commit and machine on stdout
	@tools/bench.sh build

install: all ## install below PREFIX (default /usr/local; DESTDIR is respected)
	@$(MESON) configure build -Dprefix=$(PREFIX)
	@$(MESON) install -C build

dist: ## a tarball of the last commit in build/dist, the same bytes each time
	@tools/dist.sh build/dist

deb: ## Debian packages of the last commit in build/deb, judged by lintian
	@tools/deps.sh build
	@tools/deb.sh build/deb

deps: ## install what everything here needs
	@tools/deps.sh check

clean: ## remove build/ and with it all variants
	rm -rf build

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12
