/* Numbers between bounds, digit by digit.
 *
 * A bound is a decimal: whole part and fraction digits.  A number of a fixed count of digits
 * lies between two bounds of as many digits exactly if, read from the left, it has not left
 * them while it was still equal to one:
 *
 *     250 … 687    first digit   2: then 50 … 99     3-5: anything     6: then 00 … 87
 *
 * Whole numbers are built so for each count of digits; multiples of m carry the remainder of
 * the digits so far.  Fractions are compared the same way after the point.
 *
 * No number has more than 15 significant digits: then two different texts are two different
 * doubles, and what is smaller as text is smaller to every reader. */
#include "grammar/schema_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DIGITS = 15, STEP_LIMIT = 400 };

static const int64_t largest = 999999999999999; /* DIGITS nines */

/* ------------------------------------------------------------------- bounds */

/* A decimal bound, scaled: value = units / 10^fraction_digits. */
struct bound {
    bool present, exclusive;
    bool negative;
    char whole[DIGITS + 2];    /* digits of the absolute value, at least one */
    char fraction[DIGITS + 2]; /* digits after the point, no trailing zero */
};

/* -1, 0, 1: the order of two bounds as numbers, exclusiveness aside. */
static int compare_absolute(const struct bound *a, const struct bound *b)
{
    size_t x = strlen(a->whole), y = strlen(b->whole);
    if (x != y) return x < y ? -1 : 1;
    int order = strcmp(a->whole, b->whole);
    if (order == 0) order = strcmp(a->fraction, b->fraction); /* no trailing zeros: lexical */
    return (order > 0) - (order < 0);
}

static int compare_bounds(const struct bound *a, const struct bound *b)
{
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    int order = compare_absolute(a, b);
    return a->negative ? -order : order;
}

static void trim_zeros(char *digits)
{
    size_t length = strlen(digits);
    while (length > 0 && digits[length - 1] == '0') digits[--length] = '\0';
}

/* A number of the schema as a bound; false when it has more digits than can be kept exactly. */
static bool set_bound(struct bound *bound, double value)
{
    char text[64];
    double magnitude = fabs(value);
    if (!(magnitude <= (double)largest)) return false;
    snprintf(text, sizeof text, "%.*f", DIGITS, magnitude);
    /* The shortest fraction that reads back as the same number. */
    for (int digits = 0; digits <= DIGITS; digits++) {
        char shorter[64];
        snprintf(shorter, sizeof shorter, "%.*f", digits, magnitude);
        if (strtod(shorter, NULL) == magnitude) {
            memcpy(text, shorter, sizeof text);
            break;
        }
        if (digits == DIGITS) return false;
    }
    char *point = strchr(text, '.');
    const char *fraction = point ? point + 1 : "";
    size_t whole = point ? (size_t)(point - text) : strlen(text);
    if (whole + strlen(fraction) > DIGITS + 1) return false;
    memcpy(bound->whole, text, whole);
    bound->whole[whole] = '\0';
    memcpy(bound->fraction, fraction, strlen(fraction) + 1);
    trim_zeros(bound->fraction);
    bool zero = strcmp(bound->whole, "0") == 0 && bound->fraction[0] == '\0';
    bound->negative = value < 0 && !zero;
    bound->present = true;
    return true;
}

static bool is_zero(const struct bound *bound)
{
    return strcmp(bound->whole, "0") == 0 && bound->fraction[0] == '\0';
}

/* The tighter of *bound and a keyword's value; `low`: a lower bound.  False after an error. */
static bool tighten(struct schema_compiler *c, struct bound *bound, const json_t *value,
                    const char *keyword, bool low, bool exclusive)
{
    if (!value) return true;
    if (!json_is_number(value))
        return schema_fail(c, MF_ERR_GRAMMAR, "%s is %s, a number was expected", keyword,
                           json_kind(value)) != NULL;
    double number = json_number_value(value);
    /* A bound that no number of 15 digits reaches is none. */
    if (low ? number < -(double)largest : number > (double)largest) return true;
    struct bound other = { .exclusive = exclusive };
    if (!set_bound(&other, number))
        return schema_fail(c, MF_ERR_UNSUPPORTED, "%s has more than %d digits", keyword, DIGITS) !=
               NULL;
    int order = bound->present ? compare_bounds(&other, bound) : 0;
    bool tighter = !bound->present || (low ? order > 0 : order < 0) || (order == 0 && exclusive);
    if (tighter) *bound = other;
    return true;
}

