/* moeflux_tools.h as a caller uses it: structs of other sizes, wrong arguments, a trace that is
 * recorded and replayed, a plan, a description. */
#include "support/test.h"

#include "moeflux_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *pebble(void)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/models/pebble", getenv("MOEFLUX_SOURCE"));
    return path;
}

/* ----------------------------------------------------------------- structs */

static void struct_size_zero_is_refused_by_name(void **state)
{
    mf_plan plan = MF_PLAN_INIT;
    mf_plan_options options = { 0 };
    mf_error why = { .text = "" };
    (void)state;
    assert_int_equal(mf_model_plan(&plan, pebble(), &options, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "MF_PLAN_OPTIONS_INIT"));
    assert_int_equal(mf_convert(NULL, "a", "b", &(mf_convert_options){ 0 }, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "MF_CONVERT_OPTIONS_INIT"));
}

/* A program that was compiled against fewer fields: what lies behind its struct stays. */
static void shorter_structs_are_filled_as_far_as_they_go(void **state)
{
    struct {
        union {
            mf_description_info info;
            char bytes[sizeof(mf_description_info)];
        };
    } place;
    size_t size = offsetof(mf_description_info, family);
    mf_description *description;
    (void)state;
    memset(&place, 0x5a, sizeof place);
    place.info.struct_size = size;
    assert_int_equal(mf_description_open(&description, pebble(), NULL), MF_OK);
    mf_description_get(&place.info, description, NULL);
    assert_int_equal(place.info.struct_size, size);
    assert_string_equal(place.info.name, "pebble");
    for (size_t i = size; i < sizeof place.bytes; i++) assert_int_equal(place.bytes[i], 0x5a);
    mf_description_close(description);
}

static void wrong_arguments_are_refused(void **state)
{
    mf_description *description = (mf_description *)(uintptr_t)8;
    mf_route_trace *trace;
    mf_error why = { .text = "" };
    (void)state;
    assert_int_equal(mf_description_open(&description, NULL, &why), MF_ERR_ARGUMENT);
    assert_null(description);
    assert_string_equal(why.text, "the argument `path` is NULL");
    assert_int_equal(mf_route_trace_open(&trace, "not a trace", 11, &why), MF_ERR_FORMAT);
    assert_null(trace);
    mf_convert_options options = MF_CONVERT_OPTIONS_INIT;
    options.experts = "q5";
    assert_int_equal(mf_convert(NULL, pebble(), "/nonexistent/target", &options, &why),
                     MF_ERR_ARGUMENT);
    assert_string_equal(why.text, "\"q5\" is no format for `experts`");
    assert_int_equal(mf_model_get_shape(NULL, NULL, &why), MF_ERR_ARGUMENT);
    assert_string_equal(why.text, "the argument `out` is NULL");
    mf_model_shape empty = { 0 };
    mf_description_close(NULL);
    assert_int_equal(mf_description_open(&description, pebble(), NULL), MF_OK);
    assert_int_equal(mf_description_get_shape(&empty, description, &why), MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "MF_MODEL_SHAPE_INIT"));
    mf_description_close(description);
    mf_route_trace_close(NULL);
    mf_route_recorder_close(NULL);
    mf_memory_probe_close(NULL);
    assert_null(mf_format_name(mf_format_count()));
    assert_null(mf_cache_policy_name(MF_CACHE_POLICY_COUNT));
    assert_null(mf_tensor_class_name(MF_TENSOR_CLASS_COUNT));
}

/* ------------------------------------------------------------ descriptions */

static void plan_itemises_memory(void **state)
{
    mf_plan plan = MF_PLAN_INIT;
    mf_plan_options options = MF_PLAN_OPTIONS_INIT;
    (void)state;
    options.memory_bytes = (uint64_t)1 << 30;
    options.context_length = 512;
    assert_int_equal(mf_model_plan(&plan, pebble(), &options, NULL), MF_OK);
    assert_true(plan.fits);
    assert_string_equal(plan.expert_mode, "resident");
    assert_int_equal(plan.experts_in_memory, 512);
    assert_true(plan.weight_bytes > 4 << 20 && plan.weight_bytes < 8 << 20);
    assert_true(plan.sequence_bytes > 0 && plan.sequence_bytes < 6 << 20);
    options.memory_bytes = 1 << 20;
    assert_int_equal(mf_model_plan(&plan, pebble(), &options, NULL), MF_OK);
    assert_false(plan.fits);
    assert_non_null(strstr(plan.problem, "memory"));
}

