/* weights: what binding accepts, what it refuses and with which sentence, and that
 * every number arrives where the recipe looks for it. */
#include "support/test.h"

#include "model/model.h"
#include "support/failing_allocator.h"
#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static mf_status open_tiny(struct model *out, struct tiny_model *from,
                           const mf_allocator *allocator, const struct logger *logger,
                           mf_error *why)
{
    struct model_source source = {
        .files = &from->files.files, .allocator = allocator, .path = TINY_PATH, .logger = logger
    };
    return model_open(out, &source, why);
}

/* ---------------------------------------------------------------- refusals */

static mf_status open_written(struct tiny_model *damaged, mf_error *why)
{
    struct failing_allocator heap;
    struct model opened;
    struct logger silent = { 0 };
    failing_allocator_init(&heap);
    *why = (mf_error){ 0 };
    tiny_model_write(damaged);
    mf_status status = open_tiny(&opened, damaged, &heap.allocator, &silent, why);
    if (status == MF_OK) model_close(&opened);
    assert_int_equal(heap.live_bytes, 0); /* whatever happened, nothing is left */
    assert_int_equal(damaged->files.open_count, 0);
    return status;
}

/* The model cannot be opened, and the sentence names the tensor. */
static void check_refused(struct tiny_model *tiny, mf_status status, const char *tensor,
                          const char *sentence)
{
    mf_error why;
    mf_status found = open_written(tiny, &why);
    if (found != status || !strstr(why.text, tensor) || !strstr(why.text, sentence))
        fail_msg("%s: \"%s\"; %s about \"%s\" with \"%s\" was expected", mf_status_name(found),
                 why.text, mf_status_name(status), tensor, sentence);
    tiny_model_free(tiny);
}

/* One of every kind that the family's rules have. */
static const char *const needed[] = {
    "embed_tokens.weight",
    "norm.weight",
    "lm_head.weight",
    "layers.0.input_layernorm.weight",
    "layers.3.post_attention_layernorm.weight",
    "layers.1.self_attn.q_proj.weight",
    "layers.1.self_attn.k_proj.weight",
    "layers.3.self_attn.v_proj.weight",
    "layers.1.self_attn.o_proj.weight",
    "layers.1.self_attn.q_norm.weight",
    "layers.1.self_attn.k_norm.weight",
    "layers.0.linear_attn.in_proj_qkv.weight",
    "layers.0.linear_attn.in_proj_z.weight",
    "layers.2.linear_attn.in_proj_b.weight",
    "layers.0.linear_attn.in_proj_a.weight",
    "layers.0.linear_attn.conv1d.weight",
    "layers.0.linear_attn.A_log",
    "layers.0.linear_attn.dt_bias",
    "layers.0.linear_attn.norm.weight",
    "layers.2.linear_attn.out_proj.weight",
    "layers.2.mlp.gate.weight",
    "layers.0.mlp.shared_expert.gate_proj.weight",
    "layers.0.mlp.shared_expert.up_proj.weight",
    "layers.0.mlp.shared_expert.down_proj.weight",
    "layers.3.mlp.shared_expert_gate.weight",
    "layers.1.mlp.experts.down_proj",
};

static void a_missing_tensor_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(needed); i++) {
        struct tiny_model tiny;
        tiny_model_init(&tiny, &tiny_standard);
        tiny_model_drop(&tiny, needed[i], 0);
        /* the embedding decides which naming scheme is used */
        check_refused(&tiny, MF_ERR_MISMATCH, needed[i],
                      i == 0 ? "no tensor is called" : "missing");
    }
    struct tiny_model tiny;
    tiny_model_init(&tiny, &tiny_standard);
    tiny_model_drop(&tiny, "layers.2.mlp.experts.gate_up_proj", 0);
    check_refused(&tiny, MF_ERR_MISMATCH, "layers.2.mlp.", "missing");
}

