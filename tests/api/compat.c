/* compat: the calls and probes of moeflux_compat.h, through the public headers alone.  Probes are
 * checked against the context they belong to: operations put together give the layer, and layers
 * put together give the logits.
 *     api_compat MODEL   (models/pebble: delta nets, full attention with gates, a shared expert) */
#include <moeflux_compat.h>
#include <moeflux_tools.h>

#include "compat.h"

#include <dirent.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 5, LAYERS_MAX = 16 };
enum { DELTA_LAYER = 0, ATTENTION_LAYER = 3, VALUE_TAPS = 4 };

static const char *path;
static mf_context *context;
static mf_probe *probe;
static mf_model_shape shape = MF_MODEL_SHAPE_INIT;
static const int32_t tokens[ROWS] = { 3, 141, 59, 2653, 58 };

/* ----------------------------------------------------------------- context */

static mf_context *open_context(const mf_context_options *options)
{
    mf_context *out = NULL;
    CHECK(mf_context_open_with(&out, path, options, &why) == MF_OK);
    return out;
}

static void evaluate(float *logits, mf_context *with)
{
    CHECK(mf_context_eval_prompt(with, tokens, ROWS, 0, 0, logits, shape.vocab_size, &why) ==
          MF_OK);
}

static void memory_and_context_length_are_as_the_options_say(void)
{
    mf_model_statistics found = MF_MODEL_STATISTICS_INIT;
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    float *logits = floats(shape.vocab_size), *streamed = floats(shape.vocab_size);
    mf_context *plenty = open_context(NULL);
    evaluate(logits, plenty);
    mf_context_close(plenty);

    options.memory_bytes = 12 << 20;
    options.context_length = 256;
    mf_context *little = open_context(&options);
    CHECK(mf_context_n_ctx(little) == 256);
    CHECK(mf_model_stats(mf_context_model(little), &found, &why) == MF_OK);
    CHECK(strcmp(found.expert_mode, "streamed") == 0);
    CHECK(found.weight_bytes + found.room_bytes + found.sequence_bytes + found.policy_bytes +
              found.expert_slot_bytes <=
          options.memory_bytes);
    evaluate(streamed, little);
    CHECK(memcmp(logits, streamed, shape.vocab_size * sizeof *logits) == 0);
    mf_context_close(little);

    options.context_length = UINT32_MAX; /* the model's limit is less */
    options.memory_bytes = 0;
    little = open_context(&options);
    CHECK(mf_context_n_ctx(little) == shape.context_length);
    mf_context_close(little);
    free(logits);
    free(streamed);
}

static int count_tasks(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/task");
    CHECK(directory);
    for (const struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_name[0] != '.';
    closedir(directory);
    return count;
}

static void threads_are_as_the_options_say(void)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    int tasks[2];
    if (mf_default_thread_count() < 2) {
        puts("skipped: one CPU, so that two threads are not used");
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        options.thread_count = i + 1;
        mf_context *open = open_context(&options);
        tasks[i] = count_tasks();
        mf_context_close(open);
    }
    CHECK(tasks[1] == tasks[0] + 1); /* the caller computes, too */
}

static void wrong_options_are_refused(void)
{
    mf_context *out = context;
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    options.backend = "abacus";
    CHECK(mf_context_open_with(&out, path, &options, &why) == MF_ERR_ARGUMENT && !out);
    CHECK(strstr(why.text, "abacus"));
    options.backend = NULL;
    options.kernels = "abacus";
    CHECK(mf_context_open_with(&out, path, &options, &why) == MF_ERR_ARGUMENT && !out);
    options.kernels = NULL;
    options.memory_bytes = 1 << 20;
    CHECK(mf_context_open_with(&out, path, &options, &why) == MF_ERR_MEMORY && !out);
    options.memory_bytes = 0;
    options.manifest = "/no/such/manifest.json";
    CHECK(mf_context_open_with(&out, path, &options, &why) != MF_OK && !out);
    options.struct_size = 0;
    CHECK(mf_context_open_with(&out, path, &options, &why) == MF_ERR_ARGUMENT && !out);
    CHECK(strstr(why.text, "MF_CONTEXT_OPTIONS_INIT"));
    CHECK(mf_context_open_with(&out, NULL, NULL, &why) == MF_ERR_ARGUMENT && !out);
    CHECK(mf_context_open_with(NULL, path, NULL, &why) == MF_ERR_ARGUMENT);
}

