#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/internal.h"

#include "base/status.h"
#include "base/utf8.h"

#include <pcre2.h>
#include <stdlib.h>

enum {
    PATTERN_LIMIT = 16384,
    /* Bounds on one match of an unknown pattern: steps of backtracking, stack, heap. */
    MATCH_STEPS = 20 * 1000 * 1000,
    STACK_BYTES = 8 << 20,
    HEAP_KIB = 64 << 10
};

struct split_regex {
    pcre2_code *code;
    bool compiled; /* to machine code */
};

/* What one call to splitter_run needs. */
struct split_run {
    const struct splitter *splitter;
    piece_function piece;
    void *context;
    mf_error *why;
    pcre2_match_data *match;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
};

/* --------------------------------------------------------------------- patterns */

/* A search for "\s+$" tries every blank of a run that does not end the text; from the run's
 * beginning is enough, and linear. */
static const char *cheaper_pattern(const char *pattern)
{
    return strcmp(pattern, "\\s+$") == 0 ? "(?<!\\s)\\s+$" : pattern;
}

static mf_status regex_new(struct split_regex **out, const char *pattern, const char *where,
                           mf_error *why)
{
    char *text;
    *out = NULL;
    mf_status status = split_pattern_rewrite_new(&text, cheaper_pattern(pattern), where, why);
    if (status != MF_OK) return status;

    int error;
    PCRE2_SIZE offset;
    /* Oniguruma's ^ and $ hold at every line. */
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED, options, &error, &offset, NULL);
    free(text);
    if (!code) {
        PCRE2_UCHAR reason[128];
        pcre2_get_error_message(error, reason, sizeof reason);
        return fail(why, MF_ERR_UNSUPPORTED, "%s: the pattern %.200s cannot be used: %s", where,
                    pattern, (const char *)reason);
    }
    struct split_regex *regex = malloc(sizeof *regex);
    if (!regex) {
        pcre2_code_free(code);
        return fail_memory(why, sizeof *regex);
    }
    regex->code = code;
    regex->compiled = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
    *out = regex;
    return MF_OK;
}

mf_status splitter_add(struct splitter *splitter, const char *pattern, enum split_keep keep,
                       bool by_hand, const char *where, mf_error *why)
{
    if (splitter->count == SPLIT_STEPS_MAX)
        return fail(why, MF_ERR_UNSUPPORTED, "%s: pre_tokenizer has more than %d steps", where,
                    SPLIT_STEPS_MAX);
    if (strlen(pattern) > PATTERN_LIMIT)
        return fail(why, MF_ERR_UNSUPPORTED, "%s: a pattern has more than %d bytes", where,
                    PATTERN_LIMIT);
    struct split_step step = { .keep = keep };
    if (by_hand) step.next = split_known_find(pattern, keep);
    if (!step.next) {
        mf_status status = regex_new(&step.regex, pattern, where, why);
        if (status != MF_OK) return status;
        splitter->has_regex = true;
    }
    splitter->steps[splitter->count++] = step;
    return MF_OK;
}

void splitter_free(struct splitter *splitter)
{
    for (size_t i = 0; i < splitter->count; i++) {
        struct split_regex *regex = splitter->steps[i].regex;
        if (regex) pcre2_code_free(regex->code);
        free(regex);
    }
    splitter->count = 0;
}

/* --------------------------------------------------------------------- matching */

static mf_status run_init(struct split_run *run)
{
    run->match = pcre2_match_data_create(16, NULL);
    run->limits = pcre2_match_context_create(NULL);
    if (!run->match || !run->limits) return fail_memory(run->why, 1024);
    pcre2_set_match_limit(run->limits, MATCH_STEPS);
    pcre2_set_heap_limit(run->limits, HEAP_KIB);
    return MF_OK;
}

static void run_free(struct split_run *run)
{
    pcre2_match_data_free(run->match);
    pcre2_match_context_free(run->limits);
    pcre2_jit_stack_free(run->stack);
}

/* A pattern with groups may need more than the 32 KiB that PCRE2 starts with. */
static bool give_stack(struct split_run *run)
{
    if (run->stack) return false;
    run->stack = pcre2_jit_stack_create(32 << 10, STACK_BYTES, NULL);
    if (!run->stack) return false;
    pcre2_jit_stack_assign(run->limits, NULL, run->stack);
    return true;
}

/* The next match in text[from..length): *begin == *end == length when there is none. */
static mf_status find_match(size_t *begin, size_t *end, struct split_run *run,
                            const struct split_regex *regex, struct text_span text, size_t from)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text.text;
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    *begin = *end = text.length;
    if (regex->compiled) {
        found =
            pcre2_jit_match(regex->code, subject, text.length, from, 0, run->match, run->limits);
        if (found == PCRE2_ERROR_JIT_STACKLIMIT && give_stack(run))
            return find_match(begin, end, run, regex, text, from);
    }
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(regex->code, subject, text.length, from,
                            PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, run->match, run->limits);
    if (found == PCRE2_ERROR_NOMATCH) return MF_OK;
    if (found < 0) {
        PCRE2_UCHAR reason[128];
        pcre2_get_error_message(found, reason, sizeof reason);
        return fail(run->why, MF_ERR_UNSUPPORTED,
                    "the tokenizer's pattern is too costly for this text: %s",
                    (const char *)reason);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(run->match);
    *begin = max_size(ends[0], from); /* \K in a look around can put them anywhere */
    *end = max_size(ends[1], *begin);
    return MF_OK;
}

static mf_status split_from(struct split_run *run, size_t step, struct text_span text);

