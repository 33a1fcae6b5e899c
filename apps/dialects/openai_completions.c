/* openai_completions.c: POST /v1/completions: texts and token ids that are continued as they are.
 *
 * Several prompts make one job, whose answers stand in their order: those to the first prompt, those
 * to the second, …  With `echo` every answer begins with its prompt, and with `logprobs` as well the
 * prompt's own tokens are scored as the prompt is read (job_scores).  With max_tokens 0 that is all:
 * one token is generated, and not told. */
#include "serve/api.h"
#include "serve/handlers.h"
#include "dialects/openai.h"
#include "serve/reply.h"

#include "common/basics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What is told of one prompt. */
struct echo {
    struct byte_list text;
    size_t skip; /* tokens that stand before the text: the model's BOS */
};

struct completion {
    bool echo, no_answer;
    bool echoed[ASK_CHOICES_MAX]; /* of a stream */
    struct echo *echoes;          /* one for each prompt */
    size_t echo_count;
    size_t offsets[ASK_CHOICES_MAX]; /* characters of each answer that were told of */
};

static void free_completion(void *state)
{
    struct completion *completion = state;

    if (!completion) return;
    for (size_t i = 0; i < completion->echo_count; i++) byte_list_free(&completion->echoes[i].text);
    free(completion->echoes);
    free(completion);
}

/* ------------------------------------------------------------------ the request */

static const struct field_rule rules[] = {
    { "best_of", FIELD_HONOURED, NULL },
    { "cache_salt", FIELD_NOTED, NULL },
    { "echo", FIELD_HONOURED, NULL },
    { "frequency_penalty", FIELD_HONOURED, NULL },
    { "ignore_eos", FIELD_HONOURED, NULL },
    { "logit_bias", FIELD_HONOURED, NULL },
    { "logprobs", FIELD_HONOURED, NULL },
    { "max_tokens", FIELD_HONOURED, NULL },
    { "metadata", FIELD_NOTED, NULL },
    { "min_p", FIELD_HONOURED, NULL },
    { "model", FIELD_HONOURED, NULL },
    { "n", FIELD_HONOURED, NULL },
    { "presence_penalty", FIELD_HONOURED, NULL },
    { "prompt", FIELD_HONOURED, NULL },
    { "prompt_cache_key", FIELD_HONOURED, NULL },
    { "repeat_penalty", FIELD_HONOURED, NULL },
    { "repetition_penalty", FIELD_HONOURED, NULL },
    { "return_progress", FIELD_HONOURED, NULL },
    { "seed", FIELD_HONOURED, NULL },
    { "stop", FIELD_HONOURED, NULL },
    { "store", FIELD_NOTED, NULL },
    { "stream", FIELD_HONOURED, NULL },
    { "stream_options", FIELD_HONOURED, NULL },
    { "suffix", FIELD_REFUSED, "the model continues a text, it fills no gap" },
    { "temperature", FIELD_HONOURED, NULL },
    { "top_k", FIELD_HONOURED, NULL },
    { "top_p", FIELD_HONOURED, NULL },
    { "typical_p", FIELD_HONOURED, NULL },
    { "user", FIELD_HONOURED, NULL },
};

static bool no_memory(struct failure *failure)
{
    return refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
}

static bool wrong_prompt(struct failure *failure)
{
    return refuse_code(failure, "invalid_value", "prompt",
                       "\"prompt\" is neither a string, an array of strings, an array of token ids "
                       "nor an array of such arrays");
}

static bool add_text(struct ask_prompt *out, struct echo *echo, const struct ask *ask,
                     const json_t *text, struct failure *failure)
{
    mf_prompt *prompt = NULL;
    mf_error why = { .text = "" };
    size_t count;
    mf_status status = mf_prompt_from_text(&prompt, ask->serve->text, json_string_value(text),
                                           json_string_length(text), &why);

    if (status != MF_OK) return refuse_error(failure, &why);
    const int32_t *ids = mf_prompt_tokens(prompt, &count);
    out->ids = malloc((count + 1) * sizeof *ids);
    out->count = count;
    if (out->ids && count > 0) memcpy(out->ids, ids, count * sizeof *ids);
    mf_prompt_close(prompt);
    if (!out->ids) return no_memory(failure);
    int32_t bos = mf_text_bos(ask->serve->text);
    echo->skip = bos >= 0 && count > 0 && out->ids[0] == bos;
    status = byte_list_append(&echo->text, json_string_value(text), json_string_length(text), &why);
    return status == MF_OK || refuse_error(failure, &why);
}

