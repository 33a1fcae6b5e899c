/* ollama_reply.c: answers as Ollama's API has them: whole, or a line for each piece of text.
 *
 * A call is one line, because its arguments are an object.  A call that the end of the answer has cut
 * off is left out; done_reason is "length" then. */
#include "dialects/ollama.h"

#include "serve/reply.h"

#include "common/basics.h"

#include <stdio.h>
#include <time.h>

json_t *ollama_time_new(void)
{
    char date[40], text[64];
    struct timespec now;
    struct tm parts;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(text, sizeof text, "%s.%09ldZ", date, now.tv_nsec);
    return json_string(text);
}

/* What each line begins with. */
static json_t *line_new(const struct ask *ask)
{
    return json_pack("{s:s, s:o}", "model", ollama_name(ask->serve, ask->body), "created_at",
                     ollama_time_new());
}

static bool is_chat(const struct writer *writer)
{
    return writer == &ollama_chat_writer;
}

/* Puts text in: of the chat's message, or `response` and `thinking`.  Takes the texts over; NULL:
 * none. */
static void put_text(json_t *line, const struct writer *writer, json_t *text, json_t *thinking)
{
    json_t *inside = is_chat(writer) ? json_pack("{s:s}", "role", "assistant") : line;

    json_object_set_new(inside, is_chat(writer) ? "content" : "response",
                        text ? text : json_string(""));
    if (thinking) json_object_set_new(inside, "thinking", thinking);
    if (inside != line) json_object_set_new(line, "message", inside);
}

static json_t *call_new(const struct collected_call *call, size_t index)
{
    const char *text = call->arguments.bytes ? call->arguments.bytes : "";
    json_t *arguments = json_loadb(text, call->arguments.count, 0, NULL);

    if (!json_is_object(arguments)) {
        json_decref(arguments);
        arguments = json_object();
    }
    return json_pack("{s:s, s:{s:i, s:s, s:o}}", "id", call->id, "function", "index", (int)index,
                     "name", call->name, "arguments", arguments);
}

static json_int_t nanoseconds(double seconds)
{
    return (json_int_t)(seconds * 1e9);
}

static void put_end(json_t *line, const struct collected *answer)
{
    const mf_request_result *result = &answer->result;
    double seconds = result->wait_seconds + result->prompt_seconds + result->answer_seconds;
    bool cut = result->finish == MF_FINISH_LENGTH;

    json_t *end = json_pack(
        "{s:b, s:s, s:I, s:I, s:i, s:I, s:i, s:I}", "done", 1, "done_reason",
        cut ? "length" : "stop", "total_duration", nanoseconds(seconds), "load_duration",
        nanoseconds(result->wait_seconds), "prompt_eval_count", (int)result->prompt_tokens,
        "prompt_eval_duration", nanoseconds(result->prompt_seconds), "eval_count",
        (int)result->answer_tokens, "eval_duration", nanoseconds(result->answer_seconds));
    json_object_update(line, end);
    json_decref(end);
}

static json_t *whole(struct delivery *delivery)
{
    const struct collected *answer = &delivery->answers[0];
    json_t *line = line_new(delivery->ask), *calls = json_array();

    put_text(line, delivery->writer, list_json_new(&answer->content),
             answer->reasoning.count > 0 ? list_json_new(&answer->reasoning) : NULL);
    for (size_t i = 0; i < answer->call_count; i++)
        if (answer->calls[i].complete) json_array_append_new(calls, call_new(&answer->calls[i], i));
    if (json_array_size(calls) > 0)
        json_object_set(json_object_get(line, "message"), "tool_calls", calls);
    json_decref(calls);
    if (answer->logprobs) json_object_set(line, "logprobs", answer->logprobs);
    put_end(line, answer);
    return line;
}

static void event(struct delivery *delivery, const struct job_event *event,
                  struct collected *answer, struct byte_list *out)
{
    bool call = event->kind == JOB_CALL_END && event->call < answer->call_count;

    if (event->kind != JOB_CONTENT && event->kind != JOB_REASONING && !call) return;
    json_t *line = line_new(delivery->ask);
    put_text(line, delivery->writer,
             event->kind == JOB_CONTENT ? list_json_new(&event->text) : NULL,
             event->kind == JOB_REASONING ? list_json_new(&event->text) : NULL);
    if (call)
        json_object_set_new(json_object_get(line, "message"), "tool_calls",
                            json_pack("[o]", call_new(&answer->calls[event->call], event->call)));
    if (answer->fresh_logprobs) json_object_set(line, "logprobs", answer->fresh_logprobs);
    json_object_set_new(line, "done", json_false());
    json_line_add(out, line);
}

static void finish(struct delivery *delivery, struct byte_list *out)
{
    json_t *line = line_new(delivery->ask);

    put_text(line, delivery->writer, NULL, NULL);
    put_end(line, &delivery->answers[0]);
    json_line_add(out, line);
}

static void break_off(struct delivery *delivery, const struct failure *failure,
                      struct byte_list *out)
{
    json_line_add(out, failure_json_new(failure, DIALECT_OLLAMA, exchange_id(delivery->exchange)));
}

/* A space before the next line is no text of JSON; an empty line would be none at all. */
static void ping(struct delivery *delivery, struct byte_list *out)
{
    (void)delivery;
    text_add(out, " ");
}

json_t *ollama_loaded_new(const struct ask *ask, const struct writer *writer)
{
    json_t *line = line_new(ask);

    put_text(line, writer, NULL, NULL);
    json_object_set_new(line, "done", json_true());
    json_object_set_new(line, "done_reason", json_string("load"));
    return line;
}

const struct writer ollama_chat_writer = { .stream_type = "application/x-ndjson",
                                           .call_prefix = "call_",
                                           .event = event,
                                           .finish = finish,
                                           .break_off = break_off,
                                           .ping = ping,
                                           .whole = whole };

const struct writer ollama_generate_writer = { .stream_type = "application/x-ndjson",
                                               .call_prefix = "call_",
                                               .event = event,
                                               .finish = finish,
                                               .break_off = break_off,
                                               .ping = ping,
                                               .whole = whole };
