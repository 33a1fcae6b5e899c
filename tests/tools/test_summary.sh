#!/bin/sh
# The count of tests, from logs as Meson writes them.
. "$MOEFLUX_SOURCE/tests/tools/scratch.sh"
python=$(command -v /usr/bin/python3 || command -v python3)
mkdir -p a/meson-logs b/meson-logs
two_of_three='[ RUN      ] x\n[       OK ] x\n[ RUN      ] y\nnoise[       OK ] y\n[ RUN      ] z\n'

log() # directory result stdout stderr: one more program
{
    printf '{"name": "n", "result": "%s", "stdout": "%s", "stderr": "%s"}\n' \
        "$2" "$(printf '%s' "$3" | sed 's/\\/\\\\/g; s/\\\\n/\\n/g')" "$4" >>"$1/meson-logs/testlog.json"
}

expect 1 'no tests ran' "$python" tools/test_summary.py a
log a OK 'no cases here' ''
expect 0 '1 passed, 0 failed' "$python" tools/test_summary.py a
log a OK "$two_of_three[       OK ] z\\n" ''
expect 0 '4 passed, 0 failed' "$python" tools/test_summary.py a
log a OK "$two_of_three[  SKIPPED ] z\\n" ''
expect 0 '6 passed, 0 failed, 1 skipped' "$python" tools/test_summary.py a
log a SKIP '' 'no fixtures'
expect 0 'no fixtures' "$python" tools/test_summary.py a
log b FAIL "$two_of_three[  FAILED  ] z\\n" ''
expect 1 '2 passed, 1 failed' "$python" tools/test_summary.py b
log b FAIL "$two_of_three" '' # died in z
log b TIMEOUT '' ''
log b ERROR "[ RUN      ] x\\n[       OK ] x\\n" '' # died after the last
expect 1 '5 passed, 4 failed' "$python" tools/test_summary.py b
expect 1 '11 passed, 4 failed, 2 skipped' "$python" tools/test_summary.py a b
echo '{"name": "check words", "result": "FAIL"}' >check.json
expect 1 '6 passed, 1 failed, 2 skipped' "$python" tools/test_summary.py a check.json
exit $status
