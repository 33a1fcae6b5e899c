#!/bin/sh
# The shared library shows only functions that moeflux.h marks with MF_API.
library=$1
header=$MOEFLUX_SOURCE/include/moeflux.h
shown=$(nm --dynamic --defined-only "$library" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }' | sort)
wanted=$(tr '\n' ' ' <"$header" | grep -o 'MF_API [^(;]*(' | grep -o 'mf_[a-z0-9_]* *($' |
    tr -d ' (' | sort)
if [ -z "$wanted" ]; then
    echo "no MF_API function was found in $header"
    exit 1
fi
if [ -n "$(printf '%s\n' "$shown" | grep -vxF "$wanted")" ]; then
    echo "$library shows these, which $header does not mark:"
    printf '%s\n' "$shown" | grep -vxF "$wanted"
    exit 1
fi
