/* Filters on single values: defaults, numbers, JSON. */
#include "jinja/run.h"
#include "base/unicode.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ------------------------------------------------------------------ reading numbers */

/* The text without white space around it and single underscores between digits, terminated. */
static bool clean_number(char out[512], const struct jinja_string *text)
{
    size_t start = unicode_white_prefix(text->data, text->length);
    size_t end = unicode_strip_end(text->data, text->length);
    size_t count = 0;
    for (size_t i = start; i < end; i++) {
        char c = text->data[i];
        if (count + 1 >= 512 || (unsigned char)c >= 0x80 || c == '\0') return false;
        if (c == '_') {
            bool between = i > start && i + 1 < end && isalnum((unsigned char)text->data[i - 1]) &&
                           isalnum((unsigned char)text->data[i + 1]);
            if (!between) return false;
            continue;
        }
        out[count++] = c;
    }
    out[count] = '\0';
    return count > 0;
}

bool jinja_parse_int(int64_t *out, const struct jinja_string *text, int base)
{
    char digits[512];
    char *end;
    if (!clean_number(digits, text)) return false;
    const char *first = digits + (digits[0] == '-' || digits[0] == '+');
    if (base == 0 && first[0] == '0' && first[1] && strchr("oObB", first[1])) return false;
    if (!isalnum((unsigned char)*first)) return false;
    if (base == 10 && !isdigit((unsigned char)*first)) return false;
    errno = 0;
    *out = strtoll(digits, &end, base);
    return *end == '\0' && end != digits && errno != ERANGE;
}

bool jinja_parse_float(double *out, const struct jinja_string *text)
{
    char digits[512];
    char *end;
    if (!clean_number(digits, text)) return false;
    if (strpbrk(digits, "xXpP(")) return false; /* C's spellings, not Python's */
    if (isspace((unsigned char)digits[0])) return false;
    *out = strtod(digits, &end);
    return *end == '\0' && end != digits;
}

/* int(value) of a float: towards zero; false when it does not fit. */
static bool truncate_real(int64_t *out, double real)
{
    if (!(real > -9223372036854775808.0 && real < 9223372036854775808.0)) return false;
    *out = (int64_t)real;
    return true;
}

JINJA_BUILTIN(filter_int)
{
    int64_t integer;
    double real;
    struct jinja_value otherwise =
        given->bound[0].kind == JINJA_ABSENT ? jinja_int(0) : given->bound[0];
    int64_t base = jinja_argument_int(run, given->bound[1], 10);
    if (self.kind == JINJA_UNDEFINED) return jinja_raise_undefined(run, self);
    if (self.kind == JINJA_INT) return self;
    if (self.kind == JINJA_BOOL) return jinja_int(self.truth);
    if (self.kind == JINJA_FLOAT)
        return truncate_real(&integer, self.real) ? jinja_int(integer) : otherwise;
    if (self.kind != JINJA_STRING) return otherwise;
    if (base < 0 || base == 1 || base > 36) return otherwise;
    if (jinja_parse_int(&integer, self.string, (int)base)) return jinja_int(integer);
    if (jinja_parse_float(&real, self.string) && truncate_real(&integer, real))
        return jinja_int(integer);
    return otherwise;
}

JINJA_BUILTIN(filter_float)
{
    double real;
    if (self.kind == JINJA_UNDEFINED) return jinja_raise_undefined(run, self);
    if (jinja_is_number(self)) return jinja_float(jinja_real(self));
    if (self.kind == JINJA_STRING && jinja_parse_float(&real, self.string))
        return jinja_float(real);
    return given->bound[0].kind == JINJA_ABSENT ? jinja_float(0) : given->bound[0];
}

/* ------------------------------------------------------------------ arithmetic */