static void sequences_have_ids(void)
{
    float *logits = floats(shape.vocab_size);
    CHECK(mf_context_eval_prompt(context, tokens, 1, 0, 7, logits, shape.vocab_size, &why) ==
          MF_OK);
    CHECK(mf_context_memory_seq_pos_max(context, 7) == 0);
    CHECK(mf_context_checkpoint_pos(context, 7, 1, &why) == MF_OK);
    CHECK(mf_context_checkpoint_count(context, 7) == 1);
    CHECK(mf_context_memory_seq_rm(context, 7, 0, -1, &why) == MF_OK);
    CHECK(mf_context_restore_to(context, 7, 2, &why) == MF_ERR_NO_CHECKPOINT);
    CHECK(mf_context_restore_to(context, 7, 1, &why) == MF_OK);
    CHECK(mf_context_memory_seq_pos_max(context, 7) == 0);
    mf_context_memory_clear(context);
    CHECK(mf_context_eval_token(context, 1, 0, -1, logits, shape.vocab_size, &why) ==
          MF_ERR_ARGUMENT);
    CHECK(strcmp(why.text, "seq_id is -1, ids begin at 0") == 0);
    CHECK(mf_context_memory_seq_rm(context, -1, 0, -1, &why) == MF_ERR_ARGUMENT);
    CHECK(mf_context_memory_seq_pos_max(context, 1) == -1);
    free(logits);
}

/* The calls of the ancestors, in the order of a chat. */
static void a_context_evaluates_forgets_and_answers(void)
{
    mf_context *open = NULL;
    float *logits = floats(shape.vocab_size), *again = floats(shape.vocab_size);
    CHECK(mf_context_open(&open, path, NULL, NULL, NULL, 0, false, &why) == MF_OK);
    CHECK(mf_context_n_vocab(open) == shape.vocab_size && mf_context_n_ctx(open) > 0);
    CHECK(mf_context_eos(open) == mf_model_eos(mf_context_model(open)));
    CHECK(strcmp(mf_context_model_name(open), "pebble") == 0);
    evaluate(logits, open);
    CHECK(mf_context_memory_seq_pos_max(open, 0) == ROWS - 1);
    CHECK(mf_context_eval_token(open, 9, ROWS, 0, again, shape.vocab_size, &why) == MF_OK);
    CHECK(mf_context_memory_seq_rm(open, 0, 2, -1, &why) == MF_ERR_CANNOT_TRUNCATE);
    CHECK(mf_context_memory_seq_rm(open, 0, 0, -1, &why) == MF_OK);
    CHECK(mf_context_memory_seq_pos_max(open, 0) == -1);
    evaluate(again, open);
    CHECK(memcmp(logits, again, shape.vocab_size * sizeof *logits) == 0);
    mf_context_memory_clear(open);
    CHECK(mf_context_eval_prompt(open, tokens, ROWS, 1, 0, logits, shape.vocab_size, &why) ==
          MF_ERR_ARGUMENT);
    CHECK(mf_context_eval_prompt(open, tokens, ROWS, 0, 0, logits, 1, &why) == MF_ERR_BUFFER_SIZE);
    mf_context_close(open);
    free(logits);
    free(again);
}

/* -------------------------------------------------------------- layer dump */

struct dump {
    float *x[LAYERS_MAX + 1]; /* after the embedding, after each layer: [ROWS][width] */
    int32_t next;             /* layer */
};

