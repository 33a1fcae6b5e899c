#!/bin/sh
# Every function that the shared library exports stands in nulls.c: a new one is tried with NULL, too.
# nulls_named.sh LIBRARY
library=$1
missing=0
for name in $(nm --dynamic --defined-only "$library" | awk '$2 != "A" { sub("@.*", "", $3); print $3 }'); do
    grep -q "\b$name\b" "$MOEFLUX_SOURCE/tests/api/nulls.c" || { echo "nulls.c does not call $name"; missing=1; }
done
exit $missing
