/* openai.h: what the APIs of OpenAI share. */
#ifndef DIALECTS_OPENAI_H
#define DIALECTS_OPENAI_H

#include "serve/deliver.h"

/* {"prompt_tokens",…,"prompt_tokens_details":{"cached_tokens"},…}. */
json_t *openai_usage_new(const struct delivery *delivery);

/* {"prompt_seconds",…,"cached":{…,"why"}}: what this server adds to a final usage. */
json_t *openai_extra_new(const struct delivery *delivery);

/* stream, stream_options.include_usage and include_tokens, return_progress. */
bool openai_read_stream(struct ask *ask, struct failure *failure);

/* Tools of the shape {"type":"function","function":{…}}; others are noted. */
bool openai_read_tools(struct ask *ask, const json_t *tools, struct failure *failure);

/* "auto", "none", "required", or an object that names a tool. */
bool openai_read_tool_choice(struct ask *ask, const json_t *choice, struct failure *failure);

/* reasoning_effort: "none" switches reasoning off, any other level on; templates that know levels get
 * the nearest of low, medium and high. */
bool openai_read_effort(struct ask *ask, const char *effort, struct failure *failure);

/* The nearest level that templates know, for their variable reasoning_effort; NULL: it is no level. */
const char *openai_effort_level(const char *effort);

/* data: {"error":…} in a stream. */
void openai_write_failure(struct delivery *delivery, const struct failure *failure,
                          struct byte_list *out);

#endif
