/* requests.c: several questions, answered at the same time.
 *
 *     cc requests.c $(pkg-config --cflags --libs moeflux) -o requests
 *     ./requests models/pebble "What is the capital of France?" "What is the capital of Japan?" */
#include <moeflux.h>
#include <stdio.h>

enum { QUESTIONS_MAX = 8 };
/* In the scheduler's thread. */
static void say_when_done(void *user, const mf_request_result *result)
{
    printf("(%s: %u tokens, the first after %.2f s)\n", (const char *)user, result->answer_tokens,
           result->wait_seconds + result->prompt_seconds);
}

static mf_status ask(mf_request **out, mf_scheduler *scheduler, const mf_text *text, char *question,
                     mf_error *why)
{
    mf_chat_options chat = { .struct_size = sizeof chat };
    mf_request_options options = MF_REQUEST_OPTIONS_INIT;
    mf_prompt *prompt = NULL;
    char messages[1024]; /* a program escapes what it quotes */
    snprintf(messages, sizeof messages, "[{\"role\":\"user\",\"content\":\"%s\"}]", question);
    chat.messages = messages;
    mf_status status = mf_chat_render(&prompt, text, &chat, why);
    options.prompt = prompt;
    options.family = mf_text_family(text);
    options.ended = say_when_done;
    options.user = question;
    if (status == MF_OK) status = mf_request_submit(out, scheduler, &options, why);
    mf_prompt_close(prompt);
    return status;
}

int main(int count, char **words)
{
    mf_engine *engine = NULL;
    mf_model *model = NULL;
    mf_scheduler *scheduler = NULL;
    mf_request *requests[QUESTIONS_MAX] = { NULL };
    mf_model_options options = { .struct_size = sizeof options, .sequences = QUESTIONS_MAX };
    const char *message;
    mf_error why;
    if (count < 3 || count > QUESTIONS_MAX + 2) return 2;
    mf_status status = mf_engine_open(&engine, NULL, &why);
    if (status == MF_OK) status = mf_model_open(&model, engine, words[1], &options, &why);
    if (status == MF_OK) status = mf_scheduler_open(&scheduler, model, NULL, &why);
    for (int i = 0; i < count - 2 && status == MF_OK; i++)
        status = ask(&requests[i], scheduler, mf_model_text(model), words[i + 2], &why);
    for (int i = 0; i < count - 2 && status == MF_OK; i++) {
        status = mf_request_wait(requests[i], NULL, &why);
        if (status == MF_OK) status = mf_request_message(&message, requests[i], &why);
        if (status == MF_OK) puts(message);
    }
    for (int i = 0; i < QUESTIONS_MAX; i++) mf_request_close(requests[i]);
    mf_scheduler_close(scheduler);
    mf_model_close(model);
    mf_engine_close(engine);
    return status == MF_OK ? 0 : (fprintf(stderr, "%s\n", why.text), 1);
}
