#!/bin/sh
# deps.sh build|test|check|arm: what `make`, `make test`, `make check` or `make test-arm` needs is
# there, or gets there.
#
# Every need is probed by what it gives (a command, a library, a header), so that a tool that
# came another way counts.  What is missing is installed when we are root or CI=true says that
# there is no user to ask; otherwise the command is shown and, on a terminal, run after a yes.
set -u

# kind  what  Debian's package
needs='
command make make
command cc gcc
header stdio.h libc6-dev
command meson meson
command ninja ninja-build
command pkg-config pkg-config
library jansson libjansson-dev
library libpcre2-8 libpcre2-dev
library libutf8proc libutf8proc-dev
library libxxhash libxxhash-dev
library libedit libedit-dev
library libcurl libcurl4-openssl-dev
library libmicrohttpd libmicrohttpd-dev
library liburing liburing-dev
library libzstd libzstd-dev
library nettle nettle-dev
'
needs_of_tests='
command c++ g++
command chromium chromium
command python3 python3
library cmocka libcmocka-dev
command tmux tmux
'
needs_of_checks='
command git git
command clang clang
command clang-format clang-format
command clang-tidy clang-tidy
command cppcheck cppcheck
command mypy mypy
runtime fuzzer libclang-rt-dev
'

needs_of_arm='
command make make
command meson meson
command ninja ninja-build
command python3 python3
command aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
arm-header stdio.h libc6-dev-arm64-cross
command qemu-aarch64 qemu-user
'

has() # kind what
{
    case $1 in
    command) command -v "$2" ;;
    library) pkg-config --exists "$2" ;;
    header) echo "#include <$2>" | cc -E - ;;
    arm-header) echo "#include <$2>" | aarch64-linux-gnu-gcc -E - ;;
    runtime) [ -n "$(find "$(clang -print-resource-dir)/lib" -name "libclang_rt.$2*.a")" ] ;;
    esac >/dev/null 2>&1
}

# "what package" of every need that is not met, a line each.
missing()
{
    echo "$needs" | while read -r kind what package; do
        [ -n "$kind" ] && ! has "$kind" "$what" && echo "$what $package"
    done
}

install() # packages...
{
    sudo=
    [ "$(id -u)" = 0 ] || sudo='sudo'
    [ "${CI:-}" = true ] && [ -n "$sudo" ] && sudo='sudo -n'
    # A stale or unreachable package list of another vendor must not stop the installation.
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 update ||
        echo "deps: the package lists could not all be refreshed; going on" >&2
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get -o Acquire::Retries=3 \
        -o DPkg::Lock::Timeout=120 install -y --no-install-recommends "$@"
}

allowed() # packages...
{
    [ "$(id -u)" = 0 ] || [ "${CI:-}" = true ] && return 0
    echo "These packages are missing; this installs them:" >&2
    echo "    sudo apt-get install $*" >&2
    [ -t 0 ] && [ -t 2 ] || return 1
    printf 'Run it now? [y/N] ' >&2
    read -r answer
    case $answer in [yY]*) return 0 ;; esac
    return 1
}

case ${1:-} in
build) ;;
test) needs=$needs$needs_of_tests ;;
check) needs=$needs$needs_of_tests$needs_of_checks ;;
arm) needs=$needs_of_arm ;;
*)
    echo "usage: deps.sh build|test|check|arm" >&2
    exit 2
    ;;
esac

lacking=$(missing)
[ -z "$lacking" ] && exit 0
if ! command -v apt-get >/dev/null; then
    echo "These are missing (with the names of Debian's packages); please install them:" >&2
    echo "$lacking" | awk '{ printf "    %-14s %s\n", $1, $2 }' >&2
    exit 1
fi
packages=$(echo "$lacking" | awk '{ print $2 }')
# shellcheck disable=SC2086 # a word per package
allowed $packages && install $packages >&2 || exit 1
lacking=$(missing)
[ -z "$lacking" ] && exit 0
echo "Still missing after the installation:" >&2
echo "$lacking" | awk '{ printf "    %-14s %s\n", $1, $2 }' >&2
exit 1
