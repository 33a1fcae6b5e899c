/* chat.c: a conversation in the model's chat template, the answer printed as it is written.
 *
 *     cc chat.c $(pkg-config --cflags --libs moeflux) -o chat
 *     ./chat models/pebble '[{"role":"user","content":"What is the capital of Japan?"}]' */
#include <moeflux.h>
#include <stdio.h>

/* Draws tokens until the model ends its turn; `stream` joins them to whole characters. */
static mf_status answer(const mf_model *model, mf_sequence *sequence, mf_sampler *sampler,
                        mf_detokenizer *stream, mf_error *why)
{
    mf_status status = MF_OK;
    size_t length;
    for (int i = 0; i < 200 && status == MF_OK; i++) {
        int32_t token = mf_sampler_pick(sampler, mf_sequence_logits(sequence));
        if (token < 0 || mf_model_is_end(model, token)) break;
        const char *text = mf_detokenizer_push(stream, token, &length);
        fwrite(text, 1, length, stdout);
        fflush(stdout);
        mf_sampler_accept(sampler, token);
        status = mf_sequence_feed(sequence, MF_PHASE_GENERATED, &token, 1, why);
    }
    const char *rest = mf_detokenizer_flush(stream, &length);
    fwrite(rest, 1, length, stdout);
    return status;
}

int main(int count, char **words)
{
    mf_engine *engine = NULL;
    mf_model *model = NULL;
    mf_sequence *sequence = NULL;
    mf_sampler *sampler = NULL;
    mf_detokenizer *stream = NULL;
    mf_prompt *prompt = NULL;
    mf_chat_options chat = MF_CHAT_OPTIONS_INIT;
    mf_error why;
    if (count != 3) return fprintf(stderr, "usage: chat MODEL MESSAGES\n"), 2;
    chat.messages = words[2];
    chat.variables = "{\"enable_thinking\":false}";
    mf_status status = mf_engine_open(&engine, NULL, &why);
    if (status == MF_OK) status = mf_model_open(&model, engine, words[1], NULL, &why);
    if (status == MF_OK) status = mf_sequence_open(&sequence, model, NULL, &why);
    if (status == MF_OK) status = mf_sampler_open(&sampler, model, NULL, &why); /* greedy */
    if (status == MF_OK) status = mf_detokenizer_open(&stream, mf_model_text(model), NULL, &why);
    if (status == MF_OK) status = mf_chat_render(&prompt, mf_model_text(model), &chat, &why);
    size_t length;
    const int32_t *tokens = mf_prompt_tokens(prompt, &length);
    if (status == MF_OK) status = mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, length, &why);
    if (status == MF_OK) status = answer(model, sequence, sampler, stream, &why);
    printf("\n");
    if (status != MF_OK) fprintf(stderr, "chat: %s\n", why.text);
    mf_prompt_close(prompt); /* every close takes NULL */
    mf_detokenizer_close(stream);
    mf_sampler_close(sampler);
    mf_sequence_close(sequence);
    mf_model_close(model);
    mf_engine_close(engine);
    return status == MF_OK ? 0 : 1;
}
