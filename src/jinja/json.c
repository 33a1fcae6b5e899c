/* JSON in and out: the context, `tojson` as Python's json.dumps writes it, `from_json`. */
#include "jinja/run.h"
#include "base/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ------------------------------------------------------------------ in */

static struct jinja_value from_array(struct jinja_run *run, const json_t *json)
{
    struct jinja_value list = jinja_sequence(run, JINJA_LIST, json_array_size(json));
    for (size_t i = 0; i < json_array_size(json) && !run->failed; i++)
        jinja_append(run, list.sequence, jinja_from_json(run, json_array_get(json, i)));
    return list;
}

/* Letters, digits and _ only: nothing that could be markup by itself. */
static bool is_plain_word(const json_t *json)
{
    const char *text = json_string_value(json);
    size_t length = json_string_length(json);
    if (!text || length == 0) return false;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool letter = ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c >= '0' && c <= '9');
        if (!letter && c != '_') return false;
    }
    return true;
}

struct jinja_value jinja_markup_from_json(struct jinja_run *run, const json_t *json)
{
    struct jinja_value value =
        jinja_string_copy(run, json_string_value(json), json_string_length(json));
    if (!run->failed) jinja_marks_set(run, value.string->data, value.string->length);
    return value;
}

static struct jinja_value from_object(struct jinja_run *run, const json_t *json)
{
    struct jinja_value dict = jinja_dict(run);
    /* jansson iterates in order of insertion; its iterators want a pointer they do not write */
    json_t *object = (json_t *)(uintptr_t)json;
    for (void *i = json_object_iter(object); i && !run->failed;
         i = json_object_iter_next(object, i)) {
        const char *key = json_object_iter_key(i);
        const json_t *entry = json_object_iter_value(i);
        bool role = strcmp(key, "role") == 0 && is_plain_word(entry);
        jinja_dict_set(run, dict.dict, jinja_string_view(run, key, strlen(key)),
                       role ? jinja_markup_from_json(run, entry) : jinja_from_json(run, entry));
    }
    return dict;
}

struct jinja_value jinja_from_json(struct jinja_run *run, const json_t *json)
{
    struct jinja_value value = jinja_none();
    if (!jinja_charge(run, 0)) return value;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        if (!jinja_enter(run)) return value;
        value = json_is_array(json) ? from_array(run, json) : from_object(run, json);
        jinja_leave(run);
        return value;
    case JSON_STRING:
        return jinja_string_view(run, json_string_value(json), json_string_length(json));
    case JSON_INTEGER:
        return jinja_int(json_integer_value(json));
    case JSON_REAL:
        return jinja_float(json_real_value(json));
    case JSON_TRUE:
    case JSON_FALSE:
        return jinja_bool(json_is_true(json));
    default:
        return value;
    }
}

/* The strings of a parsed text live as long as jansson's tree: they are copied into the heap. */
static void own_strings(struct jinja_run *run, struct jinja_value *value)
{
    if (value->kind == JINJA_STRING) {
        *value = jinja_string_copy(run, value->string->data, value->string->length);
    } else if (value->kind == JINJA_LIST) {
        for (size_t i = 0; i < value->sequence->count && !run->failed; i++)
            own_strings(run, &value->sequence->items[i]);
    } else if (value->kind == JINJA_DICT) {
        for (size_t i = 0; i < value->dict->count && !run->failed; i++) {
            own_strings(run, &value->dict->entries[i].key);
            own_strings(run, &value->dict->entries[i].value);
        }
    }
}

struct jinja_value jinja_filter_from_json(struct jinja_run *run, struct jinja_value self,
                                          const struct jinja_arguments *given)
{
    (void)given;
    json_error_t problem;
    if (self.kind != JINJA_STRING)
        return jinja_raise(run, JINJA_ERROR_TYPE, "the JSON object must be str, not %s",
                           jinja_type_name(self.kind));
    json_t *json = json_loadb(self.string->data, self.string->length,
                              JSON_DECODE_ANY | JSON_ALLOW_NUL, &problem);
    if (!json)
        return jinja_raise(run, JINJA_ERROR_VALUE, "not valid JSON: line %d, column %d: %s",
                           problem.line, problem.column, problem.text);
    struct jinja_value value = jinja_from_json(run, json);
    /* own_strings needs no depth check of its own: jinja_from_json has passed here before */
    if (!run->failed) own_strings(run, &value);
    json_decref(json);
    if (run->failed) value = jinja_undefined("not valid JSON");
    return value;
}

