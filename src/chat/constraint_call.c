/* One call: a tool's name and its arguments, as the family writes them. */
#include "chat/constraint_internal.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>

/* A tool while its call is being written down. */
struct tool {
    const char *name;
    const json_t *parameters; /* an object schema; owned */
    struct json_schema_options options;
};

static const struct expression *text(struct answer *a, const char *literal)
{
    return expression_text(a->builder, literal);
}

static const struct expression *gap(struct answer *a)
{
    return answer_gap(a->builder);
}

/* An error of a schema, with the tool that it belongs to. */
static const struct expression *name_tool(struct answer *a, const struct tool *tool,
                                          const struct expression *part)
{
    mf_error *error = &a->builder->error;
    char sentence[sizeof error->text];
    if (part || error->status == MF_OK || strncmp(error->text, "tool \"", 6) == 0) return part;
    memcpy(sentence, error->text, sizeof sentence);
    fail(error, error->status, "tool \"%.80s\": %.400s", tool->name, sentence);
    return NULL;
}

/* ---------------------------------------------------------------- arguments */

static bool names_object(const json_t *type)
{
    const char *name = json_string_value(type);
    return name && strcmp(name, "object") == 0;
}

/* What a function takes is an object, in every API and by every parser here: parameters that rule
 * that out are a mistake. */
static bool takes_object(struct answer *a, const char *name, const json_t *given)
{
    const json_t *type = json_object_get(given, "type");
    bool object = !type || names_object(type);
    if (given && !json_is_object(given) && !json_is_null(given))
        return builder_fail(a->builder, MF_ERR_GRAMMAR,
                            "tool \"%.80s\": its parameters are %s, a schema was expected", name,
                            json_kind(given)) != NULL;
    for (size_t i = 0; i < json_array_size(type) && !object; i++)
        object = names_object(json_array_get(type, i));
    if (object) return true;
    char *found = json_dumps(type, JSON_COMPACT | JSON_ENCODE_ANY);
    builder_fail(a->builder, MF_ERR_GRAMMAR,
                 "tool \"%.80s\": its parameters are of type %.60s, \"object\" was expected", name,
                 found ? found : json_kind(type));
    free(found);
    return false;
}

/* The schema of an object, whatever else `given` allows beside it.  Without parameters a function
 * takes nothing; with an empty list of properties likewise.  A new reference, NULL: no memory. */
static json_t *parameters_new(const json_t *given)
{
    const json_t *properties = json_object_get(given, "properties");
    bool none = !given || json_is_null(given);
    json_t *schema = none ? json_object() : json_copy((json_t *)(uintptr_t)given);
    if (!schema) return NULL;
    bool empty = properties && json_object_size(properties) == 0;
    if (none || (empty && !json_object_get(schema, "additionalProperties")))
        json_object_set_new(schema, "additionalProperties", json_false());
    /* Both are taken into every branch of anyOf, oneOf and allOf, and into what $ref names. */
    json_object_set_new(schema, "type", json_string("object"));
    json_object_set_new(schema, "nullable", json_false());
    return schema;
}

/* The arguments as JSON. */
static const struct expression *arguments_json(struct answer *a, const struct tool *tool)
{
    uint32_t rule = json_schema_add_rule(a->builder, tool->parameters, &tool->options);
    return name_tool(a, tool, expression_rule(a->builder, rule));
}

/* {"name": "f", "arguments": {…}}, the name first. */
static const struct expression *call_object(struct answer *a, const struct tool *tool)
{
    struct grammar_builder *b = a->builder;
    json_t *name = json_string(tool->name);
    char *quoted = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
    const struct expression *out = NULL;
    if (quoted) {
        out = SEQUENCE(b, gap(a), text(a, "{"), gap(a), text(a, "\"name\":"), gap(a),
                       expression_text(b, quoted), text(a, ","), gap(a), text(a, "\"arguments\":"),
                       gap(a), arguments_json(a, tool), gap(a), text(a, "}"));
    } else {
        builder_fail(b, MF_ERR_MEMORY, "out of memory for the tools");
    }
    free(quoted);
    json_decref(name);
    return out;
}

