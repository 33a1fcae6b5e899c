/* What can stand after `is`. */
#include "jinja/run.h"
#include "base/unicode.h"

#define TEST(name, condition)                                                                      \
    JINJA_BUILTIN(name)                                                                            \
    {                                                                                              \
        return jinja_bool(condition);                                                              \
    }

TEST(is_defined, self.kind != JINJA_UNDEFINED)
TEST(is_undefined, self.kind == JINJA_UNDEFINED)
TEST(is_none, self.kind == JINJA_NONE)
TEST(is_boolean, self.kind == JINJA_BOOL)
TEST(is_true, self.kind == JINJA_BOOL && self.truth)
TEST(is_false, self.kind == JINJA_BOOL && !self.truth)
TEST(is_integer, self.kind == JINJA_INT)
TEST(is_float, self.kind == JINJA_FLOAT)
TEST(is_number, jinja_is_number(self))
TEST(is_string, self.kind == JINJA_STRING)
TEST(is_mapping, self.kind == JINJA_DICT)
TEST(is_iterable, jinja_is_iterable(self))
/* Python: it has a length and can be indexed. */
TEST(is_sequence, jinja_length(self) >= 0 && self.kind != JINJA_VIEW)

/* ------------------------------------------------------------------ relations */

#define RELATION(name, operator)                                                                   \
    JINJA_BUILTIN(name)                                                                            \
    {                                                                                              \
        return jinja_bool(jinja_compare(run, operator, self, given->bound[0]));                    \
    }

RELATION(is_equal, OPERATOR_EQUAL)
RELATION(is_not_equal, OPERATOR_NOT_EQUAL)
RELATION(is_less, OPERATOR_LESS)
RELATION(is_less_equal, OPERATOR_LESS_EQUAL)
RELATION(is_greater, OPERATOR_GREATER)
RELATION(is_greater_equal, OPERATOR_GREATER_EQUAL)
RELATION(is_in, OPERATOR_IN)

JINJA_BUILTIN(is_same_as)
{
    struct jinja_value other = given->bound[0];
    if (self.kind != other.kind) return jinja_bool(false);
    bool by_value = self.kind <= JINJA_STRING;
    return jinja_bool(by_value ? jinja_equal(run, self, other) : self.sequence == other.sequence);
}

JINJA_BUILTIN(is_divisible)
{
    struct jinja_value rest = jinja_binary(run, OPERATOR_MODULO, self, given->bound[0]);
    return jinja_bool(!run->failed && jinja_equal(run, rest, jinja_int(0)));
}

JINJA_BUILTIN(is_odd)
{
    struct jinja_value rest = jinja_binary(run, OPERATOR_MODULO, self, jinja_int(2));
    return jinja_bool(!run->failed && jinja_equal(run, rest, jinja_int(1)));
}

JINJA_BUILTIN(is_even)
{
    struct jinja_value rest = jinja_binary(run, OPERATOR_MODULO, self, jinja_int(2));
    return jinja_bool(!run->failed && jinja_equal(run, rest, jinja_int(0)));
}

/* ------------------------------------------------------------------ text */

const struct jinja_builtin jinja_tests[] = {
    { "defined", "", is_defined },
    { "undefined", "", is_undefined },
    { "none", "", is_none },
    { "boolean", "", is_boolean },
    { "true", "", is_true },
    { "false", "", is_false },
    { "integer", "", is_integer },
    { "float", "", is_float },
    { "number", "", is_number },
    { "string", "", is_string },
    { "mapping", "", is_mapping },
    { "iterable", "", is_iterable },
    { "sequence", "", is_sequence },
    { "odd", "", is_odd },
    { "even", "", is_even },
    { "divisibleby", "num", is_divisible },
    { "sameas", "other", is_same_as },
    { "in", "seq", is_in },
    { "eq", "other", is_equal },
    { "==", "other", is_equal },
    { "equalto", "other", is_equal },
    { "ne", "other", is_not_equal },
    { "!=", "other", is_not_equal },
    { "lt", "other", is_less },
    { "<", "other", is_less },
    { "lessthan", "other", is_less },
    { "le", "other", is_less_equal },
    { "<=", "other", is_less_equal },
    { "gt", "other", is_greater },
    { ">", "other", is_greater },
    { "greaterthan", "other", is_greater },
    { "ge", "other", is_greater_equal },
    { ">=", "other", is_greater_equal },
    { 0 },
};
