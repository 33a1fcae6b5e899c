/* weights.h: from tensors to weights.
 *
 *     tensor directory ── bind ──┬── resident: read into the model's arena
 *      (names, extents)          └── experts: only where their bytes lie
 *
 * Every weight of the family is bound and its shape checked when a model is
 * opened; a tensor that is missing or has another shape is named there. */
#ifndef MODEL_WEIGHTS_H
#define MODEL_WEIGHTS_H

#include "base/log.h"
#include "checkpoint/packed.h"
#include "checkpoint/tensor_directory.h"
#include "model/config.h"
#include "model/weight_names.h"
#include "quant/format.h"

enum expert_part { EXPERT_GATE, EXPERT_UP, EXPERT_DOWN, EXPERT_PARTS };

struct extent {
    uint32_t file; /* index into the directory's files */
    uint64_t offset;
};

/* One of the three matrices, for all experts of a layer.  An array that the
 * format does not have is NULL and has 0 bytes. */
struct expert_matrix {
    struct weight shape;                           /* format, sizes and strides; no data */
    const struct extent *values;                   /* [experts] */
    const struct extent *scales;                   /* [experts] */
    const struct extent *biases;                   /* [experts] */
    uint64_t value_bytes, scale_bytes, bias_bytes; /* of one expert */
    /* A layer's bias ("addends" here, biases belong to a format): a number for each row. */
    struct weight addend_shape;   /* [rows][1], no data; 0 rows: the layer has none */
    const struct extent *addends; /* [experts] */
    uint64_t addend_bytes;        /* of one expert */
};

/* The arrays of one expert's matrix, in the order in which they are checksummed and packed. */
enum { EXPERT_MATRIX_ARRAYS = 4 };
struct expert_array {
    const struct extent *extents; /* [experts]; NULL: there is none */
    uint64_t bytes;               /* of one expert */
};
static inline struct expert_array expert_array(const struct expert_matrix *m, size_t index)
{
    switch (index) {
    case 0:
        return (struct expert_array){ m->values, m->value_bytes };
    case 1:
        return (struct expert_array){ m->scales, m->scale_bytes };
    case 2:
        return (struct expert_array){ m->biases, m->bias_bytes };
    default:
        return (struct expert_array){ m->addends, m->addend_bytes };
    }
}

/* Bytes from the first to the last of an expert's matrix, array by array.  Where rows of two matrices
 * alternate, those of the other one are among them. */
static inline uint64_t expert_matrix_bytes(const struct expert_matrix *m)
{
    return m->value_bytes + m->scale_bytes + m->bias_bytes + m->addend_bytes;
}

/* Bytes of the matrix alone. */
uint64_t expert_matrix_own_bytes(const struct expert_matrix *m);

struct layer_weights {
    struct weight weights[WEIGHT_COUNT]; /* vectors are f32 matrices of one row */
    struct expert_matrix experts[EXPERT_PARTS];
    const uint64_t *expert_checksums; /* [experts] of the packed layout, else NULL */
};

/* The tensors that a weight, or two, are made from.  `shape` has no data. */
struct weight_origin {
    enum weight_id id;
    bool vector; /* becomes f32 */
    struct weight shape;
    const struct tensor *values, *scales, *biases; /* the last two may be NULL */
};

struct weights {
    struct weight weights[WEIGHT_COUNT]; /* SCOPE_MODEL: embedding, final norm, head */
    struct layer_weights *layers;        /* [layer_count] */
    uint64_t resident_bytes;             /* of all data, also where it was only described */
    size_t ignored_count;                /* tensors of the checkpoint that no rule uses */
    bool gguf;                           /* the tensors have GGUF's names */
    bool keeps_norms; /* norms hold 1 + w, not w, where the family makes the difference */

    /* Only where the source was to be described. */
    struct weight_origin *origins;
    size_t origin_count;
};

/* Where the tensors come from, and how they are called there. */
struct weights_source {
    struct tensor_directory *directory;
    const struct model_config *config;
    const json_t *config_json; /* config.json, for its list of quantised modules; NULL: GGUF */
    bool repacked;             /* the ancestors' layout: config.json tells of the files before */
    bool describe;             /* bind and check, but read nothing: fills `origins` */
    const struct packed_manifest *packed; /* has the experts; NULL: they are among the tensors */
    const char *where;                    /* the checkpoint, for messages */
    const struct logger *logger;
};

/* Binds everything and reads the resident part into `arena`; a source that is to be
 * described gets weights whose data may not be looked at. */
mf_status weights_bind(struct weights *out, const struct weights_source *source,
                       struct arena *arena, mf_error *why);

/* Tensors of vision towers, of multi-token prediction and the like: known, not needed for text. */
bool weights_is_extra(const char *name, uint32_t layer_count);

/* Looks for a resident weight that is not a finite number, scale or value, and says which
 * ("row 3 of ROUTER in layer 7").  Scans all resident weights: only for error reporting. */
bool weights_find_not_finite(char *out, size_t capacity, const struct weights *weights,
                             uint32_t layer_count);

/* The vector held by a weight: weight->cols floats. */
static inline const float *weight_vector(const struct weight *weight)
{
    return (const float *)(const void *)weight->values;
}

#endif