static bool add_ids(struct ask_prompt *out, struct echo *echo, const struct ask *ask,
                    const json_t *ids, struct failure *failure)
{
    json_int_t vocab = mf_model_vocab_size(ask->serve->model);
    size_t i;
    json_t *value;

    out->ids = malloc((json_array_size(ids) + 1) * sizeof *out->ids);
    if (!out->ids) return no_memory(failure);
    json_array_foreach(ids, i, value)
    {
        json_int_t id = json_integer_value(value);
        size_t length = 0;
        if (!json_is_integer(value) || id < 0 || id >= vocab)
            return refuse_code(failure, "invalid_value", "prompt",
                               "\"prompt\" has a member that is no token id from 0 to %lld at "
                               "place %zu",
                               (long long)vocab - 1, i);
        out->ids[out->count++] = (int32_t)id;
        const char *bytes = mf_text_token_bytes(ask->serve->text, (int32_t)id, &length);
        if (bytes && byte_list_append(&echo->text, bytes, length, NULL) != MF_OK)
            return no_memory(failure);
    }
    return true;
}

static bool add_prompt(struct ask *ask, struct completion *completion, const json_t *prompt,
                       struct failure *failure)
{
    struct ask_prompt *out = &ask->prompts[ask->prompt_count++];
    struct echo *echo = &completion->echoes[completion->echo_count++];

    if (json_is_string(prompt)) return add_text(out, echo, ask, prompt, failure);
    if (json_is_array(prompt)) return add_ids(out, echo, ask, prompt, failure);
    return wrong_prompt(failure);
}

static bool read_prompts(struct ask *ask, struct completion *completion, struct failure *failure)
{
    const json_t *prompt = json_object_get(ask->body, "prompt");
    bool many = json_is_array(prompt) && !json_is_integer(json_array_get(prompt, 0));
    size_t count = many ? json_array_size(prompt) : 1;
    bool seeded = json_is_integer(json_object_get(ask->body, "seed"));

    if (!prompt || json_is_null(prompt))
        return refuse_code(failure, "invalid_value", "prompt", "there is no \"prompt\"");
    if (count == 0) return wrong_prompt(failure);
    if (count * ask->choices > ASK_CHOICES_MAX)
        return refuse_code(failure, "invalid_value", "prompt",
                           "%zu prompts with %u answers each: at most %d answers can be asked for "
                           "at a time",
                           count, ask->choices, ASK_CHOICES_MAX);
    ask->prompts = calloc(count, sizeof *ask->prompts);
    completion->echoes = calloc(count, sizeof *completion->echoes);
    if (!ask->prompts || !completion->echoes) return no_memory(failure);
    for (size_t i = 0; i < count; i++) {
        if (!add_prompt(ask, completion, many ? json_array_get(prompt, i) : prompt, failure))
            return false;
        /* A prompt has the same answer alone and in a list; without a seed equal ones differ. */
        ask->prompts[i].seed = seeded ? 0 : i * ask->choices;
    }
    ask->choices *= (uint32_t)count;
    return true;
}

static bool read_logprobs(struct ask *ask, struct failure *failure)
{
    const json_t *given = json_object_get(ask->body, "logprobs");

    ask->logprobs = given && !json_is_null(given);
    return read_count(&ask->top_logprobs, ask->body, "logprobs", 0, SCORE_TOP_MAX, failure);
}

static bool read_best_of(const struct ask *ask, struct failure *failure)
{
    uint32_t best_of = ask->choices;

    if (!read_count(&best_of, ask->body, "best_of", 1, UINT16_MAX, failure)) return false;
    if (best_of == ask->choices) return true;
    return refuse_code(failure, "unsupported_parameter", "best_of",
                       "\"best_of\" is %u and \"n\" is %u: this server returns all answers that it "
                       "makes",
                       best_of, ask->choices);
}

