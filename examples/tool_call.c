/* tool_call.c: a tool call that the tool's schema accepts, parsed into events.
 *     cc tool_call.c $(pkg-config --cflags --libs moeflux) -o tool_call && ./tool_call models/pebble
 */
#include <moeflux.h>
#include <stdio.h>

static const char question[] = "[{\"role\":\"user\",\"content\":\"Is it warm?\"}]";
static const char tools[] =
    "[{\"name\":\"get_weather\",\"parameters\":{\"type\":\"object\","
    "\"required\":[\"unit\"],\"properties\":{\"unit\":{\"enum\":[\"C\"]}}}}]";

static bool show(void *user, const mf_event *event)
{
    static const char *const names[] = { "think", "content", "call", "arguments", "end", "none" };
    (void)user;
    printf("%s: %.*s\n", names[event->kind], (int)event->length, event->length ? event->text : "");
    return true; /* go on */
}

int main(int count, char **words)
{
    mf_engine *engine = NULL;
    mf_model *model = NULL;
    mf_sequence *sequence = NULL;
    mf_sampler *sampler = NULL;
    mf_constraint *form = NULL;
    mf_parser *parser = NULL;
    mf_prompt *prompt = NULL;
    mf_error why;
    size_t length;
    mf_status status = mf_engine_open(&engine, NULL, &why);
    if (!status) status = mf_model_open(&model, engine, count > 1 ? words[1] : ".", NULL, &why);
    const mf_text *text = mf_model_text(model);
    mf_chat_options chat = { .struct_size = sizeof chat, .messages = question, .tools = tools };
    if (!status) status = mf_chat_render(&prompt, text, &chat, &why);
    mf_constraint_options limits = {
        .struct_size = sizeof limits, .tools = tools, .tool_choice = "required", .one_call = true
    };
    mf_parser_options parsing = {
        .struct_size = sizeof parsing, .tools = tools, .each = show, .family = mf_text_family(text)
    };
    limits.reasoning = parsing.reasoning = mf_prompt_reasoning(prompt);
    if (!status) status = mf_constraint_open(&form, model, &limits, &why);
    if (!status) status = mf_parser_open(&parser, &parsing, &why);
    if (!status) status = mf_sampler_open(&sampler, model, NULL, &why);
    if (!status) status = mf_sequence_open(&sequence, model, NULL, &why);
    const int32_t *prompt_tokens = mf_prompt_tokens(prompt, &length);
    if (!status) status = mf_sequence_feed(sequence, MF_PHASE_PROMPT, prompt_tokens, length, &why);
    for (size_t left = 300; left > 0 && !status && !mf_constraint_is_finished(form); left--) {
        int32_t token = mf_constraint_pick(form, sampler, mf_sequence_logits(sequence), left);
        if (token < 0 || mf_model_is_end(model, token)) break;
        mf_constraint_accept(form, token);
        const char *bytes = mf_text_token_bytes(text, token, &length);
        status = mf_parser_feed(parser, bytes, length, &why);
        if (!status) status = mf_sequence_feed(sequence, MF_PHASE_GENERATED, &token, 1, &why);
    }
    if (!status) status = mf_parser_finish(parser, &why);
    if (status) fprintf(stderr, "tool_call: %s\n", why.text);
    return status ? 1 : 0; /* a longer program closes what it has opened: see chat.c */
}