/* ------------------------------------------------------------------ out */

struct json_style {
    bool ensure_ascii;
    bool sort_keys;
    bool indented;
    const struct jinja_string *indent; /* one level */
    const struct jinja_string *item_separator, *key_separator;
};

static void add_json(struct jinja_builder *builder, const struct json_style *style,
                     struct jinja_value value, unsigned level);

static void add_unicode_escape(struct jinja_builder *builder, uint32_t c)
{
    char text[16];
    if (c >= 0x10000) {
        c -= 0x10000;
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD800 + (c >> 10), 0xDC00 + (c & 0x3FF));
    } else {
        snprintf(text, sizeof text, "\\u%04x", c);
    }
    jinja_add_text(builder, text);
}

static void add_json_escape(struct jinja_builder *builder, uint32_t c)
{
    static const char letters[] = "\"\\\b\f\n\r\t";
    static const char escapes[] = "\"\\bfnrt";
    const char *known = c && c < 0x80 ? strchr(letters, (int)c) : NULL;
    if (!known) {
        add_unicode_escape(builder, c);
        return;
    }
    char text[2] = { '\\', escapes[known - letters] };
    jinja_add(builder, text, sizeof text);
}

static void add_json_string(struct jinja_builder *builder, const struct json_style *style,
                            const struct jinja_string *string)
{
    jinja_add_text(builder, "\"");
    size_t offset = 0, plain = 0; /* what lies between is added at once */
    while (offset < string->length && !builder->run->failed) {
        size_t bytes;
        uint32_t c = unicode_decode(string->data + offset, &bytes);
        if (c < 0x20 || c == '"' || c == '\\' || (style->ensure_ascii && c > 0x7F)) {
            jinja_add(builder, string->data + plain, offset - plain);
            add_json_escape(builder, c);
            plain = offset + bytes;
        }
        offset += bytes;
    }
    jinja_add(builder, string->data + plain, string->length - plain);
    jinja_add_text(builder, "\"");
}

static void add_line(struct jinja_builder *builder, const struct json_style *style, unsigned level)
{
    if (!style->indented) return;
    jinja_add_text(builder, "\n");
    for (unsigned i = 0; i < level && !builder->run->failed; i++)
        jinja_add_string(builder, style->indent);
}

static void add_json_list(struct jinja_builder *builder, const struct json_style *style,
                          const struct jinja_sequence *list, unsigned level)
{
    jinja_add_text(builder, "[");
    for (size_t i = 0; i < list->count && !builder->run->failed; i++) {
        if (i) jinja_add_string(builder, style->item_separator);
        add_line(builder, style, level + 1);
        add_json(builder, style, list->items[i], level + 1);
    }
    if (list->count) add_line(builder, style, level);
    jinja_add_text(builder, "]");
}

static void add_scalar(struct jinja_builder *builder, struct jinja_value value)
{
    char text[JINJA_FLOAT_CAPACITY];
    if (value.kind == JINJA_NONE)
        snprintf(text, sizeof text, "null");
    else if (value.kind == JINJA_BOOL)
        snprintf(text, sizeof text, "%s", value.truth ? "true" : "false");
    else if (value.kind == JINJA_INT)
        snprintf(text, sizeof text, "%" PRId64, value.integer);
    else if (isnan(value.real) || isinf(value.real))
        snprintf(text, sizeof text, "%s",
                 isnan(value.real) ? "NaN"
                 : value.real < 0  ? "-Infinity"
                                   : "Infinity");
    else
        jinja_format_float(text, value.real);
    jinja_add_text(builder, text);
}

static void add_key(struct jinja_builder *builder, const struct json_style *style,
                    struct jinja_value key)
{
    if (key.kind == JINJA_STRING) {
        add_json_string(builder, style, key.string);
    } else if (key.kind == JINJA_NONE || jinja_is_number(key)) {
        jinja_add_text(builder, "\"");
        add_scalar(builder, key);
        jinja_add_text(builder, "\"");
    } else {
        jinja_raise(builder->run, JINJA_ERROR_TYPE,
                    "keys must be str, int, float, bool or None, not %s",
                    jinja_type_name(key.kind));
    }
}

