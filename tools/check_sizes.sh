#!/bin/sh
# check_sizes.sh: a file has up to 800 lines; up to 1200 with a reason in tools/large_files.txt
# ("path: reason"); more never.  (Lengths of functions are clang-tidy's part.)
cd "$(dirname "$0")/.." || exit 1
list=tools/large_files.txt
status=0
offence()
{
    echo "$1"
    status=1
}

for file in $(tools/sources.sh --all); do
    lines=$(wc -l <"$file")
    if [ "$lines" -gt 1200 ]; then
        offence "$file:1201: $lines lines, 1200 is the most a file may ever have"
    elif [ "$lines" -gt 800 ] && ! grep -q "^$file: ..." "$list"; then
        offence "$file:801: $lines lines; split it, or give the reason in $list"
    fi
done

# A reason that is no longer needed is misleading.
while IFS=: read -r file reason; do
    case $file in '' | '#'*) continue ;; esac
    if [ ! -f "$file" ] || [ "$(wc -l <"$file")" -le 800 ]; then
        offence "$list: $file is not over 800 lines any more:$reason"
    fi
done <"$list"
exit $status
