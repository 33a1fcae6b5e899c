#include "state/snapshot.h"

#include "base/checksum.h"
#include "base/status.h"

static const char MAGIC[8] = { 'M', 'F', 'S', 'T', 'A', 'T', 'E', '\n' };

enum { VERSION = 2 };

/* As it lies in the file: little-endian, no gaps. */
struct header {
    char magic[8];
    uint32_t version;
    uint32_t position;
    uint32_t kv_format, page_tokens;
    uint32_t cached_layers, recurrent_layers;
    uint32_t vocab_size; /* 0: without logits */
    uint32_t reserved;
    uint64_t page_bytes, recurrent_bytes; /* of one page, of the state */
    uint64_t content_bytes;               /* behind the header */
    uint64_t content_checksum;
    struct snapshot_identity identity;
    uint64_t header_checksum; /* of all before */
};

_Static_assert(sizeof(struct header) == 144, "no gaps");

/* ------------------------------------------------------------------ contents */

/* Where the parts of a snapshot lie behind its header. */
struct parts {
    uint64_t pages, recurrent, logits, end;
};

static struct parts parts_of(const struct header *h)
{
    struct parts parts = { .pages = (uint64_t)h->position * sizeof(uint32_t) };
    uint64_t page_count = h->cached_layers > 0 ? state_pages_for(h->position) : 0;
    parts.recurrent = parts.pages + page_count * h->page_bytes;
    parts.logits = parts.recurrent + (h->position > 0 ? h->recurrent_bytes : 0);
    parts.end = parts.logits + (uint64_t)h->vocab_size * sizeof(float);
    return parts;
}

static struct header describe(const struct sequence *sequence, bool logits,
                              const struct snapshot_identity *identity)
{
    const struct state_shape *shape = &sequence->pool->shape;
    struct header h = { .version = VERSION,
                        .position = sequence->position,
                        .kv_format = shape->format,
                        .page_tokens = KV_PAGE_TOKENS,
                        .cached_layers = shape->cached_layers,
                        .recurrent_layers = shape->recurrent_layers,
                        .vocab_size = logits ? shape->config->vocab_size : 0,
                        .page_bytes = shape->page_bytes,
                        .recurrent_bytes = shape->recurrent_bytes };
    memcpy(h.magic, MAGIC, sizeof h.magic);
    if (identity) h.identity = *identity;
    h.content_bytes = parts_of(&h).end;
    return h;
}

uint64_t snapshot_bytes(const struct sequence *sequence, const float *logits)
{
    return sizeof(struct header) + describe(sequence, logits != NULL, NULL).content_bytes;
}

static uint64_t checksum_header(const struct header *h)
{
    return checksum_of(h, offsetof(struct header, header_checksum));
}

void snapshot_write(uint8_t *out, const struct sequence *sequence, const float *logits,
                    const struct snapshot_identity *identity)
{
    const struct state_shape *shape = &sequence->pool->shape;
    struct header h = describe(sequence, logits != NULL, identity);
    struct parts parts = parts_of(&h);
    uint8_t *content = out + sizeof h;
    if (h.position > 0) memcpy(content, sequence->tokens, parts.pages);
    for (uint32_t i = 0; i < sequence->page_count; i++)
        memcpy(content + parts.pages + i * shape->page_bytes, sequence->pages[i],
               shape->page_bytes);
    if (sequence->page_count > 0 && h.position % KV_PAGE_TOKENS != 0)
        state_clear_page(shape, content + parts.recurrent - shape->page_bytes,
                         h.position % KV_PAGE_TOKENS);
    if (parts.logits > parts.recurrent) {
        memcpy(content + parts.recurrent, sequence->recurrent, shape->recurrent_bytes);
        state_clear_recurrent(shape, content + parts.recurrent, h.position, sequence->run_start);
    }
    if (logits) memcpy(content + parts.logits, logits, parts.end - parts.logits);
    h.content_checksum = checksum_of(content, h.content_bytes);
    h.header_checksum = checksum_header(&h);
    memcpy(out, &h, sizeof h);
}

/* -------------------------------------------------------------------- checks */

static mf_status check_header(const struct header *h, size_t count, mf_error *why)
{
    if (memcmp(h->magic, MAGIC, sizeof MAGIC) != 0)
        return fail(why, MF_ERR_FORMAT, "this is not the snapshot of a sequence");
    if (h->version != VERSION)
        return fail(why, MF_ERR_UNSUPPORTED,
                    "the snapshot is of version %u, this library reads version %d", h->version,
                    VERSION);
    if (h->header_checksum != checksum_header(h))
        return fail(why, MF_ERR_FORMAT, "the snapshot is damaged: its header has another checksum");
    if (h->content_bytes != count - sizeof *h)
        return fail(why, MF_ERR_FORMAT,
                    "the snapshot is cut short or has grown: %zu bytes, expected %llu", count,
                    (unsigned long long)h->content_bytes + sizeof *h);
    return MF_OK;
}