static bool read_bounds(struct schema_compiler *c, const json_t *schema, struct bound *low,
                        struct bound *high)
{
    const json_t *above = json_object_get(schema, "exclusiveMinimum");
    const json_t *below = json_object_get(schema, "exclusiveMaximum");
    /* In old drafts they are flags beside minimum and maximum. */
    bool old_above = json_is_boolean(above), old_below = json_is_boolean(below);
    return tighten(c, low, json_object_get(schema, "minimum"), "minimum", true,
                   json_is_true(above)) &&
           tighten(c, high, json_object_get(schema, "maximum"), "maximum", false,
                   json_is_true(below)) &&
           tighten(c, low, old_above ? NULL : above, "exclusiveMinimum", true, true) &&
           tighten(c, high, old_below ? NULL : below, "exclusiveMaximum", false, true);
}

/* ------------------------------------------------------------ whole numbers */

static const struct expression *digit_between(struct grammar_builder *b, char first, char last)
{
    struct code_range range = { (uint8_t)first, (uint8_t)last };
    return expression_class(b, &range, 1);
}

/* Numbers of `length` digits between low and high, of which the last `point` are behind a
 * decimal point; multiples of `step`, in units of the last digit. */
struct digit_range {
    struct schema_compiler *compiler;
    uint32_t step, point;
    size_t length;
    char low[24], high[24];
    /* Rules for "n more digits, any, remainder r": free_rules[n * step + r]; RULE_NONE: not yet. */
    uint32_t *free_rules;
};

static const struct expression *digits_from(struct digit_range *d, size_t at, bool on_low,
                                            bool on_high, uint32_t remainder);

/* The point, when it stands before digit `at`. */
static const struct expression *with_point(struct digit_range *d, size_t at,
                                           const struct expression *rest)
{
    struct grammar_builder *b = d->compiler->builder;
    if (d->point == 0 || d->length - at != d->point) return rest;
    return SEQUENCE(b, expression_text(b, "."), rest);
}

/* The rest of the digits when no bound matters any more. */
static const struct expression *digits_free(struct digit_range *d, size_t at, uint32_t remainder)
{
    struct grammar_builder *b = d->compiler->builder;
    size_t left = d->length - at;
    if (d->step == 1 && d->point == 0)
        return expression_repeat(b, digit_between(b, '0', '9'), (uint32_t)left, (uint32_t)left);
    uint32_t *rule = &d->free_rules[left * d->step + remainder];
    if (*rule == RULE_NONE) {
        *rule = builder_add_rule(b, NULL);
        uint32_t made = *rule; /* the same for every length: digits are counted from the end */
        const struct expression *items[10];
        if (made == RULE_NONE) return NULL;
        for (uint32_t digit = 0; digit < 10; digit++) {
            char text[] = { (char)('0' + digit), '\0' };
            uint32_t next = (remainder * 10 + digit) % d->step;
            const struct expression *rest = digits_from(d, at + 1, false, false, next);
            items[digit] = SEQUENCE(b, expression_text(b, text), rest);
        }
        builder_define(b, made, with_point(d, at, expression_choice(b, items, 10)));
    }
    return expression_rule(b, *rule);
}

/* The digits from `at` on, when those before are equal to the bounds' as the flags say. */
static const struct expression *digits_from(struct digit_range *d, size_t at, bool on_low,
                                            bool on_high, uint32_t remainder)
{
    struct grammar_builder *b = d->compiler->builder;
    if (at == d->length)
        return remainder == 0 ? expression_empty(b) : schema_shared(d->compiler, SHARED_NEVER);
    if (!on_low && !on_high) return digits_free(d, at, remainder);
    char first = '0', last = '9';
    if (on_low) first = d->low[at];
    if (on_high) last = d->high[at];
    const struct expression *items[10];
    size_t count = 0;
    for (char digit = first; digit <= last;) {
        bool edge = (on_low && digit == first) || (on_high && digit == last);
        char end = digit; /* digits that go on alike are one class */
        if (d->step == 1 && !edge)
            while (end < last && !(on_high && end + 1 == last)) end++;
        uint32_t next = (remainder * 10 + (uint32_t)(digit - '0')) % d->step;
        const struct expression *rest =
            digits_from(d, at + 1, on_low && digit == first, on_high && digit == last, next);
        items[count++] = SEQUENCE(b, digit_between(b, digit, end), rest);
        digit = (char)(end + 1);
    }
    if (count == 0) return schema_shared(d->compiler, SHARED_NEVER);
    return with_point(d, at, expression_choice(b, items, count));
}

