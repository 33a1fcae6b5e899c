#include "state/shape.h"

#include "model/families.h"

const char *kv_format_name(enum kv_format format)
{
    static const char *const names[] = { "default", "f32", "f16", "q8" };
    return names[format];
}

static bool has_values(const struct model_config *config)
{
    return config->family->mixer != MIXER_LATENT;
}

/* Heads of one layer's keys, and of its values where there are any, and the width of one.  Latent
 * attention has one for all. */
struct cached_heads {
    size_t count, width;
};

static struct cached_heads cached_heads(const struct model_config *c, enum mixer_kind kind)
{
    struct attention_sizes a = config_attention(c, kind);
    if (!has_values(c))
        return (struct cached_heads){ 1, (size_t)c->latent_width + c->rope.rotary_width };
    return (struct cached_heads){ a.kv_heads, a.head_width };
}

static size_t half_bytes(const struct model_config *c, enum mixer_kind kind, enum kv_format format)
{
    struct cached_heads heads = cached_heads(c, kind);
    return heads.count * kv_head_bytes(format, heads.width);
}

static size_t conv_floats(const struct model_config *c)
{
    return c->family->hybrid ? (size_t)(c->delta_taps - 1) * config_delta_channels(c) : 0;
}

static size_t delta_floats(const struct model_config *c)
{
    return (size_t)c->delta_value_heads * c->delta_value_width * c->delta_key_width;
}

static size_t open_floats(const struct model_config *c)
{
    return c->family->hybrid ? delta_open_floats(c->delta_key_heads, c->delta_key_width,
                                                 c->delta_value_heads, c->delta_value_width)
                             : 0;
}

/* No sequence is longer than the context, whatever the window. */
static uint32_t window_positions(const struct model_config *c)
{
    return (uint32_t)min_size(c->window.positions, c->context_length);
}

/* The positions before the next one that it sees lie in at most this many pages. */
static void add_windows(struct state_shape *shape)
{
    const struct model_config *c = shape->config;
    shape->window_half_bytes = half_bytes(c, MIXER_WINDOW, shape->format);
    shape->window_page_bytes = 2 * shape->window_layers * shape->window_half_bytes;
    shape->window_pages = state_pages_for(window_positions(c)) + 1;
    shape->recurrent_bytes = sizeof(struct window_table) + shape->window_pages * sizeof(uint8_t *);
}

struct state_shape state_shape_of(const struct model_config *config, enum kv_format format)
{
    /* Whole cache lines: states are written past the caches. */
    const size_t line = CACHE_LINE / sizeof(float);
    struct state_shape shape = { .config = config,
                                 .format = format,
                                 .recurrent_layers = config_count_mixers(config, MIXER_DELTA),
                                 .delta_floats = align_up(delta_floats(config), line),
                                 .open_floats = align_up(open_floats(config), line),
                                 .conv_floats = align_up(conv_floats(config), line) };
    shape.window_layers = config_count_mixers(config, MIXER_WINDOW);
    shape.cached_layers = config->layer_count - shape.recurrent_layers - shape.window_layers;
    shape.half_bytes = half_bytes(config, config->family->mixer, format);
    shape.page_bytes = shape.cached_layers * shape.half_bytes * (has_values(config) ? 2 : 1);
    shape.recurrent_bytes = shape.recurrent_layers * sizeof(float) *
                            (shape.delta_floats + shape.open_floats + shape.conv_floats);
    if (shape.window_layers > 0) add_windows(&shape);
    return shape;
}

size_t state_kept_bytes(const struct state_shape *shape)
{
    return shape->window_layers > 0 ? shape->window_pages * shape->window_page_bytes
                                    : shape->recurrent_bytes;
}

uint32_t state_step_pages(const struct state_shape *shape)
{
    if (shape->step_rows == 0) return UINT32_MAX;
    uint64_t positions = (uint64_t)window_positions(shape->config) + shape->step_rows;
    return state_pages_for((uint32_t)min_size(positions, UINT32_MAX)) + 2;
}

uint32_t state_pages_for(uint32_t positions)
{
    return positions / KV_PAGE_TOKENS + (positions % KV_PAGE_TOKENS != 0);
}

struct kv_view state_kv_view(const struct state_shape *shape, enum mixer_kind kind, uint32_t index,
                             uint8_t *const *pages)
{
    bool window = kind == MIXER_WINDOW;
    size_t parts = has_values(shape->config) ? 2 : 1;
    size_t half = window ? shape->window_half_bytes : shape->half_bytes;
    size_t keys = index * half * parts;
    return (struct kv_view){
        .pages = pages, .keys = keys, .values = keys + half, .format = shape->format
    };
}

