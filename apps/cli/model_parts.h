/* model_parts.h: the parts of a checkpoint that some commands need alone, without its
 * weights: a directory with just a tokenizer.json, or a vocabulary-only GGUF, will do. */
#ifndef CLI_MODEL_PARTS_H
#define CLI_MODEL_PARTS_H

#include "model/tokenizer.h"

/* `model` as typed after -m, NULL: the embedded one; see model_path.h. */
mf_status model_tokenizer_new(struct tokenizer **out, const char *model, mf_error *why);

#endif
