/* ask.h: what a request of any API asks for: the one type that dialects fill in and job.h runs.
 *
 * Fields of a body are honoured, noted or refused: honoured where they change the answer and the
 * engine can do it; noted where they cannot change the text (their names go into the header
 * x-moeflux-ignored, --strict refuses them); refused where leaving them out would change what the
 * answer means.  A dialect lists its fields in a table of field_rule.
 *
 * Functions that read return false with *failure filled. */
#ifndef SERVE_ASK_H
#define SERVE_ASK_H

#include "serve/failure.h"
#include "serve/serve.h"

enum { ASK_STOPS_MAX = 16, ASK_BIASES_MAX = 1024, ASK_CHOICES_MAX = 64, ASK_BREAKPOINTS_MAX = 4 };

/* A prompt of ids. */
struct ask_prompt {
    int32_t *ids; /* owned */
    size_t count;
    uint64_t seed; /* added to the seed of the request */
};

enum { SCORE_TOP_MAX = 5 };

/* How probable the model finds a token of a prompt. */
struct score {
    float logprob;
    size_t count;
    mf_logprob best[SCORE_TOP_MAX];
};

struct ask {
    struct serve *serve;
    enum dialect dialect;
    const char *api; /* "chat", "responses", …: for the list of requests */
    char id[48];     /* of the answer, "chatcmpl-…" */
    int64_t created; /* seconds since 1970 */
    json_t *body;    /* owned; other members may borrow from it */

    /* What is to be continued: a conversation in the form of chat templates, … */
    json_t *messages;  /* owned */
    json_t *tools;     /* owned array of {"type":"function","function":{…}}; NULL: none */
    json_t *variables; /* owned object of the template; NULL: none */
    /* … or a text, … */
    const char *text;
    size_t text_length;
    /* … or ids, of one prompt or of several. */
    struct ask_prompt *prompts; /* owned */
    size_t prompt_count;
    bool score_prompts;                       /* what job_scores gives */
    bool no_generation_prompt, continue_last; /* as in mf_chat_options */

    /* How.  Sampling begins with the checkpoint's own settings. */
    mf_sampler_options sampling;
    mf_logit_bias *biases; /* owned */
    const char *stops[ASK_STOPS_MAX];
    size_t stop_count;
    char *schema, *grammar; /* owned; NULL: any answer */
    char tool_choice[128];  /* "auto", "required", "none", a name; "": as the model likes */
    bool one_call;
    uint32_t limit;   /* tokens of the answer; 0: as the context allows */
    uint32_t choices; /* answers, at least 1; with several prompts those of all of them: as many
                         to each, in their order */
    bool logprobs;
    uint32_t top_logprobs;
    bool ignore_end;
    bool stream, wants_usage, wants_progress, wants_tokens;
    bool background;
    uint64_t client; /* requests of a client share one part of the time */
    uint32_t owner;  /* guard_owner */
    /* Messages after which the prefix cache keeps its state, as many messages from the start. */
    size_t breakpoints[ASK_BREAKPOINTS_MAX];
    size_t breakpoint_count;
    int stop;    /* without a connection: readable when the ask is given up; -1: none */
    void *extra; /* what the dialect itself keeps */
    void (*free_extra)(void *extra);
    struct byte_list notes; /* names of fields that were ignored, with commas */
};

/* The object that a body is, which the caller owns; nested 64 deep at most, and of a million values. */
bool ask_parse(json_t **out, const char *text, size_t length, struct failure *failure);

/* Without a connection: takes the body over. */
bool ask_open_body(struct ask *ask, struct serve *serve, json_t *body, enum dialect dialect,
                   struct failure *failure);

/* Parses the body of an exchange, whose top level is an object. */
bool ask_open(struct ask *ask, struct serve *serve, struct exchange *exchange, enum dialect dialect,
              struct failure *failure);
void ask_close(struct ask *ask);

/* "prefix" and 24 letters. */
void ask_new_id(char *out, size_t capacity, const char *prefix);

enum field_use {
    FIELD_HONOURED, /* the dialect reads it */
    FIELD_NOTED,
    FIELD_REFUSED /* unless it is null, false, 0, "" or empty */
};

struct field_rule {
    const char *name;
    enum field_use use;
    const char *reason; /* of a refusal; NULL: "… is not supported" */
};

/* Every member of the body has a rule; one without is refused as an unknown parameter. */
bool ask_check_fields(struct ask *ask, const struct field_rule *rules, size_t count,
                      struct failure *failure);
/* The same for an object of the body. */
bool ask_check_members(struct ask *ask, json_t *object, const struct field_rule *rules,
                       size_t count, struct failure *failure);

/* "field" goes into x-moeflux-ignored; under --strict it is refused. */
bool ask_note(struct ask *ask, struct failure *failure, const char *format, ...) MF_PRINTF(3, 4);

/* ---- readers of single fields; absent or null: *out stays as it is */
bool read_number(double *out, const json_t *object, const char *name, double low, double high,
                 struct failure *failure);
bool read_real(float *out, const json_t *object, const char *name, double low, double high,
               struct failure *failure);
bool read_count(uint32_t *out, const json_t *object, const char *name, uint32_t low, uint32_t high,
                struct failure *failure);
bool read_flag(bool *out, const json_t *object, const char *name, struct failure *failure);
bool read_text(const char **out, const json_t *object, const char *name, struct failure *failure);

/* "model": any name, or with --strict-model only the model's own. */
bool ask_read_model(struct ask *ask, struct failure *failure);

/* temperature (up to 2), top_p, top_k, min_p, typical_p, penalties, seed, logit_bias. */
bool ask_read_sampling(struct ask *ask, const json_t *object, struct failure *failure);

/* A string or an array of up to `most` strings; in the body, or in one of its objects. */
bool ask_read_stops(struct ask *ask, const char *name, size_t most, struct failure *failure);
bool ask_read_stops_of(struct ask *ask, const json_t *object, const char *name, size_t most,
                       struct failure *failure);

/* The prompt that answer number `choice` is to. */
size_t ask_prompt_of(const struct ask *ask, uint32_t choice);

/* The form of OpenAI's response_format or text.format: text, json_object, json_schema; `schema_in`
 * is the object that holds "schema". */
bool ask_read_form(struct ask *ask, const json_t *form, const json_t *schema_in,
                   struct failure *failure);

/* A variable of the template, unless the body sets it itself; takes `value` over. */
void ask_set_variable(struct ask *ask, const char *name, json_t *value);

/* Switches reasoning by the template's own variable, unless the body sets that itself. */
void ask_set_thinking(struct ask *ask, bool on);

/* chat_template_kwargs: further variables. */
bool ask_read_variables(struct ask *ask, struct failure *failure);

/* Adds a tool; `parameters` (borrowed) NULL: an object of any members. */
bool ask_add_tool(struct ask *ask, const char *name, const char *description,
                  const json_t *parameters, struct failure *failure);
bool ask_has_tool(const struct ask *ask, const char *name);

#endif