static void take_dump(void *user, int32_t layer, const float *x, size_t row_count, size_t width)
{
    struct dump *dump = user;
    CHECK(layer == dump->next && row_count == ROWS && width == shape.width);
    dump->next++;
    memcpy(dump->x[layer + 1], x, row_count * width * sizeof *x);
}

static void dump_open(struct dump *dump, float *logits)
{
    *dump = (struct dump){ .next = -1 };
    for (uint32_t i = 0; i <= shape.layer_count; i++) dump->x[i] = floats(ROWS * shape.width);
    mf_context_memory_clear(context);
    mf_context_watch_hidden(context, take_dump, dump);
    evaluate(logits, context);
    CHECK(dump->next == (int32_t)shape.layer_count);
    mf_context_watch_hidden(context, NULL, NULL);
    mf_context_memory_clear(context);
    evaluate(logits, context); /* not seen: take_dump would object */
}

static void dump_close(struct dump *dump)
{
    for (uint32_t i = 0; i <= shape.layer_count; i++) free(dump->x[i]);
}

static mf_mixer mixer_of(uint32_t layer)
{
    return layer % 4 == 3 ? MF_MIXER_ATTENTION : MF_MIXER_DELTA; /* of Pebble */
}

/* Embedding, layers, norm and head of the probe, one after the other, have the bits of the
 * context's evaluation. */
static void layers_of_a_probe_are_those_of_the_context(void)
{
    size_t count = ROWS * shape.width;
    struct dump dump;
    float *logits = floats(shape.vocab_size), *x = floats(count), *y = floats(count);
    float *found = floats(shape.vocab_size);
    dump_open(&dump, logits);
    CHECK(mf_probe_embed((mf_floats){ x, count }, probe, tokens, ROWS, &why) == MF_OK);
    CHECK(memcmp(x, dump.x[0], count * sizeof *x) == 0);
    for (uint32_t i = 0; i < shape.layer_count; i++) {
        mf_probe_step step = MF_PROBE_STEP_INIT;
        step.mixer = mixer_of(i);
        step.layer = i;
        step.x = (mf_numbers){ x, count };
        step.out = (mf_floats){ y, count };
        CHECK(mf_probe_layer(&step, probe, &why) == MF_OK);
        CHECK(memcmp(y, dump.x[i + 1], count * sizeof *y) == 0);
        memcpy(x, y, count * sizeof *x);
    }
    mf_numbers last = { x + count - shape.width, shape.width };
    CHECK(mf_probe_norm((mf_floats){ y, shape.width }, probe, 0, "final_norm", last, &why) ==
          MF_OK);
    CHECK(mf_probe_lm_head((mf_floats){ found, shape.vocab_size }, probe,
                           (mf_numbers){ y, shape.width }, &why) == MF_OK);
    CHECK(memcmp(found, logits, shape.vocab_size * sizeof *found) == 0);
    dump_close(&dump);
    free(logits);
    free(x);
    free(y);
    free(found);
}

/* -------------------------------------------------------------- operations */

/* A layer's step with everything that it shows. */
struct shown {
    mf_probe_step step;
    float *x;
    uint32_t *ids;
};

static void shown_open(struct shown *s, uint32_t layer)
{
    size_t count = ROWS * shape.width, routes = ROWS * shape.experts_per_token;
    *s = (struct shown){ .step = MF_PROBE_STEP_INIT };
    s->step.layer = layer;
    s->step.mixer = mixer_of(layer);
    s->x = random_floats(count);
    s->ids = calloc(routes, sizeof *s->ids);
    s->step.x = (mf_numbers){ s->x, count };
    s->step.out = (mf_floats){ floats(count), count };
    s->step.after_mixer = (mf_floats){ floats(count), count };
    s->step.routed = (mf_floats){ floats(count), count };
    s->step.shared = (mf_floats){ floats(count), count };
    s->step.shared_score = (mf_floats){ floats(ROWS), ROWS };
    s->step.routes = (mf_probe_routes){ s->ids, floats(routes), routes };
    CHECK(mf_probe_layer(&s->step, probe, &why) == MF_OK);
}

