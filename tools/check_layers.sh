#!/bin/sh
# check_layers.sh: data flows one way.  A directory of src/ includes only itself and those
# before it; kernels see pointers and sizes, never files or models; and only apps/ prints,
# reads the environment or exits.  apps/ includes its own files and the public headers, so that
# the program can do nothing that a caller of the library cannot.  Every offence is printed as
# file:line.
cd "$(dirname "$0")/.." || exit 1
tools/sources.sh src apps | xargs awk '
BEGIN {
    count = split("base quant io checkpoint tokenizer jinja sampling grammar chat model convert kernels " \
                  "backend experts state engine tools api compat", order)
    for (i = 1; i <= count; i++) level[order[i]] = i
    level["apps"] = count + 1
    # Files of apps/ that may reach inside, each with the reason:
    inside["apps/bench/cases.c"] = inside["apps/bench/cases.h"] = "the table of kernels: no interface"
    inside["apps/bench/cases_attend.c"] = inside["apps/bench/cases_delta.c"] = "part of that table"
    inside["apps/bench/cases_products.c"] = inside["apps/bench/cases_rows.c"] = "part of that table"
    inside["apps/bench/cases_weights.c"] = "part of that table"
    inside["apps/bench/kernel_bench.c"] = "times that table"
    inside["apps/cli/selftest_operations.c"] = "compares two backends operation by operation"
    hidden["kernels"] = " io checkpoint tokenizer jinja sampling grammar chat model convert "
}
FNR == 1 {
    split(FILENAME, part, "/")
    home = part[1] == "src" ? part[2] : part[1]
    in_comment = 0
}
function offence(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text
    failed = 1
}
/^[ \t]*#[ \t]*include[ \t]*"/ {
    split($0, quoted, "\"")
    if (quoted[2] == "moeflux.h") next
    if (quoted[2] == "moeflux_tools.h" && level[home] >= level["tools"]) next
    if (quoted[2] == "moeflux_compat.h" && level[home] >= level["compat"]) next
    slash = index(quoted[2], "/")
    target = slash ? substr(quoted[2], 1, slash - 1) : ""
    if (home == "apps" && !(target in level)) next # apps/ includes its own files by name
    if (home == "apps") {
        if (!(FILENAME in inside))
            offence("apps/ includes \"" quoted[2] "\" of src/, which is no public header")
        next
    }
    if (!(target in level))
        offence("\"" quoted[2] "\" does not start with a directory of src/")
    else if (!(home in level))
        offence(home "/ has no place in the include order")
    else if (level[target] > level[home])
        offence(home " includes " target ", which comes after it")
    else if (index(hidden[home], " " target " "))
        offence(home " must not know " target)
    next
}
{
    line = $0
    gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
    if (in_comment) {
        if (!sub(/^.*\*\//, "", line)) next
        in_comment = 0
    }
    gsub(/\/\*([^*]|\*+[^*\/])*\*+\//, "", line)
    sub(/\/\/.*/, "", line)
    if (sub(/\/\*.*/, "", line)) in_comment = 1
    if (home == "apps") next
    if (match(line, /(^|[^A-Za-z0-9_.>])(getenv|secure_getenv|printf|puts|putchar|perror|exit|_exit|abort|system)[ ]*\(/))
        offence("src/ must not call " substr(line, RSTART, RLENGTH) "): only apps/ may")
    if (match(line, /(^|[^A-Za-z0-9_])(stdout|stderr)([^A-Za-z0-9_]|$)/))
        offence("src/ must not write to " substr(line, RSTART, RLENGTH) ": only apps/ may")
}
END { exit failed }
'
