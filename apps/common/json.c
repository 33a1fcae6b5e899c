#include "common/json.h"

mf_status json_text_read_new(json_t **out, const char *text, size_t length, const char *where,
                             mf_error *why)
{
    json_error_t problem;

    *out = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (*out) return MF_OK;
    return fail(why, MF_ERR_FORMAT, "%s is not valid JSON: line %d, column %d: %s", where,
                problem.line, problem.column, problem.text);
}

const char *json_type_name(const json_t *value)
{
    if (!value) return "nothing";
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "a whole number";
    case JSON_REAL:
        return "a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "true or false";
    default:
        return "null";
    }
}

static mf_status wrong_type(const json_t *found, const char *key, const char *where,
                            const char *expected, mf_error *why)
{
    return fail(why, MF_ERR_FORMAT, "%s: %s is %s, %s was expected", where, key,
                json_type_name(found), expected);
}

mf_status json_field_text(const char **out, const json_t *object, const char *key,
                          const char *where, mf_error *why)
{
    const json_t *found = json_object_get(object, key);

    if (!found || json_is_null(found)) return MF_OK;
    if (!json_is_string(found)) return wrong_type(found, key, where, "a string", why);
    *out = json_string_value(found);
    return MF_OK;
}

mf_status json_field_flag(bool *out, const json_t *object, const char *key, const char *where,
                          mf_error *why)
{
    const json_t *found = json_object_get(object, key);

    if (!found || json_is_null(found)) return MF_OK;
    if (!json_is_boolean(found)) return wrong_type(found, key, where, "true or false", why);
    *out = json_is_true(found);
    return MF_OK;
}
