#!/bin/sh
# Turns of a chat read what is new, whatever happened to the turns before: answers that were cut,
# reasoning that the template drops, /retry, /undo, /clear.
#     chat_cache.sh PROGRAM
program=$1
. "$(dirname "$0")/screen.sh"
columns=100

# Sends $1 and waits for the answer; `read_tokens` is then what the turn has read.
turn_count=0
turn()
{
    turn_count=$((turn_count + 1))
    type_line "$1"
    wait_for_count ' prompt tokens at ' $turn_count
    read_tokens=$(screen | sed -n 's/^.*[^0-9]*\b\([0-9][0-9]*\) prompt tokens at .*$/\1/p' | tail -n 1)
}

begin()
{
    turn_count=0
    start_chat "$@"
}

question='What is the capital of Japan?'
for cache in reuse exact; do
    for think in --think --no-think; do
        # 16 tokens: the answer, or the reasoning, is cut.
        begin $think -n 16 --cache $cache
        type_line '/system You are a helpful assistant of few words.'
        wait_for 'the system message is set'
        turn "$question"
        first=$read_tokens
        turn "$question"
        second=$read_tokens
        turn "$question"
        turn "$question"
        fourth=$read_tokens
        echo "$cache $think: $first, $second, …, $fourth"
        [ "$fourth" -le $((second + 4)) ] || fail "turns 2 and 4 have read $second and $fourth"
        turn '/retry'
        [ "$read_tokens" -le 12 ] || fail "the same question again has read $read_tokens tokens"
        type_line '/undo'
        wait_for 'the last question and its answer are forgotten'
        turn 'And of France?'
        [ "$read_tokens" -le $((second + 4)) ] || fail "after /undo a turn has read $read_tokens"
        type_line '/clear'
        wait_for 'the conversation is empty'
        turn 'Where is Rome?'
        [ "$read_tokens" -lt "$first" ] || fail "after /clear a turn has read $read_tokens"
    done
done

# Without a cache this model, which has recurrent layers, reads everything again.
begin --no-think -n 16 --cache off
turn "$question"
turn "$question"
second=$read_tokens
turn "$question"
[ "$read_tokens" -gt $((second + 4)) ] || fail "--cache off has read $read_tokens tokens"
echo 'chat cache: all right'
