/* anthropic_messages.c: POST /v1/messages and /v1/messages/count_tokens. */
#include "dialects/anthropic.h"
#include "serve/api.h"
#include "serve/handlers.h"
#include "dialects/openai.h"
#include "dialects/reasoning_token.h"
#include "dialects/recall.h"
#include "serve/reply.h"

#include "common/basics.h"

#include <stdlib.h>

/* ---------------------------------------------------------------------- blocks */

static bool add_block(struct anthropic *state, int kind, uint32_t call)
{
    if (list_reserve((void **)&state->blocks, &state->block_capacity, sizeof *state->blocks,
                     state->block_count + 1, NULL) != MF_OK)
        return false;
    state->blocks[state->block_count++] = (struct answer_block){ .kind = kind, .call = call };
    return true;
}

static struct answer_block *last_block(const struct anthropic *state)
{
    return state->block_count > 0 ? &state->blocks[state->block_count - 1] : NULL;
}

/* Blocks follow each other as the model changes from one kind of text to another. */
static void collect(struct delivery *delivery, const struct job_event *event,
                    struct collected *answer)
{
    struct anthropic *state = delivery->ask->extra;
    const struct answer_block *last = last_block(state);
    int kind = event->kind == JOB_REASONING ? BLOCK_THINKING
               : event->kind == JOB_CONTENT ? BLOCK_TEXT
                                            : BLOCK_CALL;

    if (event->kind == JOB_PROGRESS && !state->begun) state->resumed = (uint32_t)event->done;
    if (event->kind == JOB_ENDED)
        recall_keep(delivery->serve->recall, delivery->ask, job_prompt_tokens(delivery->job));
    if (state->fill_only) return;
    bool is_text = event->kind == JOB_REASONING || event->kind == JOB_CONTENT;
    bool begins_call = event->kind == JOB_CALL_BEGIN && event->call < answer->call_count;
    if ((begins_call || (is_text && (!last || (int)last->kind != kind))) &&
        !add_block(state, kind, event->call))
        return;
    if (!is_text && event->kind != JOB_CALL_ARGUMENTS) return;
    struct answer_block *block = last_block(state);
    if (block && (int)block->kind == kind && event->text.count > 0)
        byte_list_append(&block->text, event->text.bytes, event->text.count, NULL);
}

static json_t *signature_new(const struct delivery *delivery, const struct answer_block *block)
{
    char *token = reasoning_token_new(delivery->serve, block->text.bytes, block->text.count);
    json_t *value = json_string(token ? token : "");

    free(token);
    return value;
}

/* A JSON object that was cut off, closed behind the last member or piece of text that is whole:
 * what clients of a stream read from the same pieces. */
static json_t *cut_object(const struct byte_list *text)
{
    enum { TRIES = 64 };
    struct byte_list whole = { 0 };
    json_t *value = NULL;
    size_t shortest = text->count > TRIES ? text->count - TRIES : 1;

    for (size_t end = text->count; end >= shortest && end > 0 && !value; end--) {
        char closing[80];
        size_t depth = sizeof closing - 1;
        bool quoted = false;
        closing[depth] = '\0';
        for (size_t i = 0; i < end; i++) {
            char c = text->bytes[i];
            if (quoted && c == '\\')
                i++;
            else if (c == '"')
                quoted = !quoted;
            else if (!quoted && (c == '{' || c == '[') && depth > 1)
                closing[--depth] = c == '{' ? '}' : ']';
            else if (!quoted && (c == '}' || c == ']') && depth < sizeof closing - 1)
                depth++;
        }
        if (quoted) closing[--depth] = '"';
        whole.count = 0;
        if (byte_list_append(&whole, text->bytes, end, NULL) != MF_OK ||
            !text_add(&whole, closing + depth))
            break;
        value = json_loadb(whole.bytes, whole.count, 0, NULL);
    }
    byte_list_free(&whole);
    return value;
}

