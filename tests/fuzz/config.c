/* Any text as config.json.  What is accepted must hold what config.h promises: sizes that are
 * there, that fit each other, and whose products fit. */
#include "model/families.h"
#include "support/failing_allocator.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition) abort();
}

static void check(const struct model_config *c)
{
    must(c->family && c->mixers && c->ffns);
    must(c->width > 0 && c->vocab_size > 0 && c->context_length > 0 && c->layer_count > 0);
    must(c->heads > 0 && c->kv_heads > 0 && c->head_width > 0 && c->heads % c->kv_heads == 0);
    must(c->rope.rotary_width >= 2 && c->rope.rotary_width <= c->head_width);
    must(c->experts > 0 && c->experts_per_token > 0 && c->experts_per_token <= c->experts);
    must((uint64_t)c->experts_per_token * c->width <= UINT32_MAX);
    must(c->expert_width > 0 && c->router_groups > 0 && c->experts % c->router_groups == 0);
    must(c->norm_epsilon >= 0.0f && c->norm_epsilon < 1.0f);
    for (uint32_t i = 0; i < c->layer_count; i++) {
        must(c->mixers[i] < MIXER_KINDS && c->ffns[i] < FFN_KINDS);
        must(c->mixers[i] != MIXER_DELTA || c->delta_value_heads % c->delta_key_heads == 0);
        must(c->mixers[i] != MIXER_DELTA || (c->family->hybrid && c->delta_taps > 0));
    }
    for (size_t i = 0; i < c->end_token_count; i++)
        must(c->end_tokens[i] >= 0 && (uint32_t)c->end_tokens[i] < c->vocab_size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct failing_allocator heap;
    struct arena arena;
    struct model_config config;
    json_t *json;
    mf_error why;
    if (json_parse_new(&json, (const char *)data, size, "config.json", &why) != MF_OK) return 0;
    failing_allocator_init(&heap);
    arena_init(&arena, &heap.allocator);
    if (config_parse(&config, json, &arena, "config.json", &why) == MF_OK) check(&config);
    must(heap.live_bytes <= 1 << 20);
    arena_free(&arena);
    must(heap.live_bytes == 0);
    json_decref(json);
    return 0;
}
