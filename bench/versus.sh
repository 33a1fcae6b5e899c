#!/usr/bin/env bash
# versus.sh: moeflux and another engine on the same file, in turns, and the ratio of the two.
#
#     bench/versus.sh -m MODEL [options] PEER [PEER'S OPTIONS]
#
# In every round both run once, one after the other, and the next round begins with the one
# that was last: a machine that gets slower or hotter does it to both.  A ratio is that of two
# neighbours; shown are the median of the ratios and the smallest and largest one.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)

usage()
{
    cat <<END
usage: bench/versus.sh -m MODEL [options] PEER [PEER'S OPTIONS]

  -m MODEL          what both engines open
  -p N,…            tokens of the prompt; default 512, 0: none
  -n N,…            tokens to generate; default 64, 0: none
  -d N,…            tokens in the context before; default 0
  -t N              threads of both; default: one for every core
  -r N              rounds; default 5
  --moeflux FILE    the program; default: build/moeflux
  --adapter NAME    how PEER is called and read: llama-bench (the default)
  --under COMMAND   what both run under, as in --under "chrt -f 10"
  --json            JSON instead of the table

examples:
  bench/versus.sh -m model.gguf ~/llama.cpp/build/bin/llama-bench
  bench/versus.sh -m model.gguf -p 512 -n 64 -d 0,8192 -t 2 -r 7 llama-bench -fa 1
END
}

complain()
{
    echo "versus: $1" >&2
    exit "${2:-1}"
}

model='' prompts=512 counts=64 depths=0 threads=$(nproc) rounds=5 adapter=llama-bench
moeflux=$here/../build/moeflux under=() form=table
while [ $# -gt 0 ]; do
    case $1 in
    -m | -p | -n | -d | -t | -r | --moeflux | --adapter | --under)
        [ $# -ge 2 ] || complain "$1 needs a value" 2
        case $1 in
        -m) model=$2 ;;
        -p) prompts=$2 ;;
        -n) counts=$2 ;;
        -d) depths=$2 ;;
        -t) threads=$2 ;;
        -r) rounds=$2 ;;
        --moeflux) moeflux=$2 ;;
        --adapter) adapter=$2 ;;
        --under) read -r -a under <<<"$2" ;;
        esac
        shift 2
        ;;
    --json) form=json && shift ;;
    -h | --help) usage && exit 0 ;;
    -*) complain "there is no option $1; --help lists them" 2 ;;
    *) break ;;
    esac
done
[ -n "$model" ] || complain "which model? -m MODEL" 2
[ $# -gt 0 ] || complain "which program to compare with? It comes last, with its own options" 2
[[ $rounds =~ ^[1-9][0-9]*$ ]] || complain "-r: \"$rounds\" is not a number of rounds" 2
[ "$adapter" = llama-bench ] || complain "there is no adapter $adapter; there is llama-bench" 2
command -v "$1" >/dev/null || complain "$1 is no program that can be run"
command -v "$moeflux" >/dev/null || complain "$moeflux is no program that can be run"
peer=("$@")
python=$(command -v /usr/bin/python3 || command -v python3) || complain "python3 is needed"

# Each prints its own JSON; both warm up by themselves and then measure once.
run_moeflux()
{
    "${under[@]}" "$moeflux" bench -m "$model" -p "$prompts" -n "$counts" -d "$depths" \
        -t "$threads" -r 1 --no-ceilings --json
}

# Forks that know no depth are not told of depth 0.
run_llama-bench()
{
    local depth=()
    [ "$depths" = 0 ] || depth=(-d "$depths")
    "${under[@]}" "${peer[@]}" -m "$model" -p "$prompts" -n "$counts" "${depth[@]}" \
        -t "$threads" -r 1 -o json
}

place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT

# Appends "round engine kind tokens depth rate" lines to the samples.
measure() # engine round
{
    [ -t 2 ] && printf '\rround %d of %d: %-12s' "$2" "$rounds" "$1" >&2
    if ! "run_$1" >"$place/out" 2>"$place/err"; then
        [ -t 2 ] && echo >&2
        tail -n 5 "$place/err" >&2
        complain "$1 failed in round $2"
    fi
    "$python" "$here/versus.py" parse "$1" <"$place/out" >"$place/lines" ||
        complain "what $1 printed in round $2 cannot be read"
    sed "s/^/$2 $1 /" "$place/lines" >>"$place/samples"
}

for ((round = 1; round <= rounds; round++)); do
    if ((round % 2)); then
        measure moeflux "$round" && measure "$adapter" "$round"
    else
        measure "$adapter" "$round" && measure moeflux "$round"
    fi
done
[ -t 2 ] && printf '\r%40s\r' '' >&2
"$python" "$here/versus.py" report "$form" "$model" "$threads" "$adapter" <"$place/samples"