static mf_status split_by_function(struct split_run *run, size_t step, struct text_span text)
{
    const char *at = text.text, *end = text.text + text.length;
    split_function next = run->splitter->steps[step].next;
    mf_status status = MF_OK;
    while (status == MF_OK && at < end) {
        const char *stop = next(at, end);
        status = split_from(run, step + 1, (struct text_span){ at, (size_t)(stop - at) });
        at = stop;
    }
    return status;
}

static size_t character_length(struct text_span text, size_t at)
{
    uint32_t character;
    return at < text.length ? utf8_decode(&character, text.text + at, text.length - at) : 1;
}

static mf_status split_by_regex(struct split_run *run, size_t step, struct text_span text)
{
    const struct split_step *how = &run->splitter->steps[step];
    size_t gap = 0, from = 0;
    mf_status status = MF_OK;
    while (status == MF_OK && gap < text.length) {
        size_t begin = text.length, end = text.length;
        if (from < text.length) status = find_match(&begin, &end, run, how->regex, text, from);
        if (status != MF_OK) break;
        if (begin == end && begin < text.length) { /* matches nothing: no cut */
            from = end + character_length(text, end);
            continue;
        }
        if (begin > gap && how->keep != SPLIT_DROP_GAPS)
            status = split_from(run, step + 1, (struct text_span){ text.text + gap, begin - gap });
        if (status == MF_OK && end > begin && how->keep != SPLIT_DROP_MATCHES)
            status =
                split_from(run, step + 1, (struct text_span){ text.text + begin, end - begin });
        gap = from = end;
    }
    return status;
}

/* Cuts `text` by the steps from `step` on.  As deep as there are steps. */
static mf_status split_from(struct split_run *run, size_t step, struct text_span text)
{
    if (step == run->splitter->count)
        return run->piece(run->context, text.text, text.length, run->why);
    if (run->splitter->steps[step].next) return split_by_function(run, step, text);
    return split_by_regex(run, step, text);
}

/* ----------------------------------------------- text that is not UTF-8, for PCRE2 */

/* PCRE2 sees U+10FFFE, a character without properties, for every byte that is no part of a
 * character; pieces get their bytes back before they are handed on. */
static const char stand_in[] = "\xF4\x8F\xBF\xBE";
enum { STAND_IN_LENGTH = 4 };

struct patched_text {
    struct byte_buffer text;
    struct patched_byte {
        size_t at; /* of the stand-in */
        char byte;
    } * bytes;
    size_t byte_count, byte_capacity;
    size_t next; /* the first that has not been put back */
    struct byte_buffer piece;
    piece_function deliver;
    void *context;
};

static bool is_utf8(const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        uint32_t character;
        at += utf8_decode(&character, text + at, length - at);
        if (character == UTF8_INVALID) return false;
    }
    return true;
}

static mf_status patch_text(struct patched_text *out, const char *text, size_t length,
                            mf_error *why)
{
    mf_status status;
    for (size_t at = 0; at < length;) {
        uint32_t character;
        size_t bytes = utf8_decode(&character, text + at, length - at);
        if (character == UTF8_INVALID) {
            status = ARRAY_RESERVE(out->bytes, out->byte_capacity, out->byte_count + 1, NULL, why);
            if (status != MF_OK) return status;
            out->bytes[out->byte_count++] = (struct patched_byte){ out->text.count, text[at] };
            byte_buffer_append(&out->text, stand_in, STAND_IN_LENGTH);
        } else {
            byte_buffer_append(&out->text, text + at, bytes);
        }
        at += bytes;
    }
    return byte_buffer_status(&out->text, why);
}

/* A piece_function: puts the bytes back. */
static mf_status deliver_restored(void *context, const char *piece, size_t length, mf_error *why)
{
    struct patched_text *patched = context;
    size_t at = (size_t)(piece - patched->text.data), end = at + length;
    patched->piece.count = 0;
    /* Stand-ins in text that a step dropped. */
    while (patched->next < patched->byte_count && patched->bytes[patched->next].at < at)
        patched->next++;
    while (at < end) {
        const struct patched_byte *byte = &patched->bytes[patched->next];
        bool more = patched->next < patched->byte_count && byte->at < end;
        size_t until = more ? byte->at : end;
        byte_buffer_append(&patched->piece, patched->text.data + at, until - at);
        at = until;
        if (!more) continue;
        byte_buffer_append(&patched->piece, &byte->byte, 1);
        at += STAND_IN_LENGTH;
        patched->next++;
    }
    if (patched->piece.failed) return byte_buffer_status(&patched->piece, why);
    return patched->deliver(patched->context, patched->piece.data, patched->piece.count, why);
}

static mf_status run_patched(struct split_run *run, const char *text, size_t length)
{
    struct patched_text patched = { .deliver = run->piece, .context = run->context };
    mf_status status = patch_text(&patched, text, length, run->why);
    if (status == MF_OK) {
        run->piece = deliver_restored;
        run->context = &patched;
        struct text_span whole = { patched.text.data, patched.text.count };
        status = split_from(run, 0, whole);
        run->piece = patched.deliver;
        run->context = patched.context;
    }
    byte_buffer_free(&patched.text);
    free(patched.bytes);
    byte_buffer_free(&patched.piece);
    return status;
}

mf_status splitter_run(const struct splitter *splitter, const char *text, size_t length,
                       piece_function piece, void *context, mf_error *why)
{
    struct split_run run = { splitter, piece, context, why, NULL, NULL, NULL };
    if (length == 0) return MF_OK;
    if (!splitter->has_regex) return split_from(&run, 0, (struct text_span){ text, length });

    mf_status status = run_init(&run);
    if (status == MF_OK) {
        if (is_utf8(text, length))
            status = split_from(&run, 0, (struct text_span){ text, length });
        else
            status = run_patched(&run, text, length);
    }
    run_free(&run);
    return status;
}
