#!/bin/sh
# `make install`, and then a stranger's program: found by pkg-config, compiled, linked with the
# shared and with the static library, run.
# install.sh MESON PREFIX
set -eu
meson=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
"$meson" install -C "$MOEFLUX_BUILD" --no-rebuild --quiet --destdir "$place"
prefix=$place$2

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name moeflux.pc)")
PKG_CONFIG_SYSROOT_DIR=$place
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
libraries=$(dirname "$PKG_CONFIG_PATH")

cat >"$place/stranger.c" <<'END'
#include <moeflux.h>
#include <string.h>
int main(void)
{
    return strcmp(mf_status_name(MF_ERR_MEMORY), "MF_ERR_MEMORY");
}
END
cc -o "$place/shared" "$place/stranger.c" $(pkg-config --cflags --libs moeflux)
LD_LIBRARY_PATH=$libraries "$place/shared"

# The programs of docs/api.md, built as the page says and run against the small model.
for program in chat schema tool_call fork requests plan cancel; do
    cc -Wall -Wextra -Werror -o "$place/$program" "$MOEFLUX_SOURCE/examples/$program.c" \
        $(pkg-config --cflags --libs moeflux)
done
model=$MOEFLUX_SOURCE/models/pebble
LD_LIBRARY_PATH=$libraries
export LD_LIBRARY_PATH
# says PATTERN PROGRAM ARGUMENTS…: the program ends well, and a line of its output matches.
says() {
    pattern=$1
    shift
    "$place/$@" >"$place/said" || { echo "$1 failed"; exit 1; }
    grep -q -- "$pattern" "$place/said" || { echo "$1 did not say $pattern:"; cat "$place/said"; exit 1; }
}
says 'Tokyo' chat "$model" '[{"role":"user","content":"What is the capital of Japan?"}]'
says '^{ *"name": *".*", *"age": *[0-9]* *}$' schema "$model" 'Invent a person.'
says '^call: get_weather$' tool_call "$model"
says '^arguments: {"unit":' tool_call "$model"
says 'Paris' requests "$model" 'What is the capital of France?' 'Name a colour.'
says '^The capital of Japan is' fork "$model" 'The capital of Japan'
[ "$(wc -l <"$place/said")" -ge 3 ] || { echo "fork printed fewer than 3 texts"; exit 1; }
says '^experts .* MiB$' plan "$model" 64
says '^MF_ERR_CANCELLED after 0 of 3000 tokens$' cancel "$model" 3000
says '^then 1 token was read$' cancel "$model" 3000
unset LD_LIBRARY_PATH

# The other libraries are the system's, below no sysroot: only ours is asked for as an archive.
unset PKG_CONFIG_SYSROOT_DIR
cc -o "$place/static" "$place/stranger.c" -I"$prefix/include" "$libraries/libmoeflux.a" \
    $(pkg-config --libs jansson libpcre2-8 libutf8proc) -lm -pthread
"$place/static"

if [ -x "$MOEFLUX_BUILD/moeflux" ]; then
    "$prefix/bin/moeflux" --version
fi
for header in moeflux.h moeflux_compat.h moeflux_tools.h; do test -f "$prefix/include/$header"; done
test -f "$prefix/share/man/man1/moeflux.1"
test -f "$prefix/share/man/man1/moeflux-serve.1"
test -f "$prefix/share/zsh/site-functions/_moeflux"
test -f "$prefix/share/fish/vendor_completions.d/moeflux.fish"
test -f "$prefix/share/bash-completion/completions/moeflux"
test -f "$prefix/share/moeflux/models/pebble/config.json"
