#!/bin/sh
# The shared library shows the functions that the public headers mark with MF_API: all, and no
# others.
library=$1
headers=$MOEFLUX_SOURCE/include
shown=$(nm --dynamic --defined-only "$library" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }' | sort)
wanted=$(cat "$headers"/*.h | tr '\n' ' ' | grep -o 'MF_API [^(;]*(' | grep -o 'mf_[a-z0-9_]* *($' |
    tr -d ' (' | sort)
if [ -z "$wanted" ]; then
    echo "no MF_API function was found in $headers"
    exit 1
fi
if [ "$shown" != "$wanted" ]; then
    echo "shown by $library (left) and marked with MF_API in $headers (right):"
    shown_list=$(mktemp)
    echo "$shown" >"$shown_list"
    echo "$wanted" | diff --side-by-side --suppress-common-lines "$shown_list" -
    rm -f "$shown_list"
    exit 1
fi
