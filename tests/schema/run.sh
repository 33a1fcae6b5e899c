#!/usr/bin/env bash
# Answers by schema, judged by an independent validator (ajv, from npm), for 20 schemas:
# random texts from `generate`, under all limits down to the shortest answer, and answers of
# the program with its own model at temperature 1.5.
#
#     run.sh GENERATE COUNT MOEFLUX COUNT [SEED]      (counts are per schema)
#     exit 77: node, npm or its registry is not to be had here
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
generate=$(realpath "$1") texts=$2 moeflux=$(realpath "$3") answers=$4 seed=${5:-1}
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
cd "$place" || exit 1

command -v node >/dev/null && command -v npm >/dev/null ||
    { echo "SKIPPED: node and npm are needed to judge texts and answers by schema" >&2; exit 77; }
timeout 60 npm install --silent --no-audit --no-fund --fetch-retries=1 --fetch-timeout=15000 \
    ajv@8 ajv-formats@3 >npm.log 2>&1 ||
    { echo "SKIPPED: npm could not install ajv (is there a registry?):" >&2; tail -3 npm.log >&2; exit 77; }
"$generate" "$here/schemas.json" "$texts" "$seed" >lines || exit 1
node "$here/validate.mjs" "$here/schemas.json" <lines || exit 1
node "$here/live.mjs" "$moeflux" "$here/schemas.json" "$answers" "$seed"
