/* Filters on sequences.  Those that are generators in Jinja give a generator here: it is true
 * even when it holds nothing, has no length, and can be looped over once. */
#include "jinja/run.h"
#include "base/unicode.h"

static struct jinja_value as_list(struct jinja_sequence *sequence)
{
    return (struct jinja_value){ .kind = sequence ? JINJA_LIST : JINJA_UNDEFINED,
                                 .sequence = sequence };
}

/* ------------------------------------------------------------------ single items */

JINJA_BUILTIN(filter_length)
{
    int64_t length = jinja_length(self);
    if (length < 0)
        return jinja_raise(run, JINJA_ERROR_TYPE, "object of type '%s' has no len()",
                           jinja_type_name(self.kind));
    return jinja_int(length);
}

JINJA_BUILTIN(filter_first)
{
    if (self.kind == JINJA_GENERATOR) {
        if (self.sequence->position < self.sequence->count)
            return self.sequence->items[self.sequence->position++];
        return jinja_undefined("No first item, sequence was empty.");
    }
    struct jinja_sequence *items = jinja_iterate(run, self);
    if (!items) return jinja_failed();
    return items->count ? items->items[0] : jinja_undefined("No first item, sequence was empty.");
}

JINJA_BUILTIN(filter_last)
{
    if (self.kind == JINJA_GENERATOR)
        return jinja_raise(run, JINJA_ERROR_TYPE, "'generator' object is not reversible");
    struct jinja_sequence *items = jinja_iterate(run, self);
    if (!items) return jinja_failed();
    return items->count ? items->items[items->count - 1]
                        : jinja_undefined("No last item, sequence was empty.");
}

JINJA_BUILTIN(filter_list)
{
    return as_list(jinja_iterate(run, self));
}

JINJA_BUILTIN(filter_items)
{
    struct jinja_value items = jinja_sequence(run, JINJA_GENERATOR, 0);
    if (self.kind == JINJA_UNDEFINED) return items;
    if (self.kind != JINJA_DICT)
        return jinja_raise(run, JINJA_ERROR_TYPE, "Can only get item pairs from a mapping.");
    for (size_t i = 0; i < self.dict->count && !run->failed; i++)
        jinja_append(run, items.sequence,
                     jinja_pair(run, self.dict->entries[i].key, self.dict->entries[i].value));
    return items;
}

JINJA_BUILTIN(filter_join)
{
    struct jinja_value separator =
        given->bound[0].kind == JINJA_ABSENT ? jinja_text(run, "") : given->bound[0];
    separator = jinja_str(run, separator);
    struct jinja_sequence *items = jinja_iterate(run, self);
    if (run->failed) return jinja_failed();
    if (jinja_given(given->bound[1]))
        for (size_t i = 0; i < items->count && !run->failed; i++)
            items->items[i] = jinja_get_path(run, items->items[i], given->bound[1], jinja_absent());
    return run->failed ? jinja_failed() : jinja_join(run, separator.string, items, false);
}

JINJA_BUILTIN(filter_reverse)
{
    if (self.kind == JINJA_STRING) {
        struct jinja_value bounds[3] = { jinja_none(), jinja_none(), jinja_int(-1) };
        return jinja_slice(run, self, bounds);
    }
    bool was_generator = self.kind == JINJA_GENERATOR;
    struct jinja_sequence *items = jinja_iterate(run, self);
    if (!items) return jinja_failed();
    for (size_t i = 0; i < items->count / 2; i++) {
        struct jinja_value other = items->items[items->count - 1 - i];
        items->items[items->count - 1 - i] = items->items[i];
        items->items[i] = other;
    }
    return was_generator ? as_list(items) : jinja_generator(as_list(items));
}

/* ------------------------------------------------------------------ map and select */

/* The arguments from number `first` on, for the filter or test that is applied to each item. */
static struct jinja_arguments pass_on(const struct jinja_arguments *given, size_t first)
{
    size_t count = given->positional_count > first ? given->positional_count - first : 0;
    return (struct jinja_arguments){ .positional = given->positional + (count ? first : 0),
                                     .positional_count = count,
                                     .keywords = given->keywords,
                                     .keyword_count = given->keyword_count };
}

