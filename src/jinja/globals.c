/* Global functions. */
#include "jinja/run.h"

/* ------------------------------------------------------------------ range */

enum { RANGE_LIMIT = 100000 }; /* as Jinja's sandbox has it */

/* Distances between two int64 fit into uint64. */
static uint64_t range_count(int64_t start, int64_t stop, int64_t step)
{
    bool up = step > 0;
    if (up ? start >= stop : start <= stop) return 0;
    uint64_t distance = up ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t size = up ? (uint64_t)step : 0 - (uint64_t)step;
    return (distance - 1) / size + 1;
}

JINJA_BUILTIN(make_range)
{
    bool only_stop = given->bound[1].kind == JINJA_ABSENT;
    int64_t start = only_stop ? 0 : jinja_argument_int(run, given->bound[0], 0);
    int64_t stop = jinja_argument_int(run, given->bound[only_stop ? 0 : 1], 0);
    int64_t step = jinja_argument_int(run, given->bound[2], 1);
    if (run->failed) return jinja_failed();
    if (step == 0) return jinja_raise(run, JINJA_ERROR_VALUE, "range() arg 3 must not be zero");
    uint64_t count = range_count(start, stop, step);
    if (count > RANGE_LIMIT)
        return jinja_raise(run, JINJA_ERROR_LIMIT,
                           "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                           RANGE_LIMIT);
    struct jinja_value range = jinja_sequence(run, JINJA_RANGE, (size_t)count);
    if (run->failed || !jinja_charge(run, (size_t)count)) return jinja_failed();
    range.sequence->start = start;
    range.sequence->stop = stop;
    range.sequence->step = step;
    for (uint64_t i = 0; i < count; i++)
        jinja_append(run, range.sequence, jinja_int(start + (int64_t)i * step));
    return range;
}

/* ------------------------------------------------------------------ dict and namespace */

/* Adds the entries of a dict, or of an iterable of pairs. */
static void add_entries(struct jinja_run *run, struct jinja_dict *out, struct jinja_value source)
{
    if (source.kind == JINJA_DICT || source.kind == JINJA_NAMESPACE) {
        for (size_t i = 0; i < source.dict->count && !run->failed; i++)
            jinja_dict_set(run, out, source.dict->entries[i].key, source.dict->entries[i].value);
        return;
    }
    struct jinja_sequence *pairs = jinja_iterate(run, source);
    for (size_t i = 0; pairs && i < pairs->count && !run->failed; i++) {
        struct jinja_sequence *pair = jinja_iterate(run, pairs->items[i]);
        if (pair && pair->count == 2)
            jinja_dict_set(run, out, pair->items[0], pair->items[1]);
        else
            jinja_raise(run, JINJA_ERROR_VALUE, "element %zu of a dict is not a pair", i);
    }
}

JINJA_BUILTIN(make_dict)
{
    struct jinja_value dict = jinja_dict(run);
    for (size_t i = 0; i < given->positional_count && !run->failed; i++)
        add_entries(run, dict.dict, given->positional[i]);
    for (size_t i = 0; i < given->keyword_count && !run->failed; i++) {
        struct jinja_value key = { .kind = JINJA_STRING, .string = given->keywords[i].name };
        jinja_dict_set(run, dict.dict, key, given->keywords[i].value);
    }
    return dict;
}

JINJA_BUILTIN(make_namespace)
{
    struct jinja_value value = make_dict(run, self, given);
    if (value.kind == JINJA_DICT) value.kind = JINJA_NAMESPACE;
    return value;
}

/* ------------------------------------------------------------------ the host's functions */

JINJA_BUILTIN(raise_exception)
{
    struct jinja_value message = jinja_str(run, given->bound[0]);
    return run->failed ? message : jinja_raise_text(run, JINJA_ERROR_RAISED, message.string);
}

JINJA_BUILTIN(strftime_now)
{
    char format[258], text[2048];
    struct tm now = { 0 };
    const struct jinja_string *wanted = jinja_argument_string(run, given->bound[0]);
    if (run->failed || !run->options->now) return jinja_failed();
    if (wanted->length + 2 > sizeof format || memchr(wanted->data, '\0', wanted->length))
        return jinja_raise(run, JINJA_ERROR_LIMIT, "the time format is too long");
    /* The mark in front tells an empty result from one that does not fit. */
    format[0] = '|';
    if (wanted->length) memcpy(format + 1, wanted->data, wanted->length);
    format[1 + wanted->length] = '\0';
    run->options->now(run->options->user, &now);
    size_t length = strftime(text, sizeof text, format, &now);
    if (!length) return jinja_raise(run, JINJA_ERROR_LIMIT, "the formatted time is too long");
    return jinja_string_copy(run, text + 1, length - 1);
}

const struct jinja_builtin jinja_globals[] = {
    { "range", "start stop? step?", make_range }, { "dict", "*", make_dict },
    { "namespace", "*", make_namespace },         { "raise_exception", "message", raise_exception },
    { "strftime_now", "format", strftime_now },   { 0 },
};
