#include "serve/request_log.h"

#include "view/registry.h"
#include "serve/reply.h"

#include <stdio.h>
#include <stdlib.h>

void request_log_begin(const struct ask *ask, const mf_prompt *prompt)
{
    size_t length;

    if (!ask->serve->options.log_prompts || !prompt) return;
    const char *text = mf_prompt_text(prompt, &length);
    json_t *value = json_text_new(text, length);
    char *quoted = json_dumps(value, JSON_ENCODE_ANY); /* control characters are escaped */
    fprintf(stderr, "moeflux: %s prompt %s\n", ask->id, quoted ? quoted : "");
    free(quoted);
    json_decref(value);
}

void request_log_end(const struct ask *ask, uint32_t choice, const mf_request_result *result)
{
    double first = result->wait_seconds + result->prompt_seconds;

    if (!ask->serve->options.log) return;
    fprintf(stderr,
            "moeflux: %s %s %u: prompt %u tokens, %u of them cached, first token after %.3f s; "
            "answer %u tokens in %.3f s, %s%s%s\n",
            ask->id, ask->api, choice, result->prompt_tokens, result->cached.resumed, first,
            result->answer_tokens, result->answer_seconds, finish_name(result->finish),
            result->error.status != MF_OK ? ": " : "",
            result->error.status != MF_OK ? result->error.text : "");
}