/* Jinja's map and select take whatever is false, none too, as an empty sequence. */
static struct jinja_sequence *iterate_if_true(struct jinja_run *run, struct jinja_value value)
{
    return jinja_iterate(run, jinja_truth(value) ? value : jinja_undefined("empty"));
}

static struct jinja_value map_attribute(struct jinja_run *run, struct jinja_sequence *items,
                                        struct jinja_value path, struct jinja_value otherwise)
{
    for (size_t i = 0; i < items->count && !run->failed; i++) {
        items->items[i] = jinja_get_path(run, items->items[i], path, otherwise);
    }
    return jinja_generator(as_list(items));
}

JINJA_BUILTIN(filter_map)
{
    struct jinja_value attribute = jinja_find_keyword(given, "attribute");
    struct jinja_sequence *items = iterate_if_true(run, self);
    if (!items) return jinja_failed();
    if (!given->positional_count && attribute.kind != JINJA_ABSENT)
        return map_attribute(run, items, attribute, jinja_find_keyword(given, "default"));
    if (!given->positional_count)
        return jinja_raise(run, JINJA_ERROR_VALUE, "map requires a filter argument");
    const struct jinja_string *name = jinja_argument_string(run, given->positional[0]);
    const struct jinja_builtin *filter = jinja_find_filter(name);
    if (!filter)
        return jinja_raise(run, JINJA_ERROR_SYNTAX, "No filter named '%.*s'.",
                           (int)min_size(name->length, 100), name->data);
    for (size_t i = 0; i < items->count && !run->failed; i++) {
        struct jinja_arguments rest = pass_on(given, 1);
        items->items[i] = jinja_call_builtin(run, filter, items->items[i], &rest);
    }
    return jinja_generator(as_list(items));
}

/* select, reject, selectattr, rejectattr: [attribute,] [test, arguments…] */
static struct jinja_value filter_by_test(struct jinja_run *run, struct jinja_value self,
                                         const struct jinja_arguments *given, bool by_attribute,
                                         bool wanted)
{
    size_t first = by_attribute ? 1 : 0;
    struct jinja_sequence *items = iterate_if_true(run, self);
    const struct jinja_builtin *test = NULL;
    size_t kept = 0;
    if (!items) return jinja_failed();
    if (given->positional_count < first)
        return jinja_raise(run, JINJA_ERROR_VALUE, "Missing parameter for attribute name");
    if (given->positional_count > first) {
        const struct jinja_string *name = jinja_argument_string(run, given->positional[first]);
        test = jinja_find_test(name);
        if (!test)
            return jinja_raise(run, JINJA_ERROR_SYNTAX, "No test named '%.*s'.",
                               (int)min_size(name->length, 100), name->data);
    }
    for (size_t i = 0; i < items->count && !run->failed; i++) {
        struct jinja_value value = items->items[i];
        if (by_attribute) value = jinja_get_path(run, value, given->positional[0], jinja_absent());
        if (test) {
            struct jinja_arguments rest = pass_on(given, first + 1);
            value = jinja_call_builtin(run, test, value, &rest);
        }
        if (jinja_truth(value) == wanted) items->items[kept++] = items->items[i];
    }
    items->count = kept;
    return jinja_generator(as_list(items));
}

JINJA_BUILTIN(filter_select)
{
    return filter_by_test(run, self, given, false, true);
}

JINJA_BUILTIN(filter_reject)
{
    return filter_by_test(run, self, given, false, false);
}

JINJA_BUILTIN(filter_selectattr)
{
    return filter_by_test(run, self, given, true, true);
}

JINJA_BUILTIN(filter_rejectattr)
{
    return filter_by_test(run, self, given, true, false);
}

/* ------------------------------------------------------------------ order */

/* What an item is compared by: itself or its attributes, without case unless wanted. */
static struct jinja_value plain_key(struct jinja_run *run, struct jinja_value item,
                                    struct jinja_value attribute, bool with_case)
{
    if (jinja_given(attribute)) item = jinja_get_path(run, item, attribute, jinja_absent());
    if (!with_case && item.kind == JINJA_STRING)
        item = jinja_convert_case(run, item.string, UNICODE_LOWER);
    return item;
}

