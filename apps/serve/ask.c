#include "serve/ask.h"

#include "common/basics.h"
#include "serve/guard.h"
#include "serve/reply.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

void ask_new_id(char *out, size_t capacity, const char *prefix)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char random[24];
    char name[sizeof random + 1];

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        memset(random, 0, sizeof random);
    for (size_t i = 0; i < sizeof random; i++) name[i] = letters[random[i] % (sizeof letters - 1)];
    name[sizeof random] = '\0';
    snprintf(out, capacity, "%s%s", prefix, name);
}

/* Requests of one key, session or user are one client's. */
static uint64_t client_of(const struct exchange *exchange, const json_t *body)
{
    static const char *const headers[] = { "x-session-affinity", "session-id", "x-session-id" };
    const char *name = NULL;
    uint64_t hash = 14695981039346656037u;

    for (size_t i = 0; i < COUNT_OF(headers) && !name; i++)
        name = exchange_header(exchange, headers[i]);
    if (!name) name = json_string_value(json_object_get(body, "prompt_cache_key"));
    if (!name) name = json_string_value(json_object_get(body, "user"));
    if (!name) {
        const json_t *metadata = json_object_get(body, "metadata"); /* of Anthropic's API */
        name = json_string_value(json_object_get(metadata, "user_id"));
    }
    if (!name) return 0;
    for (; *name; name++) hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return hash | 1;
}

/* A value of two bytes takes a hundred when it is read. */
enum { DEPTH_MAX = 64, VALUES_MAX = 1 << 20 };

/* Brackets that are open at a time, outside strings; *values: at least as many as values in them. */
static size_t depth_of(size_t *values, const char *text, size_t length)
{
    size_t depth = 0, deepest = 0;
    bool quoted = false;

    *values = 0;

    for (size_t i = 0; i < length; i++) {
        if (quoted) {
            if (text[i] == '\\')
                i++;
            else if (text[i] == '"')
                quoted = false;
            continue;
        }
        if (text[i] == '"') quoted = true;
        *values += text[i] == ',' || text[i] == '{' || text[i] == '[';
        if (text[i] == '{' || text[i] == '[') deepest = max_size(deepest, ++depth);
        if ((text[i] == '}' || text[i] == ']') && depth > 0) depth--;
    }
    return deepest;
}

bool ask_parse(json_t **out, const char *text, size_t length, struct failure *failure)
{
    json_error_t problem;
    size_t values;

    if (length == 0) return refuse(failure, FAILURE_INVALID, NULL, "the body is empty");
    if (depth_of(&values, text, length) > DEPTH_MAX)
        return refuse(failure, FAILURE_INVALID, NULL,
                      "the body nests deeper than %d levels of arrays and objects", DEPTH_MAX);
    if (values > VALUES_MAX)
        return refuse(failure, FAILURE_INVALID, NULL, "the body has more than %d JSON values",
                      VALUES_MAX);
    *out = json_loadb(text, length, JSON_REJECT_DUPLICATES, &problem);
    if (!*out)
        return refuse(failure, FAILURE_INVALID, NULL,
                      "the body is not valid JSON: line %d, column %d: %s", problem.line,
                      problem.column, problem.text);
    if (json_is_object(*out)) return true;
    json_decref(*out);
    *out = NULL;
    return refuse(failure, FAILURE_INVALID, NULL, "the body is not a JSON object");
}

bool ask_open_body(struct ask *ask, struct serve *serve, json_t *body, enum dialect dialect,
                   struct failure *failure)
{
    mf_error why = { .text = "" };

    *ask = (struct ask){ .serve = serve,
                         .dialect = dialect,
                         .api = "",
                         .created = time(NULL),
                         .body = body,
                         .choices = 1,
                         .stop = -1,
                         .sampling = MF_SAMPLER_OPTIONS_INIT };
    if (mf_text_sampling(serve->text, &ask->sampling, &why) != MF_OK)
        return refuse_error(failure, &why);
    if (getrandom(&ask->sampling.seed, sizeof ask->sampling.seed, 0) < 0) ask->sampling.seed = 1;
    return true;
}

bool ask_open(struct ask *ask, struct serve *serve, struct exchange *exchange, enum dialect dialect,
              struct failure *failure)
{
    size_t length;
    const char *text = exchange_body(exchange, &length);
    json_t *body = NULL;

