/* model_path.h: resolves the argument of -m to a path.
 *
 *     a directory                         itself, or the GGUF file in it
 *     a GGUF file, under any name         itself
 *     org/name                            the snapshot of its main branch in the local
 *                                         Hugging Face cache; nothing is downloaded
 *     org/name:QUANT                      its GGUF file of that quantisation
 *     nothing                             the model that comes with the program
 *
 * What exists on disk goes first, so "org/name" is a directory where there is one.  The lookup
 * is the library's (mf_model_find); the environment that says where the cache lies is read here. */
#ifndef CLI_MODEL_PATH_H
#define CLI_MODEL_PATH_H

#include "common/basics.h"
#include "hub/name.h"
#include "moeflux.h"

/* `model` NULL: the embedded one.  `out` has PATH_CAPACITY bytes. */
mf_status model_path_resolve(char *out, const char *model, mf_error *why);

/* Whether `model` (may be NULL) names a repository of the hub and nothing on this disk. */
bool model_path_is_name(struct hub_name *out, const char *model);

/* Whether a first argument of `run` is a model and not a prompt: it is there, it is in the cache,
 * or it has the form of a model's name (a path without white space, *.gguf, name:tag, an address),
 * in which case model_path_resolve says why it cannot be used. */
bool model_path_is_meant(const char *word);

#endif
