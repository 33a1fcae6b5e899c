#include "model/fingerprint.h"

enum { SAMPLE_BYTES = 4096, SAMPLES = 64 };

/* Reading all of a terabyte would take minutes. */
static mf_status add_file(struct checksum *sum, const struct file *file, mf_error *why)
{
    uint8_t sample[SAMPLE_BYTES];
    bool small = file->size <= SAMPLES * SAMPLE_BYTES;
    uint64_t samples = small ? (file->size + SAMPLE_BYTES - 1) / SAMPLE_BYTES : SAMPLES;
    mf_status status = MF_OK;
    checksum_add(sum, &file->size, sizeof file->size);
    for (uint64_t i = 0; i < samples && status == MF_OK; i++) {
        /* The first bytes and the last ones are among them. */
        uint64_t at = small ? i * SAMPLE_BYTES
                            : (file->size - SAMPLE_BYTES) / (SAMPLES - 1) * i +
                                  (file->size - SAMPLE_BYTES) % (SAMPLES - 1) * i / (SAMPLES - 1);
        size_t count = min_size(SAMPLE_BYTES, file->size - at);
        status = file_read(file, sample, at, count, why);
        if (status == MF_OK) checksum_add(sum, sample, count);
    }
    return status;
}

static void add_tensor(struct checksum *sum, const struct tensor *t)
{
    uint64_t numbers[] = { t->format, t->rank, t->file, t->offset, t->bytes };
    checksum_add(sum, t->name, strlen(t->name) + 1);
    checksum_add(sum, numbers, sizeof numbers);
    checksum_add(sum, t->shape, t->rank * sizeof *t->shape);
}

mf_status fingerprint_add(struct checksum *sum, const struct tensor_directory *directory,
                          mf_error *why)
{
    mf_status status = MF_OK;
    for (size_t i = 0; i < directory->file_count && status == MF_OK; i++)
        status = add_file(sum, &directory->files[i], why);
    for (size_t i = 0; i < directory->count && status == MF_OK; i++)
        add_tensor(sum, &directory->tensors[i]);
    return status;
}
