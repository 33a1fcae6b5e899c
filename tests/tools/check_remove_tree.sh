#!/bin/sh
# remove_tree.sh must keep a tree in which something is mounted, and delete any other one.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
place=$(mktemp -d)
trap 'rm -rf --one-file-system "$place"' EXIT
mkdir -p "$place/a tree/root/dev" "$place/a tree b"
touch "$place/a tree/root/dev/null"

{
    cat /proc/self/mounts
    printf 'udev %s devtmpfs rw 0 0\n' "$(printf %s "$place/a tree/root/dev" | sed 's/ /\\040/g')"
} >"$place/mounts"
if MOUNTS=$place/mounts "$here/remove_tree.sh" "$place/a tree" 2>"$place/said"; then
    echo "a tree with a mount was deleted"
    exit 1
fi
[ -e "$place/a tree/root/dev/null" ] || { echo "what is mounted was deleted"; exit 1; }
grep -q 'is mounted, so' "$place/said" || { cat "$place/said"; exit 1; }
if MOUNTS=$place/none "$here/remove_tree.sh" "$place/a tree" 2>/dev/null; then
    echo "a tree was deleted without knowing what is mounted"
    exit 1
fi
if MOUNTS=$place/mounts "$here/remove_tree.sh" / 2>/dev/null; then exit 1; fi

MOUNTS=$place/mounts "$here/remove_tree.sh" "$place/a tree b"
[ ! -e "$place/a tree b" ] || { echo "a tree of which another one's name begins so was kept"; exit 1; }
"$here/remove_tree.sh" "$place/a tree"
[ ! -e "$place/a tree" ] || { echo "a tree without mounts was kept"; exit 1; }

# As it is mounted indeed, where that is allowed.
if [ "$(id -u)" = 0 ]; then
    mkdir -p "$place/real/dev" "$place/other"
    touch "$place/other/kept"
    if mount --bind "$place/other" "$place/real/dev" 2>/dev/null; then
        code=0
        "$here/remove_tree.sh" "$place/real" 2>/dev/null || code=$?
        umount "$place/real/dev"
        [ "$code" != 0 ] && [ -e "$place/other/kept" ] || { echo "a mounted directory was emptied"; exit 1; }
    fi
fi
echo ok
