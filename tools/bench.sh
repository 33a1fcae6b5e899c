#!/bin/sh
# bench.sh BUILD: every program of bench/, as CSV with commit and machine in each line.
# A gain must exceed the spread between best and worst to be one.
set -eu
build=$1
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
[ -z "$(git status --porcelain 2>/dev/null)" ] || commit=$commit+
machine=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1 | tr -d ',')
echo "commit,machine,cores,bench,case,best,worst,unit"
for program in "$build"/bench/bench_*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    "$program" | sed "s|^|$commit,${machine:-unknown},$(nproc),|"
done
