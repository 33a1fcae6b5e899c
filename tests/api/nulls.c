/* nulls: every function of the public headers with NULL for each pointer in turn, handles among
 * them.  A function that can fail refuses it, with `why` and without; the others do nothing and
 * return what stands for nothing.  nulls_named.sh sees to it that no function is left out.
 *     api_nulls MODEL   (models/pebble) */
#include <moeflux_compat.h>
#include <moeflux_tools.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mf_error why, *w; /* w: &why, then NULL */
static int failures;

#define MUST(call)                                                                                 \
    do {                                                                                           \
        if ((call) != MF_OK) {                                                                     \
            fprintf(stderr, "%d: %s: %s\n", __LINE__, #call, why.text);                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void expect(bool good, int line, const char *call, const char *found)
{
    if (good) return;
    fprintf(stderr, "nulls.c:%d: %s: %s\n", line, call, found);
    failures++;
}

/* The call is wrong, and its sentence says so. */
#define REFUSES(call)                                                                              \
    do {                                                                                           \
        mf_status status_;                                                                         \
        why = (mf_error){ .text = "" };                                                            \
        w = &why;                                                                                  \
        status_ = (call);                                                                          \
        expect((status_ == MF_ERR_ARGUMENT || status_ == MF_ERR_BUFFER_SIZE) &&                    \
                   why.status == status_ && why.text[0],                                           \
               __LINE__, #call, mf_status_name(status_));                                          \
        w = NULL;                                                                                  \
        expect((call) == status_, __LINE__, #call, "another status without `why`");                \
    } while (0)

/* The call gives what stands for nothing. */
#define GIVES(value, call) expect((call) == (value), __LINE__, #call, "something else")

static const char *path;
static mf_engine *engine;
static mf_model *model;
static mf_sequence *sequence;
static mf_sampler *sampler;
static mf_constraint *constraint;
static mf_detokenizer *detokenizer;
static mf_stops *stops;
static mf_parser *parser;
static mf_prompt *prompt;
static mf_template *chat;
static mf_context *context;
static mf_probe *probe;
static mf_description *description;
static const mf_text *text;
static const int32_t tokens[] = { 3, 14, 15 };
static float *logits;

static void open_all(void)
{
    mf_constraint_options form = MF_CONSTRAINT_OPTIONS_INIT;
    mf_context_options little = MF_CONTEXT_OPTIONS_INIT;
    const char *const ends[] = { "end" };
    form.json_schema = "{\"type\":\"boolean\"}";
    little.memory_bytes = 16 << 20;
    w = &why;
    MUST(mf_engine_open(&engine, NULL, w));
    MUST(mf_model_open(&model, engine, path, NULL, w));
    MUST(mf_sequence_open(&sequence, model, NULL, w));
    MUST(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, 3, w));
    MUST(mf_sampler_open(&sampler, model, NULL, w));
    MUST(mf_constraint_open(&constraint, model, &form, w));
    text = mf_model_text(model);
    MUST(mf_detokenizer_open(&detokenizer, text, NULL, w));
    MUST(mf_stops_open(&stops, ends, 1, w));
    MUST(mf_parser_open(&parser, NULL, w));
    MUST(mf_prompt_from_text(&prompt, text, "hello", 5, w));
    MUST(mf_template_open(&chat, "{{ a }}", 7, "t", w));
    MUST(mf_context_open_with(&context, path, &little, w));
    MUST(mf_probe_open(&probe, context, NULL, w));
    MUST(mf_description_open(&description, path, w));
    logits = calloc(mf_model_vocab_size(model), sizeof *logits);
}

static void close_all(void)
{
    free(logits);
    mf_description_close(description);
    mf_probe_close(probe);
    mf_context_close(context);
    mf_template_close(chat);
    mf_prompt_close(prompt);
    mf_parser_close(parser);
    mf_stops_close(stops);
    mf_detokenizer_close(detokenizer);
    mf_constraint_close(constraint);
    mf_sampler_close(sampler);
    mf_sequence_close(sequence);
    mf_model_close(model);
    mf_engine_close(engine);
}

/* Every close takes NULL. */
static void check_closes(void)
{
    mf_engine_close(NULL);
    mf_model_close(NULL);
    mf_sequence_close(NULL);
    mf_text_close(NULL);
    mf_template_close(NULL);
    mf_prompt_close(NULL);
    mf_sampler_close(NULL);
    mf_constraint_close(NULL);
    mf_detokenizer_close(NULL);
    mf_stops_close(NULL);
    mf_parser_close(NULL);
    mf_scheduler_close(NULL);
    mf_request_close(NULL);
    mf_context_close(NULL);
    mf_probe_close(NULL);
    mf_description_close(NULL);
    mf_route_recorder_close(NULL);
    mf_route_trace_close(NULL);
    mf_memory_probe_close(NULL);
}

/* Numbers in, static texts out: no pointer, but numbers that are none of a list. */
static void check_names(void)
{
    expect(mf_version() && mf_default_thread_count() > 0 && mf_format_count() > 0, __LINE__,
           "mf_version, mf_default_thread_count, mf_format_count", "nothing");
    expect(mf_status_name((mf_status)99) && mf_status_text((mf_status)99), __LINE__,
           "mf_status_name, mf_status_text", "NULL for a status that is none");
    expect(mf_stage_name((mf_stage)99) != NULL, __LINE__, "mf_stage_name", "NULL");
    GIVES(NULL, mf_family_name(999));
    GIVES(NULL, mf_tensor_class_name((mf_tensor_class)99));
    GIVES(NULL, mf_format_name(999));
    GIVES(NULL, mf_cache_policy_name((mf_cache_policy)99));
}

static void check_engine_and_model(void)
{
    mf_model *out = NULL;
    mf_model_statistics statistics = MF_MODEL_STATISTICS_INIT;
    char found[64];
    REFUSES(mf_engine_open(NULL, NULL, w));
    GIVES(0, mf_engine_thread_count(NULL));
    GIVES(NULL, mf_engine_kernels(NULL));
    mf_engine_flush_trace(NULL);
    REFUSES(mf_model_find(NULL, 64, path, NULL, NULL, w));
    REFUSES(mf_model_find(found, sizeof found, NULL, NULL, NULL, w));
    REFUSES(mf_model_open(NULL, engine, path, NULL, w));
    REFUSES(mf_model_open(&out, NULL, path, NULL, w));
    REFUSES(mf_model_open(&out, engine, NULL, NULL, w));
    GIVES(0, mf_model_vocab_size(NULL));
    GIVES(0, mf_model_context_length(NULL));
    GIVES(NULL, mf_model_name(NULL));
    GIVES(NULL, mf_model_family(NULL));
    GIVES(-1, mf_model_eos(NULL));
    GIVES(false, mf_model_is_end(NULL, 1));
    GIVES(NULL, mf_model_engine(NULL));
    GIVES(NULL, mf_model_text(NULL));
    REFUSES(mf_model_stats(NULL, &statistics, w));
    REFUSES(mf_model_stats(model, NULL, w));
    mf_model_reset_stats(NULL);
    REFUSES(mf_model_step(NULL, &(mf_part){ 0 }, 1, w));
    REFUSES(mf_model_step(model, NULL, 1, w));
    mf_part part = { .tokens = tokens, .count = 3 };
    REFUSES(mf_model_step(model, &part, 1, w));
    part = (mf_part){ .sequence = sequence, .count = 3 };
    REFUSES(mf_model_step(model, &part, 1, w));
}

static void take_logits(void *user, size_t index, const float *row)
{
    (void)user;
    (void)index;
    (void)row;
}

static void check_sequence(void)
{
    mf_sequence *out = NULL;
    mf_sequence_statistics statistics = MF_SEQUENCE_STATISTICS_INIT;
    int32_t ids[3];
    mf_phase phases[3];
    uint32_t position = mf_sequence_position(sequence), reached;
    REFUSES(mf_sequence_open(NULL, model, NULL, w));
    REFUSES(mf_sequence_open(&out, NULL, NULL, w));
    REFUSES(mf_sequence_fork(NULL, sequence, w));
    REFUSES(mf_sequence_fork(&out, NULL, w));
    REFUSES(mf_sequence_feed(NULL, MF_PHASE_PROMPT, tokens, 3, w));
    REFUSES(mf_sequence_feed(sequence, MF_PHASE_PROMPT, NULL, 3, w));
    REFUSES(mf_sequence_feed_each(NULL, MF_PHASE_PROMPT, tokens, 3, take_logits, NULL, w));
    REFUSES(mf_sequence_feed_each(sequence, MF_PHASE_PROMPT, NULL, 3, take_logits, NULL, w));
    REFUSES(mf_sequence_feed_each(sequence, MF_PHASE_PROMPT, tokens, 3, NULL, NULL, w));
    REFUSES(mf_sequence_rehearse(NULL, tokens, 3, w));
    REFUSES(mf_sequence_rehearse(sequence, NULL, 3, w));
    mf_sequence_cancel(NULL);
    mf_sequence_watch_progress(NULL, NULL, NULL);
    mf_sequence_watch_progress(sequence, NULL, NULL);
    mf_sequence_watch_routes(NULL, NULL, NULL);
    mf_sequence_watch_routes(sequence, NULL, NULL);
    GIVES(NULL, mf_sequence_logits(NULL));
    GIVES(NULL, mf_sequence_model(NULL));
    REFUSES(mf_sequence_tokens(NULL, 0, 3, ids, phases, w));
    expect(mf_sequence_tokens(sequence, 0, 3, NULL, phases, w) == MF_OK, __LINE__,
           "mf_sequence_tokens", "ids may be NULL");
    expect(mf_sequence_tokens(sequence, 0, 3, ids, NULL, w) == MF_OK, __LINE__,
           "mf_sequence_tokens", "phases may be NULL");
    GIVES(0, mf_sequence_position(NULL));
    GIVES(0, mf_sequence_context_length(NULL));
    mf_sequence_clear(NULL);
    REFUSES(mf_sequence_checkpoint(NULL, w));
    mf_sequence_forget(NULL, 0);
    REFUSES(mf_sequence_truncate(NULL, 0, &reached, w));
    GIVES(0, mf_sequence_snapshot_bytes(NULL));
    REFUSES(mf_sequence_save(NULL, ids, sizeof ids, NULL, w));
    REFUSES(mf_sequence_save(sequence, NULL, sizeof ids, NULL, w));
    REFUSES(mf_sequence_load(NULL, ids, sizeof ids, w));
    REFUSES(mf_sequence_load(sequence, NULL, sizeof ids, w));
    REFUSES(mf_sequence_save_file(NULL, "/nonexistent/file", w));
    REFUSES(mf_sequence_save_file(sequence, NULL, w));
    REFUSES(mf_sequence_load_file(NULL, "/nonexistent/file", w));
    REFUSES(mf_sequence_load_file(sequence, NULL, w));
    mf_resumed resumed = MF_RESUMED_INIT;
    char sentence[256];
    REFUSES(mf_sequence_resume(NULL, tokens, 3, &resumed, w));
    REFUSES(mf_sequence_resume(sequence, NULL, 3, &resumed, w));
    REFUSES(mf_sequence_keep(NULL, MF_PLACE_NONE, w));
    mf_resumed_explain(NULL, 0, &resumed);
    mf_resumed_explain(sentence, sizeof sentence, NULL);
    REFUSES(mf_sequence_stats(NULL, &statistics, w));
    REFUSES(mf_sequence_stats(sequence, NULL, w));
    mf_sequence_reset_stats(NULL);
    expect(mf_sequence_position(sequence) == position, __LINE__, "the sequence", "has changed");
}

static void check_text(void)
{
    mf_text *out = NULL;
    int32_t ids[8];
    size_t count;
    REFUSES(mf_text_open(NULL, path, NULL, w));
    REFUSES(mf_text_open(&out, NULL, NULL, w));
    REFUSES(mf_text_tokenize(NULL, ids, 8, &count, "a", 1, MF_SPECIAL_PARSE, w));
    REFUSES(mf_text_tokenize(text, NULL, 8, &count, "a", 1, MF_SPECIAL_PARSE, w));
    REFUSES(mf_text_tokenize(text, ids, 8, NULL, "a", 1, MF_SPECIAL_PARSE, w));
    REFUSES(mf_text_tokenize(text, ids, 8, &count, NULL, 1, MF_SPECIAL_PARSE, w));
    GIVES(0, mf_text_token_count(NULL));
    GIVES(NULL, mf_text_token_bytes(NULL, 3, &count));
    expect(mf_text_token_bytes(text, 3, NULL) != NULL, __LINE__, "mf_text_token_bytes",
           "length may be NULL");
    GIVES(NULL, mf_text_token_name(NULL, 3));
    GIVES(-1, mf_text_find_token(NULL, "a"));
    GIVES(-1, mf_text_find_token(text, NULL));
    GIVES(false, mf_text_is_special(NULL, 3));
    GIVES(-1, mf_text_bos(NULL));
    GIVES(NULL, mf_text_bos_token(NULL));
    GIVES(NULL, mf_text_eos_token(NULL));
    GIVES(NULL, mf_text_family(NULL));
}

static void check_chat(void)
{
    const mf_template *own;
    mf_template *out = NULL;
    mf_prompt *rendered = NULL;
    mf_chat_options options = MF_CHAT_OPTIONS_INIT;
    size_t count;
    REFUSES(mf_text_template(NULL, text, w));
    REFUSES(mf_text_template(&own, NULL, w));
    GIVES(NULL, mf_template_source(NULL));
    REFUSES(mf_template_open(NULL, "a", 1, "t", w));
    REFUSES(mf_template_open(&out, NULL, 1, "t", w));
    expect(mf_template_open(&out, "a", 1, NULL, w) == MF_OK, __LINE__, "mf_template_open",
           "name may be NULL");
    mf_template_close(out);
    REFUSES(mf_template_render(NULL, chat, "{}", NULL, w));
    REFUSES(mf_template_render(&rendered, NULL, "{}", NULL, w));
    REFUSES(mf_template_render(&rendered, chat, NULL, NULL, w));
    options.messages = "[]";
    REFUSES(mf_chat_render(NULL, text, &options, w));
    REFUSES(mf_chat_render(&rendered, NULL, &options, w));
    REFUSES(mf_chat_render(&rendered, text, NULL, w));
    options.messages = NULL;
    REFUSES(mf_chat_render(&rendered, text, &options, w));
    REFUSES(mf_prompt_from_text(NULL, text, "a", 1, w));
    REFUSES(mf_prompt_from_text(&rendered, NULL, "a", 1, w));
    REFUSES(mf_prompt_from_text(&rendered, text, NULL, 1, w));
    GIVES(NULL, mf_prompt_text(NULL, &count));
    expect(mf_prompt_text(prompt, NULL) != NULL, __LINE__, "mf_prompt_text", "length may be NULL");
    GIVES(NULL, mf_prompt_content(NULL, &count));
    mf_prompt_content(prompt, NULL);
    GIVES(NULL, mf_prompt_tokens(NULL, &count));
    expect(mf_prompt_tokens(prompt, NULL) != NULL, __LINE__, "mf_prompt_tokens",
           "count may be NULL");
    GIVES(MF_REASONING_NONE, mf_prompt_reasoning(NULL));
}

static void check_sampler(void)
{
    mf_sampler *out = NULL;
    mf_sampler_options options = MF_SAMPLER_OPTIONS_INIT;
    mf_logprob best[2];
    REFUSES(mf_text_sampling(NULL, &options, w));
    REFUSES(mf_text_sampling(text, NULL, w));
    REFUSES(mf_sampler_open(NULL, model, NULL, w));
    REFUSES(mf_sampler_open(&out, NULL, NULL, w));
    options.bias_count = 1;
    REFUSES(mf_sampler_open(&out, model, &options, w));
    options.bias_count = 0;
    options.dry_breaker_count = 1;
    REFUSES(mf_sampler_open(&out, model, &options, w));
    GIVES(-1, mf_sampler_pick(NULL, logits));
    GIVES(-1, mf_sampler_pick(sampler, NULL));
    mf_sampler_accept_prompt(NULL, tokens, 3);
    mf_sampler_accept_prompt(sampler, NULL, 3);
    mf_sampler_accept(NULL, 3);
    mf_sampler_reset(NULL);
    GIVES(0, mf_sampler_logprobs(NULL, best, 2, logits));
    GIVES(0, mf_sampler_logprobs(sampler, NULL, 2, logits));
    GIVES(0, mf_sampler_logprobs(sampler, best, 2, NULL));
    GIVES(-INFINITY, mf_sampler_logprob_of(NULL, logits, 3));
    GIVES(-INFINITY, mf_sampler_logprob_of(sampler, NULL, 3));
}

static void check_constraint(void)
{
    mf_constraint *out = NULL;
    mf_constraint_options options = MF_CONSTRAINT_OPTIONS_INIT;
    REFUSES(mf_constraint_open(&out, model, &options, w));
    options.json_schema = "{}";
    REFUSES(mf_constraint_open(NULL, model, &options, w));
    REFUSES(mf_constraint_open(&out, NULL, &options, w));
    REFUSES(mf_constraint_open(&out, model, NULL, w));
    GIVES(-1, mf_constraint_pick(NULL, sampler, logits, 9));
    GIVES(-1, mf_constraint_pick(constraint, NULL, logits, 9));
    GIVES(-1, mf_constraint_pick(constraint, sampler, NULL, 9));
    GIVES(false, mf_constraint_accept(NULL, 3));
    GIVES(false, mf_constraint_is_complete(NULL));
    GIVES(false, mf_constraint_is_finished(NULL));
    GIVES(0, mf_constraint_closing_tokens(NULL));
    mf_constraint_reset(NULL);
}

static void take_text(void *user, const char *piece, size_t length)
{
    (void)user;
    (void)piece;
    (void)length;
}

static void check_output(void)
{
    mf_detokenizer *stream = NULL;
    mf_stops *out = NULL;
    const char *message, *const none[] = { NULL };
    size_t length;
    REFUSES(mf_detokenizer_open(NULL, text, NULL, w));
    REFUSES(mf_detokenizer_open(&stream, NULL, NULL, w));
    expect(strcmp(mf_detokenizer_push(NULL, 3, &length), "") == 0 && length == 0, __LINE__,
           "mf_detokenizer_push", "some text");
    expect(strcmp(mf_detokenizer_flush(NULL, &length), "") == 0 && length == 0, __LINE__,
           "mf_detokenizer_flush", "some text");
    expect(mf_detokenizer_push(detokenizer, 3, NULL) && mf_detokenizer_flush(detokenizer, NULL),
           __LINE__, "mf_detokenizer_push, _flush", "length may be NULL");
    REFUSES(mf_stops_open(NULL, none, 0, w));
    REFUSES(mf_stops_open(&out, NULL, 1, w));
    REFUSES(mf_stops_open(&out, none, 1, w));
    GIVES(false, mf_stops_feed(NULL, "end", 3, take_text, NULL));
    GIVES(false, mf_stops_feed(stops, NULL, 3, take_text, NULL));
    mf_stops_feed(stops, "e", 1, NULL, NULL);
    mf_stops_finish(NULL, take_text, NULL);
    mf_stops_finish(stops, NULL, NULL);
    GIVES(NULL, mf_stops_found(NULL));
    REFUSES(mf_parser_open(NULL, NULL, w));
    REFUSES(mf_parser_feed(NULL, "a", 1, w));
    REFUSES(mf_parser_feed(parser, NULL, 1, w));
    REFUSES(mf_parser_finish(NULL, w));
    REFUSES(mf_parser_cut(NULL, w));
    REFUSES(mf_parser_message(NULL, parser, w));
    REFUSES(mf_parser_message(&message, NULL, w));
}

static void check_context(void)
{
    mf_context *out = NULL;
    mf_probe *unopened = NULL;
    size_t count = mf_context_n_vocab(context);
    REFUSES(mf_context_open_with(NULL, path, NULL, w));
    REFUSES(mf_context_open_with(&out, NULL, NULL, w));
    REFUSES(mf_context_open(NULL, path, NULL, NULL, NULL, 0, false, w));
    REFUSES(mf_context_open(&out, NULL, NULL, NULL, NULL, 0, false, w));
    GIVES(NULL, mf_context_model(NULL));
    GIVES(0, mf_context_n_vocab(NULL));
    GIVES(0, mf_context_n_ctx(NULL));
    GIVES(-1, mf_context_eos(NULL));
    GIVES(NULL, mf_context_model_name(NULL));
    REFUSES(mf_context_eval_prompt(NULL, tokens, 3, 0, 0, logits, count, w));
    REFUSES(mf_context_eval_prompt(context, NULL, 3, 0, 0, logits, count, w));
    REFUSES(mf_context_eval_prompt(context, tokens, 3, 0, 0, NULL, count, w));
    REFUSES(mf_context_eval_token(NULL, 3, 0, 0, logits, count, w));
    REFUSES(mf_context_eval_token(context, 3, 0, 0, NULL, count, w));
    mf_context_memory_clear(NULL);
    REFUSES(mf_context_memory_seq_rm(NULL, 0, 0, -1, w));
    GIVES(-1, mf_context_memory_seq_pos_max(NULL, 0));
    GIVES(0, mf_context_state_size(NULL, 0));
    REFUSES(mf_context_state_save(NULL, 0, logits, count, NULL, w));
    REFUSES(mf_context_state_save(context, 0, NULL, count, NULL, w));
    REFUSES(mf_context_state_load(NULL, 0, logits, count, w));
    REFUSES(mf_context_state_load(context, 0, NULL, count, w));
    REFUSES(mf_context_checkpoint_pos(NULL, 0, 0, w));
    REFUSES(mf_context_restore_to(NULL, 0, 0, w));
    mf_context_forget_pos(NULL, 0, 0);
    mf_context_set_max_checkpoints(NULL, 3);
    GIVES(0, mf_context_checkpoint_count(NULL, 0));
    mf_context_watch_hidden(NULL, NULL, NULL);
    mf_context_watch_hidden(context, NULL, NULL);
    REFUSES(mf_probe_open(NULL, context, NULL, w));
    REFUSES(mf_probe_open(&unopened, NULL, NULL, w));
    GIVES(0, mf_probe_expert_size(NULL, 0));
}

/* Each operation without its probe, and with arrays that have a length and no values. */
static void check_probe(mf_probe *p, size_t n)
{
    const mf_floats out = { p ? NULL : logits, n };
    const mf_numbers x = { p ? NULL : logits, n };
    const mf_probe_attention attention = { x, x, x };
    const mf_probe_recurrence recurrence = { x, x, x };
    const mf_probe_combination combination = { .routed = x };
    mf_probe_step step = MF_PROBE_STEP_INIT;
    mf_probe_routes routes = { NULL, NULL, 8 };
    step.mixer = MF_MIXER_DELTA;
    step.x = x;
    step.out = out;
    REFUSES(mf_probe_embed(out, p, p ? NULL : tokens, 1, w));
    REFUSES(mf_probe_norm(out, p, 0, "ffn_norm", x, w));
    REFUSES(mf_probe_norm(out, p, 0, NULL, x, w));
    REFUSES(mf_probe_head_norm(out, p, 3, "q_norm", w));
    REFUSES(mf_probe_head_norm(out, p, 3, NULL, w));
    REFUSES(mf_probe_project(out, p, 0, "router", x, w));
    REFUSES(mf_probe_project(out, p, 0, NULL, x, w));
    REFUSES(mf_probe_lm_head(out, p, x, w));
    REFUSES(mf_probe_rope(out, p, 3, (mf_probe_positions){ NULL, 1, false }, w));
    REFUSES(mf_probe_attend(out, p, 3, &attention, w));
    REFUSES(mf_probe_attend(out, p, 3, NULL, w));
    REFUSES(mf_probe_gate(out, p, 3, x, x, w));
    REFUSES(mf_probe_conv(out, out, p, 0, x, w));
    REFUSES(mf_probe_unit_norm(out, p, 0, w));
    REFUSES(mf_probe_delta(out, out, p, 0, &recurrence, w));
    REFUSES(mf_probe_delta(out, out, p, 0, NULL, w));
    REFUSES(mf_probe_gated_norm(out, p, 0, x, x, w));
    REFUSES(mf_probe_route(routes, p, 0, x, w));
    REFUSES(mf_probe_expert(out, p, 0, 0, x, w));
    REFUSES(mf_probe_experts(out, p, 0, &combination, w));
    REFUSES(mf_probe_experts(out, p, 0, NULL, w));
    REFUSES(mf_probe_expert_bytes(NULL, 8, p, 0, 0, w));
    REFUSES(mf_probe_layer(&step, p, w));
    REFUSES(mf_probe_layer(NULL, p, w));
}

static bool write_nothing(void *user, const void *bytes, size_t count)
{
    (void)user;
    (void)bytes;
    return count > 0;
}

static void check_tools(void)
{
    mf_model_shape shape = MF_MODEL_SHAPE_INIT;
    mf_description *out = NULL;
    mf_description_info info = MF_DESCRIPTION_INFO_INIT;
    mf_tensor_info tensor;
    mf_plan plan = MF_PLAN_INIT;
    mf_workload workload = MF_WORKLOAD_INIT;
    mf_ceilings ceilings = MF_CEILINGS_INIT;
    REFUSES(mf_model_get_shape(NULL, model, w));
    REFUSES(mf_model_get_shape(&shape, NULL, w));
    REFUSES(mf_description_open(NULL, path, w));
    REFUSES(mf_description_open(&out, NULL, w));
    REFUSES(mf_description_get(NULL, description, w));
    REFUSES(mf_description_get(&info, NULL, w));
    REFUSES(mf_description_get_shape(NULL, description, w));
    REFUSES(mf_description_get_shape(&shape, NULL, w));
    GIVES(0, mf_description_sum(NULL, -1, -1).bytes);
    GIVES(false, mf_description_unknown(NULL, 0, &tensor));
    GIVES(false, mf_description_unknown(description, 0, NULL));
    REFUSES(mf_model_plan(NULL, path, NULL, w));
    REFUSES(mf_model_plan(&plan, NULL, NULL, w));
    REFUSES(mf_convert(NULL, NULL, "/nonexistent/target", NULL, w));
    REFUSES(mf_convert(NULL, path, NULL, NULL, w));
    REFUSES(mf_cache_list(NULL, NULL, NULL, NULL, w));
    REFUSES(mf_cache_verify(NULL, NULL, NULL, NULL, w));
    REFUSES(mf_cache_collect(NULL, NULL, 0, w));
    REFUSES(mf_ceilings_measure(NULL, 1, w));
    REFUSES(mf_ceilings_measure_disk(NULL, model, w));
    REFUSES(mf_ceilings_measure_disk(&ceilings, NULL, w));
    mf_format_rates rates = MF_FORMAT_RATES_INIT;
    double seconds = 0;
    REFUSES(mf_ceilings_measure_file(NULL, path, w));
    REFUSES(mf_ceilings_measure_file(&ceilings, NULL, w));
    REFUSES(mf_ceilings_measure_files(NULL, description, w));
    REFUSES(mf_ceilings_measure_files(&ceilings, NULL, w));
    REFUSES(mf_format_rates_measure(NULL, engine, 1, w));
    REFUSES(mf_format_rates_measure(&rates, NULL, 1, w));
    REFUSES(mf_layer_seconds_measure(NULL, engine, w));
    REFUSES(mf_layer_seconds_measure(&seconds, NULL, w));
    REFUSES(mf_description_workload(NULL, description, NULL, w));
    REFUSES(mf_description_workload(&workload, NULL, NULL, w));
    GIVES(NULL, mf_kernel_set_at(UINT32_MAX));
    mf_built_with_io_uring();
    REFUSES(mf_machine_get_limits(NULL, w));
    REFUSES(mf_device_describe(NULL, w));
    GIVES(false, mf_description_is_direct(NULL));
    REFUSES(mf_memory_probe_open(NULL, 1, w));
    GIVES(0, mf_memory_probe_rate(NULL));
    REFUSES(mf_model_workload(NULL, model, w));
    REFUSES(mf_model_workload(&workload, NULL, w));
    GIVES(NULL, mf_model_expert_uses(NULL, 0));
}

static void check_simulation(void)
{
    mf_route_recorder *recorder = NULL;
    mf_route_trace *trace = NULL;
    mf_route_trace_info info = MF_ROUTE_TRACE_INFO_INIT;
    mf_simulation_result result = MF_SIMULATION_RESULT_INIT;
    REFUSES(mf_route_recorder_open(NULL, sequence, write_nothing, NULL, w));
    REFUSES(mf_route_recorder_open(&recorder, NULL, write_nothing, NULL, w));
    REFUSES(mf_route_recorder_open(&recorder, sequence, NULL, NULL, w));
    REFUSES(mf_route_recorder_open_for(NULL, model, write_nothing, NULL, w));
    REFUSES(mf_route_recorder_open_for(&recorder, NULL, write_nothing, NULL, w));
    REFUSES(mf_route_recorder_open_for(&recorder, model, NULL, NULL, w));
    mf_route_recorder_add(NULL, &(mf_routes){ 0 });
    mf_route_recorder_add(recorder, NULL);
    REFUSES(mf_route_recorder_finish(NULL, w));
    REFUSES(mf_route_trace_open(NULL, "a", 1, w));
    REFUSES(mf_route_trace_open(&trace, NULL, 1, w));
    REFUSES(mf_route_trace_get(NULL, trace, w));
    REFUSES(mf_route_trace_get(&info, NULL, w));
    REFUSES(mf_simulate(NULL, trace, NULL, w));
    REFUSES(mf_simulate(&result, NULL, NULL, w));
}

static void ignore_batch(void *user, const mf_expert_batch *batch)
{
    (void)user;
    (void)batch;
}

static void check_watching(void)
{
    mf_experts experts = MF_EXPERTS_INIT;
    uint8_t map[1];
    w = &why;
    REFUSES(mf_model_experts(NULL, &experts, w));
    REFUSES(mf_model_experts(model, NULL, w));
    experts.struct_size = 0;
    REFUSES(mf_model_experts(model, &experts, w));
    REFUSES(mf_model_experts_present(NULL, map, sizeof map, w));
    REFUSES(mf_model_experts_present(model, NULL, sizeof map, w));
    REFUSES(mf_model_watch_experts(NULL, ignore_batch, NULL, w));
    MUST(mf_model_watch_experts(model, ignore_batch, NULL, w));
    MUST(mf_model_watch_experts(model, NULL, NULL, w));
}

static void check_requests(void)
{
    mf_scheduler *scheduler = NULL;
    mf_request *request = NULL;
    mf_request_options options = MF_REQUEST_OPTIONS_INIT;
    mf_scheduler_statistics statistics = MF_SCHEDULER_STATISTICS_INIT;
    const char *message;
    w = &why;
    MUST(mf_scheduler_open(&scheduler, model, NULL, w));
    REFUSES(mf_scheduler_open(NULL, model, NULL, w));
    REFUSES(mf_scheduler_open(&(mf_scheduler *){ NULL }, NULL, NULL, w));
    options.prompt = prompt;
    options.max_tokens = 1;
    REFUSES(mf_scheduler_stats(NULL, &statistics, w));
    REFUSES(mf_scheduler_stats(scheduler, NULL, w));
    statistics.struct_size = 0;
    REFUSES(mf_scheduler_stats(scheduler, &statistics, w));
    REFUSES(mf_request_submit(NULL, scheduler, &options, w));
    REFUSES(mf_request_submit(&request, NULL, &options, w));
    REFUSES(mf_request_submit(&request, scheduler, NULL, w));
    options.prompt = NULL;
    REFUSES(mf_request_submit(&request, scheduler, &options, w));
    options.prompt = prompt;
    options.stop_count = 1;
    REFUSES(mf_request_submit(&request, scheduler, &options, w));
    options.stop_count = 0;
    w = &why;
    MUST(mf_request_submit(&request, scheduler, &options, w));
    MUST(mf_request_wait(request, NULL, w));
    REFUSES(mf_request_wait(NULL, NULL, w));
    REFUSES(mf_request_message(NULL, request, w));
    REFUSES(mf_request_message(&message, NULL, w));
    mf_request_cancel(NULL);
    GIVES(NULL, mf_prompt_places(NULL, NULL));
    mf_request_close(request);
    mf_scheduler_close(scheduler);
}

int main(int count, char **words)
{
    if (count != 2) return 2;
    path = words[1];
    open_all();
    check_closes();
    check_names();
    check_engine_and_model();
    check_sequence();
    check_text();
    check_chat();
    check_sampler();
    check_constraint();
    check_output();
    check_requests();
    check_watching();
    check_context();
    check_probe(NULL, 256);
    check_probe(probe, 256);
    check_tools();
    check_simulation();
    close_all();
    return failures > 0;
}
