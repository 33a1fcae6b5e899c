/* Text that grows, and Python's str() and repr(). */
#include "jinja/run.h"
#include "base/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool reserve(struct jinja_builder *builder, size_t more)
{
    const char *old = builder->data;
    if (builder->run->failed) return false;
    if (builder->capacity - builder->length >= more) return true;
    if (!JINJA_RESERVE(builder->run, builder->data, builder->capacity, builder->length + more))
        return false;
    jinja_marks_copy(builder->run, builder->data, old, builder->length);
    return true;
}

void jinja_add(struct jinja_builder *builder, const char *data, size_t length)
{
    struct jinja_run *run = builder->run;
    if (!length || !reserve(builder, length) || !jinja_charge(run, length)) return;
    char *to = builder->data + builder->length;
    memcpy(to, data, length);
    if (builder->markup)
        jinja_marks_set(run, to, length);
    else
        jinja_marks_copy(run, to, data, length);
    builder->length += length;
    if (builder == run->output && builder->length > run->output_limit)
        jinja_raise(run, JINJA_ERROR_LIMIT, "the output is longer than %zu bytes",
                    run->output_limit);
}

void jinja_add_text(struct jinja_builder *builder, const char *terminated)
{
    jinja_add(builder, terminated, strlen(terminated));
}

void jinja_add_string(struct jinja_builder *builder, const struct jinja_string *string)
{
    jinja_add(builder, string->data, string->length);
}

void jinja_add_repeated(struct jinja_builder *builder, char character, size_t count)
{
    if (!count || !reserve(builder, count) || !jinja_charge(builder->run, count)) return;
    memset(builder->data + builder->length, character, count);
    builder->length += count;
}

void jinja_add_code_point(struct jinja_builder *builder, uint32_t code_point)
{
    char bytes[4];
    jinja_add(builder, bytes, unicode_encode(bytes, code_point));
}

struct jinja_value jinja_built(struct jinja_builder *builder)
{
    if (builder->run->failed) return jinja_failed();
    return jinja_string_view(builder->run, builder->data ? builder->data : "", builder->length);
}

/* ------------------------------------------------------------------ numbers */

/* Digits and decimal exponent of the shortest decimal that reads back as `real` (finite, not 0):
 * 0.d1d2d3… × 10^exponent. */
static int shortest_digits(char digits[20], double real, int *exponent)
{
    char text[40];
    int precision = 0;
    do {
        snprintf(text, sizeof text, "%.*e", precision, real);
    } while (strtod(text, NULL) != real && ++precision < 17);
    int count = 0;
    const char *p = text;
    for (; *p != 'e'; p++)
        if (*p != '.' && *p != '-') digits[count++] = *p;
    *exponent = atoi(p + 1) + 1;
    while (count > 1 && digits[count - 1] == '0') count--;
    digits[count] = '\0';
    return count;
}

