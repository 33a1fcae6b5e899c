/* model_parts.h: the text side of a checkpoint, which some commands need alone, without its
 * weights: a directory with just a tokenizer.json, or a vocabulary-only GGUF, will do. */
#ifndef CLI_MODEL_PARTS_H
#define CLI_MODEL_PARTS_H

#include "chat/model_text.h"

/* `model` as typed after -m, NULL: the embedded one; see model_path.h. */
mf_status model_parts_open(struct model_text *out, const char *model, mf_error *why);

/* The same, where a tokenizer is needed. */
mf_status model_parts_open_tokenizer(struct model_text *out, const char *model, mf_error *why);

#endif
