#!/bin/sh
# Commands of the conversation that change it: /retry, /undo, /set, /clear, /bye, /?, several
# results of tools, and a context that becomes too short.
#     chat_commands.sh PROGRAM
program=$1
. "$(dirname "$0")/screen.sh"
columns=100

start_chat --no-think
type_line 'What is the capital of Japan?'
wait_for_count ' prompt tokens at ' 1
type_line '/retry'
wait_for_count ' prompt tokens at ' 2
[ "$(screen | grep -c 'The capital of Japan is Tokyo.')" = 2 ] || fail 'not the same answer again'
type_line "/save $home/talk.json"
wait_for 'saved: 2 messages'
type_line '/undo'
wait_for 'the last question and its answer are forgotten'
type_line "/save $home/talk.json"
wait_for 'saved: 0 messages'
type_line '/undo'
wait_for 'there is nothing to take back'
type_line '/set temp 0.5'
wait_for 'temp is 0.5 now'
type_line '/set'
wait_for 'temp 0.5, top-k'
type_line '/set temp warm'
wait_for '--temp'
type_line '/resett'
wait_for 'there is no command /resett; try /help'
type_line '/clear'
wait_for 'the conversation is empty'
type_line '/?'
wait_for '/nothink'
type_line '/bye'
wait_for 'status 0'

# Both results of two calls are waited for.
cat > "$home/calls.json" << 'END'
{"messages":[{"role":"user","content":"Weather?"},{"role":"assistant","content":"","tool_calls":[
{"id":"1","type":"function","function":{"name":"weather","arguments":{"city":"Rome"}}},
{"id":"2","type":"function","function":{"name":"weather","arguments":{"city":"Oslo"}}}]}]}
END
start_chat --no-think -n 4
type_line "/load $home/calls.json"
wait_for 'loaded: 2 messages'
type_line '/tool sunny'
wait_for '(1 more to come'
screen | grep -q ' prompt tokens at ' && fail 'it answered after the first result'
type_line '/tool rain'
wait_for ' prompt tokens at '
wait_for '(stopped after 4 tokens: -n)'

# A full context: the oldest turns are dropped, or with --no-trim the message is refused.
start_chat --no-think -c 64 -n 8
for i in 1 2 3; do
    type_line 'What is the capital of Japan, and what is it called?'
    wait_for_count ' prompt tokens at ' $i
done
wait_for 'oldest messages are dropped'
start_chat --no-think -c 64 -n 8 --no-trim
type_line 'What is the capital of Japan, and what is it called?'
wait_for_count ' prompt tokens at ' 1
type_line 'What is the capital of Japan, and what is it called?'
type_line 'What is the capital of Japan, and what is it called?'
wait_for 'and the context has room for'

# A turn reads what is new: the answer before, which the template writes in another way, and the
# question.  Without checkpoints every turn would begin at 0, and read more than the one before.
start_chat --no-think -n 12
for i in 1 2 3 4; do
    type_line 'What is the capital of Japan?'
    wait_for_count ' prompt tokens at ' $i
done
counts=$(screen | sed -n 's/^.*[^0-9]*\b\([0-9][0-9]*\) prompt tokens at .*$/\1/p' | tr '\n' ' ')
set -- $counts
[ $# = 4 ] && [ "$4" -le $(($2 + 4)) ] || fail "the turns have read $counts tokens"
type_line '/retry'
wait_for_count ' prompt tokens at ' 5
retried=$(screen | sed -n 's/^.*[^0-9]*\b\([0-9][0-9]*\) prompt tokens at .*$/\1/p' | tail -n 1)
[ "$retried" -le 12 ] || fail "the same question again has read $retried tokens"
echo 'chat commands: all right'
