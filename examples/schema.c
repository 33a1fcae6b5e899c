/* schema.c: an answer that is JSON by a schema, whatever the model would have said.
 *
 *     cc schema.c $(pkg-config --cflags --libs moeflux) -o schema
 *     ./schema models/pebble "Invent a person." */
#include <moeflux.h>
#include <stdio.h>
#include <string.h>

enum { ANSWER_TOKENS_MAX = 100 }; /* the JSON closes within it */

static const char schema[] =
    "{\"type\":\"object\",\"required\":[\"name\",\"age\"],\"additionalProperties\":false,"
    "\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":20},"
    "\"age\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":120}}}";

int main(int count, char **words)
{
    mf_engine *engine = NULL;
    mf_model *model = NULL;
    mf_sequence *sequence = NULL;
    mf_sampler *sampler = NULL;
    mf_constraint *constraint = NULL;
    mf_prompt *prompt = NULL;
    mf_constraint_options form = MF_CONSTRAINT_OPTIONS_INIT;
    mf_error why;
    if (count != 3) return fprintf(stderr, "usage: schema MODEL TEXT\n"), 2;
    form.json_schema = schema;
    mf_status status = mf_engine_open(&engine, NULL, &why);
    if (status == MF_OK) status = mf_model_open(&model, engine, words[1], NULL, &why);
    const mf_text *text = mf_model_text(model);
    if (status == MF_OK) status = mf_sequence_open(&sequence, model, NULL, &why);
    if (status == MF_OK) status = mf_sampler_open(&sampler, model, NULL, &why);
    if (status == MF_OK) status = mf_constraint_open(&constraint, model, &form, &why);
    if (status == MF_OK)
        status = mf_prompt_from_text(&prompt, text, words[2], strlen(words[2]), &why);
    size_t length;
    const int32_t *tokens = mf_prompt_tokens(prompt, &length);
    if (status == MF_OK) status = mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, length, &why);
    for (size_t i = 0; i < ANSWER_TOKENS_MAX && status == MF_OK; i++) {
        int32_t token = mf_constraint_pick(constraint, sampler, mf_sequence_logits(sequence),
                                           ANSWER_TOKENS_MAX - i);
        if (token < 0 || mf_model_is_end(model, token)) break;
        const char *bytes = mf_text_token_bytes(text, token, &length);
        fwrite(bytes, 1, length, stdout);
        mf_constraint_accept(constraint, token);
        if (mf_constraint_is_finished(constraint)) break;
        status = mf_sequence_feed(sequence, MF_PHASE_GENERATED, &token, 1, &why);
    }
    printf("\n");
    if (status != MF_OK) fprintf(stderr, "schema: %s\n", why.text);
    mf_prompt_close(prompt);
    mf_constraint_close(constraint);
    mf_sampler_close(sampler);
    mf_sequence_close(sequence);
    mf_model_close(model);
    mf_engine_close(engine);
    return status == MF_OK ? 0 : 1;
}
