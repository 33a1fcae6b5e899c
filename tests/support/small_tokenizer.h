/* small_tokenizer.h: tokenizers of a few tokens, written in the test. */
#ifndef SUPPORT_SMALL_TOKENIZER_H
#define SUPPORT_SMALL_TOKENIZER_H

#include "tokenizer/tokenizer.h"

#define BYTE_LEVEL "'pre_tokenizer':{'type':'ByteLevel','add_prefix_space':false,'use_regex':false}"
#define LETTERS    "'a':0,'b':1,'c':2,'d':3,'Ġ':4"

/* From a tokenizer.json with ' for ", so that it can be read in C; `where` is "the file". */
mf_status small_tokenizer_try(struct tokenizer **out, const char *text, mf_error *why);

/* The same; a failure fails the test. */
struct tokenizer *small_tokenizer(const char *text);

/* Encodes `text` and compares with ids written as "1 2 3". */
void assert_encodes(const struct tokenizer *tokenizer, const char *text, enum special_mode mode,
                    const char *wanted);

#endif
