/* ancestors_context.c WEIGHTS MANIFEST VOCAB EXPERTS 2|4: the ancestors' call set on the ancestors'
 * files.  Writes the f32 logits after tokens 1, 4, 9, …, 400 and says the model's name. */
#include "moeflux_compat.h"

#include <stdio.h>
#include <stdlib.h>

enum { TOKENS = 20 };

int main(int count, char **arguments)
{
    mf_context *context = NULL;
    mf_error why = { 0 };
    int32_t tokens[TOKENS];
    if (count != 6) return 2;
    for (int32_t i = 0; i < TOKENS; i++) tokens[i] = (i + 1) * (i + 1);
    mf_status status = mf_context_open(&context, arguments[1], arguments[2], arguments[3],
                                       arguments[4], 0, arguments[5][0] == '2', &why);
    size_t vocab_size = status == MF_OK ? mf_context_n_vocab(context) : 0;
    float *logits = calloc(vocab_size + 1, sizeof *logits);
    if (status == MF_OK && logits)
        status = mf_context_eval_prompt(context, tokens, TOKENS, 0, 0, logits, vocab_size, &why);
    if (status == MF_OK) {
        fprintf(stderr, "%s\n", mf_context_model_name(context));
        fwrite(logits, sizeof *logits, vocab_size, stdout);
    } else {
        fprintf(stderr, "%s\n", why.text);
    }
    free(logits);
    mf_context_close(context);
    return status == MF_OK ? 0 : 1;
}
