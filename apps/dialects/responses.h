/* responses.h: what the files of POST /v1/responses share.
 *
 *     responses_input.c    instructions and input items ─▶ messages
 *     responses_tools.c    tools and tool_choice: flat names for the template, and back
 *     responses_items.c    events of the job ─▶ items of the output, and the Response object
 *     openai_responses.c   fields and handlers
 *     responses_stream.c   items ─▶ server-sent events
 *
 * A `struct responses` is the dialect's own part of a delivery: it is made before the fields are
 * read and lives as long as the delivery. */
#ifndef DIALECTS_RESPONSES_H
#define DIALECTS_RESPONSES_H

#include "serve/deliver.h"

enum responses_kind { RESPONSES_REASONING, RESPONSES_MESSAGE, RESPONSES_CALL };

/* An item of the output, in the order in which the model wrote them. */
struct responses_item {
    enum responses_kind kind;
    char id[48];
    uint32_t call;         /* of the answer's calls */
    struct byte_list text; /* of reasoning and messages */
    json_t *logprobs;      /* of a message; NULL: none */
};

struct responses {
    json_t *names;        /* flat name → {"name", "namespace", "custom"} */
    bool encrypted;       /* reasoning items carry encrypted_content */
    bool prewarm;         /* the prompt is read, and no answer is given */
    const char *compared; /* the response to compare the prompt with, borrowed; NULL: none */
    struct responses_item *items;
    size_t item_count, item_capacity;
    /* Of the stream: events so far, items that were added, and whether the last of them is open. */
    uint64_t sequence;
    size_t added;
    bool open;
};

struct responses *responses_new(void);
void responses_free(void *user);

/* ---- reading; each returns false with *failure filled */

/* "tools", "tool_choice" and "parallel_tool_calls". */
bool responses_read_tools(struct ask *ask, struct responses *state, struct failure *failure);

/* "instructions" and "input". */
bool responses_read_input(struct ask *ask, const struct responses *state, struct failure *failure);

/* The name under which the template knows a function; `space` may be NULL. */
void responses_flat_name(char *out, size_t capacity, const struct responses *state,
                         const char *space, const char *name);

/* ---- writing */

/* writer.collect: keeps the items. */
void responses_collect(struct delivery *delivery, const struct job_event *event,
                       struct collected *answer);

/* What a call's tool is: {"name","namespace","custom"}, or NULL where the model made it up. */
const json_t *responses_tool(const struct delivery *delivery, const struct responses_item *item);
bool responses_is_custom(const struct delivery *delivery, const struct responses_item *item);

/* The text of a custom tool's input, out of its arguments {"input":"…"}, which may be cut off. */
json_t *responses_input_new(const struct byte_list *arguments);

/* The only part of reasoning and messages; empty at the beginning of an item. */
json_t *responses_part_new(const struct responses_item *item, bool empty);

/* An item as it begins, and as it stands. */
json_t *responses_item_begin_new(const struct delivery *delivery,
                                 const struct responses_item *item);
json_t *responses_item_new(const struct delivery *delivery, const struct responses_item *item);

enum responses_status { RESPONSES_RUNNING, RESPONSES_ENDED, RESPONSES_FAILED };

/* The Response object; `failure` is for RESPONSES_FAILED. */
json_t *responses_object_new(const struct delivery *delivery, enum responses_status status,
                             const struct failure *failure);

/* Whether the answer was cut off by its limit. */
bool responses_is_cut(const struct delivery *delivery);

/* Functions of the writer: responses_stream.c. */
void responses_begin(struct delivery *delivery, struct byte_list *out);
void responses_event(struct delivery *delivery, const struct job_event *event,
                     struct collected *answer, struct byte_list *out);
void responses_finish(struct delivery *delivery, struct byte_list *out);
void responses_break_off(struct delivery *delivery, const struct failure *failure,
                         struct byte_list *out);

#endif