    *ask = (struct ask){ .serve = serve, .dialect = dialect, .stop = -1 };
    if (!ask_parse(&body, text, length, failure) ||
        !ask_open_body(ask, serve, body, dialect, failure))
        return false;
    ask->owner = guard_owner(serve, exchange);
    ask->client = client_of(exchange, ask->body) ^ ask->owner;
    return true;
}

void ask_close(struct ask *ask)
{
    if (ask->free_extra) ask->free_extra(ask->extra);
    json_decref(ask->messages);
    json_decref(ask->tools);
    json_decref(ask->variables);
    json_decref(ask->body);
    for (size_t i = 0; i < ask->prompt_count; i++) {
        free(ask->prompts[i].ids);
    }
    free(ask->prompts);
    free(ask->biases);
    free(ask->schema);
    free(ask->grammar);
    byte_list_free(&ask->notes);
    *ask = (struct ask){ 0 };
}

/* -------------------------------------------------------------- field rules */

static bool is_neutral(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return json_object_size(value) == 0;
    case JSON_ARRAY:
        return json_array_size(value) == 0;
    case JSON_STRING:
        return json_string_length(value) == 0;
    case JSON_INTEGER:
        return json_integer_value(value) == 0;
    case JSON_TRUE:
    case JSON_REAL:
        return false;
    default:
        return true;
    }
}

bool ask_note(struct ask *ask, struct failure *failure, const char *format, ...)
{
    char name[128];
    va_list list;

    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    if (ask->serve->options.strict)
        return refuse_code(failure, "unsupported_parameter", name,
                           "\"%s\" would be ignored, and the server was started with --strict",
                           name);
    if (ask->notes.count > 1000) return true; /* a header has its limits */
    if (ask->notes.count > 0) text_add(&ask->notes, ",");
    text_add(&ask->notes, name);
    return true;
}

static bool check_field(struct ask *ask, const char *name, const json_t *value,
                        const struct field_rule *rule, struct failure *failure)
{
    if (!rule)
        return refuse_code(failure, "unknown_parameter", name, "\"%.60s\" is not a known field",
                           name);
    if (rule->use == FIELD_HONOURED || is_neutral(value)) return true;
    if (rule->use == FIELD_NOTED) return ask_note(ask, failure, "%s", name);
    if (rule->reason)
        return refuse_code(failure, "unsupported_parameter", name, "\"%s\" is not supported: %s",
                           name, rule->reason);
    return refuse_code(failure, "unsupported_parameter", name, "\"%s\" is not supported", name);
}

bool ask_check_fields(struct ask *ask, const struct field_rule *rules, size_t count,
                      struct failure *failure)
{
    return ask_check_members(ask, ask->body, rules, count, failure);
}

bool ask_check_members(struct ask *ask, json_t *object, const struct field_rule *rules,
                       size_t count, struct failure *failure)
{
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        const struct field_rule *rule = NULL;
        for (size_t i = 0; i < count && !rule; i++)
            if (strcmp(rules[i].name, name) == 0) rule = &rules[i];
        if (!check_field(ask, name, value, rule, failure)) return false;
    }
    return true;
}

/* ------------------------------------------------------------ single fields */

static const json_t *present(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    return value && !json_is_null(value) ? value : NULL;
}

bool read_number(double *out, const json_t *object, const char *name, double low, double high,
                 struct failure *failure)
{
    const json_t *value = present(object, name);

    if (!value) return true;
    double number = json_number_value(value);
    if (!json_is_number(value) || !isfinite(number) || number < low || number > high)
        return refuse_code(failure, "invalid_value", name, "\"%s\" is not a number from %g to %g",
                           name, low, high);
    *out = number;
    return true;
}

bool read_real(float *out, const json_t *object, const char *name, double low, double high,
               struct failure *failure)
{
    double value = (double)*out;
    bool done = read_number(&value, object, name, low, high, failure);

    *out = (float)value;
    return done;
}

bool read_count(uint32_t *out, const json_t *object, const char *name, uint32_t low, uint32_t high,
                struct failure *failure)
{
    const json_t *value = present(object, name);

    if (!value) return true;
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < low || number > high)
        return refuse_code(failure, "invalid_value", name,
                           "\"%s\" is not a whole number from %u to %u", name, low, high);
    *out = (uint32_t)number;
    return true;
}

bool read_flag(bool *out, const json_t *object, const char *name, struct failure *failure)
{
    const json_t *value = present(object, name);

    if (!value) return true;
    if (!json_is_boolean(value))
        return refuse_code(failure, "invalid_value", name, "\"%s\" is neither true nor false",
                           name);
    *out = json_is_true(value);
    return true;
}

