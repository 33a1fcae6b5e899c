#!/bin/sh
# The shared library shows the functions that moeflux.h marks with MF_API: all, and no others.
library=$1
header=$MOEFLUX_SOURCE/include/moeflux.h
shown=$(nm --dynamic --defined-only "$library" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }' | sort)
wanted=$(tr '\n' ' ' <"$header" | grep -o 'MF_API [^(;]*(' | grep -o 'mf_[a-z0-9_]* *($' |
    tr -d ' (' | sort)
if [ -z "$wanted" ]; then
    echo "no MF_API function was found in $header"
    exit 1
fi
if [ "$shown" != "$wanted" ]; then
    echo "shown by $library (left) and marked with MF_API in $header (right):"
    shown_list=$(mktemp)
    echo "$shown" >"$shown_list"
    echo "$wanted" | diff --side-by-side --suppress-common-lines "$shown_list" -
    rm -f "$shown_list"
    exit 1
fi
