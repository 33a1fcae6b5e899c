/* Python's two ways to format, as far as chat templates go: "%s" % values, "{}".format(values).
 *
 *     %[-][0][width][.precision]type
 *     {[number or name][:[[fill]align][0][width][.precision][type]]}
 *
 * Types are s, d, f and x, alignments < > ^.  What else Python has is refused by name. */
#include "jinja/run.h"
#include "base/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

struct spec {
    uint32_t fill;
    char alignment; /* 0: texts to the left, numbers to the right */
    bool zeros;     /* between the sign and the digits */
    int64_t width;
    int64_t precision; /* -1: none */
    char type;         /* 0: by the kind of value */
};

enum { FORMAT_WIDTH_LIMIT = 100000, FORMAT_PRECISION_LIMIT = 300, NUMBER_BYTES = 700 };

static struct jinja_value refuse(struct jinja_run *run, const char *text, const char *end)
{
    return jinja_raise(run, JINJA_ERROR_VALUE, "the format '%.*s' is not supported",
                       (int)min_size((size_t)(end - text), 40), text);
}

/* A count at *text, which moves past it; -1: there is none. */
static int64_t take_count(const char **text, const char *end)
{
    int64_t value = -1;
    for (; *text < end && **text >= '0' && **text <= '9'; (*text)++) {
        value = (value < 0 ? 0 : value) * 10 + (**text - '0');
        if (value > FORMAT_WIDTH_LIMIT) value = FORMAT_WIDTH_LIMIT;
    }
    return value;
}

/* [0][width][.precision][type], what both ways end with. */
static bool take_spec(struct spec *spec, const char **text, const char *end)
{
    spec->zeros = *text < end && **text == '0';
    spec->width = take_count(text, end);
    if (*text < end && **text == '.') {
        ++*text;
        spec->precision = take_count(text, end);
        if (spec->precision < 0 || spec->precision > FORMAT_PRECISION_LIMIT) return false;
    }
    if (*text < end) spec->type = *(*text)++;
    return !spec->type || strchr("sdfx", spec->type);
}

static struct jinja_value pad(struct jinja_run *run, const struct jinja_string *text,
                              const struct spec *spec, char otherwise)
{
    struct jinja_builder builder = { .run = run };
    char alignment = spec->alignment ? spec->alignment : otherwise;
    size_t width = spec->width > 0 ? (size_t)spec->width : 0;
    size_t missing = width > text->characters ? width - text->characters : 0;
    size_t left = alignment == '>' ? missing : alignment == '^' ? missing / 2 : 0;
    for (size_t i = 0; i < left && !run->failed; i++) jinja_add_code_point(&builder, spec->fill);
    jinja_add_string(&builder, text);
    for (size_t i = left; i < missing && !run->failed; i++)
        jinja_add_code_point(&builder, spec->fill);
    return jinja_built(&builder);
}

static struct jinja_value format_number(struct jinja_run *run, struct jinja_value value,
                                        const struct spec *spec)
{
    char digits[NUMBER_BYTES];
    bool real = value.kind == JINJA_FLOAT || spec->type == 'f';
    int64_t whole = value.kind == JINJA_BOOL ? value.truth : value.integer;
    bool negative = real ? signbit(jinja_real(value)) != 0 : whole < 0;
    if (real && spec->type == 'f' && isfinite(jinja_real(value)))
        snprintf(digits, sizeof digits, "%.*f", spec->precision < 0 ? 6 : (int)spec->precision,
                 fabs(jinja_real(value)));
    else if (real)
        jinja_format_float(digits, fabs(value.real));
    else
        snprintf(digits, sizeof digits, spec->type == 'x' ? "%" PRIx64 : "%" PRIu64,
                 negative ? 0 - (uint64_t)whole : (uint64_t)whole);
    struct jinja_builder builder = { .run = run };
    size_t size = strlen(digits) + negative;
    if (negative) jinja_add_text(&builder, "-");
    if (spec->zeros && spec->width > (int64_t)size)
        jinja_add_repeated(&builder, '0', (size_t)spec->width - size);
    jinja_add_text(&builder, digits);
    struct jinja_value text = jinja_built(&builder);
    return run->failed ? text : pad(run, text.string, spec, '>');
}

static struct jinja_value format_value(struct jinja_run *run, struct jinja_value value,
                                       const struct spec *spec)
{
    bool as_text = spec->type == 's' || (!spec->type && value.kind == JINJA_BOOL);
    bool fits = spec->type != 'd' && spec->type != 'x' ? true : value.kind != JINJA_FLOAT;
    if (jinja_is_number(value) && !as_text && fits) return format_number(run, value, spec);
    if (spec->type && spec->type != 's')
        return jinja_raise(run, JINJA_ERROR_TYPE, "the format '%c' takes no '%s'", spec->type,
                           jinja_type_name(value.kind));
    struct jinja_value text = jinja_str(run, value);
    if (run->failed) return text;
    struct jinja_string cut = *text.string;
    if (spec->precision >= 0 && (uint64_t)spec->precision < cut.characters) {
        cut.characters = (size_t)spec->precision;
        cut.length = unicode_offset(cut.data, cut.length, cut.characters);
    }
    return pad(run, &cut, spec, '<');
}