static json_t *input_new(const struct answer_block *block)
{
    json_t *value =
        block->text.count > 0 ? json_loadb(block->text.bytes, block->text.count, 0, NULL) : NULL;

    if (!value && block->text.count > 0) value = cut_object(&block->text);
    if (json_is_object(value)) return value;
    json_decref(value);
    return json_object();
}

/* `whole`: with its content; else as content_block_start has it. */
static json_t *block_new(const struct delivery *delivery, const struct answer_block *block,
                         bool whole)
{
    const struct anthropic *state = delivery->ask->extra;
    const struct collected_call *call = &delivery->answers[0].calls[block->call];
    bool shown = whole && !state->omit_thinking;

    if (block->kind == BLOCK_THINKING)
        return json_pack("{s:s, s:o, s:o}", "type", "thinking", "thinking",
                         shown ? list_json_new(&block->text) : json_string(""), "signature",
                         whole ? signature_new(delivery, block) : json_string(""));
    if (block->kind == BLOCK_TEXT)
        return json_pack("{s:s, s:o, s:n}", "type", "text", "text",
                         whole ? list_json_new(&block->text) : json_string(""), "citations");
    return json_pack("{s:s, s:s, s:s, s:o}", "type", "tool_use", "id", call->id, "name",
                     call->name ? call->name : "", "input",
                     whole ? input_new(block) : json_object());
}

/* --------------------------------------------------------------------- message */

/* Of the tokens behind those that came from the cache, what a cache_control asks to keep. */
static uint32_t written_tokens(const struct delivery *delivery, uint32_t resumed)
{
    uint32_t last = job_last_breakpoint(delivery->job);

    if (strcmp(delivery->serve->options.cache, "off") == 0) return 0;
    return last > resumed ? last - resumed : 0;
}

static uint32_t resumed_tokens(const struct delivery *delivery)
{
    const struct anthropic *state = delivery->ask->extra;
    const struct collected *answer = &delivery->answers[0];

    return answer->ended ? answer->result.cached.resumed : state->resumed;
}

static json_t *usage_new(const struct delivery *delivery)
{
    const struct anthropic *state = delivery->ask->extra;
    uint32_t resumed = resumed_tokens(delivery);
    uint32_t written = written_tokens(delivery, resumed);
    uint32_t given = state->fill_only ? 0 : delivery_answer_tokens(delivery);
    uint32_t thought = state->fill_only ? 0 : delivery_reasoning_tokens(delivery);

    return json_pack("{s:i, s:i, s:i, s:{s:i, s:i}, s:i, s:{s:i}, s:n, s:s, s:n, s:n}",
                     "input_tokens", (int)(job_prompt_tokens(delivery->job) - resumed - written),
                     "cache_read_input_tokens", (int)resumed, "cache_creation_input_tokens",
                     (int)written, "cache_creation", "ephemeral_5m_input_tokens",
                     state->hour ? 0 : (int)written, "ephemeral_1h_input_tokens",
                     state->hour ? (int)written : 0, "output_tokens", (int)given,
                     "output_tokens_details", "thinking_tokens", (int)thought, "server_tool_use",
                     "service_tier", "standard", "speed", "inference_geo");
}

/* Tokens that the end of a prompt may lack in the cache without a change: the nearest checkpoint. */
enum { NEAR = 64 };

/* Why the prompt does not go on from the one that the request names; null: it does. */
static json_t *diagnostics_new(const struct delivery *delivery)
{
    static const char *const types[] = {
        [RECALL_NONE] = "unavailable",    [RECALL_UNKNOWN] = "previous_message_not_found",
        [RECALL_TOOLS] = "tools_changed", [RECALL_SYSTEM] = "system_changed",
        [RECALL_OTHER] = "unavailable",   [RECALL_MESSAGES] = "messages_changed",
    };
    const struct anthropic *state = delivery->ask->extra;
    uint32_t tokens, resumed = resumed_tokens(delivery);

    if (!state->previous) return json_null();
    enum recall_change change =
        recall_compare(delivery->serve->recall, &tokens, delivery->ask, state->previous);
    if (change == RECALL_NONE && resumed + max_size(NEAR, tokens / 8) >= tokens) return json_null();
    json_t *reason = json_pack("{s:s}", "type", types[change]);
    if (change == RECALL_TOOLS || change == RECALL_SYSTEM || change == RECALL_MESSAGES)
        json_object_set_new(reason, "cache_missed_input_tokens",
                            json_count_new(tokens > resumed ? tokens - resumed : 0));
    return json_pack("{s:o}", "cache_miss_reason", reason);
}

