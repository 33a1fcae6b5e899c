/* decoded.c MODEL ID,ID,…: logits of the tuned arithmetic of generated tokens.
 *
 * The first token is a prompt, the others are fed one by one as if they had been generated.
 * On stdout: of every token its f32 logits. */
#include "moeflux.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void must(mf_status status, const mf_error *why)
{
    if (status == MF_OK) return;
    fprintf(stderr, "%s\n", why->text);
    exit(1);
}

int main(int count, char **arguments)
{
    mf_error why = { 0 };
    mf_engine *engine;
    mf_model *model;
    mf_sequence *sequence;
    if (count != 3) return 2;
    mf_engine_options options = { .struct_size = sizeof options,
                                  .backend = "cpu",
                                  .thread_count = 2 };
    must(mf_engine_open(&engine, &options, &why), &why);
    must(mf_model_open(&model, engine, arguments[1], NULL, &why), &why);
    must(mf_sequence_open(&sequence, model, NULL, &why), &why);
    for (char *text = strtok(arguments[2], ","); text; text = strtok(NULL, ",")) {
        int32_t token = (int32_t)atoi(text);
        must(mf_sequence_feed(sequence, MF_PHASE_GENERATED, &token, 1, &why), &why);
        fwrite(mf_sequence_logits(sequence), sizeof(float), mf_model_vocab_size(model), stdout);
    }
    mf_sequence_close(sequence);
    mf_model_close(model);
    mf_engine_close(engine);
    return 0;
}