static void shown_close(struct shown *s)
{
    free(s->x);
    free(s->ids);
    free(s->step.out.values);
    free(s->step.after_mixer.values);
    free(s->step.routed.values);
    free(s->step.shared.values);
    free(s->step.shared_score.values);
    free(s->step.routes.weights);
}

static mf_floats project(uint32_t layer, const char *weight, mf_floats x, size_t width)
{
    mf_floats out = { floats(ROWS * width), ROWS * width };
    CHECK(mf_probe_project(out, probe, layer, weight, in(x), &why) == MF_OK);
    return out;
}

/* The mixer's output of the last projection, added to x, is the residual stream. */
static void check_after_mixer(const struct shown *s, const char *weight, mf_floats mixed)
{
    mf_floats out = project(s->step.layer, weight, mixed, shape.width);
    for (size_t i = 0; i < out.count; i++) out.values[i] += s->x[i];
    check_close(out.values, s->step.after_mixer.values, out.count);
    free(out.values);
}

static mf_floats norm(uint32_t layer, const char *weight, mf_numbers x)
{
    mf_floats out = { floats(x.count), x.count };
    CHECK(mf_probe_norm(out, probe, layer, weight, x, &why) == MF_OK);
    return out;
}

static void operations_of_attention_give_the_layer(void)
{
    uint32_t positions[ROWS];
    size_t head = shape.head_width, queries = shape.heads * head, keys = shape.kv_heads * head;
    struct shown s;
    shown_open(&s, ATTENTION_LAYER);
    mf_floats x = norm(ATTENTION_LAYER, "mixer_norm", s.step.x);
    mf_floats both = project(ATTENTION_LAYER, "q", x, 2 * queries);
    mf_floats k = project(ATTENTION_LAYER, "k", x, keys);
    mf_floats v = project(ATTENTION_LAYER, "v", x, keys);
    mf_floats q = { floats(ROWS * queries), ROWS * queries }, gate = { floats(q.count), q.count };
    mf_floats mixed = { floats(q.count), q.count }, gated = { floats(q.count), q.count };
    for (size_t i = 0; i < ROWS * shape.heads; i++) { /* a head's query, then its gate */
        memcpy(q.values + i * head, both.values + 2 * i * head, head * sizeof(float));
        memcpy(gate.values + i * head, both.values + (2 * i + 1) * head, head * sizeof(float));
    }
    for (uint32_t i = 0; i < ROWS; i++) positions[i] = i;
    CHECK(mf_probe_head_norm(q, probe, ATTENTION_LAYER, "q_norm", &why) == MF_OK);
    CHECK(mf_probe_head_norm(k, probe, ATTENTION_LAYER, "k_norm", &why) == MF_OK);
    mf_probe_positions where = { positions, ROWS, false };
    CHECK(mf_probe_rope(q, probe, ATTENTION_LAYER, where, &why) == MF_OK);
    where.keys = true;
    CHECK(mf_probe_rope(k, probe, ATTENTION_LAYER, where, &why) == MF_OK);
    mf_probe_attention attention = { in(q), in(k), in(v) };
    CHECK(mf_probe_attend(mixed, probe, ATTENTION_LAYER, &attention, &why) == MF_OK);
    CHECK(mf_probe_gate(gated, probe, ATTENTION_LAYER, in(mixed), in(gate), &why) == MF_OK);
    check_after_mixer(&s, "attention_out", gated);
    const mf_floats all[] = { x, both, k, v, q, gate, mixed, gated };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i].values);
    shown_close(&s);
}

