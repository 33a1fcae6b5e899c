#!/usr/bin/env bash
# Whatever a schema's grammar allows is valid by an independent validator (ajv, from npm):
# 20 schemas, random texts from `generate`, all limits down to the shortest answer.
#
#     run.sh GENERATE [COUNT]        exit 77: npm or its registry is not to be had here
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
generate=$1
count=${2:-40}
lines=$(mktemp) && place=$(mktemp -d) || exit 1
trap 'rm -rf "$lines" "$place"' EXIT

"$generate" "$here/schemas.json" "$count" 1 >"$lines" || exit 1
command -v node >/dev/null && command -v npm >/dev/null ||
    { echo "SKIPPED: node and npm are needed to validate $(wc -l <"$lines") texts"; exit 77; }
cd "$place" || exit 1
timeout 100 npm install --silent --no-audit --no-fund ajv@8 ajv-formats@3 >npm.log 2>&1 ||
    { echo "SKIPPED: npm could not install ajv:"; tail -3 npm.log; exit 77; }
node "$here/validate.mjs" "$here/schemas.json" <"$lines"