/* The entries' numbers in the order of their keys (an insertion sort: schemas are small). */
static size_t *sorted_entries(struct jinja_run *run, const struct jinja_dict *dict)
{
    size_t *order = jinja_take(run, max_size(dict->count, 1), sizeof *order);
    for (size_t i = 0; order && i < dict->count && !run->failed; i++) {
        size_t place = i;
        while (place > 0 && jinja_charge(run, 0) &&
               jinja_order(run, dict->entries[i].key, dict->entries[order[place - 1]].key, "<") <
                   0) {
            order[place] = order[place - 1];
            place--;
        }
        order[place] = i;
    }
    return run->failed ? NULL : order;
}

static void add_json_dict(struct jinja_builder *builder, const struct json_style *style,
                          const struct jinja_dict *dict, unsigned level)
{
    size_t *order = style->sort_keys ? sorted_entries(builder->run, dict) : NULL;
    jinja_add_text(builder, "{");
    for (size_t i = 0; i < dict->count && !builder->run->failed; i++) {
        const struct jinja_entry *entry = &dict->entries[order ? order[i] : i];
        if (i) jinja_add_string(builder, style->item_separator);
        add_line(builder, style, level + 1);
        add_key(builder, style, entry->key);
        jinja_add_string(builder, style->key_separator);
        add_json(builder, style, entry->value, level + 1);
    }
    if (dict->count) add_line(builder, style, level);
    jinja_add_text(builder, "}");
}

static void add_json(struct jinja_builder *builder, const struct json_style *style,
                     struct jinja_value value, unsigned level)
{
    switch (value.kind) {
    case JINJA_NONE:
    case JINJA_BOOL:
    case JINJA_INT:
    case JINJA_FLOAT:
        add_scalar(builder, value);
        break;
    case JINJA_STRING:
        add_json_string(builder, style, value.string);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        if (!jinja_enter(builder->run)) return;
        if (value.kind == JINJA_DICT)
            add_json_dict(builder, style, value.dict, level);
        else
            add_json_list(builder, style, value.sequence, level);
        jinja_leave(builder->run);
        break;
    default:
        jinja_raise(builder->run, JINJA_ERROR_TYPE, "Object of type %s is not JSON serializable",
                    jinja_type_name(value.kind));
        break;
    }
}

/* separators=(item, key) */
static void read_separators(struct jinja_run *run, struct json_style *style,
                            struct jinja_value separators)
{
    if (!jinja_given(separators)) return;
    struct jinja_sequence *pair = jinja_iterate(run, separators);
    if (!pair) return;
    if (pair->count != 2) {
        jinja_raise(run, JINJA_ERROR_VALUE, "separators must be a pair");
        return;
    }
    style->item_separator = jinja_argument_string(run, pair->items[0]);
    style->key_separator = jinja_argument_string(run, pair->items[1]);
}

struct jinja_value jinja_to_json(struct jinja_run *run, struct jinja_value self,
                                 const struct jinja_arguments *given)
{
    static const struct jinja_string comma = { ",", 1, 1 }, comma_space = { ", ", 2, 2 },
                                     colon = { ": ", 2, 2 };
    struct jinja_value indent = given->bound[1];
    struct json_style style = {
        .ensure_ascii = jinja_argument_truth(given->bound[0], false),
        .indented = jinja_given(indent),
        .item_separator = jinja_given(indent) ? &comma : &comma_space,
        .key_separator = &colon,
        .sort_keys = jinja_argument_truth(given->bound[3], false),
    };
    struct jinja_builder builder = { .run = run };
    read_separators(run, &style, given->bound[2]);
    if (style.indented && indent.kind == JINJA_STRING) {
        style.indent = indent.string;
    } else if (style.indented) {
        int64_t width = jinja_argument_int(run, indent, 0);
        struct jinja_builder spaces = { .run = run };
        jinja_add_repeated(&spaces, ' ', width < 0 ? 0 : (size_t)width);
        style.indent = jinja_built(&spaces).string;
    }
    if (run->failed) return jinja_failed();
    add_json(&builder, &style, self, 0);
    return jinja_built(&builder);
}
