/* hello.c: the smallest complete program around the library.
 *
 *     cc hello.c $(pkg-config --cflags --libs moeflux) -o hello
 *     ./hello models/pebble "Once upon a time there was a little" */
#include <moeflux.h>

#include <stdio.h>
#include <string.h>

enum { PROMPT_LIMIT = 256, ANSWER_LENGTH = 64 };

/* Open a model, read a prompt, write what follows; stops at the first thing that fails. */
static mf_status continue_text(const char *path, const char *prompt, mf_error *why)
{
    mf_engine *engine = NULL;
    mf_model *model = NULL;
    mf_sequence *sequence = NULL;
    mf_sampler *sampler = NULL;
    int32_t tokens[PROMPT_LIMIT];
    size_t count = 0;

    mf_status status = mf_engine_open(&engine, NULL, why);
    if (status == MF_OK) status = mf_model_open(&model, engine, path, NULL, why);
    if (status == MF_OK) status = mf_sequence_open(&sequence, model, NULL, why);
    if (status == MF_OK) status = mf_sampler_open(&sampler, model, NULL, why); /* greedy */
    if (status == MF_OK)
        status = mf_text_tokenize(mf_model_text(model), tokens, PROMPT_LIMIT, &count, prompt,
                                  strlen(prompt), MF_SPECIAL_PARSE, why);
    if (status == MF_OK) status = mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, count, why);
    for (int i = 0; i < ANSWER_LENGTH && status == MF_OK; i++) {
        int32_t token = mf_sampler_pick(sampler, mf_sequence_logits(sequence));
        if (token < 0 || mf_model_is_end(model, token)) break; /* -1: an empty prompt */
        size_t length = 0;
        const char *bytes = mf_text_token_bytes(mf_model_text(model), token, &length);
        if (bytes) fwrite(bytes, 1, length, stdout);
        status = mf_sequence_feed(sequence, MF_PHASE_GENERATED, &token, 1, why);
    }
    mf_sampler_close(sampler); /* every close takes NULL */
    mf_sequence_close(sequence);
    mf_model_close(model);
    mf_engine_close(engine);
    return status;
}

int main(int count, char **words)
{
    mf_error why;

    if (count != 3) return fprintf(stderr, "usage: hello MODEL-DIRECTORY PROMPT\n"), 2;
    printf("%s", words[2]);
    mf_status status = continue_text(words[1], words[2], &why);
    printf("\n");
    if (status != MF_OK) fprintf(stderr, "hello: %s\n", why.text);
    return status == MF_OK ? 0 : 1;
}