static bool read_length(struct ask *ask, struct completion *completion, struct failure *failure)
{
    ask->limit = 16; /* as this API has it */
    if (!read_count(&ask->limit, ask->body, "max_tokens", 0, INT32_MAX, failure)) return false;
    completion->no_answer = ask->limit == 0;
    ask->limit = ask->limit == 0 ? 1 : ask->limit;
    return true;
}

static bool read_ask(struct ask *ask, void **state, struct failure *failure)
{
    struct completion *completion = calloc(1, sizeof *completion);
    const json_t *body = ask->body;

    if (!completion) return no_memory(failure);
    *state = completion;
    ask_new_id(ask->id, sizeof ask->id, "cmpl-");
    ask->api = "completions";
    bool done = ask_check_fields(ask, rules, COUNT_OF(rules), failure) &&
                ask_read_model(ask, failure) && openai_read_stream(ask, failure) &&
                read_count(&ask->choices, body, "n", 1, ASK_CHOICES_MAX, failure) &&
                read_best_of(ask, failure) && read_length(ask, completion, failure) &&
                read_flag(&completion->echo, body, "echo", failure) &&
                read_logprobs(ask, failure) &&
                read_flag(&ask->ignore_end, body, "ignore_eos", failure) &&
                ask_read_sampling(ask, body, failure) && ask_read_stops(ask, "stop", 4, failure) &&
                read_prompts(ask, completion, failure);
    ask->score_prompts = completion->echo && ask->logprobs;
    return done;
}

/* ----------------------------------------------------------------------- logprobs */

/* Four lists as long as there are tokens. */
struct told {
    json_t *tokens, *values, *best, *offsets;
};

static struct told told_new(void)
{
    return (struct told){ json_array(), json_array(), json_array(), json_array() };
}

/* Takes the lists over. */
static json_t *told_json_new(struct told told)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", told.tokens, "token_logprobs", told.values,
                     "top_logprobs", told.best, "text_offset", told.offsets);
}

enum { NAME_CAPACITY = 512 };

/* A token's text; one that is part of a character is "bytes:\xe2\x82". */
static void name_token(char out[NAME_CAPACITY], const char *bytes, size_t length)
{
    json_t *text = memchr(bytes, '\0', length) ? NULL : json_stringn(bytes, length);
    size_t used = 0;

    if (text && length < NAME_CAPACITY) {
        memcpy(out, bytes, length);
        out[length] = '\0';
    } else {
        used = (size_t)snprintf(out, NAME_CAPACITY, "bytes:");
        for (size_t i = 0; i < length && used + 5 < NAME_CAPACITY; i++)
            used += (size_t)sprintf(out + used, "\\x%02x", (unsigned char)bytes[i]);
    }
    json_decref(text);
}

static void name_id(char out[NAME_CAPACITY], const mf_text *text, int32_t token)
{
    size_t length = 0;
    const char *bytes = mf_text_token_bytes(text, token, &length);

    name_token(out, bytes ? bytes : "", length);
}

