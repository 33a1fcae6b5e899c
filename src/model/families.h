/* families.h: the architectures, as data.
 *
 * A family is a row of a table: the sizes that its configuration leaves out,
 * and how its tensors are called and shaped.  What a layer computes is its
 * recipe (engine/layer.c). */
#ifndef MODEL_FAMILIES_H
#define MODEL_FAMILIES_H

#include "model/config.h"
#include "model/slots.h"

/* Sizes that tensor shapes are made of. */
enum dimension {
    DIM_NONE, /* ends a shape */
    DIM_ONE,
    DIM_WIDTH,
    DIM_VOCAB,
    DIM_HEAD_WIDTH,
    DIM_QUERIES,           /* heads x head width */
    DIM_QUERIES_AND_GATES, /* a gate beside every query channel */
    DIM_KEYS,              /* kv heads x head width */
    DIM_DELTA_CHANNELS,
    DIM_DELTA_VALUES, /* value heads x value width */
    DIM_DELTA_VALUE_HEADS,
    DIM_DELTA_VALUE_WIDTH,
    DIM_DELTA_TAPS,
    DIM_EXPERTS,
    DIM_SHARED_WIDTH,
};

uint64_t dimension_size(const struct model_config *config, enum dimension dimension);

/* Which layers have the tensor. */
enum rule_scope {
    SCOPE_MODEL, /* once */
    SCOPE_EVERY_LAYER,
    SCOPE_ATTENTION,
    SCOPE_DELTA,
};

/* What is done with it at load.  All but matrices become f32. */
enum rule_kind {
    RULE_MATRIX,    /* kept in its format */
    RULE_HEAD,      /* a matrix that is the embedding when the model ties the two */
    RULE_VECTOR,    /* one number per element of the shape */
    RULE_NORM,      /* zero-centred families: a Hugging Face file holds w, we keep 1 + w */
    RULE_CONV,      /* [channels][taps]; files have a 1 in the middle or at the end */
    RULE_LOG_DECAY, /* stored as A_log, kept as -exp(A_log) */
};

struct tensor_rule {
    enum slot slot;
    enum rule_kind kind;
    enum rule_scope scope;
    const char *name;        /* after the checkpoint's prefix; %u is the layer */
    enum dimension shape[3]; /* slowest first */
};

struct family {
    const char *name;
    const char *model_types[3];   /* values of config.json's model_type */
    struct model_config defaults; /* what an absent field means */
    const struct tensor_rule *rules;
    size_t rule_count;
    bool zero_centred_norms;
};

/* The family of a model_type, or NULL. */
const struct family *family_find(const char *model_type);

/* Family `index` of the table, NULL after the last. */
const struct family *family_at(size_t index);

#endif