bool read_text(const char **out, const json_t *object, const char *name, struct failure *failure)
{
    const json_t *value = present(object, name);

    if (!value) return true;
    if (!json_is_string(value))
        return refuse_code(failure, "invalid_value", name, "\"%s\" is not a string", name);
    *out = json_string_value(value);
    return true;
}

/* --------------------------------------------------------- what dialects share */

bool ask_read_model(struct ask *ask, struct failure *failure)
{
    const char *name = NULL, *own = mf_model_name(ask->serve->model);

    if (!read_text(&name, ask->body, "model", failure)) return false;
    if (!name || !ask->serve->options.strict_model || strcmp(name, own) == 0) return true;
    refuse(failure, FAILURE_NOT_FOUND, "model",
           "The model `%.100s` does not exist: this server has %s", name, own);
    failure->code = "model_not_found";
    return false;
}

static bool read_biases(struct ask *ask, const json_t *object, struct failure *failure)
{
    json_t *map = json_object_get(object, "logit_bias"), *value;
    size_t vocab = mf_model_vocab_size(ask->serve->model);
    const char *key;

    if (!map || json_is_null(map)) return true;
    if (!json_is_object(map) || json_object_size(map) > ASK_BIASES_MAX)
        return refuse_code(failure, "invalid_value", "logit_bias",
                           "\"logit_bias\" is not an object of at most %d members", ASK_BIASES_MAX);
    ask->biases = calloc(json_object_size(map) + 1, sizeof *ask->biases);
    if (!ask->biases) return refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
    ask->sampling.biases = ask->biases;
    json_object_foreach(map, key, value)
    {
        char *end;
        unsigned long token = strtoul(key, &end, 10);
        double bias = json_number_value(value);
        if (*key < '0' || *key > '9' || *end || token >= vocab || !json_is_number(value) ||
            !(bias >= -100 && bias <= 100))
            return refuse_code(failure, "invalid_value", "logit_bias",
                               "\"logit_bias\" has the member \"%.32s\", which is not a token id "
                               "with a number from -100 to 100",
                               key);
        ask->biases[ask->sampling.bias_count++] =
            (mf_logit_bias){ (int32_t)token, bias <= -100 ? -INFINITY : (float)bias };
    }
    return true;
}

bool ask_read_sampling(struct ask *ask, const json_t *object, struct failure *failure)
{
    mf_sampler_options *out = &ask->sampling;
    const json_t *seed = present(object, "seed");

    if (seed && !json_is_integer(seed))
        return refuse_code(failure, "invalid_value", "seed", "\"seed\" is not a whole number");
    if (seed) out->seed = (uint64_t)json_integer_value(seed);
    return read_real(&out->temperature, object, "temperature", 0, 2, failure) &&
           read_real(&out->top_p, object, "top_p", 0, 1, failure) &&
           read_real(&out->min_p, object, "min_p", 0, 1, failure) &&
           read_real(&out->typical_p, object, "typical_p", 0, 1, failure) &&
           read_count(&out->top_k, object, "top_k", 0, 1 << 24, failure) &&
           read_real(&out->frequency_penalty, object, "frequency_penalty", -2, 2, failure) &&
           read_real(&out->presence_penalty, object, "presence_penalty", -2, 2, failure) &&
           read_real(&out->repetition_penalty, object, "repetition_penalty", 0.01, 10, failure) &&
           read_real(&out->repetition_penalty, object, "repeat_penalty", 0.01, 10, failure) &&
           read_biases(ask, object, failure);
}

static bool add_stop(struct ask *ask, const json_t *stop, const char *name, size_t most,
                     struct failure *failure)
{
    if (!json_is_string(stop) || ask->stop_count == min_size(most, ASK_STOPS_MAX) ||
        json_string_length(stop) > 1024)
        return refuse_code(failure, "invalid_value", name,
                           "\"%s\" is neither a string nor an array of at most %zu strings of at "
                           "most 1024 bytes",
                           name, most);
    /* "" never ends an answer. */
    if (json_string_length(stop) > 0) ask->stops[ask->stop_count++] = json_string_value(stop);
    return true;
}

bool ask_read_stops_of(struct ask *ask, const json_t *object, const char *name, size_t most,
                       struct failure *failure)
{
    const json_t *stop = present(object, name);

