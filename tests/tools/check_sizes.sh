#!/bin/sh
. "$MOEFLUX_SOURCE/tests/tools/scratch.sh"

lines() # count
{
    yes '/* a line */' | head -n "$1" >src/base/a.c
}

: >tools/large_files.txt
lines 800
expect 0 '' tools/check_sizes.sh
lines 801
expect 1 'src/base/a.c:801: 801 lines' tools/check_sizes.sh
echo 'src/base/a.c: one table' >tools/large_files.txt
expect 0 '' tools/check_sizes.sh
lines 1201
expect 1 'src/base/a.c:1201: 1201 lines' tools/check_sizes.sh
lines 10
expect 1 'src/base/a.c is not over 800 lines any more' tools/check_sizes.sh
exit $status
