/* Python's two ways to format: "%s" % values, and "{}".format(values). */
#include "jinja/run.h"
#include "base/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* How one value is to be written, whichever way it was said. */
struct spec {
    uint32_t fill;
    char alignment; /* '<', '>', '^', '=' (after the sign), 0: by the kind of value */
    char sign;      /* '+', ' ' or 0 */
    bool alternate; /* '#' */
    bool grouped;   /* ',' */
    int64_t width;
    int64_t precision; /* -1: none */
    char type;         /* 0: by the kind of value */
};

enum { FORMAT_WIDTH_LIMIT = 100000, FORMAT_PRECISION_LIMIT = 300, NUMBER_BYTES = 700 };

/* A count at *text, which moves past it; -1: there is none. */
static int64_t take_count(const char **text, const char *end)
{
    int64_t value = -1;
    while (*text < end && **text >= '0' && **text <= '9') {
        value = (value < 0 ? 0 : value) * 10 + (**text - '0');
        if (value > FORMAT_WIDTH_LIMIT) value = FORMAT_WIDTH_LIMIT;
        (*text)++;
    }
    return value;
}

/* ------------------------------------------------------------------ numbers */

/* Digits of |value| in base 2, 8, 10 or 16. */
static void write_digits(char *out, int64_t value, char type)
{
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    const char *digits = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    char reversed[72];
    size_t count = 0;
    do {
        reversed[count++] = digits[rest % base];
        rest /= base;
    } while (rest);
    while (count) *out++ = reversed[--count];
    *out = '\0';
}

/* Puts commas between the thousands of the whole part. */
static void group_thousands(char out[NUMBER_BYTES], const char *digits)
{
    size_t whole = strspn(digits, "0123456789");
    size_t written = 0;
    for (size_t i = 0; i < whole && written + 2 < NUMBER_BYTES; i++) {
        out[written++] = digits[i];
        if ((whole - i) % 3 == 1 && i + 1 < whole) out[written++] = ',';
    }
    snprintf(out + written, NUMBER_BYTES - written, "%s", digits + whole);
}

static void write_real(char out[NUMBER_BYTES], double real, const struct spec *spec)
{
    int precision = spec->precision < 0 ? 6 : (int)spec->precision;
    double size = fabs(real);
    if (isnan(real) || isinf(real)) {
        snprintf(out, NUMBER_BYTES, "%s", isnan(real) ? "nan" : "inf");
        return;
    }
    switch (spec->type) {
    case 'f':
    case 'F':
        snprintf(out, NUMBER_BYTES, "%.*f", precision, size);
        break;
    case '%':
        snprintf(out, NUMBER_BYTES, "%.*f%%", precision, size * 100);
        break;
    case 'e':
        snprintf(out, NUMBER_BYTES, "%.*e", precision, size);
        break;
    case 'E':
        snprintf(out, NUMBER_BYTES, "%.*E", precision, size);
        break;
    case 'G':
        snprintf(out, NUMBER_BYTES, "%.*G", precision, size);
        break;
    default:
        if (spec->type || spec->precision >= 0)
            snprintf(out, NUMBER_BYTES, "%.*g", precision, size);
        else
            jinja_format_float(out, size);
    }
}

static struct jinja_value pad(struct jinja_run *run, const struct jinja_string *text,
                              const struct spec *spec, char otherwise)
{
    bool said = spec->alignment && spec->alignment != '=';
    return jinja_pad(run, text, spec->width, spec->fill,
                     (char)(said ? spec->alignment : otherwise));
}

/* Sign, prefix, zeros and digits of a number. */
static struct jinja_value format_number(struct jinja_run *run, struct jinja_value value,
                                        const struct spec *spec)
{
    char digits[NUMBER_BYTES], grouped[NUMBER_BYTES];
    bool real = value.kind == JINJA_FLOAT || (spec->type && strchr("fFeEgG%", spec->type));
    int64_t whole = value.kind == JINJA_BOOL ? value.truth : value.integer;
    bool negative = real ? signbit(jinja_real(value)) != 0 : whole < 0;
    if (real)
        write_real(digits, jinja_real(value), spec);
    else
        write_digits(digits, whole, spec->type);
    if (spec->grouped) group_thousands(grouped, digits);
    const char *body = spec->grouped ? grouped : digits;
    char front[4] = "";
    size_t used = 0;
    if (negative)
        front[used++] = '-';
    else if (spec->sign)
        front[used++] = spec->sign;
    if (!real && spec->alternate && spec->type && strchr("xXob", spec->type)) {
        front[used++] = '0';
        front[used++] = spec->type;
    }
    struct jinja_builder builder = { .run = run };
    jinja_add(&builder, front, used);
    size_t size = used + strlen(body);
    if (spec->alignment == '=' && spec->width > 0 && (size_t)spec->width > size)
        for (size_t i = size; i < (size_t)spec->width && !run->failed; i++)
            jinja_add_code_point(&builder, spec->fill);
    jinja_add_text(&builder, body);
    struct jinja_value text = jinja_built(&builder);
    if (run->failed || spec->alignment == '=') return text;
    return pad(run, text.string, spec, '>');
}