static void shape_of_a_description_is_that_of_the_model(void **state)
{
    mf_model_shape described = MF_MODEL_SHAPE_INIT, opened = MF_MODEL_SHAPE_INIT;
    mf_description *description;
    mf_engine *engine;
    mf_model *model;
    mf_workload workload = MF_WORKLOAD_INIT;
    (void)state;
    assert_int_equal(mf_description_open(&description, pebble(), NULL), MF_OK);
    mf_description_get_shape(&described, description, NULL);
    mf_description_close(description);
    assert_int_equal(mf_engine_open(&engine, NULL, NULL), MF_OK);
    assert_int_equal(mf_model_open(&model, engine, pebble(), NULL, NULL), MF_OK);
    mf_model_get_shape(&opened, model, NULL);
    assert_memory_equal(&described, &opened, sizeof opened);
    assert_int_equal(opened.layer_count, 8);
    assert_int_equal(opened.delta_layers, 6);
    mf_model_workload(&workload, model, NULL);
    assert_true(workload.weight_bytes > 0 && workload.token_flops > 0);
    mf_model_close(model);
    mf_engine_close(engine);
}

static void workload_of_a_description_is_that_of_the_model(void **state)
{
    mf_workload described = MF_WORKLOAD_INIT, opened = MF_WORKLOAD_INIT;
    mf_description *description;
    mf_model_options options = MF_MODEL_OPTIONS_INIT;
    mf_engine *engine;
    mf_model *model;
    mf_error why;
    (void)state;
    options.kv_type = "q8";
    assert_int_equal(mf_description_open(&description, pebble(), NULL), MF_OK);
    assert_int_equal(mf_description_workload(&described, description, "q8", NULL), MF_OK);
    assert_int_equal(mf_engine_open(&engine, NULL, NULL), MF_OK);
    assert_int_equal(mf_model_open(&model, engine, pebble(), &options, NULL), MF_OK);
    mf_model_workload(&opened, model, NULL);
    assert_true(described.weight_bytes <= opened.weight_bytes); /* small ones are loaded as f32 */
    assert_true(described.weight_bytes > opened.weight_bytes * 9 / 10);
    opened.weight_bytes = described.weight_bytes;
    assert_memory_equal(&described, &opened, sizeof opened);
    assert_int_equal(mf_description_workload(&described, description, "f15", &why),
                     MF_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "f15"));
    mf_model_close(model);
    mf_engine_close(engine);
    mf_description_close(description);
}

/* ------------------------------------------------------------------- rates */

static uint32_t format_named(const char *name)
{
    uint32_t f = 0;
    while (f < mf_format_count() && strcmp(mf_format_name(f), name) != 0) f++;
    return f;
}

static void rates_of_formats_are_measured(void **state)
{
    mf_engine_options options = MF_ENGINE_OPTIONS_INIT;
    mf_format_rates rates = MF_FORMAT_RATES_INIT, again = MF_FORMAT_RATES_INIT;
    mf_engine *engine;
    mf_error why;
    double seconds = 1e-300; /* what is there before is not read */
    (void)state;
    options.thread_count = 1;
    assert_int_equal(mf_engine_open(&engine, &options, NULL), MF_OK);
    assert_int_equal(mf_format_rates_measure(&rates, engine, format_named("Q4_K"), NULL), MF_OK);
    assert_true(rates.decode_bytes > 0 && rates.narrow_decode_bytes > 0);
    for (int i = 0; i < MF_RATE_POINTS; i++) {
        assert_true(rates.prompt_flops[i] > 0 && rates.narrow_prompt_flops[i] > 0);
        assert_true(i == 0 || rates.prompt_rows[i] > rates.prompt_rows[i - 1]);
    }
    again = rates;
    again.decode_bytes = 1e18; /* measuring again only raises a figure */
    assert_int_equal(mf_format_rates_measure(&again, engine, format_named("Q4_K"), NULL), MF_OK);
    assert_true(again.decode_bytes == 1e18);
    assert_int_equal(mf_format_rates_measure(&rates, engine, format_named("I32"), &why),
                     MF_ERR_ARGUMENT);
    assert_string_equal(why.text, "nothing computes with I32");
    assert_int_equal(mf_format_rates_measure(&rates, engine, mf_format_count() - 1, &why),
                     MF_ERR_ARGUMENT);
    assert_int_equal(mf_layer_seconds_measure(&seconds, engine, NULL), MF_OK);
    assert_true(seconds > 1e-12 && seconds < 1);
    mf_engine_close(engine);
}

static void kernel_sets_are_listed(void **state)
{
    mf_engine *engine;
    uint32_t count = 0;
    (void)state;
    while (mf_kernel_set_at(count)) count++;
    assert_true(count >= 1);
    assert_string_equal(mf_kernel_set_at(count - 1), "generic");
    assert_int_equal(mf_engine_open(&engine, NULL, NULL), MF_OK);
    assert_string_equal(mf_kernel_set_at(0), mf_engine_kernels(engine));
    mf_engine_close(engine);
}

static void disks_of_files_are_measured(void **state)
{
    mf_ceilings ceilings = MF_CEILINGS_INIT;
    mf_description *description;
    char path[4200];
    mf_error why;
    (void)state;
    snprintf(path, sizeof path, "%s/model-00001-of-00002.safetensors", pebble());
    assert_int_equal(mf_ceilings_measure_file(&ceilings, path, NULL), MF_OK);
    assert_true(ceilings.disk_bytes > 0);
    assert_int_equal(mf_description_open(&description, pebble(), NULL), MF_OK);
    assert_int_equal(mf_ceilings_measure_files(&ceilings, description, NULL), MF_OK);
    assert_true(ceilings.disk_bytes > 0);
    mf_description_close(description);
    assert_int_equal(mf_ceilings_measure_file(&ceilings, "/nonexistent/file", &why), MF_ERR_IO);
    assert_non_null(strstr(why.text, "/nonexistent/file"));
}

