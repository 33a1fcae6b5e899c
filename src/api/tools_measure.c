/* tools_measure.c: what the machine can do, and what a model asks of it. */
#include "api/tools.h"

#include "api/handles.h"
#include "base/status.h"
#include "tools/ceilings.h"
#include "tools/workload.h"

/* ----------------------------------------------------------------- ceilings */

struct mf_memory_probe {
    struct memory_probe *probe;
};

static unsigned threads_of(const struct machine *machine, uint32_t thread_count)
{
    return thread_count ? thread_count : machine->core_count;
}

/* A struct of another version keeps the figures that it has. */
static mf_status begin(mf_ceilings *whole, const mf_ceilings *given, mf_error *why)
{
    *whole = (mf_ceilings){ 0 };
    if (!given) return api_missing(why, "ceilings");
    return api_options_in(whole, sizeof *whole, given, "MF_CEILINGS_INIT", why);
}

mf_status mf_ceilings_measure(mf_ceilings *ceilings, uint32_t thread_count, mf_error *why)
{
    mf_ceilings whole;
    struct machine machine;
    mf_status status = begin(&whole, ceilings, why);
    if (status != MF_OK) return status;
    machine_probe(&machine);
    status = ceilings_measure(&whole, &machine, threads_of(&machine, thread_count), why);
    if (status != MF_OK) return status;
    return api_statistics_out(ceilings, &whole, sizeof whole, "MF_CEILINGS_INIT", why);
}

mf_status mf_ceilings_measure_disk(mf_ceilings *ceilings, const mf_model *model, mf_error *why)
{
    mf_ceilings whole;
    mf_status status = begin(&whole, ceilings, why);
    if (status != MF_OK) return status;
    if (!model) return api_missing(why, "model");
    struct expert_store_sizes sizes = expert_store_sizes(model->experts);
    if (sizes.slots >= sizes.total) return MF_OK;
    const struct tensor_directory *directory = &model->model.directory;
    status = ceilings_measure_disk(&whole, directory->files, directory->file_count, why);
    if (status != MF_OK) return status;
    return api_statistics_out(ceilings, &whole, sizeof whole, "MF_CEILINGS_INIT", why);
}

mf_status mf_ceilings_measure_file(mf_ceilings *ceilings, const char *path, mf_error *why)
{
    mf_ceilings whole;
    struct file file;
    mf_status status = begin(&whole, ceilings, why);
    if (status != MF_OK) return status;
    if (!path) return api_missing(why, "path");
    status = file_open(&file, &files_posix, path, why);
    if (status != MF_OK) return status;
    status = ceilings_measure_disk(&whole, &file, 1, why);
    file_close(&file);
    if (status != MF_OK) return status;
    return api_statistics_out(ceilings, &whole, sizeof whole, "MF_CEILINGS_INIT", why);
}

mf_status tools_measure_files(mf_ceilings *ceilings, const struct tensor_directory *directory,
                              mf_error *why)
{
    mf_ceilings whole;
    mf_status status = begin(&whole, ceilings, why);
    if (status != MF_OK) return status;
    status = ceilings_measure_disk(&whole, directory->files, directory->file_count, why);
    if (status != MF_OK) return status;
    return api_statistics_out(ceilings, &whole, sizeof whole, "MF_CEILINGS_INIT", why);
}

mf_status mf_memory_probe_open(mf_memory_probe **out, uint32_t thread_count, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    mf_memory_probe *probe = api_new_handle(&allocator_heap, sizeof *probe);
    if (!probe) return fail_memory(why, sizeof *probe);
    struct machine machine;
    machine_probe(&machine);
    mf_status status =
        memory_probe_new(&probe->probe, &machine, threads_of(&machine, thread_count), why);
    if (probe->probe)
        *out = probe;
    else
        allocator_heap.release(NULL, probe, sizeof *probe);
    return status;
}

void mf_memory_probe_close(mf_memory_probe *probe)
{
    if (!probe) return;
    memory_probe_free(probe->probe);
    allocator_heap.release(NULL, probe, sizeof *probe);
}

double mf_memory_probe_rate(mf_memory_probe *probe)
{
    return probe ? memory_probe_rate(probe->probe) : 0;
}

/* ------------------------------------------------------------------ models */

mf_status mf_model_get_shape(mf_model_shape *out, const mf_model *model, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    if (!model) return api_missing(why, "model");
    mf_model_shape shape;
    tools_fill_shape(&shape, &model->model.config);
    return api_statistics_out(out, &shape, sizeof shape, "MF_MODEL_SHAPE_INIT", why);
}

mf_status mf_model_workload(mf_workload *out, const mf_model *model, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    if (!model) return api_missing(why, "model");
    mf_workload whole;
    workload_count(&whole, &model->model, model->kv_format);
    return api_statistics_out(out, &whole, sizeof whole, "MF_WORKLOAD_INIT", why);
}

const uint64_t *mf_model_expert_uses(const mf_model *model, uint32_t layer)
{
    if (!model || layer >= model->model.config.layer_count) return NULL;
    if (model->model.config.ffns[layer] != FFN_EXPERTS) return NULL;
    return expert_store_uses(model->experts, layer);
}

uint32_t mf_default_thread_count(void)
{
    struct machine machine;
    machine_probe(&machine);
    return machine.core_count;
}

mf_status mf_sequence_rehearse(mf_sequence *sequence, const int32_t *tokens, size_t count,
                               mf_error *why)
{
    if (!sequence) return api_missing(why, "sequence");
    if (!tokens && count > 0) return api_missing(why, "tokens");
    mf_engine *engine = sequence->model->engine;
    struct feed feed = {
        .sequence = &sequence->sequence, .tokens = tokens, .count = count, .why = why
    };
    pthread_mutex_lock(&engine->lock);
    engine_rehearse(&feed);
    pthread_mutex_unlock(&engine->lock);
    return feed.status;
}
