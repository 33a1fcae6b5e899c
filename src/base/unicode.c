#include "base/unicode.h"

#include "base/utf8.h"

#include <utf8proc.h>

size_t unicode_check(const char *text, size_t length)
{
    size_t offset = 0;
    while (offset < length) {
        if ((unsigned char)text[offset] < 0x80) {
            offset++;
            continue;
        }
        utf8proc_int32_t c;
        utf8proc_ssize_t bytes = utf8proc_iterate((const utf8proc_uint8_t *)text + offset,
                                                  (utf8proc_ssize_t)(length - offset), &c);
        if (bytes <= 0) return offset;
        offset += (size_t)bytes;
    }
    return length;
}

size_t unicode_count(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) count += !unicode_is_continuation(text[i]);
    return count;
}

size_t unicode_offset(const char *text, size_t length, size_t characters)
{
    size_t offset = 0;
    while (offset < length && characters) {
        offset++;
        while (offset < length && unicode_is_continuation(text[offset])) offset++;
        characters--;
    }
    return offset;
}

uint32_t unicode_decode(const char *text, size_t *bytes)
{
    uint32_t c;
    *bytes = utf8_decode(&c, text, UTF8_MAX);
    return c;
}

size_t unicode_encode(char *out, uint32_t c)
{
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) c = 0xFFFD;
    return utf8_encode(out, c);
}

bool unicode_is_white(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t unicode_white_prefix(const char *text, size_t length)
{
    size_t offset = 0, bytes;
    while (offset < length && unicode_is_white(unicode_decode(text + offset, &bytes)))
        offset += bytes;
    return offset;
}

size_t unicode_strip_end(const char *text, size_t length)
{
    while (length) {
        size_t start = length - 1, bytes;
        while (start && unicode_is_continuation(text[start])) start--;
        if (!unicode_is_white(unicode_decode(text + start, &bytes))) break;
        length = start;
    }
    return length;
}

static utf8proc_category_t category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

bool unicode_is_alphabetic(uint32_t c)
{
    utf8proc_category_t kind = category(c);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool unicode_is_numeric(uint32_t c)
{
    utf8proc_category_t kind = category(c);
    return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
}

bool unicode_is_decimal(uint32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_ND;
}

bool unicode_is_upper(uint32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_LU;
}

bool unicode_is_lower(uint32_t c)
{
    return category(c) == UTF8PROC_CATEGORY_LL;
}

bool unicode_is_cased(uint32_t c)
{
    utf8proc_category_t kind = category(c);
    return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
           kind == UTF8PROC_CATEGORY_LT;
}

bool unicode_is_printable(uint32_t c)
{
    if (c < 0x7F) return c >= ' ';
    utf8proc_category_t kind = category(c);
    return kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS;
}

static bool continues_identifier(uint32_t c)
{
    if (c < 0x80)
        return c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    utf8proc_category_t kind = category(c);
    return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NO;
}

size_t unicode_identifier_prefix(const char *text, size_t length)
{
    size_t offset = 0, bytes;
    if (length && *text >= '0' && *text <= '9') return 0;
    while (offset < length && continues_identifier(unicode_decode(text + offset, &bytes)))
        offset += bytes;
    return offset;
}

/* Letters of the Latin and Armenian scripts that become several.  (Greek with iota subscript and
 * the like keep Unicode's one-to-one mapping here.) */
static const struct {
    uint32_t c;
    const char *upper, *title;
} several[] = {
    { 0xDF, "SS", "Ss" },     { 0x149, "ʼN", "ʼN" },    { 0x1F0, "J̌", "J̌" },
    { 0x587, "ԵՒ", "Եւ" },    { 0x1E96, "H̱", "H̱" },     { 0x1E97, "T̈", "T̈" },
    { 0x1E98, "W̊", "W̊" },     { 0x1E99, "Y̊", "Y̊" },     { 0x1E9A, "Aʾ", "Aʾ" },
    { 0xFB00, "FF", "Ff" },   { 0xFB01, "FI", "Fi" },   { 0xFB02, "FL", "Fl" },
    { 0xFB03, "FFI", "Ffi" }, { 0xFB04, "FFL", "Ffl" }, { 0xFB05, "ST", "St" },
    { 0xFB06, "ST", "St" },
};

static size_t copy(char *out, const char *text)
{
    size_t length = strlen(text);
    memcpy(out, text, length);
    return length;
}

/* Case folding for comparisons; "ß" becomes "ss". */
static size_t fold(char *out, utf8proc_int32_t c)
{
    utf8proc_int32_t codes[UNICODE_CASE_BYTES / 4];
    int last = 0;
    utf8proc_ssize_t count =
        utf8proc_decompose_char(c, codes, COUNT_OF(codes), UTF8PROC_CASEFOLD, &last);
    size_t length = 0;
    if (count < 0 || count > (utf8proc_ssize_t)COUNT_OF(codes))
        return unicode_encode(out, (uint32_t)c);
    for (utf8proc_ssize_t i = 0; i < count; i++)
        length += unicode_encode(out + length, (uint32_t)codes[i]);
    return length;
}

size_t unicode_to_case(char *out, uint32_t c, enum unicode_case to)
{
    utf8proc_int32_t from = (utf8proc_int32_t)c;
    if (to == UNICODE_FOLD) return fold(out, from);
    if (to == UNICODE_LOWER) {
        if (c == 0x130) return copy(out, "i̇");
        return unicode_encode(out, (uint32_t)utf8proc_tolower(from));
    }
    for (size_t i = 0; c >= 0xDF && i < COUNT_OF(several); i++)
        if (several[i].c == c)
            return copy(out, to == UNICODE_UPPER ? several[i].upper : several[i].title);
    return unicode_encode(
        out, (uint32_t)(to == UNICODE_UPPER ? utf8proc_toupper(from) : utf8proc_totitle(from)));
}
