/* split_pattern.c: patterns of tokenizer.json, said so that PCRE2 understands them.
 *
 * They are written for Oniguruma.  PCRE2 compiles nearly all of them, some with another
 * meaning and without a word, so those are rewritten:
 *
 *     \s \S          PCRE2 10.42 takes U+180E for a space; Unicode does not any more
 *     [a&&[^b]]      intersection: for PCRE2 an ampersand and a bracket like any other
 *     [a[bc]]        a class in a class is its members
 *     \p{Han}        the script; for PCRE2 every character that Han text uses (its
 *                    Script_Extensions), 、 and 。 among them
 *
 * A class that stays one is written as one; one that cannot becomes a group that matches
 * one character:  [a&&[^b]] → (?:(?=[^b])[a]).  What means something else in Oniguruma and
 * has no use in these patterns is refused. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/internal.h"

#include "base/status.h"

#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>

#define SPACE_MEMBERS "\\t-\\r\\x{85}\\p{Z}"
/* The complement, as members of a class. */
#define NOT_SPACE_MEMBERS                                                                          \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{"     \
    "1fff}"                                                                                        \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{"   \
    "10ffff}"

enum { CLASS_DEPTH_MAX = 8, PROPERTY_NAME_MAX = 48 };

struct reader {
    const char *at; /* the rest of the pattern, terminated */
    const char *pattern, *where;
    mf_error *why;
    unsigned depth; /* of classes */
};

static mf_status refuse(struct reader *reader, const char *what)
{
    return fail(reader->why, MF_ERR_UNSUPPORTED, "%s: the pattern %.200s: %s", reader->where,
                reader->pattern, what);
}

/* --------------------------------------------------------------------- escapes */

static bool is_script(const char *name, size_t length)
{
    char pattern[PROPERTY_NAME_MAX + 16];
    int error;
    PCRE2_SIZE offset;
    int count = snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)length, name);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, (PCRE2_SIZE)count, PCRE2_UTF, &error, &offset, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

/* \p{Name} or \P{Name} with reader->at on the backslash; a script says that it is one. */
static mf_status copy_property(struct byte_buffer *out, struct reader *reader)
{
    const char *open = reader->at + 2; /* the brace */
    const char *name = open + 1;
    bool negated = *name == '^';
    name += negated;
    const char *close = strchr(name, '}');
    if (!close || close - name > PROPERTY_NAME_MAX)
        return refuse(reader, "\\p is not followed by a name in braces");
    size_t length = (size_t)(close - name);
    bool has_kind = memchr(name, ':', length) || memchr(name, '=', length);

    byte_buffer_append(out, reader->at, (size_t)(name - reader->at));
    if (length > 2 && !has_kind && is_script(name, length)) byte_buffer_append_text(out, "sc:");
    byte_buffer_append(out, name, length + 1);
    reader->at = close + 1;
    return MF_OK;
}

/* One escape, inside a class or outside. */
static mf_status copy_escape(struct byte_buffer *out, struct reader *reader, bool in_class)
{
    char letter = reader->at[1];
    if (letter == '\0') return refuse(reader, "it ends with a backslash");
    if ((letter == 'p' || letter == 'P') && reader->at[2] == '{') return copy_property(out, reader);
    if (strchr("hHyYOQE", letter)) /* hexadecimal digits, text segments, any; Q and E as such */
        return refuse(reader, "\\h, \\y, \\O, \\Q and \\E are not supported");

    const char *text = NULL;
    if (letter == 's') text = in_class ? SPACE_MEMBERS : "[" SPACE_MEMBERS "]";
    if (letter == 'S') text = in_class ? NOT_SPACE_MEMBERS : "[^" SPACE_MEMBERS "]";
    byte_buffer_append(out, text ? text : reader->at, text ? strlen(text) : 2);
    reader->at += 2;
    return MF_OK;
}

/* --------------------------------------------------------------------- classes */

/* One side of "&&": members for a pair of brackets, and classes in it that are written
 * beside them. */
struct operand {
    struct byte_buffer members;
    struct byte_buffer nested; /* "|[^b]|…" */
};

static void operand_free(struct operand *operand)
{
    byte_buffer_free(&operand->members);
    byte_buffer_free(&operand->nested);
}

static mf_status copy_class(struct byte_buffer *out, struct reader *reader);

/* The members up to "&&" or the closing bracket.  `first`: of the class; a bracket that closes
 * nothing yet is a member of it. */
