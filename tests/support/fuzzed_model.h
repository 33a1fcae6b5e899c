/* fuzzed_model.h: a model from untrusted files, opened, used and closed.
 *
 * For fuzz targets: what must hold whatever the bytes are ends the process when it does not.
 * Memory is limited; nothing may leak, neither bytes nor handles of files. */
#ifndef SUPPORT_FUZZED_MODEL_H
#define SUPPORT_FUZZED_MODEL_H

#include "api/handles.h"
#include "support/memory_files.h"

/* Ends the process when the condition is false. */
void must(bool condition);

/* Opens what `files` have at `path`: a model, or an error with a sentence.  Calls `use` with a
 * model, and closes it. */
void fuzzed_model_try(struct memory_files *files, const char *path, void (*use)(mf_model *model));

/* Two tokens through a sequence, so that a weight that is not filled in, or that has another shape
 * than the recipe thinks, is found by the sanitizers. */
void fuzzed_model_run(mf_model *model);

/* A text through the model's tokenizer, if it has one: only ids of the vocabulary come out, and
 * each has a text. */
void fuzzed_model_encode(const mf_model *model);

#endif
