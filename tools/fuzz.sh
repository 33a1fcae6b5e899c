#!/bin/sh
# fuzz.sh BUILD SECONDS [TARGET]: runs one fuzz target, or all in turn, that long each.
# Starts from tests/fuzz/corpus/TARGET; new inputs go to BUILD/corpus/TARGET, and one that
# crashes to BUILD/crash-TARGET-…: fix, then copy it into tests/fuzz/corpus/TARGET.
set -eu
build=$1 seconds=$2
shift 2
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- $(ls tests/fuzz/corpus)
for target; do
    program=$build/tests/fuzz/fuzz_$target
    if [ ! -x "$program" ]; then
        echo "fuzz: there is no target $target; there are:" $(ls tests/fuzz/corpus) >&2
        exit 2
    fi
    mkdir -p "$build/corpus/$target"
    echo "fuzz: $target for $seconds s"
    words=tests/fuzz/$target.dict # the format's own words, if there is such a file
    [ -f "$words" ] && words=-dict=$words || words=
    "$program" $words -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$build/crash-$target-" \
        "$build/corpus/$target" "tests/fuzz/corpus/$target"
done