static struct jinja_value format_text(struct jinja_run *run, const struct jinja_string *text,
                                      const struct spec *spec)
{
    struct jinja_string cut = *text;
    if (spec->precision >= 0 && (uint64_t)spec->precision < text->characters) {
        cut.length = unicode_offset(text->data, text->length, (size_t)spec->precision);
        cut.characters = (size_t)spec->precision;
    }
    return pad(run, &cut, spec, '<');
}

/* ------------------------------------------------------------------ percent */

struct percent {
    struct jinja_run *run;
    const char *text, *end;
    struct jinja_value values;
    size_t used; /* of a tuple; 1 when a single value was used */
};

static struct jinja_value next_value(struct percent *format)
{
    struct jinja_value values = format->values;
    if (values.kind == JINJA_TUPLE && format->used < values.sequence->count)
        return values.sequence->items[format->used++];
    if (values.kind != JINJA_TUPLE && format->used++ == 0) return values;
    return jinja_raise(format->run, JINJA_ERROR_TYPE, "not enough arguments for format string");
}

/* %(name)… looks in a dict. */
static struct jinja_value named_value(struct percent *format)
{
    const char *close = memchr(format->text, ')', (size_t)(format->end - format->text));
    if (!close) return jinja_raise(format->run, JINJA_ERROR_VALUE, "incomplete format key");
    struct jinja_value key =
        jinja_string_view(format->run, format->text + 1, (size_t)(close - format->text - 1));
    format->text = close + 1;
    format->used = 1;
    if (format->values.kind != JINJA_DICT)
        return jinja_raise(format->run, JINJA_ERROR_TYPE, "format requires a mapping");
    if (format->run->failed) return key;
    const struct jinja_entry *entry = jinja_dict_find(format->run, format->values.dict, key);
    if (entry) return entry->value;
    return jinja_raise(format->run, JINJA_ERROR_VALUE, "the format's key is not in the mapping");
}

static int64_t take_percent_count(struct percent *format)
{
    if (format->text < format->end && *format->text == '*') {
        format->text++;
        return jinja_argument_int(format->run, next_value(format), 0);
    }
    return take_count(&format->text, format->end);
}

static void read_percent_spec(struct percent *format, struct spec *spec)
{
    bool zero = false, left = false;
    for (; format->text < format->end && *format->text && strchr("-+ #0", *format->text);
         format->text++) {
        if (*format->text == '-') left = true;
        if (*format->text == '0') zero = true;
        if (*format->text == '#') spec->alternate = true;
        if (*format->text == '+' || (*format->text == ' ' && !spec->sign))
            spec->sign = *format->text;
    }
    spec->width = take_percent_count(format);
    if (spec->width < -1 || spec->width > FORMAT_WIDTH_LIMIT) spec->width = 0;
    if (format->text < format->end && *format->text == '.') {
        format->text++;
        spec->precision = take_percent_count(format);
        if (spec->precision < 0) spec->precision = 0;
    }
    while (format->text < format->end && *format->text && strchr("hlL", *format->text))
        format->text++;
    if (format->text < format->end) spec->type = *format->text++;
    spec->alignment = '>';
    if (left) {
        spec->alignment = '<';
    } else if (zero) {
        spec->alignment = '=';
        spec->fill = '0';
    }
}

static struct jinja_value percent_number(struct jinja_run *run, struct jinja_value value,
                                         struct spec *spec)
{
    if (!jinja_is_number(value))
        return jinja_raise(run, JINJA_ERROR_TYPE, "%%%c format: a number is required, not %s",
                           spec->type, jinja_type_name(value.kind));
    if (spec->type == 'i' || spec->type == 'u') spec->type = 'd';
    bool wants_whole = strchr("dxXo", spec->type) != NULL;
    if (wants_whole && value.kind == JINJA_FLOAT) {
        if (!(fabs(value.real) < 9.2e18))
            return jinja_raise(run, JINJA_ERROR_VALUE, "the number has more than 64 bits");
        value = jinja_int((int64_t)value.real);
    }
    if (!wants_whole && spec->precision > FORMAT_PRECISION_LIMIT)
        spec->precision = FORMAT_PRECISION_LIMIT;
    return format_number(run, value, spec);
}

