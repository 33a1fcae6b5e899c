#include "opened.h"

#include "model_parts.h"
#include "model_path.h"

#include "common/error.h"

#include <stdlib.h>
#include <string.h>

static void pass_note(void *user, mf_log_level level, const char *text)
{
    (void)user;
    if (level == MF_LOG_WARNING) note("%s", text);
}

/* "auto" is the same as nothing. */
static const char *named(const char *choice)
{
    return choice && strcmp(choice, "auto") != 0 ? choice : NULL;
}

static mf_status open_parts(struct opened *out, const struct common_settings *settings,
                            mf_error *why)
{
    mf_engine_options engine = {
        .struct_size = sizeof engine,
        .thread_count = (uint32_t)settings->threads.value,
        .backend = settings->backend,
        .kernels = settings->kernels,
        .log = pass_note,
        .device_bytes = settings->device_bytes.value,
        .profile = settings->stats || settings->stats_json || settings->profile,
    };
    mf_model_options model = { .struct_size = sizeof model,
                               .memory_bytes = settings->memory_bytes.value,
                               .context_length =
                                   (uint32_t)min_size(settings->context.value, UINT32_MAX),
                               .chunk_rows = (uint32_t)settings->prompt_chunk.value,
                               .expert_mode = named(settings->expert_mode),
                               .read_ahead = named(settings->read_ahead),
                               .reader = named(settings->reader),
                               .skip_checksums = settings->no_checksums,
                               .sequences = settings->sequences,
                               .kv_type = settings->kv,
                               .stretch_context = settings->stretch,
                               .cache = settings->cache,
                               .cache_directory = settings->cache_directory,
                               .cache_disk_bytes = settings->cache_disk_bytes.value };
    mf_status status = model_path_resolve(out->path, settings->model, why);

    if (status == MF_OK && settings->trace) {
        status = trace_file_open_new(&out->trace, settings->trace, why);
        engine.trace = trace_file_take;
        engine.trace_user = out->trace;
    }
    if (status == MF_OK) {
        status = mf_engine_open(&out->engine, &engine, why);
        if (status == MF_ERR_ARGUMENT) report_as_usage(); /* such as --kernels NAME */
    }
    if (status == MF_OK) status = mf_model_open(&out->model, out->engine, out->path, &model, why);
    return status;
}

mf_status opened_open_model(struct opened *out, const struct common_settings *settings,
                            mf_error *why)
{
    mf_status status;

    *out = (struct opened){ .path = malloc(PATH_CAPACITY) };
    if (!out->path) return fail_memory(why, PATH_CAPACITY);
    status = open_parts(out, settings, why);
    if (status != MF_OK) opened_close(out);
    return status;
}

mf_status opened_open(struct opened *out, const struct common_settings *settings, mf_error *why)
{
    mf_sequence_options options = { .struct_size = sizeof options,
                                    .context_length = (uint32_t)settings->context.value,
                                    .chunk_rows = (uint32_t)settings->prompt_chunk.value };
    mf_status status = opened_open_model(out, settings, why);

    if (status != MF_OK) return status;
    status = mf_sequence_open(&out->sequence, out->model, &options, why);
    if (status != MF_OK) opened_close(out);
    return status;
}

void opened_close(struct opened *opened)
{
    mf_error why = { .text = "" };

    mf_sequence_close(opened->sequence);
    mf_model_close(opened->model);
    mf_engine_close(opened->engine);
    if (trace_file_finish(opened->trace, &why) != MF_OK) output_failed(&why);
    free(opened->path);
    *opened = (struct opened){ 0 };
}

mf_status opened_tokenize(struct id_list *out, const struct opened *opened, const char *text,
                          size_t length, mf_error *why)
{
    return text_tokenize(out, mf_model_text(opened->model), text, length, MF_SPECIAL_PARSE, why);
}
