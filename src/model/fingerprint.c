#include "model/fingerprint.h"

#include "model/families.h"

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

static void add_rope(struct checksum *sum, const struct rope_config *rope)
{
    const double numbers[] = {
        rope->theta,     rope->partial,    rope->rotary_width,     rope->interleaved,
        rope->turning,   rope->factor,     rope->original_context, rope->beta_fast,
        rope->beta_slow, rope->multiplier, rope->score_multiplier, rope->untruncated,
    };
    checksum_add(sum, numbers, sizeof numbers);
}

void fingerprint_add_config(struct checksum *sum, const struct model_config *c)
{
    const struct window_config *window = &c->window;
    const double numbers[] = {
        c->width,
        c->vocab_size,
        (double)c->norm_epsilon,
        c->tied_head,
        c->layer_count,
        c->heads,
        c->kv_heads,
        c->head_width,
        c->output_gate,
        c->attention_bias,
        c->qk_norm,
        c->value_norm,
        c->values_are_keys,
        c->score_scale,
        c->embedding_scaled,
        c->logit_cap,
        c->query_rank,
        c->latent_width,
        c->nope_width,
        c->value_width,
        c->delta_key_heads,
        c->delta_value_heads,
        c->delta_key_width,
        c->delta_value_width,
        c->delta_taps,
        c->delta_heads_tiled,
        c->experts,
        c->expert_width,
        c->shared_width,
        c->shared_scaled,
        c->activation,
        c->router,
        c->renormalise,
        (double)c->routed_scale,
        c->router_groups,
        c->router_top_groups,
        c->dense_width,
        window->positions,
        window->kv_heads,
        window->head_width,
    };
    checksum_add(sum, c->family->name, strlen(c->family->name) + 1);
    checksum_add(sum, numbers, sizeof numbers);
    add_rope(sum, &c->rope);
    add_rope(sum, &window->rope);
    checksum_add(sum, c->mixers, c->layer_count * sizeof *c->mixers);
    checksum_add(sum, c->ffns, c->layer_count * sizeof *c->ffns);
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
