#!/bin/sh
# sources.sh [--all] [directory...]: our C, C++ and CUDA files, a line each; with --all scripts,
# pages and build files too.  New files count unless git ignores them; without git (an unpacked
# archive) everything outside build/ does.
cd "$(dirname "$0")/.." || exit 1
pattern='\.(c|h|cpp|cu|cuh)$'
if [ "${1:-}" = --all ]; then
    pattern='\.(c|h|cpp|cu|cuh|sh|py|js|css|html)$|(^|/)(Makefile|meson\.build)$'
    shift
fi
[ $# -gt 0 ] || set -- .

if [ -e .git ]; then
    git ls-files --cached --others --exclude-standard -- "$@"
else
    find "$@" -path ./build -prune -o -type f -print 2>/dev/null | sed 's|^\./||'
fi | grep -E "$pattern" | sort -u |
    while read -r file; do [ -f "$file" ] && echo "$file"; done
exit 0
