/* ollama.c: POST /api/chat and /api/generate: how Ollama's requests become asks. */
#include "dialects/ollama.h"
#include "serve/api.h"
#include "serve/handlers.h"
#include "view/info.h"
#include "dialects/messages.h"
#include "dialects/openai.h"
#include "serve/reply.h"

#include "common/basics.h"

#include <stdio.h>
#include <stdlib.h>

static const char text_only[] = "this server reads text only";

static const struct field_rule chat_rules[] = {
    { "format", FIELD_HONOURED, NULL },       { "keep_alive", FIELD_NOTED, NULL },
    { "logprobs", FIELD_HONOURED, NULL },     { "messages", FIELD_HONOURED, NULL },
    { "model", FIELD_HONOURED, NULL },        { "options", FIELD_HONOURED, NULL },
    { "shift", FIELD_NOTED, NULL },           { "stream", FIELD_HONOURED, NULL },
    { "think", FIELD_HONOURED, NULL },        { "tools", FIELD_HONOURED, NULL },
    { "top_logprobs", FIELD_HONOURED, NULL }, { "truncate", FIELD_NOTED, NULL },
};

static const struct field_rule generate_rules[] = {
    { "context", FIELD_REFUSED, "send the conversation to /api/chat" },
    { "format", FIELD_HONOURED, NULL },
    { "height", FIELD_REFUSED, "this server writes text only" },
    { "images", FIELD_REFUSED, text_only },
    { "keep_alive", FIELD_NOTED, NULL },
    { "logprobs", FIELD_HONOURED, NULL },
    { "model", FIELD_HONOURED, NULL },
    { "options", FIELD_HONOURED, NULL },
    { "prompt", FIELD_HONOURED, NULL },
    { "raw", FIELD_HONOURED, NULL },
    { "shift", FIELD_NOTED, NULL },
    { "steps", FIELD_REFUSED, "this server writes text only" },
    { "stream", FIELD_HONOURED, NULL },
    { "suffix", FIELD_REFUSED, "the model continues a text, it fills no gap" },
    { "system", FIELD_HONOURED, NULL },
    { "template", FIELD_REFUSED, "the model's own is used; \"raw\" goes without" },
    { "think", FIELD_HONOURED, NULL },
    { "top_logprobs", FIELD_HONOURED, NULL },
    { "truncate", FIELD_NOTED, NULL },
    { "width", FIELD_REFUSED, "this server writes text only" },
};

/* Members of "options".  How the model lies in memory was decided when the server was started. */
static const struct field_rule option_rules[] = {
    { "embedding_only", FIELD_NOTED, NULL },
    { "f16_kv", FIELD_NOTED, NULL },
    { "frequency_penalty", FIELD_HONOURED, NULL },
    { "logits_all", FIELD_NOTED, NULL },
    { "low_vram", FIELD_NOTED, NULL },
    { "main_gpu", FIELD_NOTED, NULL },
    { "min_p", FIELD_HONOURED, NULL },
    { "mirostat", FIELD_REFUSED, "use temperature, top_p or min_p" },
    { "mirostat_eta", FIELD_NOTED, NULL },
    { "mirostat_tau", FIELD_NOTED, NULL },
    { "num_batch", FIELD_NOTED, NULL },
    { "num_ctx", FIELD_HONOURED, NULL },
    { "num_gpu", FIELD_NOTED, NULL },
    { "num_keep", FIELD_NOTED, NULL },
    { "num_predict", FIELD_HONOURED, NULL },
    { "num_thread", FIELD_NOTED, NULL },
    { "numa", FIELD_NOTED, NULL },
    { "penalize_newline", FIELD_NOTED, NULL },
    { "presence_penalty", FIELD_HONOURED, NULL },
    { "repeat_last_n", FIELD_HONOURED, NULL },
    { "repeat_penalty", FIELD_HONOURED, NULL },
    { "seed", FIELD_HONOURED, NULL },
    { "stop", FIELD_HONOURED, NULL },
    { "temperature", FIELD_HONOURED, NULL },
    { "tfs_z", FIELD_NOTED, NULL },
    { "top_k", FIELD_HONOURED, NULL },
    { "top_p", FIELD_HONOURED, NULL },
    { "typical_p", FIELD_HONOURED, NULL },
    { "use_mlock", FIELD_NOTED, NULL },
    { "use_mmap", FIELD_NOTED, NULL },
    { "vocab_only", FIELD_NOTED, NULL },
};

