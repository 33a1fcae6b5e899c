#!/bin/sh
# bench/versus.sh with stand-ins for both engines, the peer's output being recorded; then
# with the real program on our side.
. "$MOEFLUX_SOURCE/tests/tools/scratch.sh"
versus=$MOEFLUX_SOURCE/bench/versus.sh
recorded=$MOEFLUX_SOURCE/tests/fixtures/versus/llama-bench.json
: >order

# Prompts of 32 at 8, 16, 24 … tokens/s, whatever is asked for.
cat >ours <<'END'
#!/bin/sh
echo "ours $*" >>order
n=$(grep -c ^ours order)
test() { printf '{"kind":"%s","tokens":%d,"depth":%d,"tokens_per_second":{"median":%d}}' "$@"; }
printf '{"tests":[%s,%s,%s,%s]}\n' "$(test prefill 32 0 $((n * 8)))" "$(test decode 4 0 2)" \
    "$(test prefill 32 64 8)" "$(test decode 4 64 2)"
END
cat >llama-bench <<END
#!/bin/sh
echo "peer \$*" >>order
cat "$recorded"
END
cat >one-liner <<'END'
#!/bin/sh
echo '{"n_prompt":8,"n_gen":0,"avg_ts":4.0}'
echo '{"n_prompt":8,"n_gen":8,"avg_ts":1.0}'
echo '{"n_prompt":0,"n_gen":2,"n_depth":0,"avg_ts":9.0,"samples_ts":[1.0,2.0,9.0]}'
END
printf '#!/bin/sh\necho out of luck >&2\nexit 3\n' >broken
printf '#!/bin/sh\necho "| a | table |"\n' >talking
printf '#!/bin/sh\necho "[]"\n' >silent
chmod +x ours llama-bench one-liner broken talking silent

# The order alternates; the recorded median of two samples is 3.94487.
expect 0 'prefill 32          0      16.00         3.94     4.06   2.03 … 6.08' \
    "$versus" -m model.gguf -r 3 -t 2 -p 32 -n 4 -d 0,64 --moeflux ./ours ./llama-bench -fa 1
expect 0 'decode 4           64       2.00         0.33     6.02   6.02 … 6.02' \
    "$versus" -m model.gguf -r 1 -t 2 -p 32 -n 4 -d 0,64 --moeflux ./ours ./llama-bench
expect 0 'ours bench -m model.gguf -p 32 -n 4 -d 0,64 -t 2 -r 1 --no-ceilings --json
peer -fa 1 -m model.gguf -p 32 -n 4 -d 0,64 -t 2 -r 1 -o json
peer -fa 1' head -n 3 order
expect 0 '"ratio": {"median": ' \
    "$versus" --json -m model.gguf -r 1 -t 2 -p 32 -n 4 -d 0,64 --moeflux ./ours ./llama-bench
expect 0 'peer -m x -p 32 -n 4 -t 2 -r 1 -o json' sh -c \
    "'$versus' -m x -r 1 -t 2 -p 32 -n 4 --moeflux ./ours ./llama-bench; tail -n 1 order"

python=$(command -v /usr/bin/python3 || command -v python3)
expect 0 'prefill 8 0 4
decode 2 0 2' sh -c "./one-liner | '$python' '$MOEFLUX_SOURCE/bench/versus.py' parse llama-bench"
expect 1 'was measured by one engine only' "$versus" -m x -r 1 --moeflux ./ours ./one-liner
expect 1 'out of luck
versus: llama-bench failed in round 1' "$versus" -m x --moeflux ./ours ./broken
expect 1 'versus: moeflux failed in round 1' "$versus" -m x --moeflux ./broken ./llama-bench
expect 1 'what llama-bench printed in round 1 cannot be read' "$versus" -m x --moeflux ./ours ./talking
expect 1 'no test in its output' "$versus" -m x --moeflux ./ours ./silent
expect 1 'which model?' "$versus" ./llama-bench
expect 1 'which program to compare with?' "$versus" -m x
expect 1 'there is no option --fast' "$versus" -m x --fast ./llama-bench
expect 1 'there is no adapter other' "$versus" -m x --adapter other ./llama-bench
expect 1 './nowhere is no program' "$versus" -m x --moeflux ./ours ./nowhere
expect 1 'is not a number of rounds' "$versus" -m x -r 0 --moeflux ./ours ./llama-bench
expect 0 'bench/versus.sh -m model.gguf' "$versus" --help

# The real program knows all options and says what the script reads.
expect 0 'prefill 8           0' \
    "$versus" -m "$MOEFLUX_SOURCE/models/pebble" -p 8 -n 2 -r 1 -t 1 \
    --moeflux "$MOEFLUX_BUILD/moeflux" ./one-liner
exit $status
