/* normalise.c: NFC, and SentencePiece's spaces.
 *
 * Nearly all text is in NFC already, so it is first looked through for a character that
 * might change.  From there the text is normalised in stretches that end before a character
 * that neither changes nor takes part in what stands before it; stretches between are copied.
 * utf8proc has the data and composes; the marks of a stretch are ordered here, because
 * utf8proc's own ordering takes quadratic time on a long run of marks. */
#include "tokenizer/internal.h"

#include "base/status.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <utf8proc.h>

/* Characters that are in NFC by themselves, are no marks and combine with nothing before
 * them.  Not all of those: the ones that texts are made of. */
static bool is_stable(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {
        { 0x0000, 0x02FF },                        /* Latin */
        { 0x0391, 0x0482 },                        /* Greek, Cyrillic */
        { 0x048A, 0x0590 },                        /* Cyrillic, Armenian */
        { 0x05D0, 0x05EA },                        /* Hebrew */
        { 0x0620, 0x064A },                        /* Arabic */
        { 0x0E01, 0x0E30 },                        /* Thai */
        { 0x1E00, 0x1EFF },                        /* Vietnamese */
        { 0x200B, 0x205E },                        /* punctuation */
        { 0x20A0, 0x20CF },                        /* currencies */
        { 0x2190, 0x2328 },   { 0x232B, 0x2ADB },  /* arrows, mathematics, boxes */
        { 0x3000, 0x3029 },   { 0x3030, 0x3098 },  /* CJK punctuation, Hiragana */
        { 0x309B, 0xA66E },                        /* Katakana, ideographs */
        { 0xAC00, 0xD7A3 },                        /* Hangul syllables */
        { 0xFE00, 0xFE0F },   { 0xFF00, 0xFFEF },  /* variation selectors, wide forms */
        { 0x1F000, 0x1FAFF }, { 0x20000, 0x2F7FF } /* emoji, ideographs */
    };
    for (size_t i = 0; i < COUNT_OF(ranges) && c >= ranges[i].first; i++)
        if (c <= ranges[i].last) return true;
    return false;
}

/* The first position at or after `at` of a character that may change. */
static size_t find_unstable(const char *text, size_t at, size_t length)
{
    while (at < length) {
        if (!((uint8_t)text[at] & 0x80)) {
            at++;
            continue;
        }
        uint32_t character;
        size_t bytes = utf8_decode(&character, text + at, length - at);
        if (character != UTF8_INVALID && !is_stable(character)) return at;
        at += bytes;
    }
    return length;
}

/* The first position at or after `at` where a stretch can end. */
static size_t find_stable(const char *text, size_t at, size_t length)
{
    while (at < length) {
        uint32_t character;
        size_t bytes = utf8_decode(&character, text + at, length - at);
        if (character == UTF8_INVALID || is_stable(character)) return at;
        at += bytes;
    }
    return length;
}

/* Where the character before `at` begins, if there is one at or after `low`: a mark may
 * combine with it. */
static size_t step_back(const char *text, size_t low, size_t at)
{
    size_t begin = at;
    while (begin > low && at - begin < UTF8_MAX) {
        uint32_t character;
        begin--;
        if (((uint8_t)text[begin] & 0xC0) == 0x80) continue;
        size_t bytes = utf8_decode(&character, text + begin, at - begin);
        return character != UTF8_INVALID && bytes == at - begin ? begin : at;
    }
    return at;
}

bool text_is_nfc(const char *text, size_t length)
{
    return find_unstable(text, 0, length) == length;
}

/* ------------------------------------------------------------------ a stretch */

struct code_points {
    utf8proc_int32_t *data;
    size_t count, capacity;
};

static mf_status decompose(struct code_points *out, const char *text, size_t length, mf_error *why)
{
    enum { LONGEST = 32 }; /* characters that one can decompose into: 4 in Unicode so far */
    out->count = 0;
    for (size_t at = 0; at < length;) {
        mf_status status = ARRAY_RESERVE(out->data, out->capacity, out->count + LONGEST, NULL, why);
        if (status != MF_OK) return status;
        uint32_t character;
        int boundary = 0; /* of grapheme clusters: unused */
        at += utf8_decode(&character, text + at, length - at);
        utf8proc_ssize_t count =
            utf8proc_decompose_char((utf8proc_int32_t)character, out->data + out->count, LONGEST,
                                    UTF8PROC_DECOMPOSE | UTF8PROC_STABLE, &boundary);
        if (count < 0 || count > LONGEST)
            return fail(why, MF_ERR_FORMAT, "U+%04X has no NFC form", character);
        out->count += (size_t)count;
    }
    return MF_OK;
}