static mf_status read_operand(struct operand *operand, struct reader *reader, bool first)
{
    mf_status status = MF_OK;
    while (status == MF_OK && *reader->at) {
        const char *at = reader->at;
        if (*at == ']' && !first) break;
        if (at[0] == '&' && at[1] == '&') break;
        first = false;
        if (*at == '\\') {
            status = copy_escape(&operand->members, reader, true);
        } else if (at[0] == '[' && at[1] == ':') {
            status = refuse(reader, "[:name:] in a class is not supported");
        } else if (*at == '[') {
            byte_buffer_append_text(&operand->nested, "|");
            status = copy_class(&operand->nested, reader);
        } else {
            byte_buffer_append(&operand->members, at, 1);
            reader->at++;
        }
    }
    if (status == MF_OK) status = byte_buffer_status(&operand->nested, reader->why);
    return status == MF_OK ? byte_buffer_status(&operand->members, reader->why) : status;
}

/* A pattern for one character: "[a]", or "(?:[a]|[^b])" where classes stand beside. */
static void write_operand(struct byte_buffer *out, const struct operand *operand, bool negated)
{
    bool group = operand->nested.count > 0;
    bool members = operand->members.count > 0;
    if (group) byte_buffer_append_text(out, "(?:");
    if (members) {
        byte_buffer_append_text(out, negated ? "[^" : "[");
        byte_buffer_append(out, operand->members.data, operand->members.count);
        byte_buffer_append_text(out, "]");
    }
    size_t skip = members ? 0 : 1; /* the bar */
    if (!group) return;
    byte_buffer_append(out, operand->nested.data + skip, operand->nested.count - skip);
    byte_buffer_append_text(out, ")");
}

/* "&&b&&c" as looks ahead, before the first operand. */
static mf_status copy_intersection(struct byte_buffer *out, struct reader *reader)
{
    mf_status status = MF_OK;
    while (status == MF_OK && reader->at[0] == '&' && reader->at[1] == '&') {
        struct operand operand = { 0 };
        reader->at += 2;
        byte_buffer_append_text(out, "(?=");
        status = read_operand(&operand, reader, false);
        if (status == MF_OK && operand.members.count + operand.nested.count == 0)
            status = refuse(reader, "&& has nothing on one side");
        write_operand(out, &operand, false);
        byte_buffer_append_text(out, ")");
        operand_free(&operand);
    }
    return status;
}

/* The parts of a class between its brackets, written to `out` as one group or class. */
static void write_class(struct byte_buffer *out, const struct operand *first,
                        const struct byte_buffer *looks, bool negated)
{
    bool plain = looks->count == 0 && first->nested.count == 0;
    if (plain) {
        write_operand(out, first, negated);
        return;
    }
    /* Negated, none of it: any character at which it does not match. */
    byte_buffer_append_text(out, negated ? "(?:(?!" : "(?:");
    byte_buffer_append(out, looks->data, looks->count);
    write_operand(out, first, false);
    byte_buffer_append_text(out, negated ? ")(?s:.))" : ")");
}

/* A whole class, reader->at on its opening bracket. */
static mf_status copy_class(struct byte_buffer *out, struct reader *reader)
{
    struct operand first = { 0 };
    struct byte_buffer looks = { 0 };
    mf_status status = MF_OK;
    if (++reader->depth > CLASS_DEPTH_MAX) return refuse(reader, "classes are nested too deep");

    reader->at++;
    bool negated = *reader->at == '^';
    reader->at += negated;
    status = read_operand(&first, reader, true);
    if (status == MF_OK && first.members.count + first.nested.count == 0)
        status = refuse(reader, "a class is empty");
    if (status == MF_OK) status = copy_intersection(&looks, reader);
    if (status == MF_OK && *reader->at != ']') status = refuse(reader, "a class is not closed");
    if (status == MF_OK) status = byte_buffer_status(&looks, reader->why);
    if (status == MF_OK) {
        reader->at++;
        write_class(out, &first, &looks, negated);
    }
    operand_free(&first);
    byte_buffer_free(&looks);
    reader->depth--;
    return status;
}

/* --------------------------------------------------------------------- patterns */

mf_status split_pattern_rewrite_new(char **out, const char *pattern, const char *where,
                                    mf_error *why)
{
    struct reader reader = { pattern, pattern, where, why, 0 };
    struct byte_buffer text = { 0 };
    mf_status status = MF_OK;
    *out = NULL;
    while (status == MF_OK && *reader.at) {
        if (*reader.at == '\\') {
            status = copy_escape(&text, &reader, false);
        } else if (*reader.at == '[') {
            status = copy_class(&text, &reader);
        } else {
            byte_buffer_append(&text, reader.at, 1);
            reader.at++;
        }
    }
    byte_buffer_append_text(&text, ""); /* an empty pattern is a text, too */
    if (status == MF_OK) status = byte_buffer_status(&text, why);
    if (status == MF_OK)
        *out = text.data;
    else
        byte_buffer_free(&text);
    return status;
}