struct recurrent_view state_recurrent_view(const struct state_shape *shape, uint32_t index,
                                           const void *in, void *out)
{
    size_t open = shape->delta_floats, conv = open + shape->open_floats;
    size_t first = index * (conv + shape->conv_floats);
    const float *from = (const float *)in + first;
    float *to = (float *)out + first;
    return (struct recurrent_view){ .delta_in = from,
                                    .delta_out = to,
                                    .open_in = from + open,
                                    .open_out = to + open,
                                    .conv_in = from + conv,
                                    .conv_out = to + conv };
}

/* Each of `count` arrays of 64 positions, of `size` bytes a position. */
static uint8_t *clear_rows(uint8_t *rows, size_t count, size_t size, uint32_t used)
{
    for (size_t i = 0; i < count; i++, rows += KV_PAGE_TOKENS * size)
        memset(rows + used * size, 0, (KV_PAGE_TOKENS - used) * size);
    return rows;
}

/* One layer's keys, or its values. */
static void clear_half(const struct state_shape *shape, enum mixer_kind kind, uint8_t *half,
                       bool keys, uint32_t used)
{
    struct cached_heads heads = cached_heads(shape->config, kind);
    size_t width = heads.width;
    size_t number = shape->format == KV_F32   ? sizeof(float)
                    : shape->format == KV_F16 ? sizeof(uint16_t)
                                              : 1;
    bool by_channel = keys && has_values(shape->config) && shape->format != KV_F32;
    for (size_t h = 0; h < heads.count; h++) {
        half = by_channel ? clear_rows(half, width, number, used)
                          : clear_rows(half, 1, width * number, used);
        if (shape->format == KV_Q8)
            half = clear_rows(half, q8_groups(width), sizeof(uint16_t), used);
    }
}

static void clear_page(const struct state_shape *shape, enum mixer_kind kind, uint32_t layers,
                       uint8_t *page, uint32_t used)
{
    for (uint32_t i = 0; i < layers; i++) {
        struct kv_view view = state_kv_view(shape, kind, i, NULL);
        clear_half(shape, kind, page + view.keys, true, used);
        if (has_values(shape->config)) clear_half(shape, kind, page + view.values, false, used);
    }
}

void state_clear_page(const struct state_shape *shape, uint8_t *page, uint32_t used)
{
    clear_page(shape, shape->config->family->mixer, shape->cached_layers, page, used);
}

void state_clear_window_page(const struct state_shape *shape, uint8_t *page, uint32_t used)
{
    clear_page(shape, MIXER_WINDOW, shape->window_layers, page, used);
}

/* From `first` on in each of `count` arrays of 16 rows of `width` floats. */
static float *clear_open(float *rows, size_t count, size_t width, size_t first)
{
    for (size_t i = 0; i < count; i++, rows += DELTA_CHUNK * width)
        memset(rows + first * width, 0, (DELTA_CHUNK - first) * width * sizeof *rows);
    return rows;
}

void state_clear_recurrent(const struct state_shape *shape, void *state, uint32_t position,
                           uint32_t run_start)
{
    const struct model_config *c = shape->config;
    size_t used = shape->has_open_rows ? delta_open_rows(position, run_start) : 0;
    size_t delta = delta_floats(c), conv = conv_floats(c);
    float *part = state;
    for (uint32_t i = 0; i < shape->recurrent_layers; i++) {
        memset(part + delta, 0, (shape->delta_floats - delta) * sizeof *part);
        part += shape->delta_floats;
        float *end = clear_open(part, c->delta_key_heads, c->delta_key_width, used);
        end = clear_open(end, c->delta_value_heads, delta_padded(c->delta_value_width), used);
        end = clear_open(end, c->delta_value_heads, 1, used);
        part += shape->open_floats;
        memset(end, 0, (size_t)(part - end) * sizeof *part);
        memset(part + conv, 0, (shape->conv_floats - conv) * sizeof *part);
        part += shape->conv_floats;
    }
}

size_t state_position_bytes(const struct model_config *config, enum kv_format format)
{
    struct state_shape shape = state_shape_of(config, format);
    return (shape.page_bytes + shape.window_page_bytes) / KV_PAGE_TOKENS;
}

size_t state_fixed_bytes(const struct model_config *config)
{
    return sizeof(float) * config_count_mixers(config, MIXER_DELTA) *
           (conv_floats(config) + delta_floats(config));
}
