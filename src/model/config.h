/* config.h: the numbers that define a model, read from config.json.
 *
 * Everything is bounded here: whatever the file says, products of these sizes
 * fit in 64 bits, so that later code need not check them again. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "base/arena.h"
#include "base/json.h"

struct family;

/* How a layer mixes positions. */
enum mixer_kind {
    MIXER_ATTENTION, /* grouped-query attention over a cache of keys and values */
    MIXER_DELTA,     /* gated delta net: a recurrent state instead of a cache */
};

enum { END_TOKENS_MAX = 16 };

struct model_config {
    const struct family *family;
    uint32_t width; /* of the residual stream */
    uint32_t vocab_size;
    uint32_t context_length;
    float norm_epsilon;
    bool tied_head; /* the output matrix is the embedding */

    uint32_t layer_count;
    enum mixer_kind *mixers;          /* [layer_count] */
    uint32_t full_attention_interval; /* used when the file has no list of mixers */

    /* full attention */
    uint32_t heads, kv_heads, head_width;
    uint32_t rotary_width; /* leading channels of a head that turn with position */
    double rope_theta, rotary_factor;

    /* gated delta net */
    uint32_t delta_key_heads, delta_value_heads;
    uint32_t delta_key_width, delta_value_width; /* of a head */
    uint32_t delta_taps;                         /* of the causal convolution */

    /* mixture of experts */
    uint32_t experts, experts_per_token;
    uint32_t expert_width, shared_width;

    int32_t end_tokens[END_TOKENS_MAX];
    size_t end_token_count;
};

/* `json` is the whole config.json of a checkpoint; arrays are taken from `arena`. */
mf_status config_parse(struct model_config *out, const json_t *json, struct arena *arena,
                       const char *where, mf_error *why);

/* Adds the ids of an eos_token_id field (a number or a list of them), each once. */
mf_status config_add_end_tokens(struct model_config *config, const json_t *json, const char *where,
                                mf_error *why);

/* Channels of the convolution: queries, keys, values. */
uint32_t config_delta_channels(const struct model_config *config);

#endif
