#!/bin/sh
# docs/api.md shows the programs of examples/ exactly as they are, each of at most 60 lines.
# examples_in_docs.sh
set -eu
cd "$MOEFLUX_SOURCE"
shown=$(mktemp)
trap 'rm -f "$shown"' EXIT
count=0
for program in $(grep -o '^<!-- examples/[a-z_]*\.c -->$' docs/api.md | cut -d' ' -f2); do
    awk -v mark="<!-- $program -->" '
        $0 == mark { found = 1; next }
        found == 1 && $0 == "```c" { found = 2; next }
        found == 2 && $0 == "```" { exit }
        found == 2' docs/api.md >"$shown"
    diff "$shown" "$program" || { echo "docs/api.md differs from $program"; exit 1; }
    lines=$(wc -l <"$program")
    [ "$lines" -le 60 ] || { echo "$program has $lines lines, at most 60 are allowed"; exit 1; }
    count=$((count + 1))
done
[ "$count" -ge 5 ] || { echo "only $count programs were found in docs/api.md"; exit 1; }
