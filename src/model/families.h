/* families.h: the architectures, as data.
 *
 * A family is a row of a table: the sizes that its configuration leaves out, and
 * how its tensors are called and shaped.  What a layer computes is its recipe
 * (engine/layer.c). */
#ifndef MODEL_FAMILIES_H
#define MODEL_FAMILIES_H

#include "model/config.h"
#include "model/weight_names.h"

/* Sizes that tensor shapes are made of. */
enum dimension {
    DIM_NONE, /* ends a shape */
    DIM_ONE,
    DIM_WIDTH,
    DIM_VOCAB,
    DIM_HEADS,
    DIM_HEAD_WIDTH,
    DIM_QUERIES,           /* heads x head width */
    DIM_QUERIES_AND_GATES, /* twice that where there is an output gate */
    DIM_KEYS,              /* kv heads x head width */
    DIM_Q_NORM,            /* head width, or all queries where they are normalised as a whole */
    DIM_K_NORM,
    DIM_ATTENTION_FUSED, /* queries and gates, keys, values */
    DIM_QUERY_RANK,
    DIM_LATENT,
    DIM_LATENT_AND_ROPE,
    DIM_NOPE,
    DIM_VALUE,           /* value width of a latent head */
    DIM_KEYS_AND_VALUES, /* heads x (nope + value) */
    DIM_ALL_VALUES,      /* heads x value */
    DIM_DELTA_CHANNELS,  /* queries, keys, values */
    DIM_DELTA_FUSED,     /* the same and z */
    DIM_DELTA_GATES,     /* strengths and decays: 2 x value heads */
    DIM_DELTA_VALUES,    /* value heads x value width */
    DIM_DELTA_VALUE_HEADS,
    DIM_DELTA_VALUE_WIDTH,
    DIM_DELTA_TAPS,
    DIM_ROPE_PAIRS,
    DIM_EXPERTS,
    DIM_SHARED_WIDTH,
    DIM_DENSE_WIDTH,
};

/* In a layer with this mixer; what no layer has a say in is the same for all of them. */
uint64_t dimension_size(const struct model_config *config, enum mixer_kind mixer,
                        enum dimension dimension);

/* Which layers have the tensor. */
enum rule_scope {
    SCOPE_MODEL,          /* once */
    SCOPE_LAYER,          /* every layer */
    SCOPE_ATTENTION,      /* full or in a window */
    SCOPE_VALUES,         /* those of them whose values are not their keys */
    SCOPE_ATTENTION_BIAS, /* where the configuration says so */
    SCOPE_QK_NORM,
    SCOPE_LATENT,
    SCOPE_LATENT_DIRECT, /* queries straight from the stream */
    SCOPE_LATENT_RANKED, /* queries through a narrower stream */
    SCOPE_LATENT_SPLIT,  /* where KV_B was not found */
    SCOPE_LATENT_BIAS,   /* where the configuration says so */
    SCOPE_LATENT_RANKED_BIAS,
    SCOPE_DELTA,
    SCOPE_EXPERTS,
    SCOPE_BIASED_ROUTER,
    SCOPE_SINKS,
    SCOPE_SHARED,
    SCOPE_SCALED_SHARED,
    SCOPE_DENSE,
};

/* What is done with it at load.  All but matrices become f32. */
enum rule_kind {
    RULE_MATRIX,          /* kept in its format */
    RULE_MATRIX_IF_THERE, /* other rules stand in for it when it is not */
    RULE_HEAD,            /* a matrix that is the embedding when the model ties the two */
    RULE_VECTOR,          /* one number per element of the shape */
    RULE_VECTOR_IF_THERE,
    RULE_NORM,           /* zero-centred families: a Hugging Face file holds w, we keep 1 + w */
    RULE_ROUTER_NORM,    /* a file holds w, we keep w / √width */
    RULE_LOG_DECAY,      /* a safetensors file holds A_log, we keep -exp(A_log), as GGUF does */
    RULE_ATTENTION_QKV,  /* rows [queries and gates | keys | values], if there: fills Q, K and V */
    RULE_ATTENTION_BIAS, /* numbers in the same order, if there: fills Q_BIAS, K_BIAS and V_BIAS */
    RULE_DELTA_QKVZ, /* rows per key head [q | k | v | z], if there: fills DELTA_QKV and DELTA_Z */
    RULE_DELTA_BA,   /* rows per key head [b | a]: fills DELTA_B and DELTA_A */
};

/* A weight that an earlier rule has bound is left alone: alternatives come first. */
struct tensor_rule {
    enum weight_id id;
    enum rule_kind kind;
    enum rule_scope scope;
    const char *name;        /* safetensors, after the prefix; %u is the layer; NULL: not there */
    const char *gguf_name;   /* GGUF; NULL: not there */
    enum dimension shape[3]; /* slowest first */
};

struct rule_group {
    const struct tensor_rule *rules;
    size_t count;
};

enum { RULE_GROUPS_MAX = 8 };

struct family {
    const char *name;
    const char *model_types[3];    /* values of config.json's model_type */
    const char *gguf_architecture; /* value of general.architecture */
    const char *pre_tokenizer;     /* how texts are split, where the files do not say it */
    struct model_config defaults;  /* what an absent field means */
    struct rule_group groups[RULE_GROUPS_MAX];
    bool zero_centred_norms;
    bool always_renormalise;  /* whatever norm_topk_prob says */
    bool optional_qk_norm;    /* use_qk_norm says whether there is one */
    bool fixed_router;        /* scoring_func can only be the default's */
    bool experts_alone;       /* no dense layers: intermediate_size is the width of an expert */
    uint32_t shared_experts;  /* n_shared_experts where the configuration is silent */
    enum mixer_kind mixer;    /* of layers that are not delta nets */
    bool hybrid;              /* has delta nets */
    bool windowed;            /* has layers that see a window of positions */
    bool wider_full_layers;   /* those without a window have heads of another width and number */
    bool last_layer_full;     /* whatever the list of layers says */
    bool dense_beside;        /* intermediate_size is the width of a shared expert in all layers */
    bool sinks;               /* every head of attention has one */
    bool expert_biases;       /* experts have, and so has the router's product */
    bool interleaved_experts; /* in files of Hugging Face, see weights_interleaved.c */
};

/* The family of a model_type, or NULL. */
const struct family *family_find(const char *model_type);
const struct family *family_find_gguf(const char *architecture);

/* Of the layers of a hybrid or windowed family that are not `mixer`. */
enum mixer_kind family_other_mixer(const struct family *family);

/* Whether any tensor rule of the family has this weight id. */
bool family_has_weight(const struct family *family, enum weight_id id);

/* "qwen3_moe, qwen3_next, …": every model_type, or with `gguf` every architecture, into `out`. */
void family_list_names(char *out, size_t capacity, bool gguf);

/* Family `index` of the table, NULL after the last. */
const struct family *family_at(size_t index);

#endif