/* A row more than the config says, in every one of them. */
static void a_tensor_of_another_shape_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(needed); i++) {
        struct tiny_model tiny;
        char text[64];
        tiny_model_init(&tiny, &tiny_standard);
        struct tiny_tensor *t = tiny_model_find(&tiny, needed[i], 0);
        size_t row = t->byte_count / (size_t)t->shape[0];
        t->shape[0]++;
        t->bytes = realloc(t->bytes, t->byte_count + row);
        assert_non_null(t->bytes);
        memset(t->bytes + t->byte_count, 0, row);
        t->byte_count += row;
        snprintf(text, sizeof text, "[%u", (unsigned)t->shape[0]);
        check_refused(&tiny, MF_ERR_MISMATCH, needed[i], text);
    }
}

/* The same number of elements, but rows and columns changed places. */
static void a_transposed_matrix_is_refused(void **state)
{
    (void)state;
    struct tiny_model tiny;
    tiny_model_init(&tiny, &tiny_standard);
    struct tiny_tensor *t = tiny_model_find(&tiny, "layers.%u.mlp.gate.weight", 1);
    uint64_t rows = t->shape[0];
    t->shape[0] = t->shape[1];
    t->shape[1] = rows;
    check_refused(&tiny, MF_ERR_MISMATCH, "layers.1.mlp.gate.weight", "[32, 6]");
}

static void a_type_that_is_not_a_weight_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(needed); i++) {
        struct tiny_model tiny;
        mf_error why;
        tiny_model_init(&tiny, &tiny_standard);
        tiny_model_find(&tiny, needed[i], 0)->format = FORMAT_I32; /* as wide as F32 */
        mf_status status = open_written(&tiny, &why);
        if ((status != MF_ERR_MISMATCH && status != MF_ERR_UNSUPPORTED) ||
            !strstr(why.text, needed[i]) || !strstr(why.text, "I32"))
            fail_msg("%s: %s \"%s\"", needed[i], mf_status_name(status), why.text);
        tiny_model_free(&tiny);
    }
}

/* ----------------------------------------------------------- quantised ones */

static void the_config_must_agree_with_the_tensors(void **state)
{
    (void)state;
    struct tiny_model tiny;
    tiny_model_init(&tiny, &tiny_affine);
    json_object_set_new(tiny.config, "quantization",
                        json_pack("{s:i, s:i}", "group_size", 32, "bits", 8));
    check_refused(&tiny, MF_ERR_MISMATCH, "embed_tokens",
                  "8 bits in groups of 32, its tensors have 4 in groups of 32");
    tiny_model_init(&tiny, &tiny_affine);
    json_object_set_new(tiny.config, "quantization",
                        json_pack("{s:i, s:i}", "group_size", 64, "bits", 4));
    check_refused(&tiny, MF_ERR_MISMATCH, "embed_tokens",
                  "4 bits in groups of 64, its tensors have 4 in groups of 32");
    /* an entry of its own for one module */
    tiny_model_init(&tiny, &tiny_affine);
    json_object_set_new(json_object_get(tiny.config, "quantization"),
                        "model.layers.1.mlp.switch_mlp.up_proj",
                        json_pack("{s:i, s:i}", "group_size", 32, "bits", 6));
    check_refused(&tiny, MF_ERR_MISMATCH, "model.layers.1.mlp.switch_mlp.up_proj",
                  "6 bits in groups of 32, its tensors have 4");
    tiny_model_init(&tiny, &tiny_affine);
    json_object_set_new(json_object_get(tiny.config, "quantization"), "mode", json_string("nvfp4"));
    check_refused(&tiny, MF_ERR_UNSUPPORTED, "embed_tokens", "mode \"nvfp4\"");
    tiny_model_init(&tiny, &tiny_affine);
    json_object_set_new(json_object_get(tiny.config, "quantization"), "mode", json_string("mxfp4"));
    check_refused(&tiny, MF_ERR_MISMATCH, "embed_tokens",
                  "in mode \"mxfp4\", its tensors are in \"affine\"");
    tiny_model_init(&tiny, &tiny_affine);
    json_object_set_new(json_object_get(tiny.config, "quantization"), "bits", json_integer(99));
    check_refused(&tiny, MF_ERR_FORMAT, "bits", "99");
}

