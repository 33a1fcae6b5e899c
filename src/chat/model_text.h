/* model_text.h: what a checkpoint says about text, each of its files read once.
 *
 *     tokenizer.json, tiktoken.model, tokenizer.bin ┐
 *     tokenizer_config.json                         │
 *     chat_template.jinja, chat_template.json       ├─ struct model_text
 *     generation_config.json                        │
 *     or the metadata of a GGUF file                ┘
 *
 * A chat template that cannot be parsed does not prevent opening: the numbers of the model are
 * usable without it.  The error is kept and returned when the template is asked for.
 *
 * Lifetimes: owns everything in it; model_text_clear frees it.  A zeroed struct is empty.
 * Threads:   immutable after opening. */
#ifndef CHAT_MODEL_TEXT_H
#define CHAT_MODEL_TEXT_H

#include "base/json.h"
#include "chat/template.h"
#include "sampling/sampler.h"
#include "tokenizer/tokenizer.h"

struct metadata;

struct model_text {
    struct tokenizer *tokenizer; /* NULL: the checkpoint has none */
    struct chat_template *chat;  /* NULL: none, or one that cannot be parsed */
    mf_error chat_error;         /* why not; MF_OK: there is none */
    json_t *bos, *eos;           /* texts of the special tokens as JSON strings, or NULL */
    json_t *generation;          /* generation_config.json, or NULL */
    /* How the checkpoint wants tokens to be drawn; see model_text_defaults. */
    struct sampler_options sampling;
};

/* Where the files of a directory lie. */
struct model_text_source {
    const mf_files *files;
    const char *directory;     /* of the configuration */
    const char *artifacts;     /* of the ancestors' tokenizer.bin; NULL: there is none */
    const char *pre_tokenizer; /* for that file; see struct ancestors_tokenizer */
};

/* Opens all parts that are there.  `out` is empty after a failure. */
mf_status model_text_open(struct model_text *out, const struct model_text_source *source,
                          mf_error *why);

/* The same from the metadata of a GGUF file, which is borrowed for the call. */
mf_status model_text_from_metadata(struct model_text *out, const struct metadata *metadata,
                                   mf_error *why);

void model_text_clear(struct model_text *text);

/* What the chat template's syntax says of the end of an answer, whatever lists of tokens a checkpoint
 * has: GGUF files name one token or two, gpt-oss ends at three. */
struct model_text_ends {
    int32_t tokens[4];
    size_t count;
    int32_t no_end; /* goes on after it, though some checkpoints list it; -1: there is none */
};
void model_text_find_ends(struct model_text_ends *out, const struct model_text *text);

/* Sampling where the checkpoint does not say anything: temperature 0.7, top-k 40, top-p 0.9. */
void model_text_defaults(struct sampler_options *out);

#endif
