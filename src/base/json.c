#include "base/json.h"

#include "base/file.h"
#include "base/status.h"

#include <stdlib.h>

mf_status json_parse_new(json_t **out, const char *text, size_t length, const char *where,
                         mf_error *why)
{
    json_error_t problem;
    *out = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &problem);
    if (*out) return MF_OK;
    return fail(why, MF_ERR_FORMAT, "%s is not valid JSON: line %d, column %d: %s", where,
                problem.line, problem.column, problem.text);
}

static mf_status parse_object_new(json_t **out, const char *text, size_t length, const char *where,
                                  mf_error *why)
{
    mf_status status = file_refuse_pointer(where, text, length, why);
    if (status == MF_OK) status = json_parse_new(out, text, length, where, why);
    if (status != MF_OK || json_is_object(*out)) return status;
    status =
        fail(why, MF_ERR_FORMAT, "%s holds %s, an object was expected", where, json_kind(*out));
    json_decref(*out);
    *out = NULL;
    return status;
}

mf_status json_read_file_new(json_t **out, const mf_files *files, const char *path, size_t limit,
                             mf_error *why)
{
    char *text;
    size_t length;
    *out = NULL;
    mf_status status = file_read_whole_new(&text, &length, files, path, limit, why);
    if (status != MF_OK) return status;
    status = parse_object_new(out, text, length, path, why);
    free(text);
    return status;
}

mf_status json_read_maybe_new(json_t **out, const mf_files *files, const char *directory,
                              const char *name, size_t limit, mf_error *why)
{
    char path[PATH_CAPACITY], *text = NULL;
    size_t length;
    *out = NULL;
    mf_status status = path_join(path, sizeof path, directory, name, why);
    if (status == MF_OK) status = file_read_maybe_new(&text, &length, files, path, limit, why);
    if (status == MF_OK && text) status = parse_object_new(out, text, length, path, why);
    free(text);
    return status;
}

const char *json_kind(const json_t *value)
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

/* The field, or NULL when it is absent or null. */
static const json_t *field(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value) ? value : NULL;
}

mf_status json_maybe_count(uint64_t *out, const json_t *object, const char *key, uint64_t low,
                           uint64_t high, const char *where, mf_error *why)
{
    const json_t *value = field(object, key);
    if (!value) return MF_OK;
    if (!json_is_integer(value))
        return fail(why, MF_ERR_FORMAT, "%s: %s is %s, a whole number was expected", where, key,
                    json_kind(value));
    json_int_t number = json_integer_value(value);
    if (number < 0 || (uint64_t)number < low || (uint64_t)number > high)
        return fail(why, MF_ERR_FORMAT, "%s: %s is %lld, from %llu to %llu was expected", where,
                    key, (long long)number, (unsigned long long)low, (unsigned long long)high);
    *out = (uint64_t)number;
    return MF_OK;
}

mf_status json_need_count(uint64_t *out, const json_t *object, const char *key, uint64_t low,
                          uint64_t high, const char *where, mf_error *why)
{
    if (!field(object, key)) return fail(why, MF_ERR_FORMAT, "%s: %s is missing", where, key);
    return json_maybe_count(out, object, key, low, high, where, why);
}

mf_status json_maybe_real(double *out, const json_t *object, const char *key, const char *where,
                          mf_error *why)
{
    const json_t *value = field(object, key);
    if (!value) return MF_OK;
    if (!json_is_number(value))
        return fail(why, MF_ERR_FORMAT, "%s: %s is %s, a number was expected", where, key,
                    json_kind(value));
    *out = json_number_value(value);
    return MF_OK;
}

mf_status json_maybe_flag(bool *out, const json_t *object, const char *key, const char *where,
                          mf_error *why)
{
    const json_t *value = field(object, key);
    if (!value) return MF_OK;
    if (!json_is_boolean(value))
        return fail(why, MF_ERR_FORMAT, "%s: %s is %s, true or false was expected", where, key,
                    json_kind(value));
    *out = json_is_true(value);
    return MF_OK;
}

mf_status json_maybe_text(const char **out, const json_t *object, const char *key,
                          const char *where, mf_error *why)
{
    const json_t *value = field(object, key);
    if (!value) return MF_OK;
    if (!json_is_string(value))
        return fail(why, MF_ERR_FORMAT, "%s: %s is %s, a string was expected", where, key,
                    json_kind(value));
    *out = json_string_value(value);
    return MF_OK;
}

bool json_whole_numbers(uint64_t *out, uint32_t *count, uint32_t limit, const json_t *value)
{
    const json_int_t most = (json_int_t)1 << 53;
    if (!json_is_array(value) || json_array_size(value) > limit) return false;
    *count = (uint32_t)json_array_size(value);
    for (uint32_t i = 0; i < *count; i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_integer(item)) return false;
        json_int_t number = json_integer_value(item);
        if (number < 0 || number > most) return false;
        out[i] = (uint64_t)number;
    }
    return true;
}
