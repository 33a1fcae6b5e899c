#include "jinja/builtins.h"

#include "jinja/run.h"

/* ------------------------------------------------------------------ finding */

static const struct jinja_builtin *find(const struct jinja_builtin *table,
                                        const struct jinja_string *name)
{
    for (; table->name; table++)
        if (jinja_is_text(name, table->name)) return table;
    return NULL;
}

const struct jinja_builtin *jinja_find_filter(const struct jinja_string *name)
{
    const struct jinja_builtin *found = find(jinja_filters_text, name);
    if (!found) found = find(jinja_filters_sequence, name);
    return found ? found : find(jinja_filters_value, name);
}

const struct jinja_builtin *jinja_find_test(const struct jinja_string *name)
{
    return find(jinja_tests, name);
}

const struct jinja_builtin *jinja_find_global(const struct jinja_string *name)
{
    return find(jinja_globals, name);
}

const struct jinja_builtin *jinja_find_method(enum jinja_kind kind, const struct jinja_string *name)
{
    const struct jinja_builtin *found;
    switch (kind) {
    case JINJA_STRING:
        found = find(jinja_string_methods, name);
        return found ? found : find(jinja_string_questions, name);
    case JINJA_LIST:
        return find(jinja_list_methods, name);
    case JINJA_TUPLE:
    case JINJA_RANGE:
        return find(jinja_tuple_methods, name);
    case JINJA_DICT:
        return find(jinja_dict_methods, name);
    default:
        return NULL;
    }
}

/* ------------------------------------------------------------------ binding */

static bool is_named(const struct jinja_string *name, const char *text, size_t length)
{
    return name->length == length && memcmp(name->data, text, length) == 0;
}

static struct jinja_value find_keyword(const struct jinja_arguments *given, const char *name,
                                       size_t length)
{
    for (size_t i = 0; i < given->keyword_count; i++)
        if (is_named(given->keywords[i].name, name, length)) return given->keywords[i].value;
    return jinja_absent();
}

struct jinja_value jinja_find_keyword(const struct jinja_arguments *given, const char *name)
{
    return find_keyword(given, name, strlen(name));
}

/* Fills given->bound by the builtin's list of parameters. */
static bool bind(struct jinja_run *run, const struct jinja_builtin *builtin,
                 struct jinja_arguments *given)
{
    const char *parameter = builtin->parameters;
    size_t index = 0, keywords_used = 0;
    for (size_t i = 0; i < JINJA_BOUND_COUNT; i++) given->bound[i] = jinja_absent();
    if (*parameter == '*') return true;
    for (; *parameter && index < JINJA_BOUND_COUNT; index++) {
        size_t word = strcspn(parameter, " ");
        bool optional = parameter[word - 1] == '?';
        size_t length = word - (optional ? 1 : 0);
        struct jinja_value value = find_keyword(given, parameter, length);
        keywords_used += value.kind != JINJA_ABSENT;
        if (index < given->positional_count) value = given->positional[index];
        if (value.kind == JINJA_ABSENT && !optional) {
            jinja_raise(run, JINJA_ERROR_TYPE, "%s() is missing the argument '%.*s'", builtin->name,
                        (int)length, parameter);
            return false;
        }
        given->bound[index] = value;
        parameter += word + (parameter[word] == ' ' ? 1 : 0);
    }
    if (given->positional_count > index) {
        jinja_raise(run, JINJA_ERROR_TYPE, "%s() takes at most %zu arguments (%zu given)",
                    builtin->name, index, given->positional_count);
        return false;
    }
    if (keywords_used != given->keyword_count) {
        jinja_raise(run, JINJA_ERROR_TYPE, "%s() got an unexpected keyword argument",
                    builtin->name);
        return false;
    }
    return true;
}

struct jinja_value jinja_call_builtin(struct jinja_run *run, const struct jinja_builtin *builtin,
                                      struct jinja_value self, struct jinja_arguments *given)
{
    struct jinja_value undefined = jinja_failed();
    if (run->failed || !jinja_charge(run, 0) || !bind(run, builtin, given)) return undefined;
    if (!jinja_enter(run)) return undefined; /* map can apply map */
    struct jinja_value result = builtin->function(run, self, given);
    jinja_leave(run);
    return run->failed ? undefined : result;
}

/* ------------------------------------------------------------------ reading arguments */

bool jinja_given(struct jinja_value argument)
{
    return argument.kind != JINJA_ABSENT && argument.kind != JINJA_NONE;
}

int64_t jinja_argument_int(struct jinja_run *run, struct jinja_value argument, int64_t otherwise)
{
    if (argument.kind == JINJA_ABSENT) return otherwise;
    if (argument.kind == JINJA_INT) return argument.integer;
    if (argument.kind == JINJA_BOOL) return argument.truth;
    if (argument.kind == JINJA_UNDEFINED)
        jinja_raise_undefined(run, argument);
    else
        jinja_raise(run, JINJA_ERROR_TYPE, "'%s' object cannot be interpreted as an integer",
                    jinja_type_name(argument.kind));
    return otherwise;
}

bool jinja_argument_truth(struct jinja_value argument, bool otherwise)
{
    return argument.kind == JINJA_ABSENT ? otherwise : jinja_truth(argument);
}

const struct jinja_string *jinja_argument_string(struct jinja_run *run, struct jinja_value argument)
{
    static const struct jinja_string empty = { "", 0, 0 };
    if (argument.kind == JINJA_STRING) return argument.string;
    if (argument.kind == JINJA_UNDEFINED)
        jinja_raise_undefined(run, argument);
    else
        jinja_raise(run, JINJA_ERROR_TYPE, "a str was expected, not %s",
                    jinja_type_name(argument.kind));
    return &empty;
}