/* NAME, then the JSON. */
static const struct expression *call_arguments(struct answer *a, const struct tool *tool)
{
    static const struct code_range digit[] = { { '0', '9' } };
    struct grammar_builder *b = a->builder;
    const struct output_family *family = a->family;
    const struct expression *name = expression_text(b, tool->name);
    const struct expression *arguments = arguments_json(a, tool);
    if (family->numbered_names) {
        const struct expression *number = expression_repeat(b, expression_class(b, digit, 1), 1, 4);
        name = SEQUENCE(b, text(a, "functions."), name, text(a, ":"), number);
    }
    if (family->fenced_arguments)
        return SEQUENCE(b, text(a, "function"), text(a, family->name_end), name,
                        text(a, "\n```json\n"), arguments, text(a, "\n```"));
    return SEQUENCE(b, name, text(a, family->name_end), arguments);
}

/* NAME, the rest of the header, and the JSON. */
static const struct expression *call_message(struct answer *a, const struct tool *tool)
{
    struct grammar_builder *b = a->builder;
    const struct expression *channel = text(a, "<|channel|>commentary");
    const struct expression *type =
        CHOICE(b, text(a, " <|constrain|>json"), text(a, "<|constrain|>json"), text(a, " json"));
    return SEQUENCE(b, expression_text(b, tool->name), expression_repeat(b, channel, 0, 1),
                    expression_repeat(b, type, 0, 1), text(a, "<|message|>"),
                    arguments_json(a, tool));
}

/* call:NAME{key:value,…} */
static const struct expression *call_pairs(struct answer *a, const struct tool *tool)
{
    return SEQUENCE(a->builder, text(a, a->family->name_begin),
                    expression_text(a->builder, tool->name), arguments_json(a, tool));
}

/* --------------------------------------------------------------- parameters */

/* Text up to the tag that ends a value, with that tag.  It contains neither that tag nor the
 * section's end, because what follows them might look like the call's end. */
static const struct expression *value_text(struct answer *a)
{
    const struct output_family *family = a->family;
    struct text_end ends[3];
    char line_end[64];
    size_t count = 0;
    if (family->lines_around_values) {
        snprintf(line_end, sizeof line_end, "\n%s", family->value_end);
        ends[count++] = (struct text_end){ line_end, expression_empty(a->builder) };
        ends[count++] = (struct text_end){ family->value_end, NULL };
    } else {
        ends[count++] = (struct text_end){ family->value_end, expression_empty(a->builder) };
    }
    if (family->section_end) ends[count++] = (struct text_end){ family->section_end, NULL };
    return expression_text_until(a->builder, ends, count, false);
}

/* What ends a value that is not free text. */
static const struct expression *value_end(struct answer *a)
{
    if (!a->family->lines_around_values) return text(a, a->family->value_end);
    return SEQUENCE(a->builder, text(a, "\n"), text(a, a->family->value_end));
}

static const struct expression *string_value(struct answer *a, const struct tool *tool,
                                             const json_t *schema)
{
    uint32_t rule =
        json_schema_add_text_rule(a->builder, schema, &tool->options, value_text(a), value_end(a));
    return expression_rule(a->builder, rule);
}

static const struct expression *json_value(struct answer *a, const struct tool *tool,
                                           const json_t *schema)
{
    struct grammar_builder *b = a->builder;
    const char *type = json_string_value(json_object_get(schema, "type"));
    bool boolean = type && strcmp(type, "boolean") == 0 && !json_object_get(schema, "enum") &&
                   !json_object_get(schema, "const");
    uint32_t rule = json_schema_add_rule(b, schema, &tool->options);
    const struct expression *value = expression_rule(b, rule);
    /* Some templates show booleans as Python writes them, and models follow. */
    if (boolean && !a->family->says_strings)
        value = CHOICE(b, value, text(a, "True"), text(a, "False"));
    return SEQUENCE(b, value, value_end(a));
}

/* A schema that describes a value in words only: any text will do. */
static bool says_nothing(const json_t *schema)
{
    static const char *const words[] = { "title",    "description", "default",
                                         "examples", "example",     "$comment" };
    size_t count = 0;
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (json_object_get(schema, words[i])) count++;
    return !json_is_false(schema) && count == json_object_size(schema);
}