    if (!stop) return true;
    if (!json_is_array(stop)) return add_stop(ask, stop, name, most, failure);
    for (size_t i = 0; i < json_array_size(stop); i++)
        if (!add_stop(ask, json_array_get(stop, i), name, most, failure)) return false;
    return true;
}

bool ask_read_stops(struct ask *ask, const char *name, size_t most, struct failure *failure)
{
    return ask_read_stops_of(ask, ask->body, name, most, failure);
}

size_t ask_prompt_of(const struct ask *ask, uint32_t choice)
{
    return ask->prompt_count > 1 ? choice / (ask->choices / ask->prompt_count) : 0;
}

bool ask_read_form(struct ask *ask, const json_t *form, const json_t *schema_in,
                   struct failure *failure)
{
    const char *type = json_string_value(json_object_get(form, "type"));
    const json_t *schema = json_object_get(schema_in, "schema");

    if (!form || json_is_null(form)) return true;
    if (!type)
        return refuse_code(failure, "invalid_value", "response_format",
                           "\"response_format\" has no type");
    if (strcmp(type, "text") == 0) return true;
    if (strcmp(type, "json_object") == 0) {
        ask->schema = strdup("{\"type\":\"object\"}");
    } else if (strcmp(type, "json_schema") == 0) {
        if (!json_is_object(schema) && !json_is_boolean(schema))
            return refuse_code(failure, "invalid_value", "response_format",
                               "the json_schema of the response format has no object \"schema\"");
        ask->schema = json_dumps(schema, JSON_COMPACT | JSON_REAL_PRECISION(17) | JSON_ENCODE_ANY);
    } else {
        return refuse_code(failure, "invalid_value", "response_format",
                           "a response format of type \"%.32s\" is not known: text, json_object "
                           "and json_schema are",
                           type);
    }
    return ask->schema ? true : refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
}

void ask_set_variable(struct ask *ask, const char *name, json_t *value)
{
    if (!ask->variables) ask->variables = json_object();
    if (json_object_get(ask->variables, name))
        json_decref(value);
    else
        json_object_set_new(ask->variables, name, value);
}

void ask_set_thinking(struct ask *ask, bool on)
{
    ask_set_variable(ask, "enable_thinking", json_boolean(on));
}

bool ask_read_variables(struct ask *ask, struct failure *failure)
{
    json_t *given = json_object_get(ask->body, "chat_template_kwargs");

    if (!given || json_is_null(given)) return true;
    if (!json_is_object(given))
        return refuse_code(failure, "invalid_value", "chat_template_kwargs",
                           "\"chat_template_kwargs\" is not an object");
    if (!ask->variables) ask->variables = json_object();
    return json_object_update(ask->variables, given) == 0;
}

enum { TOOLS_MAX = 512 };

static bool is_name(const char *name)
{
    size_t length = name ? strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789_-.:/")
                         : 0;

    return length > 0 && length <= 127 && name[length] == '\0';
}

bool ask_add_tool(struct ask *ask, const char *name, const char *description,
                  const json_t *parameters, struct failure *failure)
{
    if (!ask->tools) ask->tools = json_array();
    if (!is_name(name))
        return refuse_code(failure, "invalid_value", "tools",
                           "tools[%zu] has no name of 1 to 127 letters, digits, _ and -",
                           json_array_size(ask->tools));
    if (json_array_size(ask->tools) == TOOLS_MAX)
        return refuse_code(failure, "invalid_value", "tools", "there are more than %d tools",
                           TOOLS_MAX);
    if (parameters && !json_is_null(parameters) && !json_is_object(parameters))
        return refuse_code(failure, "invalid_value", "tools",
                           "the parameters of the tool \"%s\" are no schema object", name);
    json_t *schema = json_is_object(parameters) && json_object_size(parameters) > 0
                         ? json_deep_copy(parameters)
                         : json_pack("{s:s, s:{}}", "type", "object", "properties");
    json_t *tool = json_pack("{s:s, s:{s:s, s:s*, s:o}}", "type", "function", "function", "name",
                             name, "description", description, "parameters", schema);
    return json_array_append_new(ask->tools, tool) == 0 ||
           refuse(failure, FAILURE_ENGINE, NULL, "out of memory");
}

bool ask_has_tool(const struct ask *ask, const char *name)
{
    size_t i;
    json_t *tool;

    json_array_foreach(ask->tools, i, tool)
    {
        const json_t *own = json_object_get(json_object_get(tool, "function"), "name");
        if (strcmp(json_string_value(own), name) == 0) return true;
    }
    return false;
}
