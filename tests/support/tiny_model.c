#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const struct tiny_shape tiny_standard = {
    .width = 32,
    .vocab_size = 50,
    .context_length = 512,
    .layers = 4,
    .interval = 2,
    .heads = 4,
    .kv_heads = 2,
    .head_width = 8,
    .rotary_factor = 0.5,
    .key_heads = 2,
    .value_heads = 4,
    .key_width = 8,
    .value_width = 8,
    .taps = 4,
    .experts = 6,
    .experts_per_token = 2,
    .expert_width = 16,
    .shared_width = 24,
    .format = FORMAT_F32,
    .seed = 1,
};

const struct tiny_shape tiny_odd = {
    .width = 21,
    .vocab_size = 37,
    .context_length = 300,
    .layers = 3,
    .interval = 3,
    .heads = 3,
    .kv_heads = 1,
    .head_width = 10,
    .rotary_factor = 0.6,
    .key_heads = 1,
    .value_heads = 3,
    .key_width = 5,
    .value_width = 7,
    .taps = 3,
    .experts = 5,
    .experts_per_token = 5,
    .expert_width = 9,
    .shared_width = 11,
    .format = FORMAT_BF16,
    .layout = TINY_SEPARATE,
    .nested = true,
    .seed = 2,
};

const struct tiny_shape tiny_affine = {
    .width = 64,
    .vocab_size = 70,
    .context_length = 512,
    .layers = 4,
    .interval = 2,
    .heads = 4,
    .kv_heads = 1,
    .head_width = 32,
    .rotary_factor = 0.25,
    .key_heads = 2,
    .value_heads = 4,
    .key_width = 12,
    .value_width = 24,
    .taps = 4,
    .experts = 8,
    .experts_per_token = 3,
    .expert_width = 32,
    .shared_width = 96,
    .format = FORMAT_AFFINE4,
    .group = 32,
    .layout = TINY_STACKED,
    .seed = 3,
};

/* ------------------------------------------------------------------ helpers */

static void *must_have(void *pointer)
{
    if (!pointer) abort();
    return pointer;
}

static const char *prefix(const struct tiny_model *tiny)
{
    return tiny->shape.nested ? "model.language_model." : "model.";
}

/* The prefix and the name with %u replaced; lm_head and names that start with "model." get no
 * prefix. */
static void full_name(char out[256], const struct tiny_model *tiny, const char *name,
                      uint32_t layer)
{
    char inner[200];
    const char *number = strstr(name, "%u");
    if (number)
        snprintf(inner, sizeof inner, "%.*s%u%s", (int)(number - name), name, layer, number + 2);
    else
        snprintf(inner, sizeof inner, "%s", name);
    bool bare = strncmp(inner, "lm_head", 7) == 0 || strncmp(inner, "model.", 6) == 0;
    snprintf(out, 256, "%s%s", bare ? "" : prefix(tiny), inner);
}