static int64_t power_of_ten(size_t exponent)
{
    int64_t power = 1;
    while (exponent-- > 0) power *= 10;
    return power;
}

/* low … high, both at least 0, as digits with a point before the last `point`. */
static const struct expression *natural_range(struct schema_compiler *c, int64_t low, int64_t high,
                                              uint32_t step, uint32_t point)
{
    struct grammar_builder *b = c->builder;
    if (low > high) return schema_shared(c, SHARED_NEVER);
    struct digit_range d = { .compiler = c, .step = step, .point = point };
    size_t rules = (DIGITS + 2) * (size_t)step;
    d.free_rules = arena_take(&b->arena, rules, sizeof *d.free_rules);
    if (!d.free_rules) return builder_fail(b, MF_ERR_MEMORY, "out of memory for the schema");
    for (size_t i = 0; i < rules; i++) d.free_rules[i] = RULE_NONE;

    const struct expression *items[DIGITS + 2];
    size_t count = 0;
    /* With a point, the shortest form is 0.xx: one digit before it, perhaps a zero. */
    for (size_t length = point + 1; length <= DIGITS; length++) {
        int64_t first = length == point + 1 ? 0 : power_of_ten(length - 1);
        int64_t last = power_of_ten(length) - 1;
        if (first < low) first = low;
        if (last > high) last = high;
        if (first > last) continue;
        d.length = length;
        snprintf(d.low, sizeof d.low, "%0*lld", (int)length, (long long)first);
        snprintf(d.high, sizeof d.high, "%0*lld", (int)length, (long long)last);
        items[count++] = digits_from(&d, 0, true, true, 0);
    }
    if (count == 0) return schema_shared(c, SHARED_NEVER);
    return expression_choice(b, items, count);
}

/* Multiples of `step` units in low … high units, a unit being the last digit behind the point. */
static const struct expression *unit_range(struct schema_compiler *c, int64_t low, int64_t high,
                                           uint32_t step, uint32_t point)
{
    struct grammar_builder *b = c->builder;
    const struct expression *positive = natural_range(c, low > 0 ? low : 0, high, step, point);
    if (low >= 0) return positive;
    const struct expression *negative = natural_range(c, high < -1 ? -high : 1, -low, step, point);
    negative = SEQUENCE(b, expression_text(b, "-"), negative);
    return high < 0 ? negative : CHOICE(b, positive, negative);
}

/* ------------------------------------------------------------------ scaling */

/* A bound in units of 10^-point, rounded inwards; saturates. */
static int64_t scaled_bound(const struct bound *bound, uint32_t point, bool low)
{
    if (!bound->present) return low ? -largest : largest;
    char digits[2 * DIGITS + 8];
    size_t fraction = strlen(bound->fraction);
    snprintf(digits, sizeof digits, "%s%.*s", bound->whole, (int)min_size(fraction, point),
             bound->fraction);
    int64_t units = strtoll(digits, NULL, 10);
    for (size_t i = fraction; i < point; i++) {
        if (units > largest / 10) return (bound->negative ? -1 : 1) * largest;
        units *= 10;
    }
    bool cut = fraction > point; /* something behind was dropped: towards zero */
    if (bound->negative) units = -units;
    if (low && ((cut && !bound->negative) || (!cut && bound->exclusive))) units++;
    if (!low && ((cut && bound->negative) || (!cut && bound->exclusive))) units--;
    return units;
}

