#include "state/shape.h"

#include "model/families.h"

/* Numbers that a position adds to one layer's keys, and where there are any to its values. */
static size_t position_numbers(const struct model_config *c)
{
    if (c->family->mixer == MIXER_LATENT) return (size_t)c->latent_width + c->rope.rotary_width;
    return (size_t)c->kv_heads * c->head_width;
}

static size_t number_bytes(enum kv_format format)
{
    return format == KV_F16 ? sizeof(uint16_t) : sizeof(float);
}

static bool has_values(const struct model_config *config)
{
    return config->family->mixer != MIXER_LATENT;
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
    shape.cached_layers = config->layer_count - shape.recurrent_layers;
    shape.half_bytes = KV_PAGE_TOKENS * position_numbers(config) * number_bytes(format);
    shape.page_bytes = shape.cached_layers * shape.half_bytes * (has_values(config) ? 2 : 1);
    shape.recurrent_bytes = shape.recurrent_layers * sizeof(float) *
                            (shape.delta_floats + shape.open_floats + shape.conv_floats);
    return shape;
}

uint32_t state_pages_for(uint32_t positions)
{
    return positions / KV_PAGE_TOKENS + (positions % KV_PAGE_TOKENS != 0);
}

struct kv_view state_kv_view(const struct state_shape *shape, uint32_t index, uint8_t *const *pages)
{
    size_t parts = has_values(shape->config) ? 2 : 1, keys = index * parts * shape->half_bytes;
    return (struct kv_view){
        .pages = pages, .keys = keys, .values = keys + shape->half_bytes, .format = shape->format
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

/* Each of `rows` rows of 64 positions, of `size` bytes a position. */
static void clear_rows(uint8_t *rows, size_t count, size_t size, uint32_t used)
{
    for (size_t i = 0; i < count; i++)
        memset(rows + (i * KV_PAGE_TOKENS + used) * size, 0, (KV_PAGE_TOKENS - used) * size);
}

void state_clear_page(const struct state_shape *shape, uint8_t *page, uint32_t used)
{
    const struct model_config *c = shape->config;
    size_t bytes = number_bytes(shape->format), channels = position_numbers(c);
    for (uint32_t i = 0; i < shape->cached_layers; i++) {
        struct kv_view view = state_kv_view(shape, i, NULL);
        if (!has_values(c)) {
            clear_rows(page + view.keys, 1, channels * bytes, used);
            continue;
        }
        if (shape->format == KV_F16) /* keys by channel */
            clear_rows(page + view.keys, channels, bytes, used);
        else
            clear_rows(page + view.keys, c->kv_heads, c->head_width * bytes, used);
        clear_rows(page + view.values, c->kv_heads, c->head_width * bytes, used);
    }
}

size_t state_position_bytes(const struct model_config *config, enum kv_format format)
{
    return state_shape_of(config, format).page_bytes / KV_PAGE_TOKENS;
}

size_t state_fixed_bytes(const struct model_config *config)
{
    return sizeof(float) * config_count_mixers(config, MIXER_DELTA) *
           (conv_floats(config) + delta_floats(config));
}
