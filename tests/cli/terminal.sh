#!/bin/sh
# What a terminal shows and how it is left: input without a UTF-8 locale, Ctrl-C above the last
# row of the input, echo after signals, control characters, words at the end of a line.
#     terminal.sh PROGRAM
program=$1
. "$(dirname "$0")/screen.sh"
clean="env -u LANG -u LC_ALL -u LC_CTYPE HOME=$home TERM=screen"

# Letters outside ASCII arrive without a UTF-8 locale.
columns=80
start "$clean '$program' run --temp 0 -n 4 --no-think"
wait_for '/help shows the commands'
type_line 'Grüße 日本'
wait_for ' prompt tokens at '
type_line "/save $home/talk.json"
wait_for 'saved: 2 messages'
grep -q 'Grüße 日本\|Gr\\u00fc\\u00dfe \\u65e5\\u672c' "$home/talk.json" || fail 'letters were lost'

# Ctrl-C in the first of several rows: the next prompt stands below them all.
columns=60
start "$clean '$program' run --temp 0 -n 4 --no-think"
wait_for '/help shows the commands'
words=$(printf 'word%.0s ' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30)
mux send-keys -t chat -l "$words"
wait_for 'word word word'
sleep 0.5
mux send-keys -t chat C-a
sleep 0.3
mux send-keys -t chat C-c
sleep 0.5
awaits_input || fail 'the prompt is not below the line'
[ "$(screen | tr -d '\n' | grep -o word | wc -l)" = 30 ] || fail 'the line that was given up is damaged'

# Echo is on again after signals that end or stop the process, under a shell that does not see to it.
answers() {
    pid=$(pgrep -n -f "ignore-eos --raw -n 4000 Once upon" 2> /dev/null) &&
        mux display -p -t chat '#{pane_tty}' | xargs -I@ stty -F @ -a 2> /dev/null | grep -q -- '-echo '
}
for signal in TERM QUIT TSTP; do
    columns=80
    start "$clean sh"
    type_line "'$program' run --temp 0 --backend reference --ignore-eos --raw -n 4000 'Once upon'"
    wait_until 'the answer did not begin' answers
    kill -$signal "$pid"
    sleep 1
    tty=$(mux display -p -t chat '#{pane_tty}')
    stty -F "$tty" -a | grep -q -- ' echo ' || fail "echo is off after SIG$signal"
    kill -KILL "$pid" 2> /dev/null
done

# Control characters of an answer are shown, not obeyed; in a pipe the bytes are exact.
printf 'root ::= "\\x1b[31mRED\\x1b]0;pwned\\x07 \\x1b[2J\\u009b1m"' > "$home/esc.gbnf"
columns=80
start "$clean '$program' run -q --no-think --grammar $home/esc.gbnf hi"
wait_for '\x1b[31mRED\x1b]0;pwned\x07 \x1b[2J\u009b1m'
[ "$(mux display -p -t chat '#{pane_title}')" != pwned ] || fail 'the title was set'
[ "$("$program" run -q --no-think --grammar "$home/esc.gbnf" hi | od -An -tx1 | tr -d ' \n' | head -c 10)" = 1b5b33316d ] ||
    fail 'the bytes in a pipe are not exact'
mkdir "$home/evil"
printf '{"model_type":"a\\u001b[31mred","num_experts":2}' > "$home/evil/config.json"
ln -s "$MOEFLUX_SOURCE/models/pebble/"model* "$home/evil/"
"$program" run -m "$home/evil" hi 2>&1 | grep -qF 'a\x1b[31mred' || fail 'an error shows a control character'

"$program" inspect -m "$home/evil" 2>&1 > "$home/inspected" | cat
grep -qF 'a\x1b[31mred' "$home/inspected" || fail 'inspect does not show what a file says'
grep -q "$(printf '\033')" "$home/inspected" && fail 'inspect shows a control character'

# Words are not cut at the end of a line, except in a pipe, where no line is broken.
printf 'root ::= "alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima mike"' > "$home/words.gbnf"
columns=40
start "$clean '$program' run -q --no-think --grammar $home/words.gbnf hi"
wait_for 'lima mike'
for word in alpha bravo charlie delta foxtrot hotel india juliet kilo; do
    screen | grep -qw "$word" || fail "$word was cut"
done
screen | grep -q '^alpha bravo charlie delta echo foxtrot$' || fail 'the line breaks elsewhere'
[ "$("$program" run -q --no-think --grammar "$home/words.gbnf" hi | wc -l)" = 1 ] ||
    fail 'a pipe was wrapped'
echo 'terminal: all right'