static void operations_of_a_delta_net_give_the_layer(void)
{
    size_t values = (size_t)shape.delta_value_heads * shape.delta_value_width;
    size_t channels = values + 2 * (size_t)shape.delta_key_heads * shape.delta_key_width;
    size_t taps = (VALUE_TAPS - 1) * channels, state = values * shape.delta_key_width;
    struct shown s;
    shown_open(&s, DELTA_LAYER);
    mf_floats x = norm(DELTA_LAYER, "mixer_norm", s.step.x);
    mf_floats raw = project(DELTA_LAYER, "delta_qkv", x, channels);
    mf_floats z = project(DELTA_LAYER, "delta_z", x, values);
    mf_floats b = project(DELTA_LAYER, "delta_b", x, shape.delta_value_heads);
    mf_floats a = project(DELTA_LAYER, "delta_a", x, shape.delta_value_heads);
    mf_floats mixed = { floats(raw.count), raw.count }, window = { floats(taps), taps };
    mf_floats out = { floats(ROWS * values), ROWS * values }, memory = { floats(state), state };
    mf_floats gated = { floats(out.count), out.count };
    CHECK(mf_probe_conv(mixed, window, probe, DELTA_LAYER, in(raw), &why) == MF_OK);
    CHECK(mf_probe_unit_norm(mixed, probe, DELTA_LAYER, &why) == MF_OK);
    mf_probe_recurrence recurrence = { in(mixed), in(b), in(a) };
    CHECK(mf_probe_delta(out, memory, probe, DELTA_LAYER, &recurrence, &why) == MF_OK);
    CHECK(mf_probe_gated_norm(gated, probe, DELTA_LAYER, in(out), in(z), &why) == MF_OK);
    check_after_mixer(&s, "delta_out", gated);
    const mf_floats all[] = { x, raw, z, b, a, mixed, window, out, memory, gated };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i].values);
    shown_close(&s);
}

static void router_and_experts_give_the_layer(void)
{
    size_t count = ROWS * shape.width, k = shape.experts_per_token;
    struct shown s;
    shown_open(&s, DELTA_LAYER);
    mf_floats routed = norm(DELTA_LAYER, "ffn_norm", in(s.step.after_mixer));
    CHECK(memcmp(routed.values, s.step.routed.values, count * sizeof(float)) == 0);
    mf_probe_routes routes = { calloc(ROWS * k, sizeof(uint32_t)), floats(ROWS * k), ROWS * k };
    CHECK(mf_probe_route(routes, probe, DELTA_LAYER, in(routed), &why) == MF_OK);
    CHECK(memcmp(routes.experts, s.ids, ROWS * k * sizeof *s.ids) == 0);
    check_close(routes.weights, s.step.routes.weights, ROWS * k);

    mf_floats x = { floats(count), count };
    memcpy(x.values, s.step.after_mixer.values, count * sizeof(float));
    mf_probe_combination all = { in(routed), routes.experts, routes.weights };
    CHECK(mf_probe_experts(x, probe, DELTA_LAYER, &all, &why) == MF_OK);
    check_close(x.values, s.step.out.values, count);

    /* The same from single experts, and from what the shared one gave. */
    mf_floats one = { floats(shape.width), shape.width };
    memcpy(x.values, s.step.after_mixer.values, count * sizeof(float));
    for (size_t i = 0; i < ROWS * k; i++) {
        mf_numbers row = { routed.values + i / k * shape.width, shape.width };
        CHECK(mf_probe_expert(one, probe, DELTA_LAYER, routes.experts[i], row, &why) == MF_OK);
        for (size_t c = 0; c < shape.width; c++)
            x.values[i / k * shape.width + c] += routes.weights[i] * one.values[c];
    }
    for (size_t i = 0; i < count; i++) {
        float score = s.step.shared_score.values[i / shape.width];
        x.values[i] += s.step.shared.values[i] / (1 + expf(-score));
    }
    check_close(x.values, s.step.out.values, count);
    free(one.values);
    free(x.values);
    free(routes.experts);
    free(routes.weights);
    free(routed.values);
    shown_close(&s);
}

/* ------------------------------------------------------------ expert bytes */

/* A byte of the file changes after the expert was read: the expert in its slot is as before, the
 * bytes are the file's. */
