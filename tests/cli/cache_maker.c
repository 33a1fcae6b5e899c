/* Makes a cache directory for cache.py: cache_maker DIRECTORY [hold].  Two models; the first has a
 * text of four pages that branches after the second one, with a checkpoint in each branch.  With
 * `hold` it then keeps the directory open until its input ends. */
#include "support/cache_texts.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = CACHE_TOKENS_MAX, BYTES = 10000 };

static struct cache_store *store;

static struct cache_text put(enum cache_kind kind, const struct cache_key *root,
                             const struct cache_text *parent, uint32_t seed, uint32_t count)
{
    struct cache_text text;
    cache_text_make(&text, store, kind, root, parent, seed, count, BYTES);
    text.record.tokens = text.tokens;
    bool present = cache_store_has(store, &text.record.key);
    mf_status status = present ? MF_OK : cache_text_put(store, &text);
    if (status != MF_OK) {
        fprintf(stderr, "cache_maker: %s\n", mf_status_name(status));
        exit(1);
    }
    return text;
}

int main(int count, char **words)
{
    struct cache_key first, second;
    bool held;
    mf_error why = { 0 };
    if (count < 2) return 2;
    struct cache_store_options options = { .directory = words[1], .limit_bytes = 1 << 24 };
    if (cache_store_open(&store, &held, &options, &why) != MF_OK || held) {
        fprintf(stderr, "cache_maker: %s\n", held ? "held" : why.text);
        return 1;
    }
    cache_store_root(&first, store, "1", 1, "first-model", NULL);
    cache_store_root(&second, store, "2", 1, "second-model", NULL);
    struct cache_text a = put(CACHE_PAGE, &first, NULL, 1, TOKENS);
    struct cache_text b = put(CACHE_PAGE, &first, &a, 2, TOKENS);
    put(CACHE_PAGE, &first, &b, 3, TOKENS);
    put(CACHE_CHECKPOINT, &first, &b, 3, 40);
    put(CACHE_PAGE, &first, &b, 4, 30);
    put(CACHE_CHECKPOINT, &first, &b, 4, 30);
    put(CACHE_PAGE, &second, NULL, 5, 50);
    cache_store_touch(store, &a.record.key);
    if (count > 2) {
        cache_store_flush(store);
        puts("held");
        fflush(stdout);
        while (getchar() != EOF) continue;
    }
    cache_store_close(store);
    return 0;
}
