/* fork.c: three continuations of one text, which is read once; each step computes a token of each.
 *
 *     cc fork.c $(pkg-config --cflags --libs moeflux) -o fork
 *     ./fork models/pebble "The capital of Japan" */
#include <moeflux.h>
#include <stdio.h>
#include <string.h>

enum { FORKS = 3, TOKENS_MAX = 20 };

int main(int count, char **words)
{
    mf_engine *engine = NULL;
    mf_model *model = NULL;
    mf_sequence *forks[FORKS] = { NULL }; /* the first reads the text, the others are its forks */
    mf_sampler *sampler = NULL;           /* without penalties it has no history: one serves all */
    mf_prompt *prompt = NULL;
    mf_model_options options = { .struct_size = sizeof options, .sequences = FORKS };
    mf_sampler_options draw = { .struct_size = sizeof draw, .temperature = 0.8f };
    mf_part parts[FORKS];
    int32_t drawn[FORKS], id;
    mf_error why;
    if (count != 3) return fprintf(stderr, "usage: fork MODEL TEXT\n"), 2;
    mf_status status = mf_engine_open(&engine, NULL, &why);
    if (status == MF_OK) status = mf_model_open(&model, engine, words[1], &options, &why);
    const mf_text *text = mf_model_text(model);
    if (status == MF_OK) status = mf_sampler_open(&sampler, model, &draw, &why);
    if (status == MF_OK) status = mf_sequence_open(&forks[0], model, NULL, &why);
    if (status == MF_OK)
        status = mf_prompt_from_text(&prompt, text, words[2], strlen(words[2]), &why);
    size_t length;
    const int32_t *tokens = mf_prompt_tokens(prompt, &length);
    if (status == MF_OK) status = mf_sequence_feed(forks[0], MF_PHASE_PROMPT, tokens, length, &why);
    for (int i = 1; i < FORKS && status == MF_OK; i++)
        status = mf_sequence_fork(&forks[i], forks[0], &why);
    for (size_t at = 0, open = FORKS; at < TOKENS_MAX && open > 0 && status == MF_OK; at++) {
        open = 0;
        for (int i = 0; i < FORKS; i++) {
            if (mf_sequence_position(forks[i]) < length + at) continue; /* it has ended */
            drawn[i] = mf_sampler_pick(sampler, mf_sequence_logits(forks[i]));
            if (drawn[i] < 0 || mf_model_is_end(model, drawn[i])) continue;
            parts[open++] = (mf_part){ forks[i], MF_PHASE_GENERATED, &drawn[i], 1, 0, &why };
        }
        status = mf_model_step(model, parts, open, &why);
    }
    for (int i = 0; i < FORKS; i++) {
        for (uint32_t at = 0; mf_sequence_tokens(forks[i], at, 1, &id, NULL, NULL) == MF_OK; at++) {
            const char *bytes = mf_text_token_bytes(text, id, &length);
            fwrite(bytes, 1, length, stdout);
        }
        printf("\n");
        mf_sequence_close(forks[i]);
    }
    if (status != MF_OK) fprintf(stderr, "fork: %s\n", why.text);
    mf_prompt_close(prompt);
    mf_sampler_close(sampler);
    mf_model_close(model);
    mf_engine_close(engine);
    return status == MF_OK ? 0 : 1;
}