static void expert_bytes_are_read_past_every_cache(void)
{
    char copy[64], weights[128];
    const uint32_t expert = 5;
    copy_model(copy, sizeof copy, path);
    snprintf(weights, sizeof weights, "%s/model-00001-of-00002.safetensors", copy);
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    options.memory_bytes = 64 << 20; /* slots, not the mapped file */
    mf_context *own = NULL;
    mf_probe *own_probe = NULL;
    CHECK(mf_context_open_with(&own, copy, &options, &why) == MF_OK);
    CHECK(mf_probe_open(&own_probe, own, NULL, &why) == MF_OK);
    size_t size = mf_probe_expert_size(own_probe, 1);
    CHECK(size > 0 && mf_probe_expert_size(own_probe, shape.layer_count) == 0);
    uint8_t *before = malloc(size), *after = malloc(size);
    float *x = random_floats(shape.width), *first = floats(shape.width),
          *then = floats(shape.width);
    mf_numbers row = { x, shape.width };
    CHECK(mf_probe_expert_bytes(before, size, own_probe, 1, expert, &why) == MF_OK);
    CHECK(mf_probe_expert((mf_floats){ first, shape.width }, own_probe, 1, expert, row, &why) ==
          MF_OK);
    flip_byte_of(weights, before, size);
    CHECK(mf_probe_expert_bytes(after, size, own_probe, 1, expert, &why) == MF_OK);
    CHECK(before[0] + after[0] == 255 && memcmp(before + 1, after + 1, size - 1) == 0);
    CHECK(mf_probe_expert((mf_floats){ then, shape.width }, own_probe, 1, expert, row, &why) ==
          MF_OK);
    CHECK(memcmp(first, then, shape.width * sizeof *then) == 0);

    CHECK(mf_probe_expert_bytes(after, size - 1, own_probe, 1, expert, &why) == MF_ERR_BUFFER_SIZE);
    CHECK(mf_probe_expert_bytes(NULL, size, own_probe, 1, expert, &why) == MF_ERR_BUFFER_SIZE);
    CHECK(mf_probe_expert_bytes(after, size, own_probe, 1, shape.experts, &why) == MF_ERR_ARGUMENT);
    mf_probe_close(own_probe);
    mf_context_close(own);
    remove_model(copy);
    free(before);
    free(after);
    free(x);
    free(first);
    free(then);
}

/* ---------------------------------------------------------------- refusals */

static void wrong_arguments_of_probes_are_refused(void)
{
    size_t width = shape.width;
    float *some = floats(2 * width);
    mf_floats row = { some, width }, odd = { some, width + 1 }, none = { NULL, width };
    mf_probe_step step = MF_PROBE_STEP_INIT;
    const int32_t unknown = (int32_t)shape.vocab_size;
#define REFUSED(status, call) CHECK((call) == (status))
    REFUSED(MF_ERR_ARGUMENT, mf_probe_embed(row, probe, &unknown, 1, &why));
    REFUSED(MF_ERR_BUFFER_SIZE, mf_probe_embed(odd, probe, tokens, 1, &why));
    REFUSED(MF_ERR_ARGUMENT, mf_probe_norm(row, probe, 0, "no_norm", in(row), &why));
    CHECK(strcmp(why.text, "no weight is called \"no_norm\"") == 0);
    REFUSED(MF_ERR_ARGUMENT, mf_probe_norm(row, probe, 0, "router", in(row), &why));
    REFUSED(MF_ERR_ARGUMENT, mf_probe_norm(row, probe, 99, "ffn_norm", in(row), &why));
    CHECK(strstr(why.text, "there is no layer 99"));
    REFUSED(MF_ERR_BUFFER_SIZE, mf_probe_norm(row, probe, 0, "ffn_norm", in(odd), &why));
    REFUSED(MF_ERR_BUFFER_SIZE, mf_probe_norm(row, probe, 0, "ffn_norm", in(none), &why));
    REFUSED(MF_ERR_BUFFER_SIZE, mf_probe_norm(none, probe, 0, "ffn_norm", in(row), &why));
    REFUSED(MF_ERR_ARGUMENT, mf_probe_head_norm(row, probe, DELTA_LAYER, "q_norm", &why));
    CHECK(strstr(why.text, "layer 0 is a gated delta net"));
    REFUSED(MF_ERR_ARGUMENT, mf_probe_unit_norm(row, probe, ATTENTION_LAYER, &why));
    REFUSED(MF_ERR_BUFFER_SIZE, mf_probe_expert(row, probe, 0, 0, in(none), &why));
    REFUSED(MF_ERR_ARGUMENT, mf_probe_expert(row, probe, 0, shape.experts, in(row), &why));
    REFUSED(MF_ERR_BUFFER_SIZE, mf_probe_lm_head(row, probe, in(row), &why));
    step.x = in(row);
    step.out = row;
    step.mixer = MF_MIXER_ATTENTION;
    REFUSED(MF_ERR_ARGUMENT, mf_probe_layer(&step, probe, &why));
    CHECK(strcmp(why.text, "layer 0 is a gated delta net, not full attention") == 0);
    step.mixer = MF_MIXER_DELTA;
    step.position = 7;
    REFUSED(MF_ERR_ARGUMENT, mf_probe_layer(&step, probe, &why));
    step.position = 0;
    step.x = in(none);
    REFUSED(MF_ERR_BUFFER_SIZE, mf_probe_layer(&step, probe, &why));
    step.struct_size = 0;
    REFUSED(MF_ERR_ARGUMENT, mf_probe_layer(&step, probe, &why));
#undef REFUSED
    free(some);
}