/* ------------------------------------------------------------------------ options */

/* A whole number from `low` on; absent: *out stays as it is. */
static bool read_signed(json_int_t *out, const json_t *object, const char *name, json_int_t low,
                        struct failure *failure)
{
    const json_t *value = json_object_get(object, name);

    if (!value || json_is_null(value)) return true;
    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > INT32_MAX)
        return refuse_code(failure, "invalid_value", name,
                           "\"%s\" is not a whole number from %lld to %d", name, (long long)low,
                           INT32_MAX);
    *out = json_integer_value(value);
    return true;
}

/* repeat_last_n: 0 is no penalties, -1 the whole context. */
static bool read_window(struct ask *ask, const json_t *options, struct failure *failure)
{
    mf_sampler_options *sampling = &ask->sampling;
    json_int_t window = 64;

    if (!read_signed(&window, options, "repeat_last_n", -1, failure)) return false;
    if (!json_is_integer(json_object_get(options, "repeat_last_n"))) return true;
    sampling->penalty_window = window < 0 ? ask->serve->context : (uint32_t)window;
    if (window == 0)
        sampling->repetition_penalty = sampling->frequency_penalty = sampling->presence_penalty = 0;
    return true;
}

static bool read_options(struct ask *ask, struct failure *failure)
{
    json_t *options = json_object_get(ask->body, "options");
    json_int_t limit = -1, context = ask->serve->context;

    if (!options || json_is_null(options)) return true;
    if (!json_is_object(options))
        return refuse_code(failure, "invalid_value", "options", "\"options\" is not an object");
    if (!ask_check_members(ask, options, option_rules, COUNT_OF(option_rules), failure) ||
        !ask_read_sampling(ask, options, failure) ||
        !ask_read_stops_of(ask, options, "stop", ASK_STOPS_MAX, failure) ||
        !read_window(ask, options, failure) ||
        !read_signed(&limit, options, "num_predict", -2, failure) ||
        !read_signed(&context, options, "num_ctx", 0, failure))
        return false;
    ask->limit = limit > 0 ? (uint32_t)limit : 0; /* -1 and -2: as the context allows */
    return context == ask->serve->context || ask_note(ask, failure, "options.num_ctx");
}

/* ------------------------------------------------------------------- other fields */

/* "json", or a schema. */
static bool read_format(struct ask *ask, struct failure *failure)
{
    json_t *format = json_object_get(ask->body, "format");
    const char *word = json_string_value(format);
    bool schema = json_is_object(format);

    if (!format || json_is_null(format) || (word && !*word)) return true;
    if (!schema && (!word || strcmp(word, "json") != 0))
        return refuse_code(failure, "invalid_value", "format",
                           "\"format\" is neither \"json\" nor a JSON schema");
    json_t *form =
        json_pack("{s:s, s:O}", "type", schema ? "json_schema" : "json_object", "schema", format);
    bool done = ask_read_form(ask, form, form, failure);
    json_decref(form);
    return done;
}

static bool read_thinking(struct ask *ask, struct failure *failure)
{
    static const char *const levels[] = { "low", "medium", "high", "max" };
    const json_t *think = json_object_get(ask->body, "think");
    const char *level = json_string_value(think);
    bool known = json_is_boolean(think);

    if (!think || json_is_null(think)) return true;
    for (size_t i = 0; i < COUNT_OF(levels); i++)
        known = known || (level && strcmp(level, levels[i]) == 0);
    if (!known)
        return refuse_code(
            failure, "invalid_value", "think",
            "\"think\" is neither true or false nor \"low\", \"medium\", \"high\" or "
            "\"max\"");
    if (!json_is_false(think) && !info_knows_thinking(ask->serve->text) &&
        !info_knows_effort(ask->serve->text))
        return refuse_code(failure, "unsupported_parameter", "think",
                           "%s does not support thinking", mf_model_name(ask->serve->model));
    ask_set_thinking(ask, !json_is_false(think));
    if (level) ask_set_variable(ask, "reasoning_effort", json_string(openai_effort_level(level)));
    return true;
}