/* As plain_key; "a,b" sorts by a, then b. */
static struct jinja_value sort_key(struct jinja_run *run, struct jinja_value item,
                                   struct jinja_value attribute, bool with_case)
{
    if (attribute.kind != JINJA_STRING ||
        !memchr(attribute.string->data, ',', attribute.string->length))
        return plain_key(run, item, attribute, with_case);
    struct jinja_value keys = jinja_sequence(run, JINJA_LIST, 2);
    const char *rest = attribute.string->data;
    size_t left = attribute.string->length;
    while (!run->failed) {
        const char *comma = memchr(rest, ',', left);
        size_t length = comma ? (size_t)(comma - rest) : left;
        struct jinja_value path = jinja_string_view(run, rest, length);
        jinja_append(run, keys.sequence, plain_key(run, item, path, with_case));
        if (!comma) break;
        left -= length + 1;
        rest = comma + 1;
    }
    return keys;
}

struct keyed {
    struct jinja_value key, item;
};

/* Merge sort: stable, as Python's; `descending` keeps the order of equals too. */
static void sort_keyed(struct jinja_run *run, struct keyed *items, struct keyed *space,
                       size_t count, bool descending)
{
    for (size_t width = 1; width < count && !run->failed; width *= 2) {
        for (size_t start = 0; start < count && !run->failed; start += 2 * width) {
            size_t middle = min_size(start + width, count);
            size_t end = min_size(start + 2 * width, count);
            size_t a = start, b = middle;
            for (size_t out = start; out < end && jinja_charge(run, 0); out++) {
                bool take_b = a == middle;
                if (a < middle && b < end) {
                    int order = descending ? jinja_order(run, items[a].key, items[b].key, "<")
                                           : jinja_order(run, items[b].key, items[a].key, "<");
                    take_b = order < 0;
                }
                space[out] = take_b ? items[b++] : items[a++];
            }
        }
        if (!run->failed) memcpy(items, space, count * sizeof *items);
    }
}

/* The items in the order of their keys, which `keys` holds in step with them. */
static struct jinja_value sorted(struct jinja_run *run, const struct jinja_sequence *items,
                                 const struct jinja_sequence *keys, bool descending)
{
    struct keyed *keyed = jinja_take(run, items->count + 1, sizeof *keyed);
    struct keyed *space = jinja_take(run, items->count + 1, sizeof *space);
    struct jinja_value list = jinja_sequence(run, JINJA_LIST, items->count);
    if (run->failed) return jinja_failed();
    for (size_t i = 0; i < items->count; i++)
        keyed[i] = (struct keyed){ keys->items[i], items->items[i] };
    sort_keyed(run, keyed, space, items->count, descending);
    for (size_t i = 0; i < items->count && !run->failed; i++)
        jinja_append(run, list.sequence, keyed[i].item);
    return list;
}

JINJA_BUILTIN(filter_sort)
{
    struct jinja_sequence *items = jinja_iterate(run, self);
    struct jinja_value keys = jinja_sequence(run, JINJA_LIST, items ? items->count : 0);
    bool descending = jinja_argument_truth(given->bound[0], false);
    bool with_case = jinja_argument_truth(given->bound[1], false);
    for (size_t i = 0; items && i < items->count && !run->failed; i++)
        jinja_append(run, keys.sequence,
                     sort_key(run, items->items[i], given->bound[2], with_case));
    if (!items || run->failed) return jinja_failed();
    return sorted(run, items, keys.sequence, descending);
}