JINJA_BUILTIN(filter_abs)
{
    if (self.kind == JINJA_FLOAT) return jinja_float(fabs(self.real));
    if (self.kind == JINJA_BOOL) return jinja_int(self.truth);
    if (self.kind == JINJA_INT && self.integer != INT64_MIN)
        return jinja_int(self.integer < 0 ? -self.integer : self.integer);
    if (self.kind == JINJA_UNDEFINED) return jinja_raise_undefined(run, self);
    return jinja_raise(run, JINJA_ERROR_TYPE, "bad operand type for abs(): '%s'",
                       jinja_type_name(self.kind));
}

/* Python's round(): to the nearest, ties to even, decided on the exact decimal value. */
static double round_real(double real, int64_t precision)
{
    char text[400 + 330];
    if (!isfinite(real) || precision > 330) return real;
    if (precision >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)precision, real);
        return strtod(text, NULL);
    }
    if (precision < -330) return 0;
    double unit = pow(10, (double)-precision);
    return nearbyint(real / unit) * unit;
}

static struct jinja_value round_whole(int64_t value, int64_t precision)
{
    if (precision >= 0) return jinja_int(value);
    if (precision < -18) return jinja_int(0);
    int64_t unit = 1;
    for (; precision < 0; precision++) unit *= 10;
    int64_t rest = value % unit, half = unit / 2, base = value - rest;
    if (rest < 0) {
        rest += unit;
        base -= unit;
    }
    bool up = rest > half || (rest == half && base / unit % 2 != 0);
    return jinja_int(up ? base + unit : base);
}

JINJA_BUILTIN(filter_round)
{
    int64_t precision = jinja_argument_int(run, given->bound[0], 0);
    struct jinja_value method = given->bound[1];
    if (self.kind == JINJA_UNDEFINED) return jinja_raise_undefined(run, self);
    if (!jinja_is_number(self))
        return jinja_raise(run, JINJA_ERROR_TYPE, "type %s doesn't define __round__ method",
                           jinja_type_name(self.kind));
    if (method.kind == JINJA_ABSENT ||
        (method.kind == JINJA_STRING && jinja_is_text(method.string, "common"))) {
        if (self.kind == JINJA_FLOAT) return jinja_float(round_real(self.real, precision));
        int64_t whole = self.kind == JINJA_BOOL ? self.truth : self.integer;
        if (whole > INT64_MAX / 2 || whole < INT64_MIN / 2) return self;
        return round_whole(whole, precision);
    }
    const struct jinja_string *name = jinja_argument_string(run, method);
    bool up = jinja_is_text(name, "ceil");
    if (!up && !jinja_is_text(name, "floor"))
        return jinja_raise(run, JINJA_ERROR_VALUE, "method must be common, ceil or floor");
    double unit = pow(10, (double)precision);
    double scaled = jinja_real(self) * unit;
    /* Plus zero: Python's whole numbers know no -0. */
    return jinja_float(((up ? ceil(scaled) : floor(scaled)) + 0.0) / unit);
}

/* ------------------------------------------------------------------ others */

JINJA_BUILTIN(filter_default)
{
    bool by_truth = jinja_argument_truth(given->bound[1], false);
    if (self.kind != JINJA_UNDEFINED && !(by_truth && !jinja_truth(self))) return self;
    return given->bound[0].kind == JINJA_ABSENT ? jinja_text(run, "") : given->bound[0];
}

JINJA_BUILTIN(filter_safe)
{
    return jinja_str(run, self);
}

const struct jinja_builtin jinja_filters_value[] = {
    { "default", "default_value? boolean?", filter_default },
    { "d", "default_value? boolean?", filter_default },
    { "tojson", "ensure_ascii? indent? separators? sort_keys?", jinja_to_json },
    { "from_json", "", jinja_filter_from_json },
    { "string", "", filter_safe },
    { "safe", "", filter_safe },
    { "int", "default? base?", filter_int },
    { "float", "default?", filter_float },
    { "abs", "", filter_abs },
    { "round", "precision? method?", filter_round },
    { 0 },
};