static const char *stop_reason(const struct delivery *delivery)
{
    const struct collected *answer = &delivery->answers[0];
    const struct anthropic *state = delivery->ask->extra;

    if (state->fill_only || answer->result.finish == MF_FINISH_LENGTH) return "max_tokens";
    if (answer->result.finish == MF_FINISH_STOP) return "stop_sequence";
    return answer->call_count > 0 ? "tool_use" : "end_turn";
}

static const char *stop_sequence(const struct delivery *delivery)
{
    const struct collected *answer = &delivery->answers[0];
    bool stopped = strcmp(stop_reason(delivery), "stop_sequence") == 0;

    return stopped ? answer->result.stop : NULL;
}

/* Takes `content` over. */
static json_t *message_new(const struct delivery *delivery, json_t *content)
{
    bool ended = delivery->answers[0].ended;

    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s?, s:s?, s:n, s:n, s:o, s:o}", "id",
                     delivery->ask->id, "type", "message", "role", "assistant", "model",
                     mf_model_name(delivery->serve->model), "content", content, "stop_reason",
                     ended ? stop_reason(delivery) : NULL, "stop_sequence",
                     ended ? stop_sequence(delivery) : NULL, "stop_details", "container",
                     "diagnostics", diagnostics_new(delivery), "usage", usage_new(delivery));
}

static json_t *whole(struct delivery *delivery)
{
    const struct anthropic *state = delivery->ask->extra;
    json_t *content = json_array();

    for (size_t i = 0; i < state->block_count; i++)
        json_array_append_new(content, block_new(delivery, &state->blocks[i], true));
    json_t *message = message_new(delivery, content);
    json_object_set_new(message, "moeflux", openai_extra_new(delivery));
    return message;
}

/* ---------------------------------------------------------------------- stream */

static void write_delta(struct byte_list *out, size_t index, json_t *delta)
{
    sse_add(out, "content_block_delta",
            json_pack("{s:s, s:i, s:o}", "type", "content_block_delta", "index", (int)index,
                      "delta", delta));
}

static void write_start(struct delivery *delivery, struct byte_list *out)
{
    struct anthropic *state = delivery->ask->extra;

    if (state->begun) return;
    state->begun = true;
    sse_add(out, "message_start",
            json_pack("{s:s, s:o}", "type", "message_start", "message",
                      message_new(delivery, json_array())));
}

static void close_block(struct delivery *delivery, struct byte_list *out)
{
    struct anthropic *state = delivery->ask->extra;

    if (!state->is_open) return;
    size_t index = state->open - 1;
    const struct answer_block *block = &state->blocks[index];
    if (block->kind == BLOCK_THINKING)
        write_delta(out, index,
                    json_pack("{s:s, s:o}", "type", "signature_delta", "signature",
                              signature_new(delivery, block)));
    sse_add(out, "content_block_stop",
            json_pack("{s:s, s:i}", "type", "content_block_stop", "index", (int)index));
    state->is_open = false;
}

/* The block that `collect` has added, if it has. */
static void open_block(struct delivery *delivery, struct byte_list *out)
{
    struct anthropic *state = delivery->ask->extra;

    if (state->open == state->block_count) return;
    close_block(delivery, out);
    size_t index = state->open++;
    state->is_open = true;
    sse_add(out, "content_block_start",
            json_pack("{s:s, s:i, s:o}", "type", "content_block_start", "index", (int)index,
                      "content_block", block_new(delivery, &state->blocks[index], false)));
}

