#!/bin/sh
# demo.sh PROGRAM: the embedded model writes a story and answers a question.
set -eu
program=$1
"$program" run -n 160 --seed 7 "Once upon a time, a small stone wanted to see the sea."