/* ------------------------------------------------------------------ routes */

struct memory {
    uint8_t bytes[1 << 16];
    size_t count;
};

static bool keep(void *user, const void *bytes, size_t count)
{
    struct memory *memory = user;
    if (count > sizeof memory->bytes - memory->count) return false;
    memcpy(memory->bytes + memory->count, bytes, count);
    memory->count += count;
    return true;
}

static void recorded_routes_can_be_replayed(void **state)
{
    static struct memory memory;
    static const int32_t tokens[] = { 1, 2, 3, 4, 5 };
    mf_engine *engine;
    mf_model *model;
    mf_sequence *sequence;
    mf_route_recorder *recorder;
    mf_route_trace *trace;
    mf_route_trace_info info = MF_ROUTE_TRACE_INFO_INIT;
    (void)state;
    assert_int_equal(mf_engine_open(&engine, NULL, NULL), MF_OK);
    assert_int_equal(mf_model_open(&model, engine, pebble(), NULL, NULL), MF_OK);
    assert_int_equal(mf_sequence_open(&sequence, model, NULL, NULL), MF_OK);
    assert_int_equal(mf_route_recorder_open(&recorder, sequence, keep, &memory, NULL), MF_OK);
    assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, 5, NULL), MF_OK);
    assert_int_equal(mf_route_recorder_finish(recorder, NULL), MF_OK);
    mf_route_recorder_close(recorder);
    mf_sequence_close(sequence);
    mf_model_close(model);
    mf_engine_close(engine);

    assert_int_equal(mf_route_trace_open(&trace, memory.bytes, memory.count, NULL), MF_OK);
    mf_route_trace_get(&info, trace, NULL);
    assert_int_equal(info.token_count, 5);
    assert_string_equal(info.model, "pebble");
    mf_simulation_options options = MF_SIMULATION_OPTIONS_INIT;
    mf_simulation_result result = MF_SIMULATION_RESULT_INIT;
    options.policy = MF_CACHE_LRU;
    options.slot_bytes = info.all_slots_bytes;
    options.rows = 1;
    assert_int_equal(mf_simulate(&result, trace, &options, NULL), MF_OK);
    assert_int_equal(result.uses, 5 * 8 * 8); /* tokens, layers, experts per token */
    assert_int_equal(result.slots, 512);
    options.slot_bytes = 1;
    assert_int_equal(mf_simulate(&result, trace, &options, NULL), MF_ERR_MEMORY);
    mf_route_trace_close(trace);
}

/* A rehearsed prompt leaves no trace in the results that follow. */
static void rehearsal_leaves_the_sequence_as_it_was(void **state)
{
    static const int32_t tokens[] = { 7, 8, 9, 10 };
    mf_engine *engine;
    mf_model *model;
    mf_sequence *sequence;
    uint32_t vocab;
    (void)state;
    assert_int_equal(mf_engine_open(&engine, NULL, NULL), MF_OK);
    assert_int_equal(mf_model_open(&model, engine, pebble(), NULL, NULL), MF_OK);
    assert_int_equal(mf_sequence_open(&sequence, model, NULL, NULL), MF_OK);
    vocab = mf_model_vocab_size(model);
    float *before = malloc(vocab * sizeof *before);
    assert_non_null(before);
    assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, 4, NULL), MF_OK);
    memcpy(before, mf_sequence_logits(sequence), vocab * sizeof *before);
    mf_sequence_clear(sequence);
    assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, 2, NULL), MF_OK);
    assert_int_equal(mf_sequence_rehearse(sequence, tokens, 4, NULL), MF_OK);
    assert_int_equal(mf_sequence_position(sequence), 2);
    assert_int_equal(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens + 2, 2, NULL), MF_OK);
    assert_memory_equal(before, mf_sequence_logits(sequence), vocab * sizeof *before);
    free(before);
    mf_sequence_close(sequence);
    mf_model_close(model);
    mf_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(struct_size_zero_is_refused_by_name),
        cmocka_unit_test(shorter_structs_are_filled_as_far_as_they_go),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(plan_itemises_memory),
        cmocka_unit_test(shape_of_a_description_is_that_of_the_model),
        cmocka_unit_test(workload_of_a_description_is_that_of_the_model),
        cmocka_unit_test(rates_of_formats_are_measured),
        cmocka_unit_test(kernel_sets_are_listed),
        cmocka_unit_test(disks_of_files_are_measured),
        cmocka_unit_test(recorded_routes_can_be_replayed),
        cmocka_unit_test(rehearsal_leaves_the_sequence_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
