#!/bin/sh
# Shows what moeflux does, with the model that comes with it: a story, a chat answer, and
# what the experts did meanwhile.  `make demo` builds first and then calls this.
#     tools/demo.sh [PROGRAM]      default: build/moeflux
set -eu
program=${1:-$(dirname "$0")/../build/moeflux}

bold='' plain=''
if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    bold=$(printf '\033[1m') plain=$(printf '\033[0m')
fi

# Shows the command as it would be typed, then runs it.
show() {
    printf '\n%s%s%s\n' "$bold" "$1" "$plain"
    shift
    printf '$ moeflux'
    for word in "$@"; do
        case $word in
        *[!A-Za-z0-9_./=-]*) printf ' "%s"' "$word" ;;
        *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n\n'
    "$program" "$@"
}

show 'A story, word by word' \
    run --raw "Once upon a time there was a little" -n 120 --seed 6
show 'An answer' \
    run --no-think "What is the capital of Japan?" --temp 0
show 'A sum, thinking aloud, and what the experts did' \
    run "What is 27 + 45?" --temp 0 --stats
printf '\n%sNow you:%s moeflux run   (build/moeflux run, if it is not installed)\n' "$bold" "$plain"