static bool read_common(struct ask *ask, struct failure *failure)
{
    ask_new_id(ask->id, sizeof ask->id, "ollama-");
    ask->api = "ollama";
    ask->stream = true;
    if (!ollama_read_model(ask->serve, ask->body, failure) ||
        !read_flag(&ask->stream, ask->body, "stream", failure) ||
        !read_flag(&ask->logprobs, ask->body, "logprobs", failure) ||
        !read_count(&ask->top_logprobs, ask->body, "top_logprobs", 0, 20, failure))
        return false;
    if (ask->top_logprobs > 0 && !ask->logprobs)
        return refuse_code(failure, "invalid_value", "top_logprobs",
                           "\"top_logprobs\" needs \"logprobs\": true");
    return read_options(ask, failure) && read_format(ask, failure) && read_thinking(ask, failure);
}

/* ----------------------------------------------------------------------- messages */

/* Calls have no ids in this API: results belong to them by name, or in their order. */
struct calls {
    json_t *open; /* array of {"id","name"}: calls without a result */
    unsigned made;
};

static bool add_call(struct calls *calls, json_t *message, const json_t *call, const char *where,
                     struct failure *failure)
{
    const json_t *function = json_object_get(call, "function");
    const char *name = json_string_value(json_object_get(function, "name"));
    const char *id = json_string_value(json_object_get(call, "id"));
    char made[32];

    if (!name)
        return refuse_code(failure, "invalid_value", where, "%s has a tool call without a name",
                           where);
    snprintf(made, sizeof made, "call_%u", calls->made++);
    if (!id || !*id) id = made;
    json_array_append_new(calls->open, json_pack("{s:s, s:s}", "id", id, "name", name));
    return messages_add_call(message, id, name, json_object_get(function, "arguments")) ||
           refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
}

static bool add_assistant(struct ask *ask, struct calls *calls, const json_t *given,
                          const char *where, struct failure *failure)
{
    const json_t *thinking = json_object_get(given, "thinking");
    json_t *message = messages_assistant(ask), *call;
    size_t i;

    if (!message) return refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
    if (json_is_string(thinking) &&
        !messages_add_reasoning(message, json_string_value(thinking), json_string_length(thinking)))
        return refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
    json_array_foreach(json_object_get(given, "tool_calls"), i, call)
    {
        if (!add_call(calls, message, call, where, failure)) return false;
    }
    return true;
}

/* The call that a result belongs to, which the caller owns; NULL: there is none. */
static json_t *take_call(struct calls *calls, const char *id, const char *name)
{
    const char *wanted = id ? id : name;
    size_t i, found = 0;
    json_t *call;

    json_array_foreach(calls->open, i, call)
    {
        const char *own = json_string_value(json_object_get(call, id ? "id" : "name"));
        if (!wanted || strcmp(own, wanted) != 0) continue;
        found = i;
        break;
    }
    call = json_incref(json_array_get(calls->open, found));
    json_array_remove(calls->open, found);
    return call;
}

static bool add_result(struct ask *ask, struct calls *calls, const json_t *given,
                       const json_t *text, struct failure *failure)
{
    const char *id = json_string_value(json_object_get(given, "tool_call_id"));
    const char *name = json_string_value(json_object_get(given, "tool_name"));
    json_t *call = take_call(calls, id && *id ? id : NULL, name && *name ? name : NULL);
    json_t *own = json_object_get(call, "name");

    if (!id || !*id) id = json_string_value(json_object_get(call, "id"));
    bool done = messages_add_result(ask, id, json_string_value(text), failure);
    json_t *message = json_array_get(ask->messages, json_array_size(ask->messages) - 1);
    if (done && (name || own))
        json_object_set_new(message, "name", name ? json_string(name) : json_incref(own));
    json_decref(call);
    return done;
}

static bool read_message(struct ask *ask, struct calls *calls, const json_t *given,
                         const char *where, struct failure *failure)
{
    const char *role = json_string_value(json_object_get(given, "role"));
    json_t *text = NULL;
    bool done = false;

    if (!role)
        return refuse_code(failure, "invalid_value", where, "%s is no message: it has no role",
                           where);
    if (json_array_size(json_object_get(given, "images")) > 0)
        return refuse_code(failure, "unsupported_parameter", where, "%s has images: %s", where,
                           text_only);
    if (!content_text_new(&text, json_object_get(given, "content"), where, failure)) return false;
    if (strcmp(role, "tool") == 0)
        done = add_result(ask, calls, given, text, failure);
    else if (strcmp(role, "assistant") == 0)
        done = messages_add(ask, role, text, failure) &&
               add_assistant(ask, calls, given, where, failure);
    else if (strcmp(role, "system") == 0 || strcmp(role, "user") == 0)
        done = messages_add(ask, role, text, failure);
    else
        refuse_code(failure, "invalid_value", where,
                    "%s has the role \"%.32s\": system, user, assistant and tool are known", where,
                    role);
    json_decref(text);
    return done;
}

