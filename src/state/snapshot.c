#include "state/snapshot.h"

#include "base/checksum.h"
#include "base/status.h"

static const char MAGIC[8] = { 'M', 'F', 'S', 'T', 'A', 'T', 'E', '\n' };

enum { VERSION = 3 };

/* As it lies in the file: little-endian, no gaps. */
struct header {
    char magic[8];
    uint32_t version;
    uint32_t position;
    uint32_t kv_format, page_tokens;
    uint32_t cached_layers, recurrent_layers;
    uint32_t window_layers, window_positions;
    uint32_t vocab_size; /* 0: without logits */
    uint32_t reserved;
    uint64_t page_bytes, window_page_bytes, recurrent_bytes; /* of one page, of the state */
    uint64_t content_bytes;                                  /* behind the header */
    uint64_t content_checksum;
    struct snapshot_identity identity;
    uint64_t header_checksum; /* of all before */
};

_Static_assert(sizeof(struct header) == 160, "no gaps");

/* ------------------------------------------------------------------ contents */

/* Where the parts of a snapshot lie behind its header. */
struct parts {
    uint64_t pages, windows, recurrent, logits, end;
};

static struct parts parts_of(const struct header *h)
{
    struct parts parts = { .pages = (uint64_t)h->position * sizeof(uint32_t) };
    uint64_t page_count = state_pages_for(h->position), windows = page_count;
    bool recurrent = h->recurrent_layers > 0 && h->position > 0;
    windows -= position_window_page(h->window_positions, h->position);
    parts.windows = parts.pages + (h->cached_layers > 0 ? page_count * h->page_bytes : 0);
    parts.recurrent = parts.windows + (h->window_layers > 0 ? windows * h->window_page_bytes : 0);
    parts.logits = parts.recurrent + (recurrent ? h->recurrent_bytes : 0);
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
                        .window_layers = shape->window_layers,
                        .window_positions = shape->config->window.positions,
                        .vocab_size = logits ? shape->config->vocab_size : 0,
                        .page_bytes = shape->page_bytes,
                        .window_page_bytes = shape->window_page_bytes,
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

static mf_status write_pages(uint8_t *out, const struct sequence *sequence, mf_error *why)
{
    const struct state_shape *shape = &sequence->pool->shape;
    uint32_t used = sequence->position % KV_PAGE_TOKENS;
    mf_status status = MF_OK;
    for (uint32_t i = 0; i < sequence->page_count && status == MF_OK; i++) {
        status = state_pool_read(sequence->pool, out, sequence->pages[i], shape->page_bytes, why);
        if (i + 1 == sequence->page_count && used > 0) state_clear_page(shape, out, used);
        out += shape->page_bytes;
    }
    return status;
}

static mf_status write_windows(uint8_t *out, const struct sequence *sequence, mf_error *why)
{
    const struct state_shape *shape = &sequence->pool->shape;
    uint32_t used = sequence->position % KV_PAGE_TOKENS, end = sequence->window.end;
    mf_status status = MF_OK;
    if (shape->window_layers == 0 || sequence->position == 0) return MF_OK;
    for (uint32_t i = state_window_page(shape, sequence->position); i < end && status == MF_OK;
         i++) {
        status = state_pool_read(sequence->pool, out, sequence->window.pages[i],
                                 shape->window_page_bytes, why);
        if (i + 1 == end && used > 0) state_clear_window_page(shape, out, used);
        out += shape->window_page_bytes;
    }
    return status;
}

static mf_status write_recurrent(uint8_t *out, const struct sequence *sequence, mf_error *why)
{
    const struct state_shape *shape = &sequence->pool->shape;
    mf_status status =
        state_pool_read(sequence->pool, out, sequence->recurrent, shape->recurrent_bytes, why);
    state_clear_recurrent(shape, out, sequence->position, sequence->run_start);
    return status;
}

mf_status snapshot_write(uint8_t *out, const struct sequence *sequence, const float *logits,
                         const struct snapshot_identity *identity, mf_error *why)
{
    struct header h = describe(sequence, logits != NULL, identity);
    struct parts parts = parts_of(&h);
    uint8_t *content = out + sizeof h;
    if (h.position > 0) memcpy(content, sequence->tokens, parts.pages);
    mf_status status = write_pages(content + parts.pages, sequence, why);
    if (status == MF_OK) status = write_windows(content + parts.windows, sequence, why);
    if (status == MF_OK && parts.logits > parts.recurrent)
        status = write_recurrent(content + parts.recurrent, sequence, why);
    if (status != MF_OK) return status;
    if (logits) memcpy(content + parts.logits, logits, parts.end - parts.logits);
    h.content_checksum = checksum_of(content, h.content_bytes);
    h.header_checksum = checksum_header(&h);
    memcpy(out, &h, sizeof h);
    return MF_OK;
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
                h->window_layers == own->window_layers &&
                h->window_positions == own->window_positions &&
                h->window_page_bytes == own->window_page_bytes &&
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

static mf_status fill_blocks(struct sequence *sequence, const struct parts *parts,
                             const uint8_t *content, mf_error *why)
{
    const struct state_pool *pool = sequence->pool;
    const struct state_shape *shape = &pool->shape;
    const struct window_pages *window = &sequence->window;
    const uint8_t *from = content + parts->pages;
    mf_status status = MF_OK;
    for (uint32_t i = 0; i < sequence->page_count && status == MF_OK; i++)
        status = state_pool_write(pool, sequence->pages[i], from + i * shape->page_bytes,
                                  shape->page_bytes, why);
    from = content + parts->windows;
    for (uint32_t i = window->first; i < window->end && status == MF_OK; i++)
        status = state_pool_write(pool, window->pages[i],
                                  from + (i - window->first) * shape->window_page_bytes,
                                  shape->window_page_bytes, why);
    if (sequence->next && status == MF_OK)
        status = state_pool_write(pool, sequence->next, content + parts->recurrent,
                                  shape->recurrent_bytes, why);
    return status;
}

static mf_status fill(struct sequence *sequence, float **logits, const struct header *h,
                      const uint8_t *content, mf_error *why)
{
    struct parts parts = parts_of(h);
    void *row = NULL;
    mf_status status = sequence_hold(sequence, h->position, why);
    if (status == MF_OK) status = fill_blocks(sequence, &parts, content, why);
    if (status == MF_OK && h->vocab_size > 0)
        status = state_pool_take(&row, sequence->pool, BLOCK_LOGITS, why);
    if (status != MF_OK) return status;
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
