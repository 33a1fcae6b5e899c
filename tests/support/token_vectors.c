#include "support/test.h"
#include "support/token_vectors.h"

#include "base/file.h"

#include <stdlib.h>

static void must(mf_status status, const mf_error *why)
{
    if (status != MF_OK) fail_msg("%s (%s)", why->text, why->origin);
}

char *vectors_read(const char *path, size_t *length)
{
    char *text;
    mf_error why;
    must(file_read_whole_new(&text, length, &files_posix, path, 64 << 20, &why), &why);
    return text;
}

size_t vectors_for_each(const char *path, void (*check)(const json_t *line, const void *with),
                        const void *with)
{
    size_t length, count = 0;
    mf_error why;
    char *text = vectors_read(path, &length);
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        json_t *line;
        must(json_parse_new(&line, at, (size_t)(end - at), path, &why), &why);
        check(line, with);
        json_decref(line);
        count++;
    }
    free(text);
    print_message("%s: %zu\n", path, count);
    return count;
}

struct token_list vectors_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                                 enum special_mode mode)
{
    struct token_list ids = { 0 };
    mf_error why;
    must(tokenizer_encode(&ids, tokenizer, text, length, mode, &why), &why);
    return ids;
}

void vectors_assert_ids(const struct token_list *ids, const json_t *wanted, const char *name)
{
    bool same = ids->count == json_array_size(wanted);
    for (size_t i = 0; same && i < ids->count; i++)
        same = ids->ids[i] == json_integer_value(json_array_get(wanted, i));
    if (same) return;
    for (size_t i = 0; i < ids->count; i++) print_error("%d ", ids->ids[i]);
    char *text = json_dumps(wanted, JSON_COMPACT);
    print_error("\n%s wanted\n", text);
    free(text);
    fail_msg("%s: other ids", name);
}

void vectors_check_line(const json_t *line, const void *vector_case)
{
    const struct vector_case *c = vector_case;
    const json_t *text = json_object_get(line, "text"), *wanted = json_object_get(line, c->key);
    if (!wanted) wanted = json_object_get(line, c->usual);
    struct token_list ids =
        vectors_encode(c->tokenizer, json_string_value(text), json_string_length(text), c->mode);
    vectors_assert_ids(&ids, wanted, json_string_value(json_object_get(line, "id")));
    token_list_free(&ids);
}

void vectors_check(const char *path, const struct tokenizer *tokenizer)
{
    const struct vector_case cases[] = {
        { tokenizer, SPECIAL_PARSE, "ids", "ids" },
        { tokenizer, SPECIAL_AS_TEXT, "ids_no_special", "ids" },
        { tokenizer, SPECIAL_NONE, "ids_plain", "ids" },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        assert_true(vectors_for_each(path, vectors_check_line, &cases[i]) > 0);
}