JINJA_BUILTIN(filter_dictsort)
{
    bool with_case = jinja_argument_truth(given->bound[0], false);
    bool by_value =
        given->bound[1].kind == JINJA_STRING && jinja_is_text(given->bound[1].string, "value");
    bool descending = jinja_argument_truth(given->bound[2], false);
    if (self.kind != JINJA_DICT)
        return jinja_raise(run, JINJA_ERROR_TYPE, "dictsort needs a mapping, not %s",
                           jinja_type_name(self.kind));
    struct jinja_value items = jinja_sequence(run, JINJA_LIST, self.dict->count);
    struct jinja_value keys = jinja_sequence(run, JINJA_LIST, self.dict->count);
    for (size_t i = 0; i < self.dict->count && !run->failed; i++) {
        const struct jinja_entry *entry = &self.dict->entries[i];
        jinja_append(run, items.sequence, jinja_pair(run, entry->key, entry->value));
        jinja_append(run, keys.sequence,
                     plain_key(run, by_value ? entry->value : entry->key, jinja_none(), with_case));
    }
    if (run->failed) return jinja_failed();
    return sorted(run, items.sequence, keys.sequence, descending);
}

static struct jinja_value extreme(struct jinja_run *run, struct jinja_value self,
                                  const struct jinja_arguments *given, bool largest)
{
    struct jinja_sequence *items = jinja_iterate(run, self);
    bool with_case = jinja_argument_truth(given->bound[0], false);
    if (!items) return jinja_failed();
    if (!items->count) return jinja_undefined("No aggregated item, sequence was empty.");
    size_t best = 0;
    struct jinja_value best_key = plain_key(run, items->items[0], given->bound[1], with_case);
    for (size_t i = 1; i < items->count && jinja_charge(run, 0); i++) {
        struct jinja_value key = plain_key(run, items->items[i], given->bound[1], with_case);
        if (run->failed) break;
        int order =
            largest ? jinja_order(run, best_key, key, "<") : jinja_order(run, key, best_key, "<");
        if (order >= 0) continue;
        best = i;
        best_key = key;
    }
    return items->items[best];
}

JINJA_BUILTIN(filter_min)
{
    return extreme(run, self, given, false);
}

JINJA_BUILTIN(filter_max)
{
    return extreme(run, self, given, true);
}

JINJA_BUILTIN(filter_unique)
{
    struct jinja_sequence *items = jinja_iterate(run, self);
    bool with_case = jinja_argument_truth(given->bound[0], false);
    struct jinja_value seen = jinja_dict(run);
    size_t kept = 0;
    for (size_t i = 0; items && i < items->count && !run->failed; i++) {
        struct jinja_value key = plain_key(run, items->items[i], given->bound[1], with_case);
        if (run->failed || jinja_dict_find(run, seen.dict, key)) continue;
        jinja_dict_set(run, seen.dict, key, jinja_none());
        items->items[kept++] = items->items[i];
    }
    if (!items || run->failed) return jinja_failed();
    items->count = kept;
    return jinja_generator(as_list(items));
}

JINJA_BUILTIN(filter_sum)
{
    struct jinja_sequence *items = jinja_iterate(run, self);
    struct jinja_value sum = given->bound[1].kind == JINJA_ABSENT ? jinja_int(0) : given->bound[1];
    for (size_t i = 0; items && i < items->count && !run->failed; i++) {
        struct jinja_value item = items->items[i];
        if (jinja_given(given->bound[0]))
            item = jinja_get_path(run, item, given->bound[0], jinja_absent());
        sum = jinja_binary(run, OPERATOR_ADD, sum, item);
    }
    return sum;
}

/* ------------------------------------------------------------------ groups */

const struct jinja_builtin jinja_filters_sequence[] = {
    { "length", "", filter_length },
    { "count", "", filter_length },
    { "first", "", filter_first },
    { "last", "", filter_last },
    { "list", "", filter_list },
    { "items", "", filter_items },
    { "join", "d? attribute?", filter_join },
    { "reverse", "", filter_reverse },
    { "map", "*", filter_map },
    { "select", "*", filter_select },
    { "reject", "*", filter_reject },
    { "selectattr", "*", filter_selectattr },
    { "rejectattr", "*", filter_rejectattr },
    { "sort", "reverse? case_sensitive? attribute?", filter_sort },
    { "dictsort", "case_sensitive? by? reverse?", filter_dictsort },
    { "min", "case_sensitive? attribute?", filter_min },
    { "max", "case_sensitive? attribute?", filter_max },
    { "unique", "case_sensitive? attribute?", filter_unique },
    { "sum", "attribute? start?", filter_sum },
    { 0 },
};
