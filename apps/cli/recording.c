#include "recording.h"

#include "api/handles.h"
#include "base/status.h"

#include <stdlib.h>

const struct option recording_options[RECORDING_OPTION_COUNT] = {
    { 0, "routes", OPTION_TEXT, offsetof(struct recording_settings, routes), "FILE",
      .help = "record which experts every token chose, for `moeflux simulate`" },
};

static bool write_bytes(void *user, const void *bytes, size_t count)
{
    return fwrite(bytes, 1, count, user) == count;
}

static void record(void *user, const mf_routes *routes)
{
    struct recording *recording = user;
    struct route_choice choice = { .layer = routes->layer,
                                   .rows = routes->row_count,
                                   .tokens = routes->tokens,
                                   .experts = routes->experts,
                                   .weights = routes->weights };

    if (routes->row_count > 1) recording->single_steps = false;
    route_writer_add(&recording->writer, &choice);
}

static mf_status open_writer(struct recording *out, const struct opened *opened, mf_error *why)
{
    const mf_model *model = opened->model;
    const struct model_config *config = &model->model.config;
    uint32_t layers = config->layer_count;
    struct route_shape shape = { .layers = layers,
                                 .experts = config->experts,
                                 .per_token = config->experts_per_token,
                                 .resident_bytes = model->model.weights.resident_bytes,
                                 .session_bytes = model->session_bytes,
                                 .expert_bytes = out->bytes,
                                 .slot_bytes = out->bytes + layers };

    for (uint32_t i = 0; i < layers; i++) {
        expert_store_bytes_of(model->experts, i, &out->bytes[i], &out->bytes[layers + i]);
    }
    snprintf(shape.name, sizeof shape.name, "%s", mf_model_name(model));
    return route_writer_open(&out->writer, &allocator_heap, &shape, write_bytes, out->file.stream,
                             why);
}

static void close_all(struct recording *recording)
{
    route_writer_free(&recording->writer);
    output_file_abandon(&recording->file);
    free(recording->bytes);
    *recording = (struct recording){ 0 };
}

mf_status recording_begin(struct recording *out, const struct recording_settings *settings,
                          const struct opened *opened, mf_error *why)
{
    uint32_t layers = opened->model->model.config.layer_count;
    mf_status status;

    *out = (struct recording){ .single_steps = true };
    if (!settings->routes) return MF_OK;
    out->bytes = calloc((size_t)layers * 2, sizeof *out->bytes);
    if (!out->bytes) return fail_memory(why, layers * 2 * sizeof *out->bytes);
    status = output_file_open(&out->file, settings->routes, why);
    if (status == MF_OK) status = open_writer(out, opened, why);
    if (status != MF_OK) {
        close_all(out);
        return status;
    }
    out->session = opened->session;
    mf_sequence_watch_routes(out->session, record, out);
    return MF_OK;
}

/* Seconds of a token that is computed alone and waits for no read; 0: there was none. */
static double step_seconds(const struct recording *recording)
{
    mf_stats stats;
    mf_sequence_stats(recording->session, &stats);
    double all = stats.prompt_seconds + stats.decode_seconds;
    double worked = all > 0 ? 1 - stats.expert_wait_seconds / all : 0;
    uint64_t tokens = stats.decode_tokens + stats.prompt_tokens;

    if (worked < 0) worked = 0;
    if (recording->single_steps) return tokens ? worked * all / (double)tokens : 0;
    if (stats.decode_tokens == 0) return 0;
    return worked * stats.decode_seconds / (double)stats.decode_tokens;
}

int recording_end(struct recording *recording, int code)
{
    mf_error why = { .text = "" };
    mf_status status = MF_OK;

    if (!recording->session) return code;
    mf_sequence_watch_routes(recording->session, NULL, NULL);
    if (code != EXIT_FAILED) {
        status = route_writer_end(&recording->writer, step_seconds(recording), &why);
        if (status == MF_OK) status = output_file_commit(&recording->file, &why);
    }
    close_all(recording);
    return status == MF_OK ? code : report(&why);
}