/* multipleOf as step / 10^point; false after an error.  *step 0: there is none. */
static bool read_step(struct schema_compiler *c, const json_t *schema, bool whole, uint32_t *step,
                      uint32_t *point)
{
    *step = *point = 0;
    const json_t *value = json_object_get(schema, "multipleOf");
    if (!value) return true;
    struct bound bound = { 0 };
    double number = json_is_number(value) ? json_number_value(value) : 0.0;
    if (!(number > 0.0))
        return schema_fail(c, MF_ERR_GRAMMAR, "multipleOf must be a number above 0") != NULL;
    int64_t units = 0;
    if (set_bound(&bound, number)) {
        *point = (uint32_t)strlen(bound.fraction);
        units = scaled_bound(&bound, *point, true);
    }
    /* Whole multiples of a / 10^p are multiples of a / gcd(a, 10^p). */
    while (whole && *point > 0 && units > 0) {
        if (units % 10 == 0) {
            units /= 10;
        } else {
            bool five = units % 5 == 0, two = units % 2 == 0;
            units = five ? units / 5 : two ? units / 2 : units;
        }
        (*point)--;
    }
    if (units <= 0 || units > STEP_LIMIT || *point > 6) {
        *step = *point = 0;
        return schema_leave_out(c, "multipleOf", "only steps up to 400 units of the last digit");
    }
    *step = (uint32_t)units;
    return true;
}

/* -------------------------------------------------------------- fractions */

/* What may follow the whole part: nothing, or a point and up to `most` digits, between the
 * fractions of the bounds that the whole part is equal to (NULL: it is not). */
struct fraction_range {
    struct schema_compiler *compiler;
    const struct bound *low, *high;
    size_t most;
};

static char fraction_digit(const struct bound *bound, size_t at)
{
    if (at < strlen(bound->fraction)) return bound->fraction[at];
    return '0';
}

/* Whether the number may end before fraction digit `at`. */
static bool may_end(const struct fraction_range *f, size_t at, bool on_low, bool on_high)
{
    bool more_low = on_low && at < strlen(f->low->fraction);
    bool more_high = on_high && at < strlen(f->high->fraction);
    if (on_low && (more_low || f->low->exclusive)) return false;
    return !on_high || more_high || !f->high->exclusive;
}

static const struct expression *fraction_from(const struct fraction_range *f, size_t at,
                                              bool on_low, bool on_high)
{
    struct schema_compiler *c = f->compiler;
    struct grammar_builder *b = c->builder;
    const char *point = at == 0 ? "." : "";
    if (!on_low && !on_high) {
        const struct expression *digit = digit_between(b, '0', '9');
        uint32_t left = (uint32_t)(f->most - at);
        if (at > 0 || left == 0) return expression_repeat(b, digit, 0, left);
        return expression_repeat(
            b, SEQUENCE(b, expression_text(b, "."), expression_repeat(b, digit, 1, left)), 0, 1);
    }
    const struct expression *items[12];
    size_t count = 0;
    if (may_end(f, at, on_low, on_high)) items[count++] = expression_empty(b);
    if (at < f->most) {
        char first = '0', last = '9';
        if (on_low) first = fraction_digit(f->low, at);
        if (on_high) last = fraction_digit(f->high, at);
        for (char digit = first; digit <= last;) {
            bool edge = (on_low && digit == first) || (on_high && digit == last);
            char end = digit;
            while (!edge && end < last && !(on_high && end + 1 == last)) end++;
            const struct expression *rest =
                fraction_from(f, at + 1, on_low && digit == first, on_high && digit == last);
            items[count++] =
                SEQUENCE(b, expression_text(b, point), digit_between(b, digit, end), rest);
            digit = (char)(end + 1);
        }
    }
    if (count == 0) return schema_shared(c, SHARED_NEVER);
    return expression_choice(b, items, count);
}