/* What config.json says of FP8 in the way of compressed-tensors, and how it is refused. */
static void other_compressed_tensors_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *format, *groups, *sentence;
    } cases[] = {
        { "pack-quantized", "{}", "the format of compressed-tensors is \"pack-quantized\"" },
        { "float-quantized", "{}", "config_groups has 0 groups, 1 was expected" },
        { "float-quantized", "{\"a\": {}, \"b\": {}}", "config_groups has 2 groups" },
        { "float-quantized", "{\"a\": {}}", "8-bit float by tensor, 8-bit float by channel" },
        { "float-quantized", "{\"a\": {\"weights\": {\"num_bits\": 4}}}", "4-bit float by tensor" },
        { "float-quantized",
          "{\"a\": {\"weights\": {\"type\": \"int\", \"strategy\": \"channel\"}}}",
          "8-bit int by channel" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct tiny_model tiny;
        tiny_model_init(&tiny, &tiny_standard);
        json_object_set_new(tiny.config, "quantization_config",
                            json_pack("{s:s, s:s, s:o}", "quant_method", "compressed-tensors",
                                      "format", cases[i].format, "config_groups",
                                      json_loads(cases[i].groups, 0, NULL)));
        check_refused(&tiny, MF_ERR_UNSUPPORTED, TINY_PATH, cases[i].sentence);
    }
    struct tiny_model tiny;
    tiny_model_init(&tiny, &tiny_standard);
    json_object_set_new(tiny.config, "quantization_config",
                        json_pack("{s:s}", "quant_method", "awq"));
    check_refused(&tiny, MF_ERR_UNSUPPORTED, TINY_PATH,
                  "quant_method is \"awq\", fp8 or compressed-tensors was expected");
}

static void parts_of_a_quantised_matrix_must_fit(void **state)
{
    (void)state;
    static const char name[] = "layers.1.mlp.switch_mlp.up_proj";
    struct tiny_model tiny;
    tiny_model_init(&tiny, &tiny_affine);
    tiny_model_drop(&tiny, "layers.1.mlp.switch_mlp.up_proj.biases", 0);
    check_refused(&tiny, MF_ERR_MISMATCH, name, "has scales but no biases");
    tiny_model_init(&tiny, &tiny_affine);
    tiny_model_drop(&tiny, "layers.1.mlp.switch_mlp.up_proj.scales", 0);
    check_refused(&tiny, MF_ERR_MISMATCH, name, "does not hold a matrix");
    tiny_model_init(&tiny, &tiny_affine);
    tiny_model_find(&tiny, "layers.1.mlp.switch_mlp.up_proj.biases", 0)->format = FORMAT_F16;
    check_refused(&tiny, MF_ERR_UNSUPPORTED, name, "must both be F32, F16 or BF16");
    tiny_model_init(&tiny, &tiny_affine);
    tiny_model_find(&tiny, "layers.1.mlp.switch_mlp.up_proj.scales", 0)->format = FORMAT_I16;
    check_refused(&tiny, MF_ERR_UNSUPPORTED, name, "must both be F32, F16 or BF16");
    tiny_model_init(&tiny, &tiny_affine);
    tiny_model_find(&tiny, "layers.1.mlp.switch_mlp.up_proj.weight", 0)->format = FORMAT_I32;
    check_refused(&tiny, MF_ERR_MISMATCH, name, "I32");
    tiny_model_init(&tiny, &tiny_affine);
    struct tiny_tensor *scales =
        tiny_model_find(&tiny, "layers.1.mlp.switch_mlp.up_proj.scales", 0);
    scales->shape[1] /= 2;
    scales->shape[0] *= 2;
    check_refused(&tiny, MF_ERR_MISMATCH, name, "does not hold a matrix");
}

