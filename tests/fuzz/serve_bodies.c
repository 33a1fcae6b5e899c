/* Any bytes as the body of a request to `moeflux serve`: a line with the route, then the body.  It is
 * refused with a sentence, or read and rendered as a prompt of the embedded model; then the places
 * that its breakpoints ask for are found, too. */
#include "serve/api.h"
#include "serve/job_internal.h"
#include "support/fuzzed_model.h"
#include "support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_MAX = 1 << 16, CONTEXT = 4096 };

/* The text of the embedded model, and a model of the size of a test; both stay open. */
static struct serve *open_bench(void)
{
    static struct serve serve;
    static struct tiny_model tiny;
    static mf_engine *engine;
    static mf_text *text;
    const char *source = getenv("MOEFLUX_SOURCE");
    char path[4096];
    if (serve.text) return &serve;
    tiny_model_init(&tiny, &tiny_odd);
    tiny_model_write(&tiny);
    mf_engine_options options = { .struct_size = sizeof options,
                                  .thread_count = 1,
                                  .backend = "reference",
                                  .files = &tiny.files.files };
    must(mf_engine_open(&engine, &options, NULL) == MF_OK);
    must(mf_model_open(&serve.model, engine, TINY_PATH, NULL, NULL) == MF_OK);
    snprintf(path, sizeof path, "%s/models/pebble", source ? source : ".");
    must(mf_text_open(&text, path, NULL, NULL) == MF_OK);
    serve.text = text;
    serve.context = CONTEXT;
    return &serve;
}

static void render(struct ask *ask)
{
    struct failure failure = { .message = "" };
    mf_prompt *prompt = NULL;
    uint32_t places[ASK_BREAKPOINTS_MAX];
    must(ask->breakpoint_count <= ASK_BREAKPOINTS_MAX);
    must(ask->choices >= 1 && ask->choices <= ASK_CHOICES_MAX);
    must(ask->stop_count <= ASK_STOPS_MAX);
    if (!ask->messages) return; /* a text or ids: nothing is rendered */
    if (!job_render(&prompt, ask, &failure)) {
        must(failure.message[0] != '\0');
        return;
    }
    size_t tokens, count = prompt_breakpoints(places, ask, prompt);
    mf_prompt_tokens(prompt, &tokens);
    must(count <= ask->breakpoint_count);
    for (size_t i = 0; i < count; i++) must(places[i] <= tokens);
    mf_prompt_close(prompt);
}

static bool read_ask(const struct api *api, struct ask *ask, void **state, struct failure *failure)
{
    return api->read_state ? api->read_state(ask, state, failure) : api->read(ask, failure);
}

static void run(const struct api *api, const char *body, size_t length, bool strict)
{
    struct serve *serve = open_bench();
    struct failure failure = { .message = "" };
    struct ask ask;
    json_t *value = NULL;
    void *state = NULL;
    serve->options.strict = strict;
    if (!ask_parse(&value, body, length, &failure)) {
        must(failure.message[0] != '\0');
        return;
    }
    must(ask_open_body(&ask, serve, value, api->dialect, &failure));
    if (read_ask(api, &ask, &state, &failure))
        render(&ask);
    else
        must(failure.message[0] != '\0');
    json_t *told = failure_json_new(&failure, api->dialect, "req_1");
    must(failure.message[0] == '\0' || told != NULL);
    json_decref(told);
    if (api->writer->free_state) api->writer->free_state(state);
    ask_close(&ask);
}

/* Those of batches, and Ollama's. */
static const struct api *find_api(const char *path)
{
    static const struct api *const others[] = { &ollama_chat_api, &ollama_generate_api };
    for (size_t i = 0; i < COUNT_OF(others); i++)
        if (strcmp(others[i]->path, path) == 0) return others[i];
    return api_find(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *line = memchr(data, '\n', size);
    char path[64];
    if (!line || size > INPUT_MAX || (size_t)(line - (const char *)data) >= sizeof path) return 0;
    size_t length = (size_t)(line - (const char *)data);
    memcpy(path, data, length);
    path[length] = '\0';
    const struct api *api = find_api(path);
    if (!api) return 0;
    char *body = malloc(size - length); /* terminated, as bodies are */
    must(body != NULL);
    memcpy(body, line + 1, size - length - 1);
    body[size - length - 1] = '\0';
    run(api, body, size - length - 1, false);
    run(api, body, size - length - 1, true);
    free(body);
    return 0;
}
