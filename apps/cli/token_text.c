#include "token_text.h"

#include "common/basics.h"
#include "common/error.h"
#include "options.h"

#include <ctype.h>

/* One number of at most nine digits, so that it fits in an id. */
static mf_status parse_one(int32_t *out, const char *text, size_t length, mf_error *why)
{
    char digits[12];
    uint64_t value = 0;

    while (length > 0 && isspace((unsigned char)*text)) {
        text++;
        length--;
    }
    while (length > 0 && isspace((unsigned char)text[length - 1])) length--;
    if (length == 0) return fail(why, MF_ERR_ARGUMENT, "the list of token ids has an empty place");
    if (length < sizeof digits) {
        memcpy(digits, text, length);
        digits[length] = '\0';
    }
    if (length >= sizeof digits || !parse_count(&value, digits) || value > INT32_MAX) {
        return fail(why, MF_ERR_ARGUMENT, "\"%.*s\" is not a token id", (int)min_size(length, 32),
                    text);
    }
    *out = (int32_t)value;
    return MF_OK;
}

mf_status tokens_parse(struct id_list *out, const char *text, mf_error *why)
{
    if (text[strspn(text, " \t\r\n")] == '\0') {
        return fail(why, MF_ERR_ARGUMENT, "the list of token ids is empty");
    }
    for (;;) {
        size_t length = strcspn(text, ",");
        int32_t id = 0;
        mf_status status = parse_one(&id, text, length, why);
        if (status == MF_OK) status = id_list_append(out, id, why);
        if (status != MF_OK) return status;
        if (text[length] == '\0') return MF_OK;
        text += length + 1;
    }
}

mf_status tokens_check(const struct id_list *list, size_t vocab_size, mf_error *why)
{
    for (size_t i = 0; i < list->count; i++) {
        if ((size_t)list->ids[i] < vocab_size) continue;
        return fail(why, MF_ERR_ARGUMENT, "the model has no token %d: its ids end at %zu",
                    list->ids[i], vocab_size - 1);
    }
    return MF_OK;
}

void tokens_print(FILE *out, const int32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) fprintf(out, i ? ",%d" : "%d", ids[i]);
    fputc('\n', out);
}