void jinja_format_float(char out[JINJA_FLOAT_CAPACITY], double real)
{
    if (isnan(real) || isinf(real)) {
        snprintf(out, JINJA_FLOAT_CAPACITY, "%s", isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
        return;
    }
    const char *sign = signbit(real) ? "-" : "";
    if (real == 0) {
        snprintf(out, JINJA_FLOAT_CAPACITY, "%s0.0", sign);
        return;
    }
    char digits[20];
    int exponent;
    int count = shortest_digits(digits, fabs(real), &exponent);
    if (exponent > 16 || exponent < -3) { /* d.ddde+xx */
        snprintf(out, JINJA_FLOAT_CAPACITY, "%s%c%s%se%c%02d", sign, digits[0],
                 count > 1 ? "." : "", digits + 1, exponent > 0 ? '+' : '-', abs(exponent - 1));
    } else if (exponent <= 0) {
        snprintf(out, JINJA_FLOAT_CAPACITY, "%s0.%.*s%s", sign, -exponent, "0000", digits);
    } else if (count <= exponent) {
        snprintf(out, JINJA_FLOAT_CAPACITY, "%s%s%.*s.0", sign, digits, exponent - count,
                 "0000000000000000");
    } else {
        snprintf(out, JINJA_FLOAT_CAPACITY, "%s%.*s.%s", sign, exponent, digits, digits + exponent);
    }
}

/* ------------------------------------------------------------------ repr */

static void add_escaped(struct jinja_builder *builder, uint32_t c, char quote)
{
    char text[16];
    if (c == (uint32_t)quote || c == '\\')
        snprintf(text, sizeof text, "\\%c", (char)c);
    else if (c == '\n' || c == '\r' || c == '\t')
        snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
    else
        snprintf(text, sizeof text, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
    jinja_add_text(builder, text);
}

static void add_quoted(struct jinja_builder *builder, const struct jinja_string *string)
{
    bool single = memchr(string->data, '\'', string->length) != NULL;
    bool double_ = memchr(string->data, '"', string->length) != NULL;
    char quote = single && !double_ ? '"' : '\'';
    jinja_add(builder, &quote, 1);
    size_t offset = 0, plain = 0; /* what lies between is added at once */
    while (offset < string->length && !builder->run->failed) {
        size_t bytes;
        uint32_t c = unicode_decode(string->data + offset, &bytes);
        if (c == (uint32_t)quote || c == '\\' || !unicode_is_printable(c)) {
            jinja_add(builder, string->data + plain, offset - plain);
            add_escaped(builder, c, quote);
            plain = offset + bytes;
        }
        offset += bytes;
    }
    jinja_add(builder, string->data + plain, string->length - plain);
    jinja_add(builder, &quote, 1);
}

static void add_items(struct jinja_builder *builder, const struct jinja_sequence *sequence,
                      const char *open, const char *close)
{
    if (!jinja_enter(builder->run)) return;
    jinja_add_text(builder, open);
    for (size_t i = 0; i < sequence->count && !builder->run->failed; i++) {
        if (i) jinja_add_text(builder, ", ");
        jinja_add_repr(builder, sequence->items[i]);
    }
    jinja_add_text(builder, close);
    jinja_leave(builder->run);
}

static void add_entries(struct jinja_builder *builder, const struct jinja_dict *dict)
{
    if (!jinja_enter(builder->run)) return;
    jinja_add_text(builder, "{");
    for (size_t i = 0; i < dict->count && !builder->run->failed; i++) {
        if (i) jinja_add_text(builder, ", ");
        jinja_add_repr(builder, dict->entries[i].key);
        jinja_add_text(builder, ": ");
        jinja_add_repr(builder, dict->entries[i].value);
    }
    jinja_add_text(builder, "}");
    jinja_leave(builder->run);
}

static void add_range(struct jinja_builder *builder, const struct jinja_sequence *range)
{
    char text[96];
    if (range->step == 1)
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", range->start, range->stop);
    else
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", range->start,
                 range->stop, range->step);
    jinja_add_text(builder, text);
}

static void add_number(struct jinja_builder *builder, struct jinja_value value)
{
    char text[JINJA_FLOAT_CAPACITY];
    if (value.kind == JINJA_FLOAT)
        jinja_format_float(text, value.real);
    else
        snprintf(text, sizeof text, "%" PRId64, value.integer);
    jinja_add_text(builder, text);
}

/* What Python would show with an address is shown without. */
static void add_object(struct jinja_builder *builder, struct jinja_value value)
{
    jinja_add_text(builder, "<");
    if (value.kind == JINJA_FUNCTION) {
        jinja_add_text(builder, "built-in method ");
        jinja_add_text(builder, value.bound->builtin->name);
    } else if (value.kind == JINJA_MACRO) {
        jinja_add_text(builder, "Macro '");
        jinja_add_string(builder, value.macro->node->text);
        jinja_add_text(builder, "'");
    } else {
        jinja_add_text(builder, jinja_type_name(value.kind));
        jinja_add_text(builder, " object");
    }
    jinja_add_text(builder, ">");
}

void jinja_add_repr(struct jinja_builder *builder, struct jinja_value value)
{
    switch (value.kind) {
    case JINJA_UNDEFINED:
        jinja_add_text(builder, "Undefined");
        break;
    case JINJA_NONE:
        jinja_add_text(builder, "None");
        break;
    case JINJA_BOOL:
        jinja_add_text(builder, value.truth ? "True" : "False");
        break;
    case JINJA_INT:
    case JINJA_FLOAT:
        add_number(builder, value);
        break;
    case JINJA_STRING:
        add_quoted(builder, value.string);
        break;
    case JINJA_LIST:
        add_items(builder, value.sequence, "[", "]");
        break;
    case JINJA_TUPLE:
        add_items(builder, value.sequence, "(", value.sequence->count == 1 ? ",)" : ")");
        break;
    case JINJA_RANGE:
        add_range(builder, value.sequence);
        break;
    case JINJA_VIEW:
        jinja_add_text(builder, value.sequence->label);
        add_items(builder, value.sequence, "([", "])");
        break;
    case JINJA_DICT:
        add_entries(builder, value.dict);
        break;
    case JINJA_NAMESPACE:
        jinja_add_text(builder, "<Namespace ");
        add_entries(builder, value.dict);
        jinja_add_text(builder, ">");
        break;
    default:
        add_object(builder, value);
        break;
    }
}

void jinja_add_value(struct jinja_builder *builder, struct jinja_value value)
{
    if (value.kind == JINJA_STRING)
        jinja_add_string(builder, value.string);
    else if (value.kind != JINJA_UNDEFINED)
        jinja_add_repr(builder, value);
}

struct jinja_value jinja_str(struct jinja_run *run, struct jinja_value value)
{
    if (value.kind == JINJA_STRING) return value;
    struct jinja_builder builder = { .run = run };
    jinja_add_value(&builder, value);
    return jinja_built(&builder);
}