static bool is_continued(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

/* The token begins at the character that *offset counts to, or inside the one before it. */
static void tell_offset(struct told *told, size_t *offset, const char *bytes, size_t length)
{
    size_t begin = *offset - (*offset > 0 && length > 0 && is_continued(bytes[0]));

    json_array_append_new(told->offsets, json_count_new(begin));
    for (size_t i = 0; i < length; i++) *offset += !is_continued(bytes[i]);
}

/* JSON has no infinity. */
static json_t *value_new(double logprob)
{
    return json_real(isfinite(logprob) ? logprob : -9999.0);
}

/* The prompt's own tokens. */
static void tell_prompt(struct told *told, const struct job *job,
                        const struct completion *completion, uint32_t choice, size_t *offset)
{
    const struct ask *ask = job_ask(job);
    const struct score *scores = job_scores(job, choice);
    const struct ask_prompt *prompt = &ask->prompts[ask_prompt_of(ask, choice)];
    const struct echo *echo = &completion->echoes[ask_prompt_of(ask, choice)];
    char name[NAME_CAPACITY];

    for (size_t i = echo->skip; i < prompt->count; i++) {
        const struct score *score = &scores[i];
        size_t length = 0;
        const char *bytes = mf_text_token_bytes(ask->serve->text, prompt->ids[i], &length);
        json_t *best = json_object();
        name_token(name, bytes ? bytes : "", length);
        json_array_append_new(told->tokens, json_string(name));
        tell_offset(told, offset, bytes ? bytes : "", length);
        if (i == 0) { /* nothing stands before it that could predict it */
            json_decref(best);
            json_array_append_new(told->values, json_null());
            json_array_append_new(told->best, json_null());
            continue;
        }
        json_array_append_new(told->values, value_new((double)score->logprob));
        json_object_set_new(best, name, value_new((double)score->logprob));
        for (size_t k = 0; k < score->count; k++) {
            name_id(name, ask->serve->text, score->best[k].token);
            json_object_set_new(best, name, value_new((double)score->best[k].logprob));
        }
        json_array_append_new(told->best, best);
    }
}

/* The bytes of a token as deliver.c has them, a list of numbers. */
static size_t bytes_of(char *out, size_t capacity, const json_t *token)
{
    const json_t *list = json_object_get(token, "bytes");
    size_t count = min_size(json_array_size(list), capacity);

    for (size_t i = 0; i < count; i++) out[i] = (char)json_integer_value(json_array_get(list, i));
    return count;
}

/* Tokens of the answer. */
static void tell_answer(struct told *told, const json_t *tokens, size_t *offset)
{
    char name[NAME_CAPACITY], bytes[NAME_CAPACITY];
    size_t i, k;
    json_t *token, *other;

    json_array_foreach(tokens, i, token)
    {
        size_t length = bytes_of(bytes, sizeof bytes, token);
        json_t *best = json_object(), *value = json_object_get(token, "logprob");
        name_token(name, bytes, length);
        json_array_append_new(told->tokens, json_string(name));
        tell_offset(told, offset, bytes, length);
        json_array_append(told->values, value);
        json_object_set(best, name, value);
        json_array_foreach(json_object_get(token, "top_logprobs"), k, other)
        {
            name_token(name, bytes, bytes_of(bytes, sizeof bytes, other));
            json_object_set(best, name, json_object_get(other, "logprob"));
        }
        json_array_append_new(told->best, best);
    }
}

/* -------------------------------------------------------------------- the reply */

static json_t *frame_new(const struct ask *ask, json_t *choices)
{
    return json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", ask->id, "object", "text_completion",
                     "created", (json_int_t)ask->created, "model", mf_model_name(ask->serve->model),
                     "system_fingerprint", mf_version(), "choices", choices);
}

/* Takes `text` and `logprobs` over. */
static json_t *choice_new(uint32_t index, json_t *text, json_t *logprobs, const char *finish)
{
    return json_pack("{s:i, s:o, s:o, s:s?}", "index", (int)index, "text", text, "logprobs",
                     logprobs, "finish_reason", finish);
}

static const struct byte_list *echo_of(const struct ask *ask, const struct completion *completion,
                                       uint32_t choice)
{
    static const struct byte_list none = { 0 };

    return completion->echo ? &completion->echoes[ask_prompt_of(ask, choice)].text : &none;
}

static const char *finish_of(const struct completion *completion, const struct collected *answer)
{
    return completion->no_answer ? "length" : finish_reason(answer);
}

static json_t *usage_new(const struct delivery *delivery)
{
    const struct completion *completion = delivery->state;
    json_t *usage = openai_usage_new(delivery);

    if (completion->no_answer) {
        json_object_set_new(usage, "completion_tokens", json_integer(0));
        json_object_set(usage, "total_tokens", json_object_get(usage, "prompt_tokens"));
    }
    return usage;
}

/* The echo, and what has come of the answer. */
static json_t *first_choice_new(const struct delivery *delivery, const struct collected *answer,
                                const char *finish)
{
    const struct ask *ask = delivery->ask;
    struct completion *completion = delivery->state;
    const struct byte_list *echo = echo_of(ask, completion, answer->index);
    struct byte_list text = { 0 };
    size_t *offset = &completion->offsets[answer->index];
    json_t *logprobs = NULL;

    if (echo->count > 0) byte_list_append(&text, echo->bytes, echo->count, NULL);
    if (answer->content.count > 0 && !completion->no_answer)
        byte_list_append(&text, answer->content.bytes, answer->content.count, NULL);
    if (ask->logprobs && (completion->echo || finish)) {
        struct told told = told_new();
        if (completion->echo) tell_prompt(&told, delivery->job, completion, answer->index, offset);
        if (!completion->no_answer) tell_answer(&told, answer->logprobs, offset);
        logprobs = told_json_new(told);
    }
    json_t *choice =
        choice_new(answer->index, list_json_new(&text), logprobs ? logprobs : json_null(), finish);
    byte_list_free(&text);
    return choice;
}

