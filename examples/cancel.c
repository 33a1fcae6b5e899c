/* cancel.c: stops the reading of a long prompt from a second thread.
 *
 *     cc cancel.c $(pkg-config --cflags --libs moeflux) -pthread -o cancel
 *     ./cancel models/pebble 3000 */
#include <moeflux.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A button that the user presses, a connection that was closed, a time limit … */
static void *cancel_soon(void *sequence)
{
    usleep(20 * 1000);
    mf_sequence_cancel(sequence); /* from any thread; the step ends after the present layer */
    return NULL;
}

int main(int count, char **words)
{
    mf_engine *engine = NULL;
    mf_model *model = NULL;
    mf_sequence *sequence = NULL;
    mf_error why;
    if (count != 3) return fprintf(stderr, "usage: cancel MODEL TOKENS\n"), 2;
    size_t length = strtoul(words[2], NULL, 10);
    int32_t *prompt = calloc(length, sizeof *prompt); /* any ids will do */
    mf_status status = mf_engine_open(&engine, NULL, &why);
    if (status == MF_OK) status = mf_model_open(&model, engine, words[1], NULL, &why);
    if (status == MF_OK) status = mf_sequence_open(&sequence, model, NULL, &why);
    if (status == MF_OK) {
        pthread_t other;
        pthread_create(&other, NULL, cancel_soon, sequence);
        status = mf_sequence_feed(sequence, MF_PHASE_PROMPT, prompt, length, &why);
        pthread_join(other, NULL);
    }
    printf("%s after %u of %zu tokens\n", mf_status_name(status), mf_sequence_position(sequence),
           length);
    if (status == MF_ERR_CANCELLED) { /* the sequence is usable: as it was before the call */
        status = mf_sequence_feed(sequence, MF_PHASE_PROMPT, prompt, 1, &why);
        printf("then %u token was read\n", mf_sequence_position(sequence));
    }
    if (status != MF_OK) fprintf(stderr, "cancel: %s\n", why.text);
    mf_sequence_close(sequence);
    mf_model_close(model);
    mf_engine_close(engine);
    free(prompt);
    return status == MF_OK ? 0 : 1;
}
