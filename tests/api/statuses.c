/* statuses: every status that moeflux.h names is returned by some call, provoked as a program would
 * meet it.
 *     api_statuses MODEL   (models/pebble) */
#include <moeflux_compat.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *path;
static char scratch[64]; /* a model with a file of its own, the others linked */
static mf_error why;
static mf_engine *engine;
static mf_model *model;
static mf_sequence *sequence;
static const int32_t tokens[600];

static void need(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s: %s\n", what, why.text);
    exit(1);
}

/* ------------------------------------------------------------- broken models */

static const char *const names[] = { "config.json",
                                     "generation_config.json",
                                     "model-00001-of-00002.safetensors",
                                     "model-00002-of-00002.safetensors",
                                     "model.safetensors.index.json",
                                     "tokenizer.json",
                                     "tokenizer_config.json" };
enum { NAMES = sizeof names / sizeof *names, CONFIG = 0, WEIGHTS = 2 };

static void path_of(char out[4200], const char *directory, const char *name)
{
    snprintf(out, 4200, "%s/%s", directory, name);
}

static char *read_file(const char *name, size_t *length)
{
    char from[4200];
    path_of(from, path, name);
    FILE *file = fopen(from, "rb");
    need(file && fseek(file, 0, SEEK_END) == 0, from);
    *length = (size_t)ftell(file);
    char *bytes = malloc(*length + 1);
    rewind(file);
    need(bytes && fread(bytes, 1, *length, file) == *length, from);
    bytes[*length] = '\0';
    fclose(file);
    return bytes;
}

/* The model in `scratch` has these bytes as its file number `own`. */
static void make_model(int own, const char *bytes, size_t length)
{
    char from[4200], to[4200];
    for (int i = 0; i < NAMES; i++) {
        path_of(from, path, names[i]);
        path_of(to, scratch, names[i]);
        unlink(to);
        if (i != own) need(symlink(from, to) == 0, to);
    }
    path_of(to, scratch, names[own]);
    FILE *file = fopen(to, "wb");
    need(file && fwrite(bytes, 1, length, file) == length && fclose(file) == 0, to);
}

static mf_status open_broken(void)
{
    mf_model *out;
    mf_status status = mf_model_open(&out, engine, scratch, NULL, &why);
    mf_model_close(out);
    return status;
}

/* Pebble with `from` in its configuration replaced by `to`, which is as long. */
static mf_status open_with_config(const char *from, const char *to)
{
    size_t length;
    char *bytes = read_file(names[CONFIG], &length), *at = strstr(bytes, from);
    need(at && strlen(from) == strlen(to), from);
    memcpy(at, to, strlen(to));
    make_model(CONFIG, bytes, length);
    free(bytes);
    return open_broken();
}

/* ------------------------------------------------------------------ statuses */

static mf_status done(void)
{
    return mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, 4, &why);
}

static mf_status argument(void)
{
    return mf_sequence_feed(sequence, MF_PHASE_PROMPT, NULL, 4, &why);
}

static mf_status memory(void)
{
    mf_model *out;
    mf_model_options options = MF_MODEL_OPTIONS_INIT;
    options.memory_bytes = 1 << 20;
    return mf_model_open(&out, engine, path, &options, &why);
}

static mf_status io(void)
{
    mf_model *out;
    return mf_model_open(&out, engine, "/no/such/model", NULL, &why);
}

static mf_status format(void)
{
    return open_with_config("{", "}");
}

static mf_status unsupported(void)
{
    return open_with_config("\"qwen3_5_moe_text\"", "\"no_such_family__\"");
}

static mf_status mismatch(void)
{
    return open_with_config("\"num_experts\": 64", "\"num_experts\": 32");
}

static mf_status context_full(void)
{
    return mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, 600, &why);
}

static mf_status buffer_size(void)
{
    size_t count;
    return mf_text_tokenize(mf_model_text(model), NULL, 0, &count, "hello", 5, MF_SPECIAL_PARSE,
                            &why);
}

static mf_status cannot_truncate(void)
{
    need(mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, 4, &why) == MF_OK, "feed");
    return mf_sequence_truncate(sequence, 1, NULL, &why);
}

static mf_status template_failed(void)
{
    mf_template *out;
    return mf_template_open(&out, "{% if %}", 8, NULL, &why);
}

static mf_status grammar(void)
{
    mf_constraint *out;
    mf_constraint_options options = MF_CONSTRAINT_OPTIONS_INIT;
    options.grammar = "root ::= (";
    return mf_constraint_open(&out, model, &options, &why);
}

static mf_status cancelled(void)
{
    mf_sequence_cancel(sequence);
    return mf_sequence_feed(sequence, MF_PHASE_PROMPT, tokens, 4, &why);
}

/* A norm of Pebble whose first number is none. */
static mf_status not_finite(void)
{
    size_t length, begin;
    uint64_t header;
    mf_model *damaged = NULL;
    mf_sequence *own = NULL;
    char *bytes = read_file(names[WEIGHTS], &length);
    char *at = strstr(bytes + 8, "layers.1.input_layernorm.weight\"");
    at = at ? strstr(at, "\"data_offsets\"") : NULL;
    at = at ? strchr(at, '[') : NULL;
    need(at, "the norm's place in the file");
    begin = strtoul(at + 1, NULL, 10);
    memcpy(&header, bytes, sizeof header);
    memcpy(bytes + 8 + header + begin, "\xc0\x7f", 2); /* bf16 */
    make_model(WEIGHTS, bytes, length);
    free(bytes);
    need(mf_model_open(&damaged, engine, scratch, NULL, &why) == MF_OK, "the damaged model");
    need(mf_sequence_open(&own, damaged, NULL, &why) == MF_OK, "its sequence");
    mf_status status = mf_sequence_feed(own, MF_PHASE_PROMPT, tokens, 4, &why);
    mf_sequence_close(own);
    mf_model_close(damaged);
    return status;
}