/* What follows the key, with the markup around it. */
static const struct expression *wrap_value(struct answer *a, const struct expression *value,
                                           bool string)
{
    struct grammar_builder *b = a->builder;
    if (a->family->says_strings)
        value = SEQUENCE(b, text(a, string ? "true\">" : "false\">"), value);
    if (a->family->value_begin) value = SEQUENCE(b, gap(a), text(a, a->family->value_begin), value);
    if (a->family->lines_around_values) value = SEQUENCE(b, text(a, "\n"), value);
    return value;
}

static const struct expression *parameter_value(struct answer *a, const struct tool *tool,
                                                const json_t *schema)
{
    if (says_nothing(schema)) return wrap_value(a, value_text(a), true);
    if (output_schema_declares(tool->parameters, schema, "string"))
        return wrap_value(a, string_value(a, tool, schema), true);
    return wrap_value(a, json_value(a, tool, schema), false);
}

/* Whether the parser reads a key back. */
static bool is_key(const struct output_family *family, const char *key)
{
    bool white = key[0] == ' ' || (key[0] && key[strlen(key) - 1] == ' ');
    return key[0] && !white && strlen(key) < 200 && !strpbrk(key, "<\n\r\t") &&
           !strstr(key, family->key_end) && !strchr(key, family->key_end[0]);
}

/* Whether no item before it is the same. */
static bool is_first(const json_t *list, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (json_equal(json_array_get(list, i), json_array_get(list, index))) return false;
    return true;
}

static bool is_required(const json_t *parameters, const char *name)
{
    const json_t *list = json_object_get(parameters, "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *item = json_string_value(json_array_get(list, i));
        if (item && strcmp(item, name) == 0) return true;
    }
    return false;
}

/* The parameter with its markup, whether it may be left out or not. */
static const struct expression *parameter(struct answer *a, const struct tool *tool,
                                          const char *key, const json_t *schema)
{
    const struct expression *value = name_tool(a, tool, parameter_value(a, tool, schema));
    return SEQUENCE(a->builder, text(a, a->family->parameter_begin),
                    expression_text(a->builder, key), text(a, a->family->key_end), value, gap(a));
}

/* What a call may say, in the order of the schema, and how many of it. */
struct parameter_list {
    const struct expression **items;
    bool *required;
    uint32_t count, least, most;
};

/* minProperties or maxProperties. */
static uint32_t read_count(struct answer *a, const struct tool *tool, const char *keyword,
                           uint32_t otherwise)
{
    const json_t *value = json_object_get(tool->parameters, keyword);
    if (!value) return otherwise;
    double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= 0) || number != floor(number)) {
        builder_fail(a->builder, MF_ERR_GRAMMAR, "tool \"%.80s\": %s is not a count", tool->name,
                     keyword);
        return otherwise;
    }
    return number < GRAMMAR_REPEAT_LIMIT ? (uint32_t)number : GRAMMAR_REPEAT_LIMIT;
}

/* Parameters that the schema does not list: a name, and any text or what additionalProperties says, as
 * JSON: the parser does not know which of them are strings. */
