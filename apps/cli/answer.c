#include "answer.h"

#include "streams.h"

#include "base/status.h"

#include <stdlib.h>

const char *const reasoning_views[] = { "show", "fold", "hide", NULL };

enum reasoning_view reasoning_view_named(const char *name, const struct terminal *terminal)
{
    if (!name) return terminal->out ? REASONING_SHOW : REASONING_HIDE;
    for (size_t i = 0; reasoning_views[i]; i++) {
        if (strcmp(name, reasoning_views[i]) == 0) return (enum reasoning_view)i;
    }
    return REASONING_SHOW;
}

mf_status answer_begin(struct answer *out, const struct answer_options *options, mf_error *why)
{
    *out = (struct answer){
        .options = *options,
        .buffer_capacity = token_stream_capacity(options->tokenizer),
    };
    out->buffer = malloc(out->buffer_capacity);
    out->content = open_memstream(&out->content_text, &out->content_length);
    if (!out->buffer || !out->content) return fail_memory(why, out->buffer_capacity);
    return MF_OK;
}

static void show_content(struct answer *answer, const char *text, size_t length)
{
    if (length == 0) return;
    fwrite(text, 1, length, answer->content);
    output_write(text, length);
    answer->line_open = text[length - 1] != '\n';
}

bool answer_push(struct answer *answer, int32_t token)
{
    size_t length = token_stream_push(&answer->stream, answer->options.tokenizer, token,
                                      answer->buffer, answer->buffer_capacity);

    show_content(answer, answer->buffer, length);
    return !output_is_lost();
}

void answer_end(struct answer *answer)
{
    size_t length = token_stream_flush(&answer->stream, answer->buffer, answer->buffer_capacity);

    show_content(answer, answer->buffer, length);
    if (answer->line_open) putchar('\n');
    answer->line_open = false;
}

void answer_free(struct answer *answer)
{
    if (answer->content) fclose(answer->content);
    free(answer->content_text);
    free(answer->buffer);
    *answer = (struct answer){ 0 };
}

mf_status answer_message_append(const struct answer *answer, json_t *messages, mf_error *why)
{
    json_t *message;

    fflush(answer->content);
    message = json_pack("{s:s,s:s%}", "role", "assistant", "content", answer->content_text,
                        answer->content_length);
    if (!message) return fail(why, MF_ERR_FORMAT, "the answer is not UTF-8");
    json_array_append_new(messages, message);
    return MF_OK;
}
