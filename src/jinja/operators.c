/* Arithmetic, comparison and slicing, with Python's meaning of each. */
#include "jinja/run.h"
#include "base/unicode.h"

#include <math.h>

static const char *const symbols[] = {
    [OPERATOR_ADD] = "+",
    [OPERATOR_SUBTRACT] = "-",
    [OPERATOR_MULTIPLY] = "*",
    [OPERATOR_DIVIDE] = "/",
    [OPERATOR_FLOOR_DIVIDE] = "//",
    [OPERATOR_MODULO] = "%",
    [OPERATOR_POWER] = "** or pow()",
    [OPERATOR_NEGATE] = "unary -",
    [OPERATOR_PLUS] = "unary +",
    [OPERATOR_LESS] = "<",
    [OPERATOR_LESS_EQUAL] = "<=",
    [OPERATOR_GREATER] = ">",
    [OPERATOR_GREATER_EQUAL] = ">=",
};

static struct jinja_value raise_overflow(struct jinja_run *run)
{
    return jinja_raise(run, JINJA_ERROR_VALUE, "the result needs more than 64 bits");
}

static struct jinja_value raise_zero(struct jinja_run *run, const char *what)
{
    return jinja_raise(run, JINJA_ERROR_ZERO_DIVISION, "%s", what);
}

/* ------------------------------------------------------------------ numbers */

static int64_t whole(struct jinja_value value)
{
    return value.kind == JINJA_BOOL ? (int64_t)value.truth : value.integer;
}

static struct jinja_value power_of_whole(struct jinja_run *run, int64_t base, int64_t exponent)
{
    if (exponent < 0) {
        if (base == 0) return raise_zero(run, "0.0 cannot be raised to a negative power");
        return jinja_float(pow((double)base, (double)exponent));
    }
    int64_t result = 1;
    if (base == 0 || base == 1 || base == -1)
        return jinja_int(exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base);
    for (; exponent > 0; exponent--) /* at most 63 rounds before it overflows */
        if (__builtin_mul_overflow(result, base, &result)) return raise_overflow(run);
    return jinja_int(result);
}

/* Quotient rounded down and remainder with the divisor's sign. */
static struct jinja_value divide_whole(struct jinja_run *run, enum jinja_operator operator,
                                       int64_t a, int64_t b)
{
    if (b == 0) return raise_zero(run, "integer division or modulo by zero");
    if (b == -1) { /* the one quotient that overflows */
        if (operator== OPERATOR_MODULO) return jinja_int(0);
        return a == INT64_MIN ? raise_overflow(run) : jinja_int(-a);
    }
    int64_t quotient = a / b, remainder = a % b;
    if (remainder != 0 && (remainder < 0) != (b < 0)) {
        quotient--;
        remainder += b;
    }
    return jinja_int(operator== OPERATOR_MODULO ? remainder : quotient);
}

static struct jinja_value binary_whole(struct jinja_run *run, enum jinja_operator operator,
                                       int64_t a, int64_t b)
{
    int64_t result;
    switch (operator) {
    case OPERATOR_ADD:
        return __builtin_add_overflow(a, b, &result) ? raise_overflow(run) : jinja_int(result);
    case OPERATOR_SUBTRACT:
        return __builtin_sub_overflow(a, b, &result) ? raise_overflow(run) : jinja_int(result);
    case OPERATOR_MULTIPLY:
        return __builtin_mul_overflow(a, b, &result) ? raise_overflow(run) : jinja_int(result);
    case OPERATOR_DIVIDE:
        if (b == 0) return raise_zero(run, "division by zero");
        return jinja_float((double)a / (double)b);
    case OPERATOR_POWER:
        return power_of_whole(run, a, b);
    default:
        return divide_whole(run, operator, a, b);
    }
}

static struct jinja_value binary_real(struct jinja_run *run, enum jinja_operator operator, double a,
                                      double b)
{
    double remainder, quotient;
    switch (operator) {
    case OPERATOR_ADD:
        return jinja_float(a + b);
    case OPERATOR_SUBTRACT:
        return jinja_float(a - b);
    case OPERATOR_MULTIPLY:
        return jinja_float(a * b);
    case OPERATOR_POWER:
        if (a == 0 && b < 0) return raise_zero(run, "0.0 cannot be raised to a negative power");
        return jinja_float(pow(a, b));
    case OPERATOR_DIVIDE:
        if (b == 0) return raise_zero(run, "float division by zero");
        return jinja_float(a / b);
    default:
        if (b == 0) return raise_zero(run, "float modulo");
        remainder = fmod(a, b);
        if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
        if (remainder == 0) remainder = copysign(0.0, b); /* as Python: -0.0 for a negative b */
        if (operator== OPERATOR_MODULO) return jinja_float(remainder);
        quotient = (a - remainder) / b;
        return jinja_float(quotient == 0 ? copysign(0.0, a / b) : floor(quotient + 0.5));
    }
}

/* ------------------------------------------------------------------ strings and sequences */

