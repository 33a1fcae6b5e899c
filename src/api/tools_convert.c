/* tools_convert.c: mf_convert. */
#include "api/tools.h"

#include "api/handles.h"
#include "base/arena.h"
#include "base/status.h"
#include "convert/convert.h"

struct watcher {
    void (*progress)(void *user, mf_convert_stage stage, uint64_t done, uint64_t total);
    void *user;
};

static void pass_progress(void *user, enum convert_stage stage, uint64_t done, uint64_t total)
{
    const struct watcher *watcher = user;
    if (watcher->progress)
        watcher->progress(watcher->user,
                          stage == CONVERT_WRITING ? MF_CONVERT_WRITING : MF_CONVERT_VERIFYING,
                          done, total);
}

static mf_status choose(enum quantisation *out, const char *name, const char *field, mf_error *why)
{
    *out = name ? quantisation_find(name) : QUANTISE_KEEP;
    if (*out != QUANTISATION_COUNT) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT, "\"%.32s\" is no format for `%s`", name, field);
}

static mf_status give_result(mf_convert_result *out, const struct convert_result *result,
                             mf_error *why)
{
    if (!out) return MF_OK;
    mf_convert_result whole = {
        .exact = result->exact,
        .already = result->already,
        .resumed = result->resumed,
        .interrupted = result->interrupted,
        .source_bytes = result->source_bytes,
        .resident_bytes = result->resident_bytes,
        .expert_bytes = result->expert_bytes,
        .experts = result->experts,
        .expert_layers = result->layers,
        .requantised = result->requantised,
        .kept = result->kept,
    };
    return api_statistics_out(out, &whole, sizeof whole, "MF_CONVERT_RESULT_INIT", why);
}

mf_status mf_convert(mf_convert_result *out, const char *source, const char *target,
                     const mf_convert_options *given, mf_error *why)
{
    mf_convert_options options = { 0 };
    struct convert_result result = { 0 };
    if (!source) return api_missing(why, "source");
    if (!target) return api_missing(why, "target");
    mf_status status =
        api_options_in(&options, sizeof options, given, "MF_CONVERT_OPTIONS_INIT", why);
    if (status != MF_OK) return status;
    struct machine machine;
    struct watcher watcher = { options.progress, options.progress_user };
    struct logger logger = { .write = options.log, .user = options.log_user };
    machine_probe(&machine);
    struct convert_options convert = {
        .files = &files_posix,
        .disk = &disk_posix,
        .allocator = &allocator_heap,
        .logger = &logger,
        .source = source,
        .target = target,
        .threads = options.thread_count ? options.thread_count : machine.core_count,
        .verify = options.verify,
        .progress = pass_progress,
        .user = &watcher,
    };
    status = choose(&convert.experts, options.experts, "experts", why);
    if (status == MF_OK) status = choose(&convert.rest, options.rest, "rest", why);
    if (status == MF_OK) status = convert_run(&result, &convert, why);
    if (status == MF_OK) return give_result(out, &result, why);
    give_result(out, &result, NULL); /* why is about the conversion */
    return status;
}