static void experts_of_one_layer_have_one_format(void **state)
{
    (void)state;
    struct tiny_model tiny;
    struct tiny_shape shape = tiny_standard;
    shape.layout = TINY_SEPARATE;
    tiny_model_init(&tiny, &shape);
    /* half of its bytes, as bf16 */
    struct tiny_tensor *t = tiny_model_find(&tiny, "layers.%u.mlp.experts.3.up_proj.weight", 2);
    t->format = FORMAT_BF16;
    t->byte_count /= 2;
    check_refused(&tiny, MF_ERR_UNSUPPORTED, "layers.2.mlp.experts.3.up_proj.weight",
                  "another format than expert 0");
    tiny_model_init(&tiny, &shape);
    tiny_model_drop(&tiny, "layers.%u.mlp.experts.5.down_proj.weight", 3);
    check_refused(&tiny, MF_ERR_MISMATCH, "layers.3.mlp.experts.5.down_proj.weight", "missing");
}

/* Biases without scales belong to nothing: noted, and the matrix is what its type says. */
static void stray_biases_are_left_alone(void **state)
{
    (void)state;
    mf_error why;
    struct tiny_model tiny;
    struct tiny_shape shape = tiny_standard;
    shape.layout = TINY_SEPARATE;
    tiny_model_init(&tiny, &shape);
    tiny_model_add(&tiny, "model.layers.0.mlp.experts.0.down_proj.biases", FORMAT_BF16, 4);
    tiny_model_add(&tiny, "model.layers.0.mlp.gate.biases", FORMAT_BF16, 4);
    assert_int_equal(open_written(&tiny, &why), MF_OK);
    tiny_model_free(&tiny);
}

/* ------------------------------------------------------------- what is bound */

static struct model model;
static struct tiny_model tiny;

static void open_shape(const struct tiny_shape *shape)
{
    mf_error why = { 0 };
    struct logger silent = { 0 };
    tiny_model_init(&tiny, shape);
    tiny_model_write(&tiny);
    if (open_tiny(&model, &tiny, &allocator_heap, &silent, &why) != MF_OK) fail_msg("%s", why.text);
}

static void close_shape(void)
{
    model_close(&model);
    tiny_model_free(&tiny);
}

static void check_matrix(const struct weight *w, const char *name, uint32_t layer)
{
    const float *expected = tiny_model_numbers(&tiny, name, layer);
    float row[2048];
    assert_true(w->cols <= COUNT_OF(row) && w->rows > 0);
    for (uint64_t r = 0; r < w->rows; r++) {
        weight_dequantise_row(row, w, r);
        if (memcmp(row, expected + r * w->cols, w->cols * sizeof(float)) != 0)
            fail_msg("%s of layer %u: row %u has other numbers", name, layer, (unsigned)r);
    }
}