static struct jinja_value repeat_string(struct jinja_run *run, const struct jinja_string *text,
                                        int64_t times)
{
    struct jinja_builder builder = { .run = run };
    if (text->length == 1 && times > 0) {
        jinja_add_repeated(&builder, *text->data, (size_t)times);
    } else {
        for (int64_t i = 0; i < times && text->length && !run->failed; i++)
            jinja_add_string(&builder, text);
    }
    return jinja_built(&builder);
}

static struct jinja_value repeat_sequence(struct jinja_run *run, struct jinja_value value,
                                          int64_t times)
{
    struct jinja_value result = jinja_sequence(run, value.kind, 0);
    size_t count = value.sequence->count;
    for (int64_t i = 0; i < times && count && !run->failed; i++)
        for (size_t j = 0; j < count && jinja_charge(run, 0); j++)
            jinja_append(run, result.sequence, value.sequence->items[j]);
    return result;
}

static struct jinja_value join_sequences(struct jinja_run *run, struct jinja_value a,
                                         struct jinja_value b)
{
    size_t count = a.sequence->count + b.sequence->count;
    struct jinja_value result = jinja_sequence(run, a.kind, count);
    if (run->failed || !jinja_charge(run, count)) return result;
    for (size_t i = 0; i < a.sequence->count; i++)
        jinja_append(run, result.sequence, a.sequence->items[i]);
    for (size_t i = 0; i < b.sequence->count; i++)
        jinja_append(run, result.sequence, b.sequence->items[i]);
    return result;
}

static bool is_whole(struct jinja_value value)
{
    return value.kind == JINJA_INT || value.kind == JINJA_BOOL;
}

static bool is_list(struct jinja_value value)
{
    return value.kind == JINJA_LIST || value.kind == JINJA_TUPLE;
}

static struct jinja_value raise_operands(struct jinja_run *run, enum jinja_operator operator,
                                         struct jinja_value a, struct jinja_value b)
{
    const char *first = jinja_type_name(a.kind), *second = jinja_type_name(b.kind);
    if (operator== OPERATOR_ADD &&(a.kind == JINJA_STRING || is_list(a)))
        return jinja_raise(run, JINJA_ERROR_TYPE, "can only concatenate %s (not \"%s\") to %s",
                           first, second, first);
    return jinja_raise(run, JINJA_ERROR_TYPE, "unsupported operand type(s) for %s: '%s' and '%s'",
                       symbols[operator], first, second);
}

struct jinja_value jinja_binary(struct jinja_run *run, enum jinja_operator operator,
                                struct jinja_value a, struct jinja_value b)
{
    if (run->failed) return a;
    if (a.kind == JINJA_UNDEFINED) return jinja_raise_undefined(run, a);
    if (operator== OPERATOR_MODULO && a.kind == JINJA_STRING)
        return jinja_format_percent(run, a.string, b);
    if (b.kind == JINJA_UNDEFINED) return jinja_raise_undefined(run, b);
    if (is_whole(a) && is_whole(b)) return binary_whole(run, operator, whole(a), whole(b));
    if (jinja_is_number(a) && jinja_is_number(b))
        return binary_real(run, operator, jinja_real(a), jinja_real(b));
    if (operator== OPERATOR_ADD) {
        if (a.kind == JINJA_STRING && b.kind == JINJA_STRING)
            return jinja_concatenate(run, a.string, b.string);
        if (is_list(a) && a.kind == b.kind) return join_sequences(run, a, b);
    }
    if (operator== OPERATOR_MULTIPLY) {
        if (a.kind == JINJA_STRING && is_whole(b)) return repeat_string(run, a.string, whole(b));
        if (b.kind == JINJA_STRING && is_whole(a)) return repeat_string(run, b.string, whole(a));
        if (is_list(a) && is_whole(b)) return repeat_sequence(run, a, whole(b));
        if (is_list(b) && is_whole(a)) return repeat_sequence(run, b, whole(a));
    }
    return raise_operands(run, operator, a, b);
}

struct jinja_value jinja_unary(struct jinja_run *run, enum jinja_operator operator,
                               struct jinja_value a)
{
    if (run->failed) return a;
    if (a.kind == JINJA_UNDEFINED) return jinja_raise_undefined(run, a);
    if (!jinja_is_number(a))
        return jinja_raise(run, JINJA_ERROR_TYPE, "bad operand type for %s: '%s'",
                           symbols[operator], jinja_type_name(a.kind));
    if (operator== OPERATOR_PLUS) return a.kind == JINJA_BOOL ? jinja_int(a.truth) : a;
    if (a.kind == JINJA_FLOAT) return jinja_float(-a.real);
    return whole(a) == INT64_MIN ? raise_overflow(run) : jinja_int(-whole(a));
}