/* Numbers from low to high, both present and not negative. */
static const struct expression *between(struct schema_compiler *c, const struct bound *low,
                                        const struct bound *high)
{
    struct grammar_builder *b = c->builder;
    int order = compare_absolute(low, high);
    if (order > 0 || (order == 0 && (low->exclusive || high->exclusive)))
        return schema_shared(c, SHARED_NEVER);
    size_t shown = max_size(strlen(low->fraction), strlen(high->fraction));
    size_t room = DIGITS - min_size(DIGITS, strlen(high->whole));
    size_t most = min_size(max_size(shown + 1, 6), room);
    if (most < shown) return schema_fail(c, MF_ERR_UNSUPPORTED, "bounds with too many digits");
    struct fraction_range f = { c, low, high, most };
    if (strcmp(low->whole, high->whole) == 0)
        return SEQUENCE(b, expression_text(b, low->whole), fraction_from(&f, 0, true, true));

    int64_t first = strtoll(low->whole, NULL, 10), last = strtoll(high->whole, NULL, 10);
    const struct expression *items[3];
    size_t count = 0;
    items[count++] = SEQUENCE(b, expression_text(b, low->whole), fraction_from(&f, 0, true, false));
    items[count++] =
        SEQUENCE(b, expression_text(b, high->whole), fraction_from(&f, 0, false, true));
    if (last - first > 1)
        items[count++] = SEQUENCE(b, natural_range(c, first + 1, last - 1, 1, 0),
                                  fraction_from(&f, 0, false, false));
    return expression_choice(b, items, count);
}

static const struct expression *bounded_number(struct schema_compiler *c, struct bound *low,
                                               struct bound *high)
{
    struct grammar_builder *b = c->builder;
    struct bound zero = { .present = true, .whole = "0" };
    /* An open side ends where six digits behind the point still fit, or at the last digit. */
    bool wide = strlen(low->whole) > 9 || strlen(high->whole) > 9;
    struct bound far = { .present = true, .whole = "999999999" };
    if (wide) memset(far.whole, '9', DIGITS);
    if (!high->present) *high = far;
    far.negative = true;
    if (!low->present) *low = far;
    if (!low->negative && !high->negative) return between(c, low, high);

    /* The negative part, mirrored; zero belongs to the other one. */
    struct bound near_zero = high->negative ? *high : zero;
    if (!high->negative) near_zero.exclusive = true;
    if (!low->negative) return schema_shared(c, SHARED_NEVER); /* low above high */
    const struct expression *negative =
        SEQUENCE(b, expression_text(b, "-"), between(c, &near_zero, low));
    if (high->negative || (is_zero(high) && high->exclusive)) return negative;
    return CHOICE(b, between(c, &zero, high), negative);
}

/* ------------------------------------------------------------------- whole */

/* The bodies of SHARED_INTEGER and SHARED_NUMBER. */
const struct expression *schema_any_number(struct schema_compiler *c, bool whole)
{
    static const struct code_range e[] = { { 'E', 'E' }, { 'e', 'e' } };
    static const struct code_range sign[] = { { '+', '+' }, { '-', '-' } };
    struct grammar_builder *b = c->builder;
    const struct expression *digit = digit_between(b, '0', '9');
    const struct expression *integer =
        SEQUENCE(b, expression_repeat(b, expression_text(b, "-"), 0, 1),
                 CHOICE(b, expression_text(b, "0"),
                        SEQUENCE(b, digit_between(b, '1', '9'),
                                 expression_repeat(b, digit, 0, DIGITS - 1))));
    if (whole) return integer;
    const struct expression *fraction =
        SEQUENCE(b, expression_text(b, "."), expression_repeat(b, digit, 1, DIGITS));
    /* Two digits of exponent: always a finite double. */
    const struct expression *exponent = SEQUENCE(
        b, expression_class(b, e, 2), expression_repeat(b, expression_class(b, sign, 2), 0, 1),
        expression_repeat(b, digit, 1, 2));
    return SEQUENCE(b, integer, expression_repeat(b, fraction, 0, 1),
                    expression_repeat(b, exponent, 0, 1));
}

const struct expression *schema_number(struct schema_compiler *c, const json_t *schema, bool whole)
{
    struct bound low = { 0 }, high = { 0 };
    uint32_t step, point;
    if (!read_bounds(c, schema, &low, &high)) return NULL;
    if (!read_step(c, schema, whole, &step, &point)) return NULL;
    if (!low.present && !high.present && step == 0)
        return schema_shared(c, whole ? SHARED_INTEGER : SHARED_NUMBER);
    if (whole && step == 0) step = 1;
    if (step)
        return unit_range(c, scaled_bound(&low, point, true), scaled_bound(&high, point, false),
                          step, point);
    return bounded_number(c, &low, &high);
}
