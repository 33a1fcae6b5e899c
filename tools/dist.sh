#!/bin/sh
# dist.sh DIRECTORY: moeflux-VERSION.tar.gz of the last commit, and its SHA-256 on stdout.  The same
# commit gives the same bytes: times are the commit's, names are in git's order, owners are none.
set -eu
directory=$1
cd "$(dirname "$0")/.."
if ! git rev-parse --verify --quiet HEAD >/dev/null; then
    echo "dist: this is no checkout; a tarball is made of a commit" >&2
    exit 1
fi
version=$(sed -n "s/^ *version: '\([^']*\)',$/\1/p" meson.build | head -n 1)
name=moeflux-$version
if ! git diff --quiet HEAD --; then
    echo "dist: what is not committed is not in it" >&2
fi
mkdir -p "$directory"
git archive --format=tar --prefix="$name/" HEAD | gzip -6 -n >"$directory/.$name.tar.gz"
mv "$directory/.$name.tar.gz" "$directory/$name.tar.gz"
cd "$directory"
sha256sum "$name.tar.gz"
