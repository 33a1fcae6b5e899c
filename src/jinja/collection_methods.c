/* Methods of list, tuple and dict. */
#include "jinja/run.h"

/* ------------------------------------------------------------------ list */

JINJA_BUILTIN(list_append)
{
    jinja_append(run, self.sequence, given->bound[0]);
    return jinja_none();
}

JINJA_BUILTIN(list_extend)
{
    struct jinja_sequence *more = jinja_iterate(run, given->bound[0]);
    for (size_t i = 0; more && i < more->count && !run->failed; i++)
        jinja_append(run, self.sequence, more->items[i]);
    return jinja_none();
}

JINJA_BUILTIN(list_insert)
{
    struct jinja_sequence *list = self.sequence;
    int64_t count = (int64_t)list->count;
    int64_t index = jinja_argument_int(run, given->bound[0], 0);
    if (index < 0) index = index < -count ? 0 : index + count;
    if (index > count) index = count;
    if (run->failed || !jinja_append(run, list, given->bound[1])) return jinja_none();
    size_t after = list->count - 1 - (size_t)index;
    jinja_charge(run, after * sizeof *list->items);
    memmove(&list->items[index + 1], &list->items[index], after * sizeof *list->items);
    list->items[index] = given->bound[1];
    return jinja_none();
}

static void remove_at(struct jinja_run *run, struct jinja_sequence *list, size_t index)
{
    size_t after = list->count - index - 1;
    jinja_charge(run, after * sizeof *list->items);
    memmove(&list->items[index], &list->items[index + 1], after * sizeof *list->items);
    list->count--;
}

JINJA_BUILTIN(list_pop)
{
    int64_t count = (int64_t)self.sequence->count;
    int64_t index = jinja_argument_int(run, given->bound[0], -1);
    if (run->failed) return jinja_failed();
    if (!count) return jinja_raise(run, JINJA_ERROR_VALUE, "pop from empty list");
    if (index < 0) index += count;
    if (index < 0 || index >= count)
        return jinja_raise(run, JINJA_ERROR_VALUE, "pop index out of range");
    struct jinja_value item = self.sequence->items[index];
    remove_at(run, self.sequence, (size_t)index);
    return item;
}

/* The index of a value; -1: it is not there. */
static int64_t index_of(struct jinja_run *run, const struct jinja_sequence *list,
                        struct jinja_value item)
{
    for (size_t i = 0; i < list->count && jinja_charge(run, 0); i++)
        if (jinja_equal(run, list->items[i], item)) return (int64_t)i;
    return -1;
}

JINJA_BUILTIN(list_index)
{
    int64_t index = index_of(run, self.sequence, given->bound[0]);
    if (index < 0) return jinja_raise(run, JINJA_ERROR_VALUE, "the value is not in the list");
    return jinja_int(index);
}

JINJA_BUILTIN(list_count)
{
    int64_t count = 0;
    for (size_t i = 0; i < self.sequence->count && jinja_charge(run, 0); i++)
        count += jinja_equal(run, self.sequence->items[i], given->bound[0]);
    return jinja_int(count);
}

const struct jinja_builtin jinja_list_methods[] = {
    { "append", "object", list_append },
    { "extend", "iterable", list_extend },
    { "insert", "index object", list_insert },
    { "pop", "index?", list_pop },
    { "index", "value", list_index },
    { "count", "value", list_count },
    { 0 },
};

const struct jinja_builtin jinja_tuple_methods[] = {
    { "index", "value", list_index },
    { "count", "value", list_count },
    { 0 },
};

/* ------------------------------------------------------------------ dict */

JINJA_BUILTIN(dict_get)
{
    const struct jinja_entry *entry = jinja_dict_find(run, self.dict, given->bound[0]);
    if (entry) return entry->value;
    return given->bound[1].kind == JINJA_ABSENT ? jinja_none() : given->bound[1];
}

JINJA_BUILTIN(dict_pop)
{
    struct jinja_entry *entry = jinja_dict_find(run, self.dict, given->bound[0]);
    if (!entry) {
        if (given->bound[1].kind != JINJA_ABSENT) return given->bound[1];
        return jinja_raise(run, JINJA_ERROR_VALUE, "the key to pop is not in the dict");
    }
    struct jinja_value value = entry->value;
    jinja_dict_remove(run, self.dict, entry);
    return value;
}

enum view { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

static struct jinja_value make_view(struct jinja_run *run, const struct jinja_dict *dict,
                                    enum view what)
{
    static const char *const labels[] = { "dict_keys", "dict_values", "dict_items" };
    struct jinja_value view = jinja_sequence(run, JINJA_VIEW, dict->count);
    if (run->failed || !jinja_charge(run, dict->count)) return jinja_failed();
    view.sequence->label = labels[what];
    for (size_t i = 0; i < dict->count && !run->failed; i++) {
        const struct jinja_entry *entry = &dict->entries[i];
        jinja_append(run, view.sequence,
                     what == VIEW_KEYS     ? entry->key
                     : what == VIEW_VALUES ? entry->value
                                           : jinja_pair(run, entry->key, entry->value));
    }
    return view;
}

JINJA_BUILTIN(dict_keys)
{
    return make_view(run, self.dict, VIEW_KEYS);
}

JINJA_BUILTIN(dict_values)
{
    return make_view(run, self.dict, VIEW_VALUES);
}

JINJA_BUILTIN(dict_items)
{
    return make_view(run, self.dict, VIEW_ITEMS);
}

JINJA_BUILTIN(dict_update)
{
    for (size_t i = 0; i < given->positional_count && !run->failed; i++) {
        struct jinja_value source = given->positional[i];
        if (source.kind != JINJA_DICT)
            return jinja_raise(run, JINJA_ERROR_TYPE, "'%s' object is not a mapping",
                               jinja_type_name(source.kind));
        for (size_t j = 0; j < source.dict->count && !run->failed; j++)
            jinja_dict_set(run, self.dict, source.dict->entries[j].key,
                           source.dict->entries[j].value);
    }
    for (size_t i = 0; i < given->keyword_count && !run->failed; i++) {
        struct jinja_value key = { .kind = JINJA_STRING, .string = given->keywords[i].name };
        jinja_dict_set(run, self.dict, key, given->keywords[i].value);
    }
    return jinja_none();
}

JINJA_BUILTIN(dict_copy)
{
    struct jinja_value copy = jinja_dict(run);
    for (size_t i = 0; i < self.dict->count && !run->failed; i++)
        jinja_dict_set(run, copy.dict, self.dict->entries[i].key, self.dict->entries[i].value);
    return copy;
}

const struct jinja_builtin jinja_dict_methods[] = {
    { "get", "key default?", dict_get }, { "items", "", dict_items },
    { "keys", "", dict_keys },           { "values", "", dict_values },
    { "pop", "key default?", dict_pop }, { "update", "*", dict_update },
    { "copy", "", dict_copy },           { 0 },
};