static void event(struct delivery *delivery, const struct job_event *event,
                  struct collected *answer, struct byte_list *out)
{
    static const struct {
        const char *type, *member;
    } deltas[] = {
        [JOB_REASONING] = { "thinking_delta", "thinking" },
        [JOB_CONTENT] = { "text_delta", "text" },
        [JOB_CALL_ARGUMENTS] = { "input_json_delta", "partial_json" },
    };
    const struct anthropic *state = delivery->ask->extra;

    (void)answer;
    write_start(delivery, out);
    open_block(delivery, out);
    switch (event->kind) {
    case JOB_REASONING:
    case JOB_CONTENT:
    case JOB_CALL_ARGUMENTS:
        if (state->is_open && !(event->kind == JOB_REASONING && state->omit_thinking))
            write_delta(out, state->open - 1,
                        json_pack("{s:s, s:o}", "type", deltas[event->kind].type,
                                  deltas[event->kind].member, list_json_new(&event->text)));
        break;
    case JOB_CALL_END:
    case JOB_ENDED:
        close_block(delivery, out);
        break;
    default:
        break;
    }
}

static void finish(struct delivery *delivery, struct byte_list *out)
{
    sse_add(out, "message_delta",
            json_pack("{s:s, s:{s:s, s:s?, s:n, s:n}, s:o, s:o}", "type", "message_delta", "delta",
                      "stop_reason", stop_reason(delivery), "stop_sequence",
                      stop_sequence(delivery), "stop_details", "container", "usage",
                      usage_new(delivery), "moeflux", openai_extra_new(delivery)));
    sse_add(out, "message_stop", json_pack("{s:s}", "type", "message_stop"));
}

static void break_off(struct delivery *delivery, const struct failure *failure,
                      struct byte_list *out)
{
    sse_add(out, "error",
            failure_json_new(failure, DIALECT_ANTHROPIC, exchange_id(delivery->exchange)));
}

static void ping(struct delivery *delivery, struct byte_list *out)
{
    (void)delivery;
    sse_add(out, "ping", json_pack("{s:s}", "type", "ping"));
}

static const struct writer writer = {
    .stream_type = "text/event-stream",
    .call_prefix = "toolu_",
    .collect = collect,
    .event = event,
    .finish = finish,
    .break_off = break_off,
    .ping = ping,
    .whole = whole,
};

/* -------------------------------------------------------------------- handlers */

static bool read(struct ask *ask, struct failure *failure)
{
    return anthropic_read(ask, false, failure);
}

const struct api anthropic_messages_api = {
    .path = "/v1/messages",
    .dialect = DIALECT_ANTHROPIC,
    .read = read,
    .writer = &writer,
};

void anthropic_messages(struct serve *serve, struct exchange *exchange)
{
    api_serve(&anthropic_messages_api, serve, exchange);
}

static bool count(struct ask *ask, size_t *tokens, struct failure *failure)
{
    mf_prompt *prompt = NULL;

    if (!anthropic_read(ask, true, failure) || !job_render(&prompt, ask, failure)) return false;
    mf_prompt_tokens(prompt, tokens);
    mf_prompt_close(prompt);
    return true;
}

void anthropic_count(struct serve *serve, struct exchange *exchange)
{
    struct failure failure;
    struct ask ask;
    size_t tokens = 0;

    if (!ask_open(&ask, serve, exchange, DIALECT_ANTHROPIC, &failure) ||
        !count(&ask, &tokens, &failure)) {
        failure_reply(exchange, DIALECT_ANTHROPIC, &failure);
    } else {
        if (ask.notes.count > 0)
            exchange_add_header(exchange, "x-moeflux-ignored", ask.notes.bytes);
        reply_json(exchange, 200, json_pack("{s:I}", "input_tokens", (json_int_t)tokens));
    }
    ask_close(&ask);
}
