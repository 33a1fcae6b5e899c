/* prompt.c: from an ask to the tokens of its prompt. */
#include "serve/job_internal.h"

#include "common/basics.h"

#include <stdlib.h>

enum { JSON_FORM = JSON_COMPACT | JSON_REAL_PRECISION(17) };

static mf_status render(mf_prompt **out, const struct ask *ask, const json_t *messages, bool whole,
                        mf_error *why)
{
    mf_chat_options options = MF_CHAT_OPTIONS_INIT;
    char *text = json_dumps(messages, JSON_FORM);
    char *tools = ask->tools ? json_dumps(ask->tools, JSON_FORM) : NULL;
    char *variables = ask->variables ? json_dumps(ask->variables, JSON_FORM) : NULL;
    mf_status status;

    options.messages = text;
    options.tools = tools;
    options.variables = variables;
    options.no_generation_prompt = !whole || ask->no_generation_prompt;
    options.find_places = whole;
    options.continue_last = whole && ask->continue_last;
    if (!text || (ask->tools && !tools) || (ask->variables && !variables))
        status = fail_memory(why, 1);
    else
        status = mf_chat_render(out, ask->serve->text, &options, why);
    free(text);
    free(tools);
    free(variables);
    return status;
}

bool job_render(mf_prompt **out, struct ask *ask, struct failure *failure)
{
    mf_error why = { .text = "" };
    mf_status status;

    *out = NULL;
    if (ask->messages)
        status = render(out, ask, ask->messages, true, &why);
    else
        status = mf_prompt_from_text(out, ask->serve->text, ask->text ? ask->text : "",
                                     ask->text_length, &why);
    return status == MF_OK || refuse_error(failure, &why);
}

/* How many tokens two prompts both begin with. */
static uint32_t common_tokens(const mf_prompt *a, const mf_prompt *b)
{
    size_t count_a, count_b, i = 0;
    const int32_t *ids_a = mf_prompt_tokens(a, &count_a), *ids_b = mf_prompt_tokens(b, &count_b);

    while (i < count_a && i < count_b && ids_a[i] == ids_b[i]) i++;
    return (uint32_t)i;
}

size_t prompt_breakpoints(uint32_t out[ASK_BREAKPOINTS_MAX], const struct ask *ask,
                          const mf_prompt *prompt)
{
    size_t count = 0;

    for (size_t i = 0; i < ask->breakpoint_count; i++) {
        mf_prompt *head = NULL;
        json_t *messages = json_array();
        for (size_t m = 0; m < ask->breakpoints[i]; m++)
            json_array_append(messages, json_array_get(ask->messages, m));
        /* A template that refuses such a beginning has no position for it. */
        if (render(&head, ask, messages, false, NULL) == MF_OK) {
            uint32_t position = common_tokens(head, prompt);
            if (position > 0) out[count++] = position;
        }
        mf_prompt_close(head);
        json_decref(messages);
    }
    return count;
}