static const struct expression *free_parameters(struct answer *a, const struct tool *tool,
                                                const struct parameter_list *list)
{
    enum { COUNT_LIMIT = 16, KEY_LIMIT = 64 };
    static const struct code_range letters[] = { { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
    static const struct code_range others[] = {
        { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' }
    };
    struct grammar_builder *b = a->builder;
    const json_t *extra = json_object_get(tool->parameters, "additionalProperties");
    const struct expression *value = !extra || says_nothing(extra)
                                         ? wrap_value(a, value_text(a), true)
                                         : wrap_value(a, json_value(a, tool, extra), false);
    const struct expression *key = SEQUENCE(
        b, expression_class(b, letters, COUNT_OF(letters)),
        expression_repeat(b, expression_class(b, others, COUNT_OF(others)), 0, KEY_LIMIT - 1));
    const struct expression *one = SEQUENCE(b, text(a, a->family->parameter_begin), key,
                                            text(a, a->family->key_end), value, gap(a));
    uint32_t most = (uint32_t)min_size(list->most, max_size(COUNT_LIMIT, list->least));
    /* Two of them may have the same name, which is then one property less. */
    if (list->least > 1)
        builder_fail(b, MF_ERR_UNSUPPORTED,
                     "tool \"%.80s\": minProperties is more than 1, and no properties are listed",
                     tool->name);
    return expression_repeat(b, one, list->least, most);
}

/* Whether those from `at` on can bring the number of parameters to where it has to be. */
static bool can_follow(const struct parameter_list *list, uint32_t at, uint32_t written)
{
    uint32_t needed = 0;
    for (uint32_t i = at; i < list->count; i++) needed += list->required[i];
    return written + needed <= list->most && written + list->count - at >= list->least;
}

/* A rule for every parameter and number of those before it.  NULL: no number of them will do, or
 * an error. */
static const struct expression *counted_parameters(struct answer *a,
                                                   const struct parameter_list *list)
{
    struct grammar_builder *b = a->builder;
    const struct expression **rest = /* of those from `at` on, by the number of those before */
        arena_take(&b->arena, (size_t)list->count + 2, sizeof *rest);
    if (!rest) return builder_fail(b, MF_ERR_MEMORY, "out of memory for the tools");
    for (uint32_t at = list->count + 1; at-- > 0;) {
        for (uint32_t written = 0; written <= at; written++) {
            bool possible = can_follow(list, at, written);
            if (!possible || at == list->count) {
                rest[written] = possible ? expression_empty(b) : NULL;
                continue;
            }
            const struct expression *with = rest[written + 1], *without = rest[written];
            if (with) with = SEQUENCE(b, list->items[at], with);
            if (list->required[at]) without = NULL;
            uint32_t rule = builder_add_rule(b, NULL);
            builder_define(b, rule,
                           with && without ? CHOICE(b, with, without)
                           : with          ? with
                                           : without);
            rest[written] = expression_rule(b, rule);
        }
    }
    return rest[0];
}

/* All of them one after the other, or as many as the schema says. */
static const struct expression *listed_parameters(struct answer *a, const struct tool *tool,
                                                  const struct parameter_list *list)
{
    enum { COUNTED_LIMIT = 128 };
    struct grammar_builder *b = a->builder;
    if (list->least > 0 || list->most < list->count) {
        if (list->count > COUNTED_LIMIT)
            return builder_fail(b, MF_ERR_UNSUPPORTED,
                                "tool \"%.80s\": %u properties cannot be counted, at most %d can",
                                tool->name, list->count, COUNTED_LIMIT);
        const struct expression *counted = counted_parameters(a, list);
        if (counted || builder_failed(b)) return counted;
        return builder_fail(b, MF_ERR_GRAMMAR,
                            "tool \"%.80s\": minProperties, maxProperties and required leave no "
                            "call possible",
                            tool->name);
    }
    for (uint32_t i = 0; i < list->count; i++)
        if (!list->required[i]) list->items[i] = expression_repeat(b, list->items[i], 0, 1);
    return expression_sequence(b, list->items, list->count);
}

/* Adds a parameter; one that cannot be written is left out, or refused if it must be there. */
static void add_parameter(struct answer *a, const struct tool *tool, struct parameter_list *list,
                          const char *key, const json_t *schema)
{
    bool required = is_required(tool->parameters, key);
    if (is_key(a->family, key)) {
        list->required[list->count] = required;
        list->items[list->count++] = parameter(a, tool, key, schema);
    } else if (required) {
        builder_fail(a->builder, MF_ERR_UNSUPPORTED,
                     "tool \"%.80s\": its parameter \"%.80s\" cannot be written", tool->name, key);
    }
}

/* Those that are listed, and those that are required without being listed: any text. */
static bool list_parameters(struct answer *a, const struct tool *tool, struct parameter_list *list)
{
    json_t *properties = json_object_get(tool->parameters, "properties"), *schema;
    const json_t *required = json_object_get(tool->parameters, "required");
    size_t room = json_object_size(properties) + json_array_size(required) + 1;
    const char *key;
    *list = (struct parameter_list){
        .items = arena_take(&a->builder->arena, room, sizeof *list->items),
        .required = arena_take(&a->builder->arena, room, sizeof *list->required),
        .least = read_count(a, tool, "minProperties", 0),
        .most = read_count(a, tool, "maxProperties", GRAMMAR_REPEAT_LIMIT),
    };
    if (!list->items || !list->required)
        return builder_fail(a->builder, MF_ERR_MEMORY, "out of memory for the tools") != NULL;
    json_object_foreach(properties, key, schema)
    {
        add_parameter(a, tool, list, key, schema);
    }
    json_t *any = json_object();
    for (size_t i = 0; i < json_array_size(required); i++) {
        key = json_string_value(json_array_get(required, i));
        if (key && !json_object_get(properties, key) && is_first(required, i))
            add_parameter(a, tool, list, key, any);
    }
    json_decref(any);
    return !builder_failed(a->builder);
}

/* Keywords of the parameters as a whole that tags one after the other cannot keep to. */
static void note_what_is_not_kept(const struct tool *tool)
{
    static const char *const keywords[] = { "$ref", "allOf", "anyOf",         "oneOf",
                                            "not",  "if",    "propertyNames", "patternProperties" };
    char sentence[256];
    for (size_t i = 0; i < COUNT_OF(keywords) && tool->options.note; i++) {
        if (!json_object_get(tool->parameters, keywords[i])) continue;
        snprintf(
            sentence, sizeof sentence,
            "tool \"%.80s\": %s of its parameters is not kept: this model writes them one by one",
            tool->name, keywords[i]);
        tool->options.note(tool->options.user, sentence);
    }
}

/* NAME, then a tag per parameter, in the order of the schema. */
static const struct expression *call_parameters(struct answer *a, const struct tool *tool)
{
    struct grammar_builder *b = a->builder;
    struct parameter_list list;
    note_what_is_not_kept(tool);
    if (!list_parameters(a, tool, &list)) return NULL;
    bool closed = json_is_false(json_object_get(tool->parameters, "additionalProperties"));
    bool any = json_object_size(json_object_get(tool->parameters, "properties")) == 0 &&
               list.count == 0 && !closed;
    return SEQUENCE(b, expression_text(b, tool->name),
                    text(a, a->family->name_end ? a->family->name_end : ""), gap(a),
                    any ? free_parameters(a, tool, &list) : listed_parameters(a, tool, &list));
}

/* -------------------------------------------------------------------- calls */

static const struct expression *call_of_tool(struct answer *a, const json_t *function)
{
    struct tool tool = {
        .name = json_string_value(json_object_get(function, "name")),
        .options = a->form->schema_options,
    };
    const json_t *given = json_object_get(function, "parameters");
    const struct expression *body = NULL;
    if (!takes_object(a, tool.name, given)) return NULL;
    json_t *parameters = parameters_new(given);
    if (!parameters) return builder_fail(a->builder, MF_ERR_MEMORY, "out of memory for the tools");
    tool.parameters = parameters;
    tool.options.lenient = true;
    tool.options.root = parameters;
    tool.options.barred = a->family->body == BODY_PARAMETERS ? '/' : a->family->markers ? '|' : 0;
    tool.options.quote = a->family->quote;
    tool.options.never = a->family->markers;
    if (a->family->body == BODY_CALL) body = call_object(a, &tool);
    if (a->family->body == BODY_ARGUMENTS)
        body = a->family->channels ? call_message(a, &tool) : call_arguments(a, &tool);
    if (a->family->body == BODY_PAIRS) body = call_pairs(a, &tool);
    if (a->family->body == BODY_PARAMETERS) body = call_parameters(a, &tool);
    json_decref(parameters);
    if (a->family->channels) return body; /* its end is that of the answer */
    if (a->family->body != BODY_PARAMETERS && body) body = SEQUENCE(a->builder, body, gap(a));
    return body ? SEQUENCE(a->builder, body, text(a, a->family->call_end)) : NULL;
}

const struct expression *answer_call_rest(struct answer *a)
{
    const struct answer_form *form = a->form;
    size_t total = json_array_size(form->tools), count = 0;
    const struct expression **items = arena_take(&a->builder->arena, total, sizeof *items);
    if (!items) return builder_fail(a->builder, MF_ERR_MEMORY, "out of memory for the tools");
    for (size_t i = 0; i < total && !builder_failed(a->builder); i++) {
        const json_t *function = output_tool_function(json_array_get(form->tools, i));
        const char *name = json_string_value(json_object_get(function, "name"));
        if (form->only_tool && strcmp(form->only_tool, name) != 0) continue;
        items[count++] = call_of_tool(a, function);
    }
    if (builder_failed(a->builder)) return NULL;
    return expression_choice(a->builder, items, count);
}