/* Uniform in [-1, 1), by splitmix64. */
static double random_signed(struct tiny_model *tiny)
{
    uint64_t z = (tiny->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53 * 2.0 - 1.0;
}

static struct tiny_tensor *new_tensor(struct tiny_model *tiny, const char *name)
{
    if (tiny->tensor_count == tiny->tensor_capacity) {
        tiny->tensor_capacity = 2 * tiny->tensor_capacity + 64;
        tiny->tensors =
            must_have(realloc(tiny->tensors, tiny->tensor_capacity * sizeof *tiny->tensors));
    }
    struct tiny_tensor *t = &tiny->tensors[tiny->tensor_count++];
    *t = (struct tiny_tensor){ .name = must_have(strdup(name)) };
    return t;
}

static void set_shape(struct tiny_tensor *t, const uint64_t *shape, uint32_t rank)
{
    t->rank = rank;
    t->element_count = 1;
    for (uint32_t i = 0; i < rank; i++) {
        t->shape[i] = shape[i];
        t->element_count *= (size_t)shape[i];
    }
}

/* ------------------------------------------------------------------ tensors */

/* Encodes t->numbers in `format` and replaces them by what the file then says. */
static void store_plain(struct tiny_tensor *t, enum format format)
{
    size_t size = format_info(format)->block_bytes;
    t->format = format;
    t->byte_count = t->element_count * size;
    t->bytes = must_have(malloc(t->byte_count + 1));
    for (size_t i = 0; i < t->element_count; i++) {
        format_store(format, t->bytes, i, t->numbers[i]);
        t->numbers[i] = format_load(format, t->bytes, i);
    }
}

/* Quantises the tensor: it becomes its packed values (U32), and its scales and biases are appended
 * as tensors of their own.  t->numbers become the dequantised ones. */
static void store_affine(struct tiny_model *tiny, size_t index)
{
    struct tiny_tensor t = tiny->tensors[index], parts[2] = { { 0 } };
    uint64_t cols = t.shape[t.rank - 1], rows = t.element_count / cols, row_bytes;
    uint64_t groups = cols / tiny->shape.group;
    if (!format_row_bytes(&row_bytes, tiny->shape.format, cols) || groups == 0) abort();
    t.byte_count = rows * row_bytes;
    t.bytes = must_have(malloc(t.byte_count + 1));
    for (int i = 0; i < 2; i++) {
        set_shape(&parts[i], t.shape, t.rank);
        parts[i].shape[t.rank - 1] = groups;
        parts[i].element_count = rows * groups;
        parts[i].format = FORMAT_BF16;
        parts[i].byte_count = rows * groups * 2;
        parts[i].bytes = must_have(malloc(parts[i].byte_count + 1));
    }
    struct weight like = { .format = tiny->shape.format,
                           .scale_format = FORMAT_BF16,
                           .group_rows = 1,
                           .group_cols = tiny->shape.group,
                           .rows = rows,
                           .cols = cols,
                           .values = t.bytes,
                           .scales = parts[0].bytes,
                           .biases = parts[1].bytes,
                           .row_bytes = row_bytes,
                           .scale_row_bytes = groups * 2 };
    for (uint64_t r = 0; r < rows; r++) {
        struct quantised_row out = { t.bytes + r * row_bytes, parts[0].bytes + r * groups * 2,
                                     parts[1].bytes + r * groups * 2 };
        format_info(like.format)->quantise(out, &like, t.numbers + r * cols);
        weight_dequantise_row(t.numbers + r * cols, &like, r);
    }
    t.format = FORMAT_U32;
    t.shape[t.rank - 1] = row_bytes / 4;
    tiny->tensors[index] = t;
    static const char *const endings[] = { ".scales", ".biases" };
    for (int i = 0; i < 2; i++) {
        char name[256];
        size_t length = strlen(t.name);
        if (length > 7 && strcmp(t.name + length - 7, ".weight") == 0) length -= 7;
        snprintf(name, sizeof name, "%.*s%s", (int)length, t.name, endings[i]);
        struct tiny_tensor *added = new_tensor(tiny, name);
        parts[i].name = added->name;
        *added = parts[i];
    }
}

static bool is_affine(enum format format)
{
    return format >= FORMAT_AFFINE2 && format <= FORMAT_AFFINE8;
}

/* Appends a tensor with numbers in [-limit, limit) and returns its index; the caller stores it. */
static size_t add_random(struct tiny_model *tiny, const char *name, uint32_t layer, double limit,
                         const uint64_t *shape, uint32_t rank)
{
    char full[256];
    full_name(full, tiny, name, layer);
    struct tiny_tensor *t = new_tensor(tiny, full);
    set_shape(t, shape, rank);
    t->numbers = must_have(malloc((t->element_count + 1) * sizeof(float)));
    for (size_t i = 0; i < t->element_count; i++)
        t->numbers[i] = (float)(limit * random_signed(tiny));
    return tiny->tensor_count - 1;
}

static void add_matrix(struct tiny_model *tiny, const char *name, uint32_t layer, uint64_t rows,
                       uint64_t cols)
{
    const uint64_t shape[] = { rows, cols };
    size_t index = add_random(tiny, name, layer, 2.0 / sqrt((double)cols), shape, 2);
    bool affine = is_affine(tiny->shape.format) && cols % tiny->shape.group == 0; /* else bf16 */
    if (affine)
        store_affine(tiny, index);
    else
        store_plain(&tiny->tensors[index],
                    is_affine(tiny->shape.format) ? FORMAT_BF16 : tiny->shape.format);
}

static void add_stack(struct tiny_model *tiny, const char *name, uint32_t layer, uint64_t rows,
                      uint64_t cols)
{
    const uint64_t shape[] = { tiny->shape.experts, rows, cols };
    size_t index = add_random(tiny, name, layer, 2.0 / sqrt((double)cols), shape, 3);
    if (is_affine(tiny->shape.format))
        store_affine(tiny, index);
    else
        store_plain(&tiny->tensors[index], tiny->shape.format);
}

/* Norm weights are near 1.  Hugging Face stores zero-centred ones as weight - 1, MLX as they are;
 * t->numbers are the weights in both cases. */
static void add_norm(struct tiny_model *tiny, const char *name, uint32_t layer, uint64_t count,
                     bool zero_centred)
{
    size_t index = add_random(tiny, name, layer, 0.5, &count, 1);
    struct tiny_tensor *t = &tiny->tensors[index];
    bool less_one = zero_centred && tiny->shape.layout != TINY_STACKED;
    for (size_t i = 0; i < t->element_count; i++)
        if (!less_one) t->numbers[i] += 1.0f;
    store_plain(t, FORMAT_F32);
    for (size_t i = 0; i < t->element_count; i++)
        if (less_one) t->numbers[i] += 1.0f;
}

static void add_vector(struct tiny_model *tiny, const char *name, uint32_t layer, uint64_t count)
{
    size_t index = add_random(tiny, name, layer, 1.0, &count, 1);
    store_plain(&tiny->tensors[index], FORMAT_F32);
}

static void add_attention(struct tiny_model *tiny, uint32_t layer)
{
    const struct tiny_shape *s = &tiny->shape;
    uint64_t queries = (uint64_t)s->heads * s->head_width;
    uint64_t keys = (uint64_t)s->kv_heads * s->head_width;
    add_matrix(tiny, "layers.%u.self_attn.q_proj.weight", layer, 2 * queries, s->width);
    add_matrix(tiny, "layers.%u.self_attn.k_proj.weight", layer, keys, s->width);
    add_matrix(tiny, "layers.%u.self_attn.v_proj.weight", layer, keys, s->width);
    add_matrix(tiny, "layers.%u.self_attn.o_proj.weight", layer, s->width, queries);
    add_norm(tiny, "layers.%u.self_attn.q_norm.weight", layer, s->head_width, true);
    add_norm(tiny, "layers.%u.self_attn.k_norm.weight", layer, s->head_width, true);
}

static void add_delta(struct tiny_model *tiny, uint32_t layer)
{
    const struct tiny_shape *s = &tiny->shape;
    uint64_t values = (uint64_t)s->value_heads * s->value_width;
    uint64_t channels = 2 * (uint64_t)s->key_heads * s->key_width + values;
    add_matrix(tiny, "layers.%u.linear_attn.in_proj_qkv.weight", layer, channels, s->width);
    add_matrix(tiny, "layers.%u.linear_attn.in_proj_z.weight", layer, values, s->width);
    add_matrix(tiny, "layers.%u.linear_attn.in_proj_b.weight", layer, s->value_heads, s->width);
    add_matrix(tiny, "layers.%u.linear_attn.in_proj_a.weight", layer, s->value_heads, s->width);
    const uint64_t mlx[] = { channels, s->taps, 1 }, other[] = { channels, 1, s->taps };
    size_t conv = add_random(tiny, "layers.%u.linear_attn.conv1d.weight", layer, 1.0,
                             s->layout == TINY_STACKED ? mlx : other, 3);
    store_plain(&tiny->tensors[conv], FORMAT_F32);
    add_vector(tiny, "layers.%u.linear_attn.A_log", layer, s->value_heads);
    add_vector(tiny, "layers.%u.linear_attn.dt_bias", layer, s->value_heads);
    add_norm(tiny, "layers.%u.linear_attn.norm.weight", layer, s->value_width, false);
    add_matrix(tiny, "layers.%u.linear_attn.out_proj.weight", layer, s->width, values);
}

static const char *const part_names[] = { "gate_proj", "up_proj", "down_proj" };

static void add_experts(struct tiny_model *tiny, uint32_t layer)
{
    const struct tiny_shape *s = &tiny->shape;
    char name[128];
    if (s->layout == TINY_FUSED) {
        add_stack(tiny, "layers.%u.mlp.experts.gate_up_proj", layer, 2 * (uint64_t)s->expert_width,
                  s->width);
        add_stack(tiny, "layers.%u.mlp.experts.down_proj", layer, s->width, s->expert_width);
        return;
    }
    for (unsigned part = 0; part < 3; part++) {
        uint64_t rows = part == 2 ? s->width : s->expert_width;
        uint64_t cols = part == 2 ? s->expert_width : s->width;
        if (s->layout == TINY_STACKED) {
            snprintf(name, sizeof name, "layers.%%u.mlp.switch_mlp.%s.weight", part_names[part]);
            add_stack(tiny, name, layer, rows, cols);
            continue;
        }
        for (uint32_t e = 0; e < s->experts; e++) {
            snprintf(name, sizeof name, "layers.%%u.mlp.experts.%u.%s.weight", e, part_names[part]);
            add_matrix(tiny, name, layer, rows, cols);
        }
    }
}

static void add_layer(struct tiny_model *tiny, uint32_t layer)
{
    const struct tiny_shape *s = &tiny->shape;
    add_norm(tiny, "layers.%u.input_layernorm.weight", layer, s->width, true);
    add_norm(tiny, "layers.%u.post_attention_layernorm.weight", layer, s->width, true);
    if ((layer + 1) % s->interval == 0)
        add_attention(tiny, layer);
    else
        add_delta(tiny, layer);
    add_matrix(tiny, "layers.%u.mlp.gate.weight", layer, s->experts, s->width);
    add_matrix(tiny, "layers.%u.mlp.shared_expert.gate_proj.weight", layer, s->shared_width,
               s->width);
    add_matrix(tiny, "layers.%u.mlp.shared_expert.up_proj.weight", layer, s->shared_width,
               s->width);
    add_matrix(tiny, "layers.%u.mlp.shared_expert.down_proj.weight", layer, s->width,
               s->shared_width);
    add_matrix(tiny, "layers.%u.mlp.shared_expert_gate.weight", layer, 1, s->width);
    add_experts(tiny, layer);
}

/* ------------------------------------------------------------------- config */

static json_t *make_config(const struct tiny_shape *s)
{
    const char *type = s->nested ? "qwen3_5_moe_text" : "qwen3_5_moe";
    json_t *sizes = must_have(json_pack(
        "{s:s, s:i, s:i, s:i, s:f, s:b, s:i, s:i, s:i, s:i, s:i, s:{s:s, s:f, s:f},"
        " s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}",
        "model_type", type, "hidden_size", s->width, "vocab_size", s->vocab_size,
        "max_position_embeddings", s->context_length, "rms_norm_eps", 1e-6, "tie_word_embeddings",
        s->tied, "num_hidden_layers", s->layers, "full_attention_interval", s->interval,
        "num_attention_heads", s->heads, "num_key_value_heads", s->kv_heads, "head_dim",
        s->head_width, "rope_parameters", "rope_type", "default", "rope_theta", 10000.0,
        "partial_rotary_factor", s->rotary_factor, "linear_num_key_heads", s->key_heads,
        "linear_num_value_heads", s->value_heads, "linear_key_head_dim", s->key_width,
        "linear_value_head_dim", s->value_width, "linear_conv_kernel_dim", s->taps, "num_experts",
        s->experts, "num_experts_per_tok", s->experts_per_token, "moe_intermediate_size",
        s->expert_width, "shared_expert_intermediate_size", s->shared_width));
    json_t *config = sizes;
    if (s->nested)
        config = must_have(json_pack("{s:s, s:b, s:o}", "model_type", "qwen3_5_moe",
                                     "tie_word_embeddings", s->tied, "text_config", sizes));
    json_object_set_new(config, "eos_token_id", json_integer(1));
    if (is_affine(s->format))
        json_object_set_new(config, "quantization",
                            json_pack("{s:i, s:i}", "group_size", s->group, "bits",
                                      format_info(s->format)->block_bytes));
    return config;
}

json_t *tiny_model_sizes(struct tiny_model *tiny)
{
    return tiny->shape.nested ? json_object_get(tiny->config, "text_config") : tiny->config;
}

/* ----------------------------------------------------------- public functions */

void tiny_model_init(struct tiny_model *tiny, const struct tiny_shape *shape)
{
    *tiny = (struct tiny_model){ .shape = *shape, .random = shape->seed };
    memory_files_init(&tiny->files);
    tiny->config = make_config(shape);
    add_matrix(tiny, "embed_tokens.weight", 0, shape->vocab_size, shape->width);
    for (uint32_t i = 0; i < shape->layers; i++) add_layer(tiny, i);
    add_norm(tiny, "norm.weight", 0, shape->width, true);
    if (!shape->tied) add_matrix(tiny, "lm_head.weight", 0, shape->vocab_size, shape->width);
}

static const char *dtype_name(enum format format)
{
    return format_info(format)->name; /* safetensors uses the same names for plain formats */
}

void tiny_model_write(struct tiny_model *tiny)
{
    json_t *header = must_have(json_object());
    size_t offset = 0;
    for (size_t i = 0; i < tiny->tensor_count; i++) {
        const struct tiny_tensor *t = &tiny->tensors[i];
        json_t *shape = must_have(json_array());
        for (uint32_t d = 0; d < t->rank; d++)
            json_array_append_new(shape, json_integer((json_int_t)t->shape[d]));
        size_t end = offset + t->byte_count;
        json_object_set_new(header, t->name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_name(t->format),
                                      "shape", shape, "data_offsets", (json_int_t)offset,
                                      (json_int_t)end));
        offset = end;
    }
    char *text = must_have(json_dumps(header, JSON_COMPACT));
    byte_writer_free(&tiny->weights);
    put_u64(&tiny->weights, strlen(text));
    put_bytes(&tiny->weights, text, strlen(text));
    for (size_t i = 0; i < tiny->tensor_count; i++)
        put_bytes(&tiny->weights, tiny->tensors[i].bytes, tiny->tensors[i].byte_count);
    free(text);
    json_decref(header);

    free(tiny->config_text);
    tiny->config_text = must_have(json_dumps(tiny->config, JSON_INDENT(1)));
    memory_files_put(&tiny->files, TINY_PATH "/config.json", tiny->config_text,
                     strlen(tiny->config_text));
    memory_files_put(&tiny->files, TINY_PATH "/model.safetensors", tiny->weights.bytes,
                     tiny->weights.count);
}

