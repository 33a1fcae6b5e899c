#!/bin/sh
# sources.sh [directory...]: our C, C++ and CUDA files, a line each; new ones that git does not
# ignore included.
cd "$(dirname "$0")/.." || exit 1
git ls-files --cached --others --exclude-standard -- "${@:-.}" |
    grep -E '\.(c|h|cpp|cu|cuh)$' | sort -u |
    while read -r file; do [ -f "$file" ] && echo "$file"; done
