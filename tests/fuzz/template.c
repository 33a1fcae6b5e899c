/* Any bytes as a chat template, rendered with a conversation: it gives text or an error, within
 * its budget.  A line "%%%" ends the template; what follows is the context, if it is JSON. */
#include "base/json.h"
#include "chat/template.h"
#include "support/one_call.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char conversation[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Sé\"},"
    "{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"Hi\"}]},"
    "{\"role\":\"assistant\",\"content\":\"<think>\\na\\n</think>\\nb\",\"tool_calls\":"
    "[{\"id\":\"1\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":[1,2.5,null,true]}}}]},"
    "{\"role\":\"tool\",\"content\":\"ok\"}],\"tools\":[{\"type\":\"function\",\"function\":"
    "{\"name\":\"f\",\"description\":\"d\",\"parameters\":{\"type\":\"object\"}}}],"
    "\"add_generation_prompt\":true,\"bos_token\":\"<s>\",\"l\":[3,1,2],\"s\":\"Hello\"}";

static void clock_of_zero(void *user, struct tm *out)
{
    (void)user;
    *out = (struct tm){ 0 };
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    const char *mark = memmem(text, size, "\n%%%\n", 5);
    size_t length = mark ? (size_t)(mark - text) : size;
    json_t *context = NULL;
    if (mark) json_parse_new(&context, mark + 5, size - length - 5, "context", NULL);
    if (!json_is_object(context)) {
        json_decref(context);
        json_parse_new(&context, conversation, sizeof conversation - 1, "context", NULL);
    }
    struct chat_template *chat;
    mf_error why;
    if (chat_template_parse_new(&chat, text, length, "input", &why) == MF_OK) {
        const struct jinja_options options = { .now = clock_of_zero,
                                               .step_limit = 20000,
                                               .memory_limit_bytes = 8 << 20,
                                               .output_limit_bytes = 1 << 20 };
        struct jinja_error detail;
        char *out;
        size_t out_length;
        chat_template_render_with_new(&out, &out_length, chat, context, &options, &detail, &why);
        free(out);
        jinja_error_clear(&detail);
        chat_template_free(chat);
    }
    json_decref(context);
    return 0;
}