static struct jinja_value percent_value(struct jinja_run *run, struct jinja_value value,
                                        struct spec *spec)
{
    struct jinja_builder builder = { .run = run };
    spec->fill = spec->type == 's' || spec->type == 'r' || spec->type == 'c' ? ' ' : spec->fill;
    switch (spec->type) {
    case 's':
        jinja_add_value(&builder, value);
        break;
    case 'r':
    case 'a':
        jinja_add_repr(&builder, value);
        break;
    case 'c':
        if (value.kind == JINJA_INT && value.integer >= 0 && value.integer < 0x110000)
            jinja_add_code_point(&builder, (uint32_t)value.integer);
        else if (value.kind == JINJA_STRING && value.string->characters == 1)
            jinja_add_string(&builder, value.string);
        else
            return jinja_raise(run, JINJA_ERROR_TYPE, "%%c requires int or char");
        break;
    default:
        if (spec->type && strchr("diuxXofFeEgG", spec->type))
            return percent_number(run, value, spec);
        return jinja_raise(run, JINJA_ERROR_VALUE, "unsupported format character");
    }
    struct jinja_value text = jinja_built(&builder);
    if (spec->alignment == '=') spec->alignment = '>';
    return run->failed ? text : format_text(run, text.string, spec);
}

struct jinja_value jinja_format_percent(struct jinja_run *run, const struct jinja_string *format,
                                        struct jinja_value values)
{
    struct jinja_builder builder = { .run = run };
    struct percent state = {
        .run = run, .text = format->data, .end = format->data + format->length, .values = values
    };
    while (state.text < state.end && !run->failed) {
        const char *percent = memchr(state.text, '%', (size_t)(state.end - state.text));
        const char *stop = percent ? percent : state.end;
        jinja_add(&builder, state.text, (size_t)(stop - state.text));
        if (!percent) break;
        state.text = percent + 1;
        if (state.text < state.end && *state.text == '%') {
            jinja_add_text(&builder, "%");
            state.text++;
            continue;
        }
        struct spec spec = { .fill = ' ', .precision = -1 };
        bool named = state.text < state.end && *state.text == '(';
        struct jinja_value value = named ? named_value(&state) : jinja_absent();
        if (run->failed) break;
        read_percent_spec(&state, &spec);
        if (!named) value = next_value(&state);
        if (run->failed) break;
        struct jinja_value text = percent_value(run, value, &spec);
        if (!run->failed) jinja_add_string(&builder, text.string);
    }
    /* What can be indexed passes for a mapping, which need not be used up. */
    bool mapping = values.kind == JINJA_DICT || values.kind == JINJA_LIST ||
                   values.kind == JINJA_RANGE || values.kind == JINJA_UNDEFINED;
    bool left_over = values.kind == JINJA_TUPLE ? state.used < values.sequence->count
                                                : state.used == 0 && !mapping;
    if (left_over)
        jinja_raise(run, JINJA_ERROR_TYPE, "not all arguments converted during string formatting");
    return jinja_built(&builder);
}

/* ------------------------------------------------------------------ braces */

struct braces {
    struct jinja_run *run;
    const struct jinja_arguments *given;
    int64_t automatic; /* number of the next {} */
};

static struct jinja_value positional(struct braces *state, int64_t index)
{
    if (index < 0 || (uint64_t)index >= state->given->positional_count)
        return jinja_raise(state->run, JINJA_ERROR_VALUE,
                           "Replacement index %" PRId64 " out of range for positional args tuple",
                           index);
    return state->given->positional[index];
}