bool jinja_compare(struct jinja_run *run, enum jinja_operator operator, struct jinja_value a,
                   struct jinja_value b)
{
    if (run->failed) return false;
    switch (operator) {
    case OPERATOR_EQUAL:
        return jinja_equal(run, a, b);
    case OPERATOR_NOT_EQUAL:
        return !jinja_equal(run, a, b);
    case OPERATOR_IN:
        return jinja_contains(run, b, a);
    case OPERATOR_NOT_IN:
        return !jinja_contains(run, b, a);
    default:
        break;
    }
    bool unordered =
        (a.kind == JINJA_FLOAT && isnan(a.real)) || (b.kind == JINJA_FLOAT && isnan(b.real));
    int order = jinja_order(run, a, b, symbols[operator]);
    if (run->failed || (unordered && jinja_is_number(a) && jinja_is_number(b))) return false;
    switch (operator) {
    case OPERATOR_LESS:
        return order < 0;
    case OPERATOR_LESS_EQUAL:
        return order <= 0;
    case OPERATOR_GREATER:
        return order > 0;
    default:
        return order >= 0;
    }
}

/* ------------------------------------------------------------------ slices */

/* Python's rules: a negative bound counts from the end, and all are clipped. */
static bool resolve_bounds(struct jinja_run *run, int64_t out[3],
                           const struct jinja_value bounds[3], int64_t length)
{
    for (int i = 0; i < 3; i++) {
        if (bounds[i].kind == JINJA_NONE || is_whole(bounds[i])) continue;
        jinja_raise(run, JINJA_ERROR_TYPE, "slice indices must be integers or None");
        return false;
    }
    int64_t step = bounds[2].kind == JINJA_NONE ? 1 : whole(bounds[2]);
    if (step == 0) {
        jinja_raise(run, JINJA_ERROR_VALUE, "slice step cannot be zero");
        return false;
    }
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
    out[0] = step < 0 ? high : low;
    out[1] = step < 0 ? low : high;
    out[2] = step;
    for (int i = 0; i < 2; i++) {
        if (bounds[i].kind == JINJA_NONE) continue;
        int64_t bound = whole(bounds[i]);
        if (bound < 0) bound = bound < -length ? low : bound + length;
        out[i] = bound < low ? low : bound > high ? high : bound;
    }
    return true;
}

/* How many items a resolved slice has. */
static int64_t slice_count(const int64_t s[3])
{
    if (s[2] > 0) return s[1] > s[0] ? (s[1] - s[0] - 1) / s[2] + 1 : 0;
    if (s[0] <= s[1]) return 0;
    return s[2] == INT64_MIN ? 1 : (s[0] - s[1] - 1) / -s[2] + 1;
}

static struct jinja_value slice_string(struct jinja_run *run, const struct jinja_string *text,
                                       const int64_t s[3])
{
    size_t count = (size_t)slice_count(s);
    const char *data = text->data;
    bool ascii = text->length == text->characters;
    if (!jinja_charge(run, text->length)) return jinja_none();
    if (s[2] == 1) { /* a view */
        size_t start = ascii ? (size_t)s[0] : unicode_offset(data, text->length, (size_t)s[0]);
        size_t length = ascii ? count : unicode_offset(data + start, text->length - start, count);
        return jinja_string_view(run, data + start, count ? length : 0);
    }
    struct jinja_builder builder = { .run = run };
    if (ascii) {
        for (size_t i = 0; i < count; i++) jinja_add(&builder, data + s[0] + (int64_t)i * s[2], 1);
        return jinja_built(&builder);
    }
    size_t *offsets = jinja_take(run, text->characters + 1, sizeof *offsets);
    if (!offsets) return jinja_none();
    size_t at = 0;
    for (size_t i = 0; i < text->length; i++)
        if (!unicode_is_continuation(data[i])) offsets[at++] = i;
    offsets[at] = text->length;
    for (size_t i = 0; i < count; i++) {
        size_t character = (size_t)(s[0] + (int64_t)i * s[2]);
        jinja_add(&builder, data + offsets[character], offsets[character + 1] - offsets[character]);
    }
    return jinja_built(&builder);
}

struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value object,
                               const struct jinja_value bounds[3])
{
    int64_t s[3];
    bool sliceable = object.kind == JINJA_STRING || is_list(object) || object.kind == JINJA_RANGE;
    if (object.kind == JINJA_UNDEFINED) return jinja_raise_undefined(run, object);
    if (object.kind == JINJA_DICT)
        return jinja_raise(run, JINJA_ERROR_TYPE, "unhashable type: 'slice'");
    if (!sliceable)
        return jinja_raise(run, JINJA_ERROR_TYPE, "'%s' object is not subscriptable",
                           jinja_type_name(object.kind));
    if (!resolve_bounds(run, s, bounds, jinja_length(object))) return jinja_none();
    if (object.kind == JINJA_STRING) return slice_string(run, object.string, s);
    size_t count = (size_t)slice_count(s);
    struct jinja_value result =
        jinja_sequence(run, object.kind == JINJA_RANGE ? JINJA_LIST : object.kind, count);
    if (run->failed || !jinja_charge(run, count)) return result;
    for (size_t i = 0; i < count; i++)
        jinja_append(run, result.sequence, object.sequence->items[s[0] + (int64_t)i * s[2]]);
    return result;
}
