/* config.h: the numbers that define a model, read from config.json or from the
 * metadata of a GGUF file.
 *
 * Everything is bounded here: whatever the file says, products of these sizes
 * fit in 64 bits, so that later code need not check them again. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include "base/activation.h"
#include "base/arena.h"
#include "base/json.h"
#include "checkpoint/metadata.h"
#include "checkpoint/tensor_directory.h"

struct family;

/* How a layer mixes positions. */
enum mixer_kind {
    MIXER_ATTENTION, /* grouped-query attention over a cache of keys and values */
    MIXER_LATENT,    /* multi-head latent attention over a cache of latents */
    MIXER_DELTA,     /* gated delta net: a recurrent state instead of a cache */
    MIXER_WINDOW,    /* grouped-query attention over the last positions only */
    MIXER_KINDS
};

enum ffn_kind { FFN_EXPERTS, FFN_DENSE, FFN_KINDS };

enum router_kind {
    ROUTER_SOFTMAX, /* probabilities over all experts */
    ROUTER_SIGMOID, /* independent scores; a bias helps to choose and is not in the weights */
};

/* What is normalised of queries and keys, before they turn. */
enum qk_norm_kind {
    QK_NORM_NONE,
    QK_NORM_HEADS, /* each head, with one weight for all */
    QK_NORM_WHOLE, /* all heads together */
};

/* Rotary position embedding. */
struct rope_config {
    double theta;
    double partial;        /* of a head's channels turn */
    uint32_t rotary_width; /* how many that is */
    bool interleaved;      /* pairs (2i, 2i+1); else (i, i + half) */
    bool proportional;     /* all channels are in pairs, of which the first turn and the others
                              stand still */
    uint32_t turning;      /* how many pairs that is; 0: all */
    double factor;         /* YaRN: 1 when there is none */
    double original_context, beta_fast, beta_slow;
    bool untruncated;        /* YaRN's ramp begins and ends between channels */
    double multiplier;       /* on cosines and sines */
    double score_multiplier; /* on the scale of attention scores */
};

enum { END_TOKENS_MAX = 16 };

struct model_config {
    const struct family *family;
    uint32_t width; /* of the residual stream */
    uint32_t vocab_size;
    uint32_t context_length;
    float norm_epsilon;
    bool embedding_scaled; /* by √width */
    double logit_cap;      /* logits become cap·tanh(logit / cap); 0: they stay */
    bool tied_head;        /* the output matrix is the embedding */

    uint32_t layer_count;
    uint32_t prediction_layers; /* declared behind the others, for multi-token prediction; unused */
    enum mixer_kind *mixers;    /* [layer_count] */
    enum ffn_kind *ffns;        /* [layer_count] */
    uint32_t full_attention_interval; /* used when the file has no list of mixers */

    /* full attention, and heads of latent attention */
    uint32_t heads, kv_heads, head_width;
    bool output_gate;    /* a gate beside every query channel */
    bool attention_bias; /* the projections that have a bias in the family's rules add it */
    enum qk_norm_kind qk_norm;
    bool value_norm;      /* heads of values are normalised, too, without weights */
    bool values_are_keys; /* in layers without a window: the keys before norm and rotation */
    double score_scale;   /* of attention; 0: 1 / √head width */
    struct rope_config rope;

    /* layers of MIXER_WINDOW, whose heads are as many */
    struct window_config {
        uint32_t positions; /* that a query sees, its own included; may be more than the context;
                               0: no such layers */
        uint32_t kv_heads, head_width;
        struct rope_config rope;
    } window;

    /* latent attention: a head is [nope | rope] wide */
    uint32_t query_rank; /* 0: queries come straight from the stream */
    uint32_t latent_width, nope_width, value_width;

    /* gated delta net */
    uint32_t delta_key_heads, delta_value_heads;
    uint32_t delta_key_width, delta_value_width; /* of a head */
    uint32_t delta_taps;                         /* of the causal convolution */
    bool delta_heads_tiled; /* value head h reads key head h mod key heads (GGUF's order) */

    /* mixture of experts */
    uint32_t experts, experts_per_token;
    uint32_t expert_width;
    enum activation activation; /* of all gates */
    uint32_t shared_width;      /* 0: no shared expert */
    bool shared_scaled;         /* by the sigmoid of a product with the stream */
    enum router_kind router;
    bool renormalise;                          /* chosen weights add up to 1 */
    float routed_scale;                        /* then times this */
    uint32_t router_groups, router_top_groups; /* 1: no groups */
    bool groups_assumed;                       /* the file is silent, the model is known */

    /* dense feed-forward layers */
    uint32_t dense_width;
    uint32_t leading_dense_layers; /* the first ones are dense */
    uint32_t sparse_step;          /* of the others, every n-th has experts */

    int32_t end_tokens[END_TOKENS_MAX];
    size_t end_token_count;
};

/* `json` is the whole config.json of a checkpoint; arrays are taken from `arena`. */
mf_status config_parse(struct model_config *out, const json_t *json, struct arena *arena,
                       const char *where, mf_error *why);

/* Only its family. */
mf_status config_find_family(const struct family **out, const json_t *json, const char *where,
                             mf_error *why);

/* The same from the metadata of a GGUF file, which leaves the vocabulary to the embedding. */
mf_status config_from_metadata(struct model_config *out, const struct metadata *metadata,
                               uint32_t vocab_size, struct arena *arena, mf_error *why);

/* Which pairs turn, where a GGUF file says it by numbers that frequencies are divided by. */
mf_status config_read_divisors(struct model_config *config,
                               const struct tensor_directory *directory, mf_error *why);

/* What a GGUF file says by having a tensor: biases, norms of queries and keys, layers that predict. */
void config_see_tensors(struct model_config *config, const struct tensor_directory *directory);

/* Adds the ids of an eos_token_id field (a number or a list of them), each once. */
mf_status config_add_end_tokens(struct model_config *config, const json_t *json, const char *where,
                                mf_error *why);
mf_status config_add_end_token(struct model_config *config, int64_t id, const char *where,
                               mf_error *why);
/* No end token any more, if it was one. */
void config_remove_end_token(struct model_config *config, int32_t id);

/* Channels of the convolution: queries, keys, values. */
uint32_t config_delta_channels(const struct model_config *config);

/* Heads of a layer with a cache of keys and values: full attention, or a window of it. */
struct attention_sizes {
    uint32_t heads, kv_heads, head_width;
    uint32_t window; /* positions that a query sees; 0: all */
    bool values_are_keys;
    const struct rope_config *rope;
};
struct attention_sizes config_attention(const struct model_config *config, enum mixer_kind kind);

/* Layers with this mixer. */
uint32_t config_count_mixers(const struct model_config *config, enum mixer_kind kind);

#endif