/* name, 0, a.b, a[0] or nothing, up to `end`. */
static struct jinja_value field_value(struct braces *state, const char *text, const char *end)
{
    struct jinja_run *run = state->run;
    const char *name_end = text;
    while (name_end < end && *name_end != '.' && *name_end != '[') name_end++;
    struct jinja_value name = jinja_string_view(run, text, (size_t)(name_end - text));
    struct jinja_value value;
    int64_t index;
    if (run->failed) return name;
    if (name_end == text) {
        value = positional(state, state->automatic++);
    } else if (jinja_parse_int(&index, name.string, 10)) {
        value = positional(state, index);
    } else {
        value = jinja_absent();
        for (size_t i = 0; i < state->given->keyword_count; i++)
            if (state->given->keywords[i].name->length == name.string->length &&
                memcmp(state->given->keywords[i].name->data, text, name.string->length) == 0)
                value = state->given->keywords[i].value;
        if (value.kind == JINJA_ABSENT)
            return jinja_raise(run, JINJA_ERROR_VALUE, "a name of the format was not given");
    }
    while (name_end < end && !run->failed) {
        bool item = *name_end++ == '[';
        const char *stop = name_end;
        while (stop < end && (item ? *stop != ']' : *stop != '.' && *stop != '[')) stop++;
        struct jinja_value key = jinja_string_view(run, name_end, (size_t)(stop - name_end));
        if (run->failed) break;
        if (!item)
            value = jinja_get_attribute(run, value, key.string);
        else if (jinja_parse_int(&index, key.string, 10))
            value = jinja_get_item(run, value, jinja_int(index));
        else
            value = jinja_get_item(run, value, key);
        name_end = item && stop < end ? stop + 1 : stop;
    }
    return value;
}

static bool is_alignment(char c)
{
    return c == '<' || c == '>' || c == '^' || c == '=';
}

/* [[fill]align][sign][#][0][width][,][.precision][type] */
static bool read_brace_spec(struct spec *spec, const char *text, const char *end)
{
    if (text < end) {
        size_t bytes;
        uint32_t first = unicode_decode(text, &bytes);
        if (text + bytes < end && is_alignment(text[bytes])) {
            spec->fill = first;
            spec->alignment = text[bytes];
            text += bytes + 1;
        } else if (is_alignment(*text)) {
            spec->alignment = *text++;
        }
    }
    if (text < end && (*text == '+' || *text == ' ' || *text == '-')) {
        if (*text != '-') spec->sign = *text;
        text++;
    }
    if (text < end && *text == '#') {
        spec->alternate = true;
        text++;
    }
    if (text < end && *text == '0' && !spec->alignment) {
        spec->alignment = '=';
        spec->fill = '0';
        text++;
    }
    spec->width = take_count(&text, end);
    if (text < end && *text == ',') {
        spec->grouped = true;
        text++;
    }
    if (text < end && *text == '.') {
        text++;
        spec->precision = take_count(&text, end);
        if (spec->precision < 0 || spec->precision > FORMAT_PRECISION_LIMIT) return false;
    }
    if (text < end) spec->type = *text++;
    return text == end && (!spec->type || strchr("sdnfFeEgG%xXobc", spec->type));
}

/* field!conversion:spec between braces. */
static struct jinja_value replacement(struct braces *state, const char *text, const char *end)
{
    struct jinja_run *run = state->run;
    struct spec spec = { .fill = ' ', .precision = -1 };
    const char *colon = memchr(text, ':', (size_t)(end - text));
    const char *field_end = colon ? colon : end;
    char conversion = '\0';
    if (field_end - text >= 2 && field_end[-2] == '!') {
        conversion = field_end[-1];
        field_end -= 2;
    }
    struct jinja_value value = field_value(state, text, field_end);
    if (run->failed) return value;
    if (colon && !read_brace_spec(&spec, colon + 1, end))
        return jinja_raise(run, JINJA_ERROR_VALUE, "Invalid format specifier");
    bool number = jinja_is_number(value) && !conversion && spec.type != 's' &&
                  !(value.kind == JINJA_BOOL && !spec.type);
    if (number && spec.type != 'c') {
        if (spec.type == 'n' || (spec.type == 'd' && value.kind != JINJA_FLOAT)) spec.type = 0;
        return format_number(run, value, &spec);
    }
    if (spec.type && spec.type != 's')
        return jinja_raise(run, JINJA_ERROR_VALUE,
                           "Unknown format code '%c' for object of type '%s'", spec.type,
                           jinja_type_name(value.kind));
    struct jinja_builder builder = { .run = run };
    if (conversion == 'r' || conversion == 'a')
        jinja_add_repr(&builder, value);
    else
        jinja_add_value(&builder, value);
    struct jinja_value written = jinja_built(&builder);
    return run->failed ? written : format_text(run, written.string, &spec);
}

struct jinja_value jinja_format_braces(struct jinja_run *run, const struct jinja_string *format,
                                       const struct jinja_arguments *given)
{
    struct jinja_builder builder = { .run = run };
    struct braces state = { .run = run, .given = given };
    const char *text = format->data, *end = text + format->length;
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
        struct jinja_value value = replacement(&state, text + 1, close);
        if (run->failed) return jinja_failed();
        jinja_add_string(&builder, value.string);
        text = close + 1;
    }
    return jinja_built(&builder);
}
