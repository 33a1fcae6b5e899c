#!/bin/sh
# check_layers.sh: data flows one way.  A directory of src/ includes only itself and those
# before it; kernels see pointers and sizes, never files or models; and only apps/ prints,
# reads the environment or exits.  Every offence is printed as file:line.
cd "$(dirname "$0")/.." || exit 1
tools/sources.sh src apps | xargs awk '
BEGIN {
    count = split("base quant io checkpoint tokenizer jinja sampling grammar chat model convert kernels " \
                  "backend experts state engine api compat", order)
    for (i = 1; i <= count; i++) level[order[i]] = i
    level["apps"] = count + 1
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
    slash = index(quoted[2], "/")
    target = slash ? substr(quoted[2], 1, slash - 1) : ""
    if (home == "apps" && !(target in level)) next # apps/ includes its own files by name
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
