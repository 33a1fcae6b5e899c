/* model.c: mf_model_*: a checkpoint, opened and asked. */
#include "api/handles.h"

#include "base/status.h"

static mf_status choose_reader(enum read_engine *out, const char *name, mf_error *why)
{
    *out = READ_ENGINE_BEST;
    if (!name) return MF_OK;
    if (strcmp(name, "io_uring") == 0)
        *out = READ_ENGINE_URING;
    else if (strcmp(name, "threads") == 0)
        *out = READ_ENGINE_THREADS;
    else
        return fail(why, MF_ERR_ARGUMENT,
                    "the reader \"%.32s\" is not known; there are io_uring and threads", name);
    return MF_OK;
}

mf_status api_open_experts(mf_model *model, const mf_model_options *options, mf_error *why)
{
    struct expert_store_options store = { .allocator = &model->engine->allocator,
                                          .directory = &model->model.directory,
                                          .layers = model->model.weights.layers,
                                          .config = &model->model.config,
                                          .budget_bytes = api_expert_budget(model),
                                          .promise = options->memory_bytes != 0,
                                          .unchecked = options->no_checksums,
                                          .tracer = model->engine->tracer };
    static const enum expert_ahead ahead[] = { [MF_READ_AHEAD_MEASURED] = AHEAD_MEASURED,
                                               [MF_READ_AHEAD_NEVER] = AHEAD_NEVER,
                                               [MF_READ_AHEAD_ALWAYS] = AHEAD_ALWAYS };
    static const enum expert_place places[] = { [MF_EXPERTS_BY_SIZE] = PLACE_BY_SIZE,
                                                [MF_EXPERTS_RESIDENT] = PLACE_RESIDENT,
                                                [MF_EXPERTS_MAPPED] = PLACE_MAPPED };
    if ((size_t)options->read_ahead >= COUNT_OF(ahead))
        return fail(why, MF_ERR_ARGUMENT, "%d is not an mf_read_ahead", (int)options->read_ahead);
    if ((size_t)options->expert_mode >= COUNT_OF(places))
        return fail(why, MF_ERR_ARGUMENT, "%d is not an mf_expert_mode", (int)options->expert_mode);
    store.ahead = ahead[options->read_ahead];
    store.place = places[options->expert_mode];
    mf_status status = choose_reader(&store.engine, options->reader, why);
    if (status == MF_OK) status = api_admit_weights(model, why);
    return status == MF_OK ? expert_store_open(&model->experts, &store, why) : status;
}

mf_status api_model_open(mf_model **out, mf_engine *engine, const char *path,
                         const struct ancestors_paths *ancestors, const mf_model_options *options,
                         mf_error *why)
{
    mf_model_options none = { 0 };
    if (!options) options = &none;
    mf_model *model = api_new_handle(&engine->allocator, sizeof *model);
    if (!model) return fail_memory(why, sizeof *model);
    model->engine = engine;
    model->memory_bytes = api_memory_limit(engine, options->memory_bytes);

    struct model_source source = { .files = &engine->files,
                                   .allocator = &engine->allocator,
                                   .path = path,
                                   .ancestors = ancestors,
                                   .text = &model->text,
                                   .logger = &engine->logger,
                                   .uncached = options->memory_bytes != 0 };
    mf_status status = model_open(&model->model, &source, why);
    if (status != MF_OK) {
        engine->allocator.release(engine->allocator.user, model, sizeof *model);
        return status;
    }
    struct model_config *config = &model->model.config;
    if (options->experts_per_token && options->experts_per_token < config->experts_per_token)
        config->experts_per_token = options->experts_per_token;
    status = api_open_experts(model, options, why);
    if (status == MF_OK)
        *out = model;
    else
        mf_model_close(model);
    return status;
}

mf_status mf_model_open(mf_model **out, mf_engine *engine, const char *path,
                        const mf_model_options *options, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!engine) return api_missing(why, "engine");
    if (!path) return api_missing(why, "path");
    return api_model_open(out, engine, path, NULL, options, why);
}

void mf_model_close(mf_model *model)
{
    if (!model) return;
    mf_engine *engine = model->engine;
    expert_store_free(model->experts);
    model_close(&model->model);
    model_text_clear(&model->text);
    engine->allocator.release(engine->allocator.user, model, sizeof *model);
}

uint32_t mf_model_vocab_size(const mf_model *model)
{
    return model->model.config.vocab_size;
}

uint32_t mf_model_context_length(const mf_model *model)
{
    return model->model.config.context_length;
}

const char *mf_model_name(const mf_model *model)
{
    return model->model.name;
}

const char *mf_model_family(const mf_model *model)
{
    return model->model.config.family->name;
}

int32_t mf_model_eos(const mf_model *model)
{
    return model->model.config.end_token_count ? model->model.config.end_tokens[0] : -1;
}

bool mf_model_is_end(const mf_model *model, int32_t token)
{
    return model_is_end_token(&model->model, token);
}
