# screen.sh: a program in a real terminal (tmux), for the tests that source it with $program set.
#     . "$(dirname "$0")/screen.sh"
# The session is called chat; $home is a directory that is removed at the end.  $columns is the
# width of the window that start_chat opens.
set -u
command -v tmux > /dev/null || { echo 'SKIPPED: tmux is not installed' >&2; exit 77; }

home=$(mktemp -d)
socket=moeflux-$(basename "$0" .sh)-$$
columns=80
mux() { tmux -u -L "$socket" -f /dev/null "$@"; }
trap 'mux kill-server 2> /dev/null; rm -r "$home"' EXIT
mux new-session -d -s keep 'sleep 1000' # a server between the sessions

screen() { mux capture-pane -p -S - -t chat; }

fail() {
    echo "FAILED: $1; the screen was:" >&2
    screen >&2
    exit 1
}

# wait_until WHAT COMMAND…: until the command succeeds, for two minutes.
wait_until() {
    what=$1
    tries=1200
    shift
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "$what"
        sleep 0.1
    done
}

shows() { screen | grep -qF -- "$1"; }
shows_lines() { [ "$(screen | grep -cF -- "$1")" -ge "$2" ]; }
lacks() { ! shows "$1"; }
# The last line that is not empty is an empty prompt: the answer is complete.
awaits_input() { [ "$(screen | grep -v '^ *$' | tail -n 1)" = '>' ]; }

has() { shows "$1" || fail "\"$1\" is missing"; }
wait_for() { wait_until "\"$1\" did not appear" shows "$1"; }
wait_for_count() { wait_until "\"$1\" did not appear $2 times" shows_lines "$1" "$2"; }
wait_for_prompt() { wait_until 'no prompt' awaits_input; }

type_line() { mux send-keys -t chat -l "$1" && mux send-keys -t chat Enter; }

# start COMMAND: in a new session, which shows the status at the end.
start() {
    mux kill-session -t chat 2> /dev/null
    mux new-session -d -s chat -x "$columns" -y 50 "$1; echo status \$?; sleep 600"
}

# start_chat OPTIONS…: a conversation, ready for its first line.
start_chat() {
    start "env HOME=$home TERM=screen '$program' run --temp 0 $*"
    wait_for '/help shows the commands'
    wait_for_prompt
}