static int combining_class(utf8proc_int32_t character)
{
    return (int)utf8proc_get_property(character)->combining_class;
}

/* Orders a run of marks by combining class, equals as they stood: a count per class. */
static void order_marks(utf8proc_int32_t *marks, size_t count, utf8proc_int32_t *spare)
{
    size_t start[257] = { 0 };
    for (size_t i = 0; i < count; i++) start[combining_class(marks[i]) + 1]++;
    for (size_t class = 0; class < 256; class ++) start[class + 1] += start[class];
    for (size_t i = 0; i < count; i++) spare[start[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, spare, count * sizeof *marks);
}

static void order_few_marks(utf8proc_int32_t *marks, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        utf8proc_int32_t mark = marks[i];
        size_t at = i;
        for (; at > 0 && combining_class(marks[at - 1]) > combining_class(mark); at--)
            marks[at] = marks[at - 1];
        marks[at] = mark;
    }
}

static mf_status order_all_marks(struct code_points *text, struct code_points *spare, mf_error *why)
{
    enum { FEW = 16 };
    for (size_t at = 0; at < text->count;) {
        size_t end = at;
        while (end < text->count && combining_class(text->data[end]) != 0) end++;
        size_t count = end - at;
        if (count > FEW) {
            mf_status status = ARRAY_RESERVE(spare->data, spare->capacity, count, NULL, why);
            if (status != MF_OK) return status;
            order_marks(text->data + at, count, spare->data);
        } else {
            order_few_marks(text->data + at, count);
        }
        at = end + 1;
    }
    return MF_OK;
}

static mf_status append_stretch(struct byte_buffer *out, struct code_points scratch[2],
                                const char *text, size_t length, mf_error *why)
{
    struct code_points *points = &scratch[0];
    mf_status status = decompose(points, text, length, why);
    if (status == MF_OK) status = order_all_marks(points, &scratch[1], why);
    if (status != MF_OK) return status;
    if (!byte_buffer_reserve(out, points->count * UTF8_MAX)) return byte_buffer_status(out, why);
    utf8proc_ssize_t count = utf8proc_normalize_utf32(points->data, (utf8proc_ssize_t)points->count,
                                                      UTF8PROC_COMPOSE | UTF8PROC_STABLE);
    for (utf8proc_ssize_t i = 0; i < count; i++)
        out->count += utf8_encode(out->data + out->count, (uint32_t)points->data[i]);
    return MF_OK;
}

mf_status text_append_nfc(struct byte_buffer *out, const char *text, size_t length, mf_error *why)
{
    struct code_points scratch[2] = { { 0 } };
    mf_status status = MF_OK;
    for (size_t at = 0; status == MF_OK && at < length;) {
        size_t unstable = find_unstable(text, at, length);
        size_t begin = unstable < length ? step_back(text, at, unstable) : length;
        size_t end = find_stable(text, unstable, length);
        if (!byte_buffer_append(out, text + at, begin - at)) status = byte_buffer_status(out, why);
        if (status == MF_OK && begin < end)
            status = append_stretch(out, scratch, text + begin, end - begin, why);
        at = end;
    }
    free(scratch[0].data);
    free(scratch[1].data);
    return status;
}

/* ------------------------------------------------------------------ spaces */

bool text_has_space_sign(const char *text, size_t length)
{
    return memmem(text, length, SPACE_SIGN, sizeof SPACE_SIGN - 1) != NULL;
}

size_t text_replace_space_signs(char *out, const char *text, size_t length)
{
    enum { SIGN = sizeof SPACE_SIGN - 1 };
    size_t count = 0;
    for (size_t at = 0; at < length;) {
        bool sign = length - at >= SIGN && memcmp(text + at, SPACE_SIGN, SIGN) == 0;
        out[count++] = sign ? ' ' : text[at];
        at += sign ? SIGN : 1;
    }
    return count;
}