static json_t *whole(struct delivery *delivery)
{
    struct completion *completion = delivery->state;
    json_t *choices = json_array();

    for (uint32_t i = 0; i < delivery->ask->choices; i++)
        json_array_append_new(choices,
                              first_choice_new(delivery, &delivery->answers[i],
                                               finish_of(completion, &delivery->answers[i])));
    json_t *reply = frame_new(delivery->ask, choices);
    json_object_set_new(reply, "usage", usage_new(delivery));
    json_object_set_new(reply, "moeflux", openai_extra_new(delivery));
    return reply;
}

/* Takes `choice` over; NULL: a chunk without choices. */
static json_t *chunk_new(const struct ask *ask, json_t *choice)
{
    json_t *chunk = frame_new(ask, choice ? json_pack("[o]", choice) : json_array());

    if (ask->wants_usage) json_object_set_new(chunk, "usage", json_null());
    return chunk;
}

static void tell_echo(struct delivery *delivery, struct collected *answer, struct byte_list *out)
{
    struct completion *completion = delivery->state;

    if (!completion->echo || completion->echoed[answer->index]) return;
    completion->echoed[answer->index] = true;
    sse_add(out, NULL, chunk_new(delivery->ask, first_choice_new(delivery, answer, NULL)));
}

/* Scores are there when the prompt is read. */
static void begin(struct delivery *delivery, struct byte_list *out)
{
    for (uint32_t i = 0; i < delivery->ask->choices && !delivery->ask->score_prompts; i++)
        tell_echo(delivery, &delivery->answers[i], out);
}

static json_t *fresh_logprobs_new(struct completion *completion, const struct collected *answer)
{
    struct told told;

    if (!answer->fresh_logprobs) return json_null();
    told = told_new();
    tell_answer(&told, answer->fresh_logprobs, &completion->offsets[answer->index]);
    return told_json_new(told);
}

static void event(struct delivery *delivery, const struct job_event *event,
                  struct collected *answer, struct byte_list *out)
{
    const struct ask *ask = delivery->ask;
    struct completion *completion = delivery->state;
    json_t *chunk = NULL;

    if (event->kind != JOB_PROGRESS) tell_echo(delivery, answer, out);
    if (event->kind == JOB_CONTENT && !completion->no_answer)
        chunk = chunk_new(ask, choice_new(answer->index, list_json_new(&event->text),
                                          fresh_logprobs_new(completion, answer), NULL));
    if (event->kind == JOB_ENDED)
        chunk = chunk_new(ask, choice_new(answer->index, json_string(""), json_null(),
                                          finish_of(completion, answer)));
    if (event->kind == JOB_PROGRESS) {
        chunk = chunk_new(ask, NULL);
        json_object_set_new(chunk, "prompt_progress",
                            json_pack("{s:I, s:I}", "processed", (json_int_t)event->done, "total",
                                      (json_int_t)event->total));
    }
    if (chunk) sse_add(out, NULL, chunk);
}

static void finish(struct delivery *delivery, struct byte_list *out)
{
    if (delivery->ask->wants_usage) {
        json_t *chunk = frame_new(delivery->ask, json_array());
        json_object_set_new(chunk, "usage", usage_new(delivery));
        json_object_set_new(chunk, "moeflux", openai_extra_new(delivery));
        sse_add(out, NULL, chunk);
    }
    text_add(out, "data: [DONE]\n\n");
}

static const struct writer writer = {
    .stream_type = "text/event-stream",
    .call_prefix = "call_",
    .begin = begin,
    .event = event,
    .finish = finish,
    .break_off = openai_write_failure,
    .whole = whole,
    .free_state = free_completion,
};

const struct api openai_completions_api = {
    .path = "/v1/completions", .dialect = DIALECT_OPENAI, .writer = &writer, .read_state = read_ask
};

void openai_completions(struct serve *serve, struct exchange *exchange)
{
    api_serve(&openai_completions_api, serve, exchange);
}