static bool read_messages(struct ask *ask, struct failure *failure)
{
    const json_t *messages = json_object_get(ask->body, "messages");
    struct calls calls = { .open = json_array() };
    char where[48];
    bool done = true;
    size_t i;
    json_t *message;

    if (json_array_size(messages) == 0)
        done = refuse_code(failure, "invalid_value", "messages",
                           "\"messages\" is not an array with at least one message");
    json_array_foreach(messages, i, message)
    {
        snprintf(where, sizeof where, "messages[%zu]", i);
        done = done && read_message(ask, &calls, message, where, failure);
    }
    json_decref(calls.open);
    return done;
}

static bool read_chat(struct ask *ask, struct failure *failure)
{
    return ask_check_fields(ask, chat_rules, COUNT_OF(chat_rules), failure) &&
           read_common(ask, failure) &&
           openai_read_tools(ask, json_object_get(ask->body, "tools"), failure) &&
           read_messages(ask, failure);
}

static bool read_generate(struct ask *ask, struct failure *failure)
{
    const json_t *prompt = json_object_get(ask->body, "prompt");
    const char *system = NULL;
    bool raw = false;

    if (!ask_check_fields(ask, generate_rules, COUNT_OF(generate_rules), failure) ||
        !read_common(ask, failure) || !read_flag(&raw, ask->body, "raw", failure) ||
        !read_text(&system, ask->body, "system", failure))
        return false;
    if (!json_is_string(prompt))
        return refuse_code(failure, "invalid_value", "prompt", "\"prompt\" is not a string");
    if (raw && system && *system)
        return refuse_code(failure, "invalid_value", "system",
                           "\"system\" needs the template, and \"raw\" goes without");
    ask->text = json_string_value(prompt);
    ask->text_length = json_string_length(prompt);
    if (raw) return true;
    if (system && *system && !messages_add_text(ask, "system", system, failure)) return false;
    return messages_add(ask, "user", prompt, failure);
}

/* ----------------------------------------------------------------------- handlers */

const struct api ollama_chat_api = {
    .path = "/api/chat", .dialect = DIALECT_OLLAMA, .read = read_chat, .writer = &ollama_chat_writer
};

const struct api ollama_generate_api = { .path = "/api/generate",
                                         .dialect = DIALECT_OLLAMA,
                                         .read = read_generate,
                                         .writer = &ollama_generate_writer };

/* No prompt: the client wants the model to be loaded, and it is. */
static bool is_load(const struct ask *ask, const struct api *api)
{
    const json_t *messages = json_object_get(ask->body, "messages");
    const json_t *prompt = json_object_get(ask->body, "prompt");

    if (api == &ollama_chat_api)
        return !messages || json_is_null(messages) ||
               (json_is_array(messages) && json_array_size(messages) == 0);
    return !prompt || json_is_null(prompt) ||
           (json_is_string(prompt) && json_string_length(prompt) == 0);
}

static void answer(const struct api *api, struct serve *serve, struct exchange *exchange)
{
    struct ask *ask = malloc(sizeof *ask);
    struct failure failure;

    if (!ask) return; /* the reply is "no memory" */
    bool done = ask_open(ask, serve, exchange, DIALECT_OLLAMA, &failure);
    bool load = done && is_load(ask, api);
    done =
        done && (load ? ollama_read_model(serve, ask->body, &failure) : api->read(ask, &failure));
    if (done && !load) {
        deliver(serve, exchange, ask, api->writer, NULL);
        return;
    }
    if (done)
        reply_json(exchange, 200, ollama_loaded_new(ask, api->writer));
    else
        failure_reply(exchange, DIALECT_OLLAMA, &failure);
    ask_close(ask);
    free(ask);
}

void ollama_chat(struct serve *serve, struct exchange *exchange)
{
    answer(&ollama_chat_api, serve, exchange);
}

void ollama_generate(struct serve *serve, struct exchange *exchange)
{
    answer(&ollama_generate_api, serve, exchange);
}
