/* one_call.h: in one call what the library does in several, for tests of the parts. */
#ifndef SUPPORT_ONE_CALL_H
#define SUPPORT_ONE_CALL_H

#include "chat/template.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "tokenizer/tokenizer.h"

/* From the notation, or from a schema, to a grammar; *out is NULL after a failure. */
mf_status grammar_parse_new(struct grammar **out, const mf_allocator *allocator, const char *text,
                            size_t length, mf_error *why);
mf_status json_schema_grammar_new(struct grammar **out, const mf_allocator *allocator,
                                  const json_t *schema, const struct json_schema_options *options,
                                  mf_error *why);
mf_status json_schema_parse_new(struct grammar **out, const mf_allocator *allocator,
                                const char *text, size_t length,
                                const struct json_schema_options *options, mf_error *why);

/* The tokenizer of a directory, with its tokenizer_config.json. */
mf_status tokenizer_open_new(struct tokenizer **out, const mf_files *files, const char *directory,
                             mf_error *why);

/* A rendering without its marks, freed with free(); NULL after a failure.  `options` and `detail`
 * may be NULL. */
mf_status chat_template_render_new(char **out, size_t *length, const struct chat_template *chat,
                                   const json_t *context, mf_error *why);
mf_status chat_template_render_with_new(char **out, size_t *length,
                                        const struct chat_template *chat, const json_t *context,
                                        const struct jinja_options *options,
                                        struct jinja_error *detail, mf_error *why);

#endif
