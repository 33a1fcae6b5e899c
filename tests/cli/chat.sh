#!/bin/sh
# The conversation of `moeflux run`, in a real terminal (tmux): several turns, Ctrl-C,
# commands, /save and /load, pasted text, completion, a resized window, Ctrl-D.
#     chat.sh PROGRAM
program=$1
. "$(dirname "$0")/screen.sh"

start_chat --backend reference --no-think
type_line 'What is the capital of Japan?'
wait_for 'The capital of Japan is Tokyo.'
wait_for ' prompt tokens at '
wait_for_prompt

type_line 'What is the capital \'
wait_for '…'
type_line 'of France?'
wait_for 'Paris'
wait_for_prompt

# Commands, and one that is mistyped.
type_line '/help'
wait_for '/nothink'
type_line '/stauts'
wait_for 'did you mean /stats'
type_line '/stats'
wait_for 'positions of the context are used'
wait_for_prompt

# The conversation survives a file.
type_line "/save $home/talk.json"
wait_for 'saved: 4 messages'
[ "$(grep -c '"role"' "$home/talk.json")" = 4 ] || fail 'four messages were not saved'
grep -q Tokyo "$home/talk.json" || fail 'the answer was not saved'
type_line '/reset'
wait_for 'the conversation is empty'
type_line "/save $home/empty.json"
wait_for 'saved: 0 messages'
type_line "/load $home/talk.json"
wait_for 'loaded: 4 messages'
type_line '/load /nonexistent'
wait_for '/nonexistent cannot be opened'
type_line 'What is 2 + 2?'
wait_for '2 + 2 = 4'
wait_for_prompt

# A pasted text keeps its lines and is sent with Enter only; Alt-Enter breaks a line; what
# is typed during the answer stands in the next prompt; Tab completes; ~ is the home.
answers=$(screen | grep -cF ' prompt tokens at ')
mux set-buffer "$(printf 'What is the\ncapital of\n')"
mux paste-buffer -p -t chat
wait_for 'capital of'
sleep 1
[ "$(screen | grep -cF ' prompt tokens at ')" = "$answers" ] || fail 'the paste was sent'
mux send-keys -t chat M-Enter
mux send-keys -t chat -l 'Italy?'
mux send-keys -t chat Enter
mux send-keys -t chat -l '/sa'
wait_for '> /sa'
screen | grep -q '^/sa' && fail 'what was typed stands in the answer'
mux send-keys -t chat Tab
mux send-keys -t chat -l '~/more'
mux send-keys -t chat Enter
wait_for 'saved: 8 messages'
grep -qF 'What is the\ncapital of\nItaly?' "$home/more" || fail 'the lines were not kept'
type_line '/etc/hosts: what is that?'
wait_for '/etc/hosts: what is that?'
wait_for_prompt
! screen | grep -qF 'no command /etc' || fail 'a path was taken for a command'
mux clear-history -t chat

# A narrower window while a line is being typed: the line stays whole.
mux send-keys -t chat -l 'What is the opposite'
sleep 0.3
mux resize-window -t chat -x 50 -y 40
sleep 0.3
mux send-keys -t chat -l ' of hot?'
mux send-keys -t chat Enter
wait_for 'cold'
wait_for_prompt
has 'What is the opposite of hot?'

# History: the last line again.
mux send-keys -t chat Up
sleep 0.3
screen | grep -v '^ *$' | tail -n 1 | grep -qF 'What is the opposite of hot?' || fail 'no history'

# Ctrl-C at the prompt gives up the line, Ctrl-D on an empty line leaves.
mux send-keys -t chat C-c
wait_for_prompt
mux send-keys -t chat C-d
wait_for 'status 0'
[ -s "$home/.local/state/moeflux/history" ] || fail 'the history was not kept'

# The line editor's signals have been seen by now.  ThreadSanitizer delays signals until a thread
# calls the C library, so that Ctrl-Z does not stop the job, and generates about a token a second.
if ldd "$program" | grep -q libtsan; then
    echo 'SKIPPED from here on under ThreadSanitizer: stopping, long answers and long prompts' >&2
    exit 0
fi

# Ctrl-Z stops the job, and the line goes on with it; after SIGTERM the terminal echoes again.
mux kill-session -t chat
mux new-session -d -s chat -x 80 -y 50 "bash -c 'set -m; HOME=$home TERM=screen $program run \
    --temp 0 --backend reference --no-think; echo stopped \$?; fg; echo status \$?; sleep 600'"
wait_for_prompt
mux send-keys -t chat -l 'What is the'
wait_for 'What is the'
mux send-keys -t chat C-z
wait_for 'stopped 148'
mux send-keys -t chat -l ' capital of Japan?'
mux send-keys -t chat Enter
wait_for 'The capital of Japan is Tokyo.'
wait_for_prompt
echoes() { stty -a <"$(mux display-message -p -t chat '#{pane_tty}')" | grep -q ' echo '; }
echoes && fail 'the terminal echoes while the line editor does'
kill -TERM "$(pgrep -n -f "^$program run --temp 0 --backend reference --no-think\$")"
wait_for 'status 143'
echoes || fail 'the echo is off after SIGTERM'

# Ctrl-C ends an answer that would go on for long, and not the program.
start_chat --backend reference --no-think --ignore-eos
type_line 'Continue this story: The little fox found a golden key in the snow.'
sleep 1
mux send-keys -t chat C-c
wait_for "(stopped)"
wait_for_prompt
type_line '/reset'
wait_for 'the conversation is empty'
type_line '/quit'
wait_for 'status 0'

# Reasoning can be folded into a line.
start_chat --backend reference
type_line '/fold'
wait_for 'reasoning is folded'
type_line 'What is 27 + 45?'
wait_for '27 + 45 = 72'
wait_for_prompt
screen | grep -qF 'ones: 7 + 5' && fail 'the reasoning was shown'
screen | grep -qF 'thought for' || fail 'the folded line is missing'
type_line '/fold'
wait_for 'reasoning is shown'
type_line 'What is 31 + 12?'
wait_for 'ones: 1 + 2'
wait_for_prompt
screen | grep -qF '<think>' && fail 'markup was shown'

# A bar while a long prompt is read, gone afterwards; Ctrl-C ends a single answer with 130.
head -c 12000 "$MOEFLUX_SOURCE/tests/fixtures/pebble/heldout.txt" > "$home/long.txt"
start "env HOME=$home TERM=screen '$program' run --raw -f $home/long.txt --ignore-eos --temp 0 \
    -n 900 --backend reference"
wait_for 'reading '
wait_for ' tokens/s'
wait_until 'the bar is still there' lacks 'reading '
sleep 0.3
mux send-keys -t chat C-c
wait_for 'status 130'
has ' prompt tokens at '
echo 'chat: all right'
