#!/bin/sh
. "$MOEFLUX_SOURCE/tests/tools/scratch.sh"

write() # file text
{
    mkdir -p "$(dirname "$1")"
    printf '%s\n' "$2" >"$1"
}

write src/chat/a.c '/* The caller waits; then the store reads there. */'
expect 0 '' tools/check_words.sh
write src/chat/a.c '/* Nobody waits. */'
expect 1 'src/chat/a.c:1: "nobody"' tools/check_words.sh
write src/chat/a.c '/* It counts
 * for ever. */'
expect 1 'src/chat/a.c:2: "for ever"' tools/check_words.sh
write src/chat/a.c 'static void whoever_asks_may_end(void);'
expect 1 '"whoever"' tools/check_words.sh
write src/chat/a.c '/* The worker ends his share. */'
expect 1 'instead: its' tools/check_words.sh
write src/chat/a.c 'fail(why, "nobody");'
expect 1 '"nobody"' tools/check_words.sh
write src/chat/a.c '/* The layer at hand. */'
expect 1 '"at hand" (instead: current' tools/check_words.sh
write src/chat/a.c '/* Bits depend on who computes. */'
expect 1 '"who"' tools/check_words.sh
write src/chat/a.c '/* The row that the next one follows upon. */'
expect 1 '"upon" (instead: on' tools/check_words.sh
write src/chat/a.c '/* A read of so many bytes. */'
expect 1 '"so many"' tools/check_words.sh
write src/chat/a.c 'print("a woman who lived in a hut, once upon a time"); /* once upon a time */'
expect 0 '' tools/check_words.sh
rm src/chat/a.c

# Input of a test, and what a model wrote in a page, is not our text.
write tests/unit/a.c 'check("Nobody knows his name");'
expect 0 '' tools/check_words.sh
write tests/unit/a.c 'check("a"); /* nobody looks */'
expect 1 'tests/unit/a.c:1' tools/check_words.sh
rm tests/unit/a.c
write README.md '```
He had a little dog.
```'
expect 0 '' tools/check_words.sh
write README.md 'He had a little dog.'
expect 1 'README.md:1: "he"' tools/check_words.sh
exit $status
