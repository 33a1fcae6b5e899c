#!/bin/sh
# remove_tree.sh DIRECTORY: deletes it, unless something is mounted below it; other file systems are
# never entered.  The file MOUNTS (default /proc/self/mounts) lists what is mounted.
set -eu
place=$(realpath -e -- "$1")
mounts=${MOUNTS:-/proc/self/mounts}
[ "$place" != / ] || { echo "remove_tree: / stays" >&2; exit 1; }
[ -r "$mounts" ] || { echo "remove_tree: $mounts cannot be read, so $place stays" >&2; exit 1; }
escaped=$(printf %s "$place" | sed 's/ /\\\\040/g') # as they are written there
if ! awk -v place="$escaped" '$2 == place || index($2, place "/") == 1 { found = 1; print $2 }
                              END { exit found }' "$mounts" >&2; then
    echo "remove_tree: that is mounted, so $place stays" >&2
    exit 1
fi
rm -rf --one-file-system -- "$place"
