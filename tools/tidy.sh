#!/bin/sh
# tidy.sh BUILD FILE: clang-tidy on one file of the build.  A file that was clean is not looked at
# again until it, a header of ours that it includes, its flags or the rules change.
build=$1 file=$2
commands=$build/compile_commands.json
grep -q "\"file\": \".*/$file\"" "$commands" || exit 0 # not part of this build

key=$({
    cat "$0" .clang-tidy tests/.clang-tidy bench/.clang-tidy
    grep "[ /]$file\"" "$commands"
    # shellcheck disable=SC2046 # a word per header
    cat $(cc -MM -Iinclude -Isrc -Itests -Iapps -D_GNU_SOURCE "$file" | sed 's/^[^:]*://; s/\\$//')
} 2>/dev/null | sha256sum | cut -d ' ' -f 1)
clean=$build/tidy/$key
[ -e "$clean" ] && exit 0

# The flags are gcc's: clang does not know all of its warnings, and takes -Wdouble-promotion for
# more than gcc means by it.  The analyzer follows a quarter of
# the paths it would follow by default, and finds the same in a third of the time.
if clang-tidy --quiet -p "$build/tidy" --extra-arg-before=-Wno-unknown-warning-option \
    --extra-arg=-Wno-double-promotion --extra-arg=-Xclang --extra-arg=-analyzer-config \
    --extra-arg=-Xclang --extra-arg=max-nodes=60000 \
    --warnings-as-errors='*' "$file" >"$clean.$$" 2>/dev/null; then
    mv "$clean.$$" "$clean"
else
    cat "$clean.$$"
    rm -f "$clean.$$"
    exit 1
fi