static void check_bound(void)
{
    const struct layer_weights *layers = model.weights.layers;
    uint32_t full = tiny.shape.interval - 1;
    check_matrix(&model.weights.weights[WEIGHT_EMBEDDING], "embed_tokens.weight", 0);
    check_matrix(&model.weights.weights[WEIGHT_FINAL_NORM], "norm.weight", 0);
    check_matrix(&model.weights.weights[WEIGHT_HEAD],
                 tiny.shape.tied ? "embed_tokens.weight" : "lm_head.weight", 0);
    for (uint32_t i = 0; i < tiny.shape.layers; i++) {
        check_matrix(&layers[i].weights[WEIGHT_MIXER_NORM], "layers.%u.input_layernorm.weight", i);
        check_matrix(&layers[i].weights[WEIGHT_ROUTER], "layers.%u.mlp.gate.weight", i);
        check_matrix(&layers[i].weights[WEIGHT_SHARED_SCALE],
                     "layers.%u.mlp.shared_expert_gate.weight", i);
    }
    check_matrix(&layers[full].weights[WEIGHT_Q], "layers.%u.self_attn.q_proj.weight", full);
    check_matrix(&layers[full].weights[WEIGHT_K_NORM], "layers.%u.self_attn.k_norm.weight", full);
    check_matrix(&layers[0].weights[WEIGHT_DELTA_CONV], "layers.%u.linear_attn.conv1d.weight", 0);
    check_matrix(&layers[0].weights[WEIGHT_DELTA_NORM], "layers.%u.linear_attn.norm.weight", 0);
    const float *decay = weight_vector(&layers[0].weights[WEIGHT_DELTA_DECAY]);
    const float *log = tiny_model_numbers(&tiny, "layers.%u.linear_attn.A_log", 0);
    for (uint32_t h = 0; h < tiny.shape.value_heads; h++)
        assert_true(fabs((double)decay[h] + exp((double)log[h])) <= 1e-6 * exp((double)log[h]));
}

static void every_layout_is_bound(void **state)
{
    (void)state;
    static const enum format formats[] = { FORMAT_F32,     FORMAT_F16,     FORMAT_BF16,
                                           FORMAT_AFFINE2, FORMAT_AFFINE3, FORMAT_AFFINE4,
                                           FORMAT_AFFINE5, FORMAT_AFFINE6, FORMAT_AFFINE8 };
    for (size_t f = 0; f < COUNT_OF(formats); f++) {
        for (unsigned variant = 0; variant < 12; variant++) {
            struct tiny_shape shape = f < 3 ? tiny_odd : tiny_affine;
            shape.format = formats[f];
            shape.layout = (enum tiny_layout)(variant % 3);
            shape.nested = variant / 3 % 2;
            shape.tied = variant / 6 % 2;
            open_shape(&shape);
            check_bound();
            assert_int_equal(model.weights.ignored_count, 0);
            close_shape();
        }
    }
}

/* A file may hold vectors in any float type. */
static void norms_may_be_halves(void **state)
{
    (void)state;
    mf_error why;
    tiny_model_init(&tiny, &tiny_standard);
    struct tiny_tensor *t = tiny_model_find(&tiny, "norm.weight", 0);
    for (size_t i = 0; i < t->element_count; i++)
        format_store(FORMAT_BF16, t->bytes, i, (float)i / 64.0f);
    t->format = FORMAT_BF16;
    t->byte_count /= 2;
    assert_int_equal(open_written(&tiny, &why), MF_OK);
    struct logger silent = { 0 };
    assert_int_equal(open_tiny(&model, &tiny, &allocator_heap, &silent, &why), MF_OK);
    const float *norm = weight_vector(&model.weights.weights[WEIGHT_FINAL_NORM]);
    for (size_t i = 0; i < 32; i++) assert_true(norm[i] == 1.0f + (float)i / 64.0f);
    close_shape();
}

/* ------------------------------------------------------------------- notes */

struct notes {
    unsigned warnings, infos;
    char last[512];
};

static void take_note(void *user, mf_log_level level, const char *text)
{
    struct notes *notes = user;
    if (level == MF_LOG_WARNING) notes->warnings++;
    if (level == MF_LOG_INFO) notes->infos++;
    if (level == MF_LOG_WARNING) snprintf(notes->last, sizeof notes->last, "%s", text);
}

