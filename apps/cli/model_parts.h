/* model_parts.h: the text side of a checkpoint, which some commands need alone, without its
 * weights: a directory with just a tokenizer.json, or a vocabulary-only GGUF, will do. */
#ifndef CLI_MODEL_PARTS_H
#define CLI_MODEL_PARTS_H

#include "common/lists.h"
#include "moeflux.h"

/* `model` as typed after -m, NULL: the embedded one; see model_path.h. */
mf_status model_parts_open(mf_text **out, const char *model, mf_error *why);

/* The same, where a tokenizer is needed. */
mf_status model_parts_open_tokenizer(mf_text **out, const char *model, mf_error *why);

/* The ids of a text; *out is empty after a failure. */
mf_status text_tokenize(struct id_list *out, const mf_text *text, const char *bytes, size_t length,
                        mf_special special, mf_error *why);

#endif