/* More sequences than there is memory for. */
static mf_status pool_full(void)
{
    enum { MANY = 16 };
    mf_model *small = NULL;
    mf_sequence *many[MANY] = { NULL };
    mf_status status = MF_OK;
    mf_model_options options = MF_MODEL_OPTIONS_INIT;
    options.memory_bytes = 12 << 20;
    options.context_length = 600;
    need(mf_model_open(&small, engine, path, &options, &why) == MF_OK, "a small model");
    for (int i = 0; i < MANY && status == MF_OK; i++) {
        need(mf_sequence_open(&many[i], small, NULL, &why) == MF_OK, "a sequence");
        status = mf_sequence_feed(many[i], MF_PHASE_PROMPT, tokens, 600, &why);
    }
    for (int i = 0; i < MANY; i++) mf_sequence_close(many[i]);
    mf_model_close(small);
    return status;
}

static mf_status no_checkpoint(void)
{
    mf_context *context = NULL;
    need(mf_context_open_with(&context, path, NULL, &why) == MF_OK, "a context");
    mf_status status = mf_context_restore_to(context, 0, 3, &why);
    mf_context_close(context);
    return status;
}

/* One request is answered, one waits, and no other may. */
static mf_status busy(void)
{
    mf_scheduler *scheduler = NULL;
    mf_request *requests[8] = { NULL };
    mf_scheduler_options limits = MF_SCHEDULER_OPTIONS_INIT;
    mf_request_options options = MF_REQUEST_OPTIONS_INIT;
    mf_status status = MF_OK;
    limits.parallel = limits.waiting = 1;
    options.tokens = tokens;
    options.token_count = 600;
    options.ignore_end = true;
    need(mf_scheduler_open(&scheduler, model, &limits, &why) == MF_OK, "a scheduler");
    for (int i = 0; i < 8 && status == MF_OK; i++)
        status = mf_request_submit(&requests[i], scheduler, &options, &why);
    for (int i = 0; i < 8; i++) mf_request_close(requests[i]);
    mf_scheduler_close(scheduler);
    return status;
}

/* Most machines have no device.  Where there is one, nothing that it computes can be made to fail. */
static mf_status device(void)
{
    mf_engine *other;
    mf_engine_options options = MF_ENGINE_OPTIONS_INIT;
    options.backend = "cuda";
    mf_status status = mf_engine_open(&other, &options, &why);
    mf_engine_close(other);
    if (status != MF_OK) return status;
    fprintf(stderr, "SKIPPED: a CUDA device is here, so MF_ERR_DEVICE is not provoked\n");
    why = (mf_error){ .status = MF_ERR_DEVICE, .text = "skipped" };
    return MF_ERR_DEVICE;
}

static const struct {
    mf_status status;
    mf_status (*provoke)(void);
} provoked[] = {
    { MF_OK, done },
    { MF_ERR_ARGUMENT, argument },
    { MF_ERR_MEMORY, memory },
    { MF_ERR_IO, io },
    { MF_ERR_FORMAT, format },
    { MF_ERR_UNSUPPORTED, unsupported },
    { MF_ERR_MISMATCH, mismatch },
    { MF_ERR_CONTEXT_FULL, context_full },
    { MF_ERR_BUFFER_SIZE, buffer_size },
    { MF_ERR_CANNOT_TRUNCATE, cannot_truncate },
    { MF_ERR_TEMPLATE, template_failed },
    { MF_ERR_GRAMMAR, grammar },
    { MF_ERR_CANCELLED, cancelled },
    { MF_ERR_NOT_FINITE, not_finite },
    { MF_ERR_POOL_FULL, pool_full },
    { MF_ERR_NO_CHECKPOINT, no_checkpoint },
    { MF_ERR_BUSY, busy },
    { MF_ERR_DEVICE, device },
};
enum { PROVOKED = sizeof provoked / sizeof *provoked };

static int check(mf_status status, const char *name)
{
    for (int i = 0; i < PROVOKED; i++) {
        if (provoked[i].status != status) continue;
        why = (mf_error){ .text = "" };
        mf_sequence_clear(sequence);
        mf_status found = provoked[i].provoke();
        if (found == status && (status == MF_OK || (why.status == status && why.text[0]))) return 0;
        fprintf(stderr, "%s was expected: %s, \"%s\"\n", name, mf_status_name(found), why.text);
        return 1;
    }
    fprintf(stderr, "no call is known to return %s: add one, or remove it from moeflux.h\n", name);
    return 1;
}

int main(int count, char **words)
{
    int failures = 0;
    char file[4200];
    mf_sequence_options sizes = MF_SEQUENCE_OPTIONS_INIT;
    if (count != 2) return 2;
    path = words[1];
    sizes.context_length = 512;
    snprintf(scratch, sizeof scratch, "/tmp/moeflux-statuses-XXXXXX");
    need(mkdtemp(scratch), "a directory");
    need(mf_engine_open(&engine, NULL, &why) == MF_OK, "engine");
    need(mf_model_open(&model, engine, path, NULL, &why) == MF_OK, "model");
    need(mf_sequence_open(&sequence, model, &sizes, &why) == MF_OK, "sequence");
#define CHECK_STATUS(name, value, text) failures += check(name, #name);
    MF_STATUS_LIST(CHECK_STATUS)
    mf_sequence_close(sequence);
    mf_model_close(model);
    mf_engine_close(engine);
    for (int i = 0; i < NAMES; i++) {
        path_of(file, scratch, names[i]);
        unlink(file);
    }
    rmdir(scratch);
    return failures > 0;
}