/* ------------------------------------------------------------------ percent */

/* Value number `index` of those behind the percent sign: a tuple's, or the only one. */
static struct jinja_value percent_value(struct jinja_run *run, struct jinja_value values,
                                        size_t index)
{
    bool tuple = values.kind == JINJA_TUPLE;
    if (index < (tuple ? values.sequence->count : 1))
        return tuple ? values.sequence->items[index] : values;
    return jinja_raise(run, JINJA_ERROR_TYPE, "not enough arguments for format string");
}

struct jinja_value jinja_format_percent(struct jinja_run *run, const struct jinja_string *format,
                                        struct jinja_value values)
{
    struct jinja_builder builder = { .run = run };
    const char *text = format->data, *end = text + format->length;
    size_t used = 0;
    while (text < end && !run->failed) {
        const char *percent = memchr(text, '%', (size_t)(end - text));
        jinja_add(&builder, text, (size_t)((percent ? percent : end) - text));
        if (!percent) break;
        text = percent + 1;
        if (text < end && *text == '%') {
            jinja_add(&builder, text++, 1);
            continue;
        }
        struct spec spec = { .fill = ' ', .alignment = '>', .precision = -1 };
        if (text < end && *text == '-') {
            spec.alignment = '<';
            text++;
        }
        if (!take_spec(&spec, &text, end) || !spec.type) return refuse(run, percent, text);
        struct jinja_value value = percent_value(run, values, used++);
        if (!run->failed) value = format_value(run, value, &spec);
        if (!run->failed) jinja_add_string(&builder, value.string);
    }
    size_t count = values.kind == JINJA_TUPLE ? values.sequence->count : 1;
    if (used < count && !run->failed)
        jinja_raise(run, JINJA_ERROR_TYPE, "not all arguments converted during string formatting");
    return jinja_built(&builder);
}

/* ------------------------------------------------------------------ braces */

/* The argument of that number or name; nothing: the next one. */
static struct jinja_value field_value(struct jinja_run *run, const struct jinja_arguments *given,
                                      const struct jinja_string *name, size_t *next)
{
    int64_t index = -1;
    if (!name->length) index = (int64_t)(*next)++;
    if (name->length && !jinja_parse_int(&index, name, 10)) {
        for (size_t i = 0; i < given->keyword_count; i++)
            if (given->keywords[i].name->length == name->length &&
                memcmp(given->keywords[i].name->data, name->data, name->length) == 0)
                return given->keywords[i].value;
    }
    if (index >= 0 && (uint64_t)index < given->positional_count) return given->positional[index];
    return jinja_raise(run, JINJA_ERROR_VALUE, "format() was not given '{%.*s}'",
                       (int)min_size(name->length, 40), name->data);
}

static bool is_alignment(char c)
{
    return c == '<' || c == '>' || c == '^';
}

/* What stands between braces. */
static struct jinja_value replacement(struct jinja_run *run, const struct jinja_arguments *given,
                                      const char *text, const char *end, size_t *next)
{
    struct spec spec = { .fill = ' ', .precision = -1 };
    const char *colon = memchr(text, ':', (size_t)(end - text));
    const char *at = colon ? colon + 1 : end, *name_end = colon ? colon : end;
    size_t bytes = 0;
    for (const char *c = text; c < name_end; c++)
        if (strchr(".[!", *c)) return refuse(run, text, end);
    if (at < end) spec.fill = unicode_decode(at, &bytes);
    if (at + bytes < end && is_alignment(at[bytes])) {
        spec.alignment = at[bytes];
        at += bytes + 1;
    } else {
        spec.fill = ' ';
        if (at < end && is_alignment(*at)) spec.alignment = *at++;
    }
    if (!take_spec(&spec, &at, end) || at != end) return refuse(run, text, end);
    struct jinja_value name = jinja_string_view(run, text, (size_t)(name_end - text));
    if (run->failed) return name;
    struct jinja_value value = field_value(run, given, name.string, next);
    return run->failed ? value : format_value(run, value, &spec);
}

struct jinja_value jinja_format_braces(struct jinja_run *run, const struct jinja_string *format,
                                       const struct jinja_arguments *given)
{
    struct jinja_builder builder = { .run = run };
    const char *text = format->data, *end = text + format->length;
    size_t next = 0;
    while (text < end && !run->failed) {
        const char *plain = text;
        while (text < end && *text != '{' && *text != '}') text++;
        jinja_add(&builder, plain, (size_t)(text - plain));
        if (text == end) break;
        if (text + 1 < end && text[1] == *text) { /* {{ or }} */
            jinja_add(&builder, text, 1);
            text += 2;
            continue;
        }
        const char *close = memchr(text, '}', (size_t)(end - text));
        if (*text == '}' || !close)
            return jinja_raise(run, JINJA_ERROR_VALUE, "Single '%c' encountered in format string",
                               *text);
        struct jinja_value value = replacement(run, given, text + 1, close, &next);
        if (run->failed) return jinja_failed();
        jinja_add_string(&builder, value.string);
        text = close + 1;
    }
    return jinja_built(&builder);
}