static mf_status check_origin(const struct header *h, const struct header *own, mf_error *why)
{
    const struct snapshot_identity *from = &h->identity, *here = &own->identity;
    if (memcmp(from->model, here->model, sizeof from->model) != 0)
        return fail(why, MF_ERR_MISMATCH,
                    "the snapshot is of another model: fingerprint %.32s, expected %.32s",
                    from->model, here->model);
    if (h->kv_format != own->kv_format && h->kv_format <= KV_Q8)
        return fail(why, MF_ERR_MISMATCH,
                    "the snapshot's keys and values are in %s, those of the model here in %s",
                    kv_format_name((enum kv_format)h->kv_format),
                    kv_format_name((enum kv_format)own->kv_format));
    if (memcmp(from->arithmetic, here->arithmetic, sizeof from->arithmetic) != 0)
        return fail(why, MF_ERR_MISMATCH,
                    "the snapshot was made with other arithmetic: %.32s, expected %.32s",
                    from->arithmetic, here->arithmetic);
    bool same = h->page_tokens == own->page_tokens && h->kv_format == own->kv_format &&
                h->cached_layers == own->cached_layers &&
                h->recurrent_layers == own->recurrent_layers && h->page_bytes == own->page_bytes &&
                h->recurrent_bytes == own->recurrent_bytes &&
                (h->vocab_size == 0 || h->vocab_size == own->vocab_size);
    if (!same) return fail(why, MF_ERR_MISMATCH, "the snapshot's state is laid out in another way");
    return MF_OK;
}

static mf_status check_content(const struct header *h, const uint8_t *content, uint32_t vocab_size,
                               mf_error *why)
{
    if (h->content_bytes != parts_of(h).end)
        return fail(why, MF_ERR_FORMAT,
                    "the snapshot's parts take %llu bytes, its header says %llu",
                    (unsigned long long)parts_of(h).end, (unsigned long long)h->content_bytes);
    if (h->content_checksum != checksum_of(content, h->content_bytes))
        return fail(why, MF_ERR_FORMAT,
                    "the snapshot is damaged: its content has another checksum");
    for (uint32_t i = 0; i < h->position; i++) {
        uint32_t token = load_u32(content + i * sizeof token) & ~TOKEN_GENERATED;
        if (token >= vocab_size)
            return fail(why, MF_ERR_FORMAT,
                        "token %u of the snapshot has the id %u, the vocabulary ends at %u", i,
                        token, vocab_size - 1);
    }
    return MF_OK;
}

/* ------------------------------------------------------------------- reading */

static mf_status fill(struct sequence *sequence, float **logits, const struct header *h,
                      const uint8_t *content, mf_error *why)
{
    const struct state_shape *shape = &sequence->pool->shape;
    struct parts parts = parts_of(h);
    void *row = NULL;
    mf_status status = sequence_reserve(sequence, h->position, why);
    if (status == MF_OK && h->vocab_size > 0)
        status = state_pool_take(&row, sequence->pool, BLOCK_LOGITS, why);
    if (status != MF_OK) return status;
    for (uint32_t i = 0; i < sequence->page_count; i++)
        memcpy(sequence->pages[i], content + parts.pages + i * shape->page_bytes,
               shape->page_bytes);
    if (sequence->next) memcpy(sequence->next, content + parts.recurrent, shape->recurrent_bytes);
    sequence_restore(sequence, content, h->position);
    if (row) memcpy(row, content + parts.logits, parts.end - parts.logits);
    *logits = row;
    return MF_OK;
}

mf_status snapshot_read(struct sequence *sequence, float **logits, const void *bytes, size_t count,
                        const struct snapshot_identity *identity, mf_error *why)
{
    struct header h, own = describe(sequence, true, identity);
    const uint8_t *content = (const uint8_t *)bytes + sizeof h;
    *logits = NULL;
    if (count < sizeof h)
        return fail(why, MF_ERR_FORMAT, "%zu bytes are no snapshot: its header alone has %zu",
                    count, sizeof h);
    memcpy(&h, bytes, sizeof h);
    mf_status status = check_header(&h, count, why);
    if (status == MF_OK) status = check_origin(&h, &own, why);
    if (status == MF_OK) status = check_content(&h, content, own.vocab_size, why);
    if (status == MF_OK) status = fill(sequence, logits, &h, content, why);
    if (status != MF_OK) sequence_abandon(sequence);
    return status;
}
