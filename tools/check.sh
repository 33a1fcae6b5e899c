#!/bin/sh
# check.sh BUILD: everything that reads the code without running it; a verdict for each check,
# its output only where it fails.  BUILD/check.json has the verdicts as meson's testlog.json has
# those of tests.
cd "$(dirname "$0")/.." || exit 1
build=$1
jobs=$(nproc)
failed=0
log=$build/check.log
results=$build/check.json
: >"$results"

# name, command...
check()
{
    name=$1
    shift
    start=$(date +%s)
    if "$@" >"$log" 2>&1; then
        verdict=ok
        echo "{\"name\": \"check $name\", \"result\": \"OK\"}" >>"$results"
    else
        verdict=FAILED
        echo "{\"name\": \"check $name\", \"result\": \"FAIL\"}" >>"$results"
        failed=$((failed + 1))
    fi
    printf '%-14s %-6s %4d s\n' "$name" "$verdict" $(($(date +%s) - start))
    [ "$verdict" = ok ] || sed 's/^/    /' "$log"
}

check_format()
{
    tools/sources.sh | xargs clang-format --dry-run -Werror --ferror-limit=3
}

# Off: style, which is clang-format's and the reader's; system headers, which it is not given;
# invalidFunctionArg and uninitvar, which take every loop for possibly empty and do not know that
# an output is set when the status is MF_OK (the compilers and clang-tidy look for the latter);
# shifts of signed numbers, which every compiler for our machines defines.
check_cppcheck()
{
    mkdir -p "$build/cppcheck"
    tools/sources.sh src apps examples | grep '\.c$' |
        xargs cppcheck -j "$jobs" --quiet --error-exitcode=1 --inline-suppr \
            --cppcheck-build-dir="$build/cppcheck" --std=c11 --language=c --platform=unix64 \
            --enable=warning,performance,portability \
            --suppress=missingIncludeSystem --suppress=invalidFunctionArg \
            --suppress=uninitvar --suppress=legacyUninitvar --suppress=shiftTooManyBitsSigned \
            -D_GNU_SOURCE -D__x86_64__ -D__linux__ -D__GNUC__=12 -D__BYTE_ORDER__=1234 \
            -D__ORDER_LITTLE_ENDIAN__=1234 -Iinclude -Isrc
}

# One file per process: in the second one of a process clang-tidy 14 takes every va_list for
# uninitialised.
check_tidy()
{
    mkdir -p "$build/tidy"
    # Without ccache and flags that clang does not know; of the kernel sets one of each vector width;
    # without what tests compile of the program again, and the plugin of the library.
    sed -E 's/ -m(move|store)-max=[0-9]+//g; s/"command": "ccache /"command": "/' \
        "$build/compile_commands.json" |
        tools/drop_commands.py 'lib(kernels_(avx2vnni|avx512|avx512vnni)|plan_parts)\.a|cuda\.so\.p/src_(base|quant)_|tests/emulated/(moeflux-cuda\.so|golden|batched|phases)\.p/' \
        >"$build/tidy/compile_commands.json"
    tools/sources.sh src apps bench examples tests | grep '\.c$' |
        xargs -P "$jobs" -n 1 tools/tidy.sh "$build"
}

# Of the page.
check_types()
{
    tools/make_page.py types web "$build/web/types"
}

# The package that people import, and what writes a part of it.
check_python()
{
    mkdir -p "$build/mypy"
    mypy --config-file python/pyproject.toml --cache-dir "$build/mypy" \
        python/moeflux python/build_backend.py tools/bind_python.py
}

check format check_format
check layers tools/check_layers.sh
check isa tools/check_isa.sh
check sizes tools/check_sizes.sh
check words tools/check_words.sh
check types check_types
check mypy check_python
check cppcheck check_cppcheck
check clang-tidy check_tidy
rm -f "$log"
if [ $failed -gt 0 ]; then
    echo "$failed checks failed"
    exit 1
fi
echo "all checks passed"