static void free_tensor(struct tiny_tensor *t)
{
    free(t->name);
    free(t->bytes);
    free(t->numbers);
}

void tiny_model_free(struct tiny_model *tiny)
{
    for (size_t i = 0; i < tiny->tensor_count; i++) free_tensor(&tiny->tensors[i]);
    free(tiny->tensors);
    free(tiny->config_text);
    byte_writer_free(&tiny->weights);
    json_decref(tiny->config);
    *tiny = (struct tiny_model){ 0 };
}

struct tiny_tensor *tiny_model_find(struct tiny_model *tiny, const char *name, uint32_t layer)
{
    char full[256];
    full_name(full, tiny, name, layer);
    for (size_t i = 0; i < tiny->tensor_count; i++)
        if (strcmp(tiny->tensors[i].name, full) == 0) return &tiny->tensors[i];
    fprintf(stderr, "tiny_model: there is no tensor %s\n", full);
    abort();
}

const float *tiny_model_numbers(struct tiny_model *tiny, const char *name, uint32_t layer)
{
    return tiny_model_find(tiny, name, layer)->numbers;
}

const float *tiny_model_expert(struct tiny_model *tiny, uint32_t layer, uint32_t expert,
                               unsigned part)
{
    const struct tiny_shape *s = &tiny->shape;
    size_t one = (size_t)s->width * s->expert_width;
    char name[128];
    if (s->layout == TINY_FUSED) {
        if (part == 2)
            return tiny_model_numbers(tiny, "layers.%u.mlp.experts.down_proj", layer) +
                   expert * one;
        return tiny_model_numbers(tiny, "layers.%u.mlp.experts.gate_up_proj", layer) +
               (2 * expert + part) * one;
    }
    if (s->layout == TINY_STACKED) {
        snprintf(name, sizeof name, "layers.%%u.mlp.switch_mlp.%s.weight", part_names[part]);
        return tiny_model_numbers(tiny, name, layer) + expert * one;
    }
    snprintf(name, sizeof name, "layers.%%u.mlp.experts.%u.%s.weight", expert, part_names[part]);
    return tiny_model_numbers(tiny, name, layer);
}

void tiny_model_drop(struct tiny_model *tiny, const char *name, uint32_t layer)
{
    struct tiny_tensor *t = tiny_model_find(tiny, name, layer);
    size_t index = (size_t)(t - tiny->tensors);
    free_tensor(t);
    memmove(t, t + 1, (tiny->tensor_count - index - 1) * sizeof *t);
    tiny->tensor_count--;
}

void tiny_model_add(struct tiny_model *tiny, const char *name, enum format format, size_t count)
{
    struct tiny_tensor *t = new_tensor(tiny, name);
    set_shape(t, (const uint64_t[]){ count }, 1);
    t->format = format;
    t->byte_count = count * format_info(format)->block_bytes;
    t->bytes = must_have(calloc(t->byte_count + 1, 1));
}
