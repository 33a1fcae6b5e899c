#!/bin/sh
# A second process resumes the beginning that a first one has left in --cache-dir; damaged files are
# misses; where another process has the directory, one warning and the same answer.
#     cache_dir.sh PROGRAM SOURCE
program=$1
home=$(mktemp -d)
trap 'kill $holder 2> /dev/null; rm -r "$home"' EXIT
holder=
fail() {
    echo "FAILED: $1" >&2
    cat "$home/err" >&2
    exit 1
}

# ask QUESTION: `tokens` is how many the run has read, `answer` what it said.
system=$(head -c 4400 "$2/README.md")
ask() {
    answer=$("$program" run --temp 0 --no-think -n 12 --cache-dir "$home/cache" \
        --system "$system" "$1" 2> "$home/err") || fail 'the program has failed'
    tokens=$(sed -n 's/^.*[^0-9]*\b\([0-9][0-9]*\) prompt tokens at .*$/\1/p' "$home/err")
}

ask 'What is the capital of France?'
first=$tokens
said=$answer
[ "$first" -ge 1900 ] || fail "the prompt has only $first tokens"
ask 'What is the capital of France?'
echo "$first tokens, then $tokens"
[ "$tokens" -le 20 ] || fail "the same prompt again has read $tokens tokens"
[ "$answer" = "$said" ] || fail "\"$said\" became \"$answer\""
ask 'Name two rivers.'
[ "$tokens" -le 100 ] || fail "another question has read $tokens tokens"

for file in "$home"/cache/*.page; do
    printf 'damage' | dd of="$file" bs=1 seek=4200 conv=notrunc 2> /dev/null
done
ask 'What is the capital of France?'
[ "$answer" = "$said" ] || fail "with damaged files \"$said\" became \"$answer\""
[ "$tokens" -gt 1000 ] || fail "damaged files have served all but $tokens tokens"

"$program" run --raw --ignore-eos -n 100000 --cache-dir "$home/cache" 'Once' \
    > "$home/out" 2> /dev/null &
holder=$!
tries=600
until [ -s "$home/out" ]; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || fail 'the other process says nothing'
    sleep 0.1
done
ask 'What is the capital of France?'
[ "$(grep -c 'is in use by another process' "$home/err")" = 1 ] || fail 'no warning'
[ "$answer" = "$said" ] || fail "without the directory \"$said\" became \"$answer\""
echo 'cache directory: all right'