static void unknown_tensors_are_noted_and_left(void **state)
{
    (void)state;
    struct notes notes = { 0 };
    struct logger logger = { take_note, &notes };
    mf_error why = { 0 };
    tiny_model_init(&tiny, &tiny_standard);
    tiny_model_add(&tiny, "model.layers.0.self_attn.extra", FORMAT_F32, 3);
    tiny_model_add(&tiny, "model.visual.patch", FORMAT_U8, 5);
    tiny_model_add(&tiny, "mtp.layers.0.x", FORMAT_I64, 1);
    tiny_model_write(&tiny);
    assert_int_equal(open_tiny(&model, &tiny, &allocator_heap, &logger, &why), MF_OK);
    assert_int_equal(model.weights.ignored_count, 3);
    assert_int_equal(notes.warnings, 1);
    assert_non_null(strstr(notes.last, "model.layers.0.self_attn.extra"));
    assert_true(notes.infos >= 1);
    close_shape();
}

static void layers_behind_the_last_one_are_refused_unless_they_predict(void **state)
{
    (void)state;
    tiny_model_init(&tiny, &tiny_standard);
    tiny_model_add(&tiny, "model.layers.4.mlp.gate.weight", FORMAT_F32, 3);
    check_refused(&tiny, MF_ERR_MISMATCH, "model.layers.4.mlp.gate.weight",
                  "is of layer 4; the configuration counts 4 layers (num_hidden_layers)");

    mf_error why; /* declared by the configuration */
    tiny_model_init(&tiny, &tiny_standard);
    json_object_set_new(tiny.config, "num_nextn_predict_layers", json_integer(1));
    tiny_model_add(&tiny, "model.layers.4.mlp.gate.weight", FORMAT_F32, 3);
    if (open_written(&tiny, &why) != MF_OK) fail_msg("%s", why.text);
    tiny_model_add(&tiny, "model.layers.5.mlp.gate.weight", FORMAT_F32, 3);
    check_refused(&tiny, MF_ERR_MISMATCH, "model.layers.5.mlp.gate.weight", "and 1 for prediction");

    tiny_model_init(&tiny, &tiny_standard); /* known by its tensors */
    tiny_model_add(&tiny, "model.layers.4.mlp.gate.weight", FORMAT_F32, 3);
    tiny_model_add(&tiny, "model.layers.4.eh_proj.weight", FORMAT_F32, 3);
    tiny_model_add(&tiny, "model.visual.layers.9.weight", FORMAT_F32, 3);
    if (open_written(&tiny, &why) != MF_OK) fail_msg("%s", why.text);
    tiny_model_free(&tiny);
}

/* Experts are bound, not read. */
static void no_expert_byte_is_read_at_open(void **state)
{
    (void)state;
    struct tiny_shape shape = tiny_standard;
    shape.experts = 60;
    open_shape(&shape);
    uint64_t experts = 0;
    for (uint32_t i = 0; i < shape.layers; i++)
        for (int part = 0; part < EXPERT_PARTS; part++)
            experts += 60 * model.weights.layers[i].experts[part].value_bytes;
    assert_int_equal(experts, 4u * 60 * 3 * 32 * 16 * 4);
    assert_true(tiny.files.read_bytes <= tiny.weights.count + 65536 - experts);
    close_shape();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_tensor_is_named),
        cmocka_unit_test(a_tensor_of_another_shape_is_named),
        cmocka_unit_test(a_transposed_matrix_is_refused),
        cmocka_unit_test(a_type_that_is_not_a_weight_is_refused),
        cmocka_unit_test(the_config_must_agree_with_the_tensors),
        cmocka_unit_test(other_compressed_tensors_are_refused),
        cmocka_unit_test(parts_of_a_quantised_matrix_must_fit),
        cmocka_unit_test(experts_of_one_layer_have_one_format),
        cmocka_unit_test(stray_biases_are_left_alone),
        cmocka_unit_test(every_layout_is_bound),
        cmocka_unit_test(norms_may_be_halves),
        cmocka_unit_test(unknown_tensors_are_noted_and_left),
        cmocka_unit_test(layers_behind_the_last_one_are_refused_unless_they_predict),
        cmocka_unit_test(no_expert_byte_is_read_at_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
