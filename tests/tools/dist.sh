#!/bin/sh
# `make dist`: two calls give the same bytes, and the tarball has what a build needs and nothing of git.
# dist.sh [MESON]: with it the tarball is built, where no git is.
set -eu
cd "$MOEFLUX_SOURCE"
if ! git rev-parse --verify --quiet HEAD >/dev/null 2>&1; then
    echo "SKIPPED: this is no checkout" >&2
    exit 77
fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
tools/dist.sh "$place/one" >"$place/first" 2>/dev/null
sleep 1.1 # a time in it would be another one
umask 077
TZ=Pacific/Auckland tools/dist.sh "$place/two" >"$place/second" 2>/dev/null
cmp "$place/first" "$place/second"
cmp "$place"/one/*.tar.gz "$place"/two/*.tar.gz
tar -tzf "$place"/one/*.tar.gz >"$place/names"
version=$(sed -n "s/^ *version: '\([^']*\)',$/\1/p" meson.build | head -n 1)
for file in meson.build LICENSE src/meson.build debian/rules python/moeflux/_abi.py \
    models/pebble/tokenizer.json web/package-lock.json; do
    grep -qx "moeflux-$version/$file" "$place/names" || { echo "$file is missing"; exit 1; }
done
if grep -E '/\.git/|/build/|node_modules|__pycache__' "$place/names"; then
    echo "these have no place in it"
    exit 1
fi
# A package has the version that the program has.
head -n 1 debian/changelog | grep -q "^moeflux ($version-" || { echo "debian/changelog: not $version"; exit 1; }
[ $# -gt 0 ] || exit 0

mkdir "$place/bin"
printf '#!/bin/sh\necho "git was called" >&2\nexit 1\n' >"$place/bin/git"
chmod +x "$place/bin/git"
PATH=$place/bin:$PATH
export PATH
tar -C "$place" -xzf "$place"/one/*.tar.gz
cd "$place/moeflux-$version"
"$1" setup build -Dtests=disabled -Dweb=disabled --prefix=/usr
ninja -C build
[ "$(build/moeflux --version)" = "moeflux $version" ]
build/moeflux run --temp 0 --no-think "What is the capital of France?" | grep -q Paris
tools/check_words.sh
tools/check_sizes.sh
