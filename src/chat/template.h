/* template.h: a model's chat template, from its files to a prompt.
 *
 *     tokenizer_config.json ┐
 *     chat_template.jinja   ├─ chat_template ── render(conversation as JSON) ── text
 *     GGUF metadata         ┘
 *
 * The template is Jinja, as Hugging Face transformers sets it up: trim_blocks and
 * lstrip_blocks, loop controls, Python's spelling of values, `tojson` without HTML
 * escaping, plus `raise_exception`, `strftime_now` and `from_json`.
 *
 * A template comes with a checkpoint and is untrusted.  It can neither read files
 * nor loop without end: output, memory, steps and nesting are bounded.
 *
 * Lifetimes: a template is parsed once and keeps its own copy of the source.
 * Threads:   immutable after parsing; any number of threads may render at once. */
#ifndef CHAT_TEMPLATE_H
#define CHAT_TEMPLATE_H

#include "jinja/options.h"
#include "moeflux.h"

#include <jansson.h>

struct chat_template;

/* `where` names the source in messages ("model/chat_template.jinja").  A template that cannot be
 * parsed gives MF_ERR_TEMPLATE with line and column; *out is then NULL. */
mf_status chat_template_parse_new(struct chat_template **out, const char *source, size_t length,
                                  const char *where, mf_error *why);

/* The template of a model directory: chat_template.jinja, else chat_template.json, else that of
 * `config`, the parsed tokenizer_config.json or NULL (a string, or a list of named templates, of
 * which `default` is taken and `tool_use` whenever a conversation has tools).  A directory without
 * one: MF_OK and *out NULL. */
mf_status chat_template_open_new(struct chat_template **out, const mf_files *files,
                                 const char *directory, const json_t *config, mf_error *why);

void chat_template_free(struct chat_template *chat);

/* The source, terminated; borrowed from the template. */
const char *chat_template_source(const struct chat_template *chat);

/* A text, and the stretches of it that came from the context (jinja/marks.h), in ascending order:
 * a tokenizer must not look for special tokens there. */
struct chat_rendering {
    char *text; /* terminated */
    size_t length;
    mf_range *content;
    size_t content_count;
};

void chat_rendering_clear(struct chat_rendering *rendering);

/* Renders with the template variables `context` (an object: messages, tools,
 * add_generation_prompt, bos_token, eos_token, enable_thinking, …), which is borrowed for the call.
 * *out is empty after a failure.  MF_ERR_TEMPLATE's text carries line and column, and the template's
 * own words if it refused; *detail has its parts, is overwritten, never read, and cleared by the
 * caller.  `options` and `detail` may be NULL. */
mf_status chat_template_render_marked(struct chat_rendering *out, const struct chat_template *chat,
                                      const json_t *context, const struct jinja_options *options,
                                      struct jinja_error *detail, mf_error *why);

#endif
