#!/bin/sh
# deb.sh DIRECTORY: Debian packages of the last commit, built in DIRECTORY and judged by lintian, whose
# errors are ours.
set -eu
cd "$(dirname "$0")/.."
mkdir -p "$1"
directory=$(cd "$1" && pwd)
for tool in dpkg-buildpackage dh lintian; do
    command -v "$tool" >/dev/null && continue
    echo "deb: $tool is missing: apt-get install dpkg-dev debhelper dh-python lintian" >&2
    exit 1
done
# What an earlier call has left, but for what it was configured with: a new tree each time.
rm -rf "$directory"/moeflux-* "$directory"/*.deb "$directory"/*.changes "$directory"/*.buildinfo
tools/dist.sh "$directory"
tar -C "$directory" -xzf "$directory"/moeflux-*.tar.gz
DEB_BUILD_OPTIONS="parallel=$(nproc) ${DEB_BUILD_OPTIONS:-}"
CCACHE_DIR=${CCACHE_DIR:-${HOME:-/root}/.cache/ccache} # debhelper gives a build a home of its own
export DEB_BUILD_OPTIONS CCACHE_DIR
(cd "$directory"/moeflux-*/ && dpkg-buildpackage -us -uc -b) >"$directory/build.log" 2>&1 || {
    tail -n 40 "$directory/build.log" >&2
    echo "deb: the build failed; all of its output: $directory/build.log" >&2
    exit 1
}
# As root lintian warns about that alone.
lintian --allow-root --fail-on error --display-level '>=warning' "$directory"/*.changes 2>&1 |
    grep -v '^running with root privileges' || true
lintian --allow-root --fail-on error "$directory"/*.changes >/dev/null 2>&1 || {
    echo "deb: lintian has found errors" >&2
    exit 1
}
ls -l "$directory"/*.deb
