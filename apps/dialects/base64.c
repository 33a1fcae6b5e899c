#include "dialects/base64.h"

static void encode_three(char out[4], const uint8_t *bytes, size_t count)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint32_t group = (uint32_t)bytes[0] << 16 | (count > 1 ? (uint32_t)bytes[1] << 8 : 0) |
                     (count > 2 ? bytes[2] : 0);

    for (size_t i = 0; i < 4; i++) out[i] = letters[group >> (18 - 6 * i) & 63];
    for (size_t i = count + 1; i < 4; i++) out[i] = '=';
}

bool base64_add(struct byte_list *out, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    size_t length = (count + 2) / 3 * 4;

    if (list_reserve((void **)&out->bytes, &out->capacity, 1, out->count + length + 1, NULL) !=
        MF_OK)
        return false;
    for (size_t i = 0; i < count; i += 3) {
        encode_three(out->bytes + out->count, at + i, count - i < 3 ? count - i : 3);
        out->count += 4;
    }
    out->bytes[out->count] = '\0';
    return true;
}