static void a_probe_of_other_sizes_is_refused(void)
{
    mf_probe *out = probe;
    mf_probe_options options = MF_PROBE_OPTIONS_INIT;
    options.context_length = (uint32_t)mf_context_n_ctx(context) + 1;
    CHECK(mf_probe_open(&out, context, &options, &why) == MF_ERR_ARGUMENT && !out);
    options.context_length = 16;
    options.row_capacity = 2;
    CHECK(mf_probe_open(&out, context, &options, &why) == MF_OK);
    float *x = random_floats(3 * shape.width);
    mf_floats three = { x, 3 * shape.width };
    CHECK(mf_probe_norm(three, out, 0, "ffn_norm", in(three), &why) == MF_ERR_BUFFER_SIZE);
    CHECK(strstr(why.text, "the probe takes up to 2"));
    mf_probe_close(out);
    free(x);
}

/* Operations, layers and refusals in the arithmetic of one backend and kernel set. */
static void check_probes(const char *backend, const char *kernels, float allowed)
{
    mf_context_options options = MF_CONTEXT_OPTIONS_INIT;
    options.backend = backend;
    options.kernels = kernels;
    tolerance = allowed;
    context = open_context(&options);
    CHECK(mf_model_get_shape(&shape, mf_context_model(context), &why) == MF_OK);
    CHECK(shape.layer_count <= LAYERS_MAX);
    CHECK(mf_probe_open(&probe, context, NULL, &why) == MF_OK);
    layers_of_a_probe_are_those_of_the_context();
    operations_of_attention_give_the_layer();
    operations_of_a_delta_net_give_the_layer();
    router_and_experts_give_the_layer();
    wrong_arguments_of_probes_are_refused();
    a_probe_of_other_sizes_is_refused();
    mf_context_memory_clear(context);
    sequences_have_ids();
    mf_probe_close(probe);
    mf_context_close(context);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    path = words[1];
    check_probes("reference", NULL, 1e-5f);
    check_probes("cpu", "generic", 2e-2f);
    check_probes("cpu", NULL, 2e-2f);
    memory_and_context_length_are_as_the_options_say();
    threads_are_as_the_options_say();
    wrong_options_are_refused();
    a_context_evaluates_forgets_and_answers();
    expert_bytes_are_read_past_every_cache();
    mf_probe_close(NULL);
    mf_context_close(NULL);
    return 0;
}
