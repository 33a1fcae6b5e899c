/* internal.h: what the files of the converter share; for src/convert only. */
#ifndef CONVERT_INTERNAL_H
#define CONVERT_INTERNAL_H

#include "checkpoint/packed_writer.h"
#include "convert/convert.h"
#include "model/model.h"

/* Where a tensor of the target comes from. */
struct tensor_source {
    const struct tensor *tensor;        /* copied, */
    const struct weight_origin *origin; /* or, if this is set, requantised */
};

struct side_file {
    char *bytes; /* freed with free() */
    size_t count;
};

struct conversion {
    const struct convert_options *options;
    struct convert_result *result;
    struct arena arena;
    struct model source;
    struct packed_manifest manifest; /* the plan, which gets checksums as units are done */
    struct tensor_source *tensors;   /* [manifest.tensor_count] */
    struct side_file *side_files;    /* [manifest.file_count] */

    /* Memory for one unit, or a piece of it. */
    struct thread_pool *pool; /* NULL: nothing is requantised */
    float *numbers;           /* [workers][cols] */
    uint8_t *blob;            /* an expert of the target, or rows of a tensor; for direct writes */
    uint8_t *raw;             /* the same of the source */
    uint8_t *found;           /* the same as it was read back */
    size_t blob_capacity, raw_capacity;
};

/* manifest.c: fills manifest and tensors from the source. */
mf_status conversion_plan(struct conversion *c, mf_error *why);

/* source.c: reads what is kept beside the weights, and what tells this source
 * from others. */
mf_status conversion_read_side_files(struct conversion *c, mf_error *why);
mf_status conversion_fingerprint(struct conversion *c, mf_error *why);

/* pieces.c: the bytes of a unit, piece by piece in ascending order. */
typedef mf_status (*unit_sink)(void *user, uint64_t unit, uint64_t offset, const void *bytes,
                               size_t count, mf_error *why);
mf_status conversion_take_memory(struct conversion *c, mf_error *why);
void conversion_release_memory(struct conversion *c);
mf_status conversion_make_unit(uint64_t *checksum, struct conversion *c, uint64_t unit,
                               unit_sink sink, void *user, mf_error *why);

/* verify.c: compares the model in `directory` with what the source gives. */
mf_status conversion_verify(struct conversion *c, const char *directory, mf_error *why);

#endif
