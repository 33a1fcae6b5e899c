#include "experts/layout.h"

#include "base/checksum.h"

/* A gap between two arrays is read rather than skipped when that costs less time than
 * another operation, and takes no more than a 32nd of the slot. */
enum { GAP_MAX = 16384, GAP_SHARE = 32 };

static struct expert_array array_of(const struct layer_weights *layer, size_t index)
{
    return expert_array(&layer->experts[index / EXPERT_MATRIX_ARRAYS],
                        index % EXPERT_MATRIX_ARRAYS);
}

/* One array of the expert, in the order of the file. */
struct span_of_file {
    uint32_t file;
    uint8_t index; /* of the array */
    uint64_t offset, bytes;
};

static bool comes_before(const struct span_of_file *a, const struct span_of_file *b)
{
    return a->file != b->file ? a->file < b->file : a->offset < b->offset;
}

static size_t sorted_spans(struct span_of_file *spans, const struct layer_weights *layer,
                           uint32_t expert)
{
    size_t count = 0;
    for (size_t i = 0; i < EXPERT_ARRAYS; i++) {
        struct expert_array array = array_of(layer, i);
        if (!array.extents) continue;
        struct span_of_file span = { array.extents[expert].file, (uint8_t)i,
                                     array.extents[expert].offset, array.bytes };
        size_t at = count++;
        for (; at > 0 && comes_before(&span, &spans[at - 1]); at--) spans[at] = spans[at - 1];
        spans[at] = span;
    }
    return count;
}

/* Of sorted spans.  What two of them share, rows of gate and of up that alternate, counts once. */
static uint64_t bytes_of_spans(const struct span_of_file *spans, size_t count)
{
    uint64_t bytes = 0, end = 0;
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && spans[i].file != spans[i - 1].file) end = 0;
        uint64_t begin = max_size(spans[i].offset, end);
        end = max_size(end, spans[i].offset + spans[i].bytes);
        bytes += end - min_size(begin, end);
    }
    return bytes;
}

/* Ends a piece at `end` of the file: extends it to the alignment and assigns its offset in the slot. */
static void close_piece(struct expert_layout *out, uint64_t end, const size_t *alignments)
{
    struct expert_piece *piece = &out->pieces[out->piece_count - 1];
    size_t alignment = alignments ? alignments[piece->file] : 1;
    piece->needed = end - piece->offset;
    piece->count = align_up(piece->needed, alignment);
    out->bytes = piece->at + align_up(piece->count, alignment > 1 ? alignment : CACHE_LINE);
}

/* A direct read is fastest into whole pages, also where the device asks for less: into memory that
 * begins 512 bytes after a page, a virtual disk delivered a quarter less. */
static size_t place_of_piece(const struct expert_layout *layout, size_t alignment)
{
    return alignment > 1 ? align_up(layout->bytes, SLOT_ALIGNMENT) : layout->bytes;
}

void expert_layout_make(struct expert_layout *out, const struct layer_weights *layer,
                        uint32_t expert, const size_t *alignments)
{
    struct span_of_file spans[EXPERT_ARRAYS];
    size_t count = sorted_spans(spans, layer, expert);
    uint64_t end = 0; /* of the current piece in its file */
    out->piece_count = 0;
    out->bytes = 0;
    out->array_bytes = bytes_of_spans(spans, count);
    uint64_t gap = min_size(GAP_MAX, out->array_bytes / GAP_SHARE / EXPERT_ARRAYS);
    gap = max_size(gap, CACHE_LINE); /* alignment padding between arrays never splits a read */
    for (size_t i = 0; i < count; i++) {
        const struct span_of_file *span = &spans[i];
        struct expert_piece *piece = out->piece_count ? &out->pieces[out->piece_count - 1] : NULL;
        if (!piece || piece->file != span->file || span->offset > end + gap) {
            if (piece) close_piece(out, end, alignments);
            size_t alignment = alignments ? alignments[span->file] : 1;
            piece = &out->pieces[out->piece_count++];
            *piece = (struct expert_piece){ .file = span->file,
                                            .offset = span->offset - span->offset % alignment,
                                            .at = place_of_piece(out, alignment) };
            end = 0;
        }
        out->arrays[span->index] = piece->at + (size_t)(span->offset - piece->offset);
        if (span->offset + span->bytes > end) end = span->offset + span->bytes;
    }
    if (count > 0) close_piece(out, end, alignments);
}

static struct expert_view view_of(const struct layer_weights *layer, const uint8_t **arrays)
{
    struct weight parts[EXPERT_PARTS], addends[EXPERT_PARTS];
    for (size_t part = 0; part < EXPERT_PARTS; part++, arrays += EXPERT_MATRIX_ARRAYS) {
        parts[part] = layer->experts[part].shape;
        parts[part].values = arrays[0];
        parts[part].scales = arrays[1];
        parts[part].biases = arrays[2];
        addends[part] = layer->experts[part].addend_shape;
        addends[part].values = arrays[3];
    }
    return (struct expert_view){ .gate = parts[EXPERT_GATE],
                                 .up = parts[EXPERT_UP],
                                 .down = parts[EXPERT_DOWN],
                                 .gate_addends = addends[EXPERT_GATE],
                                 .up_addends = addends[EXPERT_UP],
                                 .down_addends = addends[EXPERT_DOWN] };
}

uint64_t expert_layout_checksum(const struct layer_weights *layer, const struct expert_view *view)
{
    const struct weight *parts[EXPERT_PARTS] = { &view->gate, &view->up, &view->down };
    const struct weight *addends[EXPERT_PARTS] = { &view->gate_addends, &view->up_addends,
                                                   &view->down_addends };
    struct checksum checksum;
    checksum_begin(&checksum);
    for (size_t part = 0; part < EXPERT_PARTS; part++) {
        const struct expert_matrix *m = &layer->experts[part];
        const uint8_t *const arrays[EXPERT_MATRIX_ARRAYS] = {
            parts[part]->values, parts[part]->scales, parts[part]->biases, addends[part]->values
        };
        for (size_t i = 0; i < EXPERT_MATRIX_ARRAYS; i++)
            if (arrays[i]) checksum_add(&checksum, arrays[i], expert_array(m, i).bytes);
    }
    return checksum_end(&checksum);
}

struct expert_view expert_layout_view(const struct expert_layout *layout,
                                      const struct layer_weights *layer, const uint8_t *slot)
{
    const uint8_t *arrays[EXPERT_ARRAYS];
    for (size_t i = 0; i < EXPERT_ARRAYS; i++)
        arrays[i] = array_of(layer, i).extents ? slot + layout->arrays[i] : NULL;
    return view_of(layer, arrays);
}

struct expert_view expert_layout_view_mapped(const struct layer_weights *layer, uint32_t expert,
                                             const struct file_map *maps)
{
    const uint8_t *arrays[EXPERT_ARRAYS];
    for (size_t i = 0; i < EXPERT_ARRAYS; i++) {
        const struct extent *extents = array_of(layer, i).extents;
        arrays[i] = extents ? maps[extents[expert].file].bytes + extents[expert].offset : NULL;
    }
    return view_of(layer, arrays);
}
