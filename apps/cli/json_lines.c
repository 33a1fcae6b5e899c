#include "json_lines.h"

#include "common/basics.h"
#include "common/error.h"
#include "streams.h"

#include <errno.h>
#include <stdlib.h>

/* Characters that JSON allows in a string and many readers take for the end of a line. */
static const struct line_break {
    const char *bytes, *escape;
} line_breaks[] = {
    { "\xc2\x85", "\\u0085" },
    { "\xe2\x80\xa8", "\\u2028" },
    { "\xe2\x80\xa9", "\\u2029" },
};

static const struct line_break *find_break(const char *text)
{
    for (size_t i = 0; i < COUNT_OF(line_breaks); i++) {
        const char *bytes = line_breaks[i].bytes;
        if (strncmp(text, bytes, strlen(bytes)) == 0) return &line_breaks[i];
    }
    return NULL;
}

void json_print_text(const char *text)
{
    const char *start = text;

    for (const char *at = text; at && *at; at++) {
        const struct line_break *found = *at & 0x80 ? find_break(at) : NULL;
        if (!found) continue;
        output_write(start, (size_t)(at - start));
        output_write(found->escape, strlen(found->escape));
        at += strlen(found->bytes) - 1;
        start = at + 1;
    }
    if (text) output_write(start, strlen(start));
    output_write("\n", 1);
}

void json_print_line(const json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

    json_print_text(text);
    free(text);
}

static void print_failure(const mf_error *why)
{
    json_t *line = json_pack("{s:{s:s,s:s}}", "error", "kind", mf_status_name(why->status),
                             "message", why->text);

    if (!line) {
        line = json_pack("{s:{s:s,s:s}}", "error", "kind", mf_status_name(why->status), "message",
                         "the message is not UTF-8");
    }
    json_print_line(line);
    json_decref(line);
}

/* The function that answers a line: one of the two is set. */
struct line_answerer {
    json_line_function value;
    json_text_function text;
    void *user;
};

static mf_status answer_line(const struct line_answerer *answerer, const char *line, size_t length,
                             uint64_t number, mf_error *why)
{
    char where[48], *text = NULL;
    json_t *in = NULL, *out = NULL;
    mf_status status;

    snprintf(where, sizeof where, "line %llu", (unsigned long long)number);
    status = json_text_read_new(&in, line, length, where, why);
    if (status == MF_OK && !json_is_object(in)) {
        status =
            fail(why, MF_ERR_FORMAT, "%s is %s, expected an object", where, json_type_name(in));
    }
    if (status == MF_OK && answerer->text) {
        status = answerer->text(&text, in, answerer->user, why);
    } else if (status == MF_OK && answerer->value) {
        status = answerer->value(&out, in, answerer->user, why);
    }
    if (status == MF_OK && !out && !text) status = fail_memory(why, length);
    if (status == MF_OK && text) json_print_text(text);
    if (status == MF_OK && out) json_print_line(out);
    json_decref(in);
    json_decref(out);
    free(text);
    return status;
}

static int run_lines(const struct line_answerer *answerer)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    int code = EXIT_DONE;
    mf_error why;

    for (uint64_t number = 1; (length = getline(&line, &capacity, stdin)) >= 0; number++) {
        if (line[strspn(line, " \t\r\n")] == '\0' && strlen(line) == (size_t)length) continue;
        why = (mf_error){ .text = "" };
        if (answer_line(answerer, line, (size_t)length, number, &why) != MF_OK) {
            print_failure(&why);
            code = EXIT_FAILED;
        }
        if (ferror(stdout)) break;
    }
    free(line);
    if (ferror(stdin)) {
        fail_errno(&why, MF_ERR_IO, errno, "standard input cannot be read");
        code = report(&why);
    }
    return code;
}

int json_lines_run(json_line_function answer, void *user)
{
    return run_lines(&(struct line_answerer){ .value = answer, .user = user });
}

int json_lines_run_text(json_text_function answer, void *user)
{
    return run_lines(&(struct line_answerer){ .text = answer, .user = user });
}

mf_status tools_read_new(json_t **out, const char *path, mf_error *why)
{
    json_t *whole = NULL, *tools;
    char *text = NULL;
    size_t length = 0;
    mf_status status = input_read_new(&text, &length, path, why);

    *out = NULL;
    if (status == MF_OK) status = json_text_read_new(&whole, text, length, path, why);
    tools = json_is_object(whole) ? json_object_get(whole, "tools") : whole;
    if (status == MF_OK && !json_is_array(tools)) {
        status = fail(why, MF_ERR_FORMAT, "%.256s holds %s, expected an array of tools", path,
                      json_type_name(whole));
    }
    if (status == MF_OK) *out = json_incref(tools);
    json_decref(whole);
    free(text);
    return status;
}

mf_status tools_text_new(char **out, const char *path, mf_error *why)
{
    json_t *tools = NULL;
    mf_status status = tools_read_new(&tools, path, why);

    *out = status == MF_OK ? json_dumps(tools, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(tools);
    return status == MF_OK && !*out ? fail_memory(why, 1) : status;
}

static int digit_value(char digit)
{
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

mf_status hex_decode_new(char **out, size_t *length, const char *hex, mf_error *why)
{
    size_t digits = strlen(hex);
    char *bytes;

    *out = NULL;
    *length = digits / 2;
    if (digits % 2 != 0) {
        return fail(why, MF_ERR_FORMAT, "\"hex\" has an odd number of digits: %zu", digits);
    }
    bytes = malloc(digits / 2 + 1);
    if (!bytes) return fail_memory(why, digits / 2 + 1);
    for (size_t i = 0; i < digits / 2; i++) {
        int high = digit_value(hex[2 * i]), low = digit_value(hex[2 * i + 1]);
        if (high < 0 || low < 0) {
            free(bytes);
            return fail(why, MF_ERR_FORMAT, "\"hex\" has a character that is not a digit");
        }
        bytes[i] = (char)(high * 16 + low);
    }
    bytes[digits / 2] = '\0';
    *out = bytes;
    return MF_OK;
}

json_t *hex_encode_new(const char *bytes, size_t length)
{
    static const char digits[] = "0123456789abcdef";
    char *text = malloc(length * 2 + 1);
    json_t *value;

    if (!text) return NULL;
    for (size_t i = 0; i < length; i++) {
        text[2 * i] = digits[(unsigned char)bytes[i] >> 4];
        text[2 * i + 1] = digits[(unsigned char)bytes[i] & 15];
    }
    value = json_stringn(text, length * 2);
    free(text);
    return value;
}
