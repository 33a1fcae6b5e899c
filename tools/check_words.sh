#!/bin/sh
# check_words.sh: the words that plain technical English does without, in comments, messages, test
# names and pages.  The subject of a sentence is a component, not a person.  Every offence is
# printed as file:line with what to write instead.  The second list does not apply to strings: the
# stories that models continue have such words.
cd "$(dirname "$0")/.." || exit 1
# No natural language of ours: fixtures, corpora, dictionaries, pictures, notebooks, this list.
files()
{
    if [ -e .git ]; then
        git ls-files --cached --others --exclude-standard
    else
        find . -path ./build -prune -o -type f -print | sed 's|^\./||'
    fi |
        grep -E '^(src|apps|include|tests|bench|examples|tools|docs|python)/|^(README|CONTRIBUTING|CHANGELOG)\.md$' |
        grep -vE '^tests/fixtures/|^tests/fuzz/corpus/|^docs/notebook/|\.(dict|svg|json|png)$' |
        grep -vE '^(tests/)?tools/check_words\.sh$' | sort |
        while read -r file; do [ -f "$file" ] && echo "$file"; done
}

files | xargs awk '
BEGIN {
    # word: what to write instead
    split("nobody=name the component and say that it does not|nobodys=the same" \
          "|whoever=name the caller, the thread or the reader of the file" \
          "|whosoever=name it|whomever=name it" \
          "|somebody=name the component, or \"another thread\", \"the caller\"" \
          "|everybody=name them: \"every worker\", \"all threads\"" \
          "|anybody=name it: \"any caller\"" \
          "|he=a component is \"it\"|she=it|his=its|him=it|her=its|hers=its|himself=itself" \
          "|herself=itself|for ever=say until when, or \"without end\"" \
          "|whence=where|wherein=where|thereof=of it|lest=so that … not|alas=leave it out" \
          "|at hand=current|looks on=observes|looking on=observing|how manieth=index", rows, "|")
    add(instead, rows)
    split("who=name the component: \"the thread that\"|whom=name it|upon=on" \
          "|so many=\"this many\", or name the variable", rows, "|")
    add(instead_outside_strings, rows)
}
function add(list, rows,   i, equals)
{
    for (i in rows) {
        equals = index(rows[i], "=")
        list[substr(rows[i], 1, equals - 1)] = substr(rows[i], equals + 1)
    }
}
function check(text, list,   line, word)
{
    line = tolower(text)
    gsub(/[^a-z]+/, " ", line)
    line = " " line " "
    sub(/ once upon a time /, " ", line) # the prompt of many examples
    for (word in list)
        if (index(line, " " word " ")) {
            printf "%s:%d: \"%s\" (instead: %s)\n", FILENAME, FNR, word, list[word]
            failed = 1
        }
}
FNR == 1 { quoted = 0 }
# What a model wrote, or a transcript of a terminal, stands between fences in a page.
FILENAME ~ /\.md$/ && /^ *```/ { quoted = !quoted }
quoted { next }
{
    outside = $0
    gsub(/"([^"\\]|\\.)*"/, "\"\"", outside)
    # Strings of tests are input as often as messages.
    check(FILENAME ~ /^tests\// ? outside : $0, instead)
    check(outside, instead_outside_strings)
}
END { exit failed }
'
