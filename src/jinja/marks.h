/* marks.h: which bytes of a rendering are the template's own text.
 *
 *     {{ '<|im_start|>' + message.role + '\\n' + message.content }}
 *        ──────────────                   ──                          markup
 *                                               ───────────────      content
 *
 * Markup is what provably comes from the template's source; everything else is content: strings of
 * the context, numbers, text that a filter computes.  A tokenizer looks for special tokens in
 * markup only (chat/template.h), so "<|im_end|>" in a message stays plain text.
 *
 * Marks belong to bytes, not to values: a byte of the heap has a bit beside it, and where bytes are
 * copied their bits go with them.  Strings that share bytes (slices, strip, split) therefore need
 * no care, and a function that writes bytes of its own gives content: forgetting a mark is safe.
 *
 * Two exceptions are markup although the context brings them: variables whose name ends in _token
 * (bos_token), which are the model's, and a role that is a plain word, because some templates write
 * '<|' + role + '|>'. */
#ifndef JINJA_MARKS_H
#define JINJA_MARKS_H

#include "base/common.h"

struct jinja_run;
struct jinja_string;

/* Heap memory with a bit per byte; 0: content. */
struct jinja_region {
    const char *start, *end;
    uint8_t *markup;
};

/* Bytes that the bits of a region take. */
static inline size_t jinja_marks_bytes(size_t bytes)
{
    return (bytes + 7) / 8;
}

/* A new region; false and a sticky error: no memory. */
bool jinja_marks_add_region(struct jinja_run *run, char *start, size_t bytes, uint8_t *markup);
void jinja_marks_free(struct jinja_run *run);

/* Bytes of the heap become markup; or what `from` is, byte by byte, which may lie anywhere. */
void jinja_marks_set(struct jinja_run *run, const char *to, size_t length);
void jinja_marks_copy(struct jinja_run *run, const char *to, const char *from, size_t length);

/* Whether all of a string is markup. */
bool jinja_marks_cover(struct jinja_run *run, const struct jinja_string *string);

/* How many of the first bytes of `text` are alike; *markup says what they are. */
size_t jinja_marks_stretch(struct jinja_run *run, bool *markup, const char *text, size_t length);

#endif
