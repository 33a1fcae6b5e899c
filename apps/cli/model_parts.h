/* model_parts.h: the parts of a checkpoint that some commands need alone, without its
 * weights: a directory with just a tokenizer.json, or a vocabulary-only GGUF, will do. */
#ifndef CLI_MODEL_PARTS_H
#define CLI_MODEL_PARTS_H

#include "base/json.h"
#include "chat/template.h"
#include "tokenizer/tokenizer.h"

/* `model` as typed after -m, NULL: the embedded one; see model_path.h. */
mf_status model_tokenizer_new(struct tokenizer **out, const char *model, mf_error *why);

/* MF_OK and NULL: the model has none. */
mf_status model_template_new(struct chat_template **out, const char *model, mf_error *why);

/* bos_token and eos_token as templates see them: JSON strings, NULL where there is none. */
mf_status model_special_texts_new(json_t **bos, json_t **eos, const char *model, mf_error *why);

#endif
