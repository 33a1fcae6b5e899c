#include "chat/model_text.h"

#include "base/status.h"
#include "chat/output_family.h"
#include "checkpoint/metadata.h"

enum { GENERATION_BYTES_MAX = 1 << 20, TOP_K_MAX = 1 << 24 };

void model_text_defaults(struct sampler_options *out)
{
    sampler_options_default(out);
    out->temperature = 0.7f;
    out->top_k = 40;
    out->top_p = 0.9f;
}

void model_text_clear(struct model_text *text)
{
    tokenizer_free(text->tokenizer);
    chat_template_free(text->chat);
    json_decref(text->bos);
    json_decref(text->eos);
    json_decref(text->generation);
    *text = (struct model_text){ 0 };
}

/* An error of the template is kept for the call that needs it; others end the opening. */
static mf_status keep_template_error(struct model_text *text, mf_status status,
                                     const mf_error *problem, mf_error *why)
{
    if (status == MF_OK) return MF_OK;
    if (status == MF_ERR_MEMORY || status == MF_ERR_IO) {
        if (why) *why = *problem;
        return status;
    }
    text->chat_error = *problem;
    text->chat_error.status = MF_ERR_TEMPLATE;
    return MF_OK;
}

void model_text_find_ends(struct model_text_ends *out, const struct model_text *text)
{
    *out = (struct model_text_ends){ .no_end = -1 };
    if (!text->tokenizer || !text->chat) return;
    const struct output_family *family = output_family_detect(chat_template_source(text->chat));
    const char *const *stop = family->stops;
    for (; stop && *stop && out->count < COUNT_OF(out->tokens); stop++) {
        int32_t id = tokenizer_find(text->tokenizer, *stop);
        if (id >= 0) out->tokens[out->count++] = id;
    }
    if (family->no_stop) out->no_end = tokenizer_find(text->tokenizer, family->no_stop);
}

/* ------------------------------------------------------------------ directory */

/* "<s>", or {"content": "<s>", …} as older files have it; NULL where there is none. */
static json_t *token_text_new(const json_t *config, const char *key)
{
    const json_t *value = json_object_get(config, key);
    const json_t *content = json_object_get(value, "content");
    if (json_is_string(content)) value = content;
    return json_is_string(value) ? json_stringn(json_string_value(value), json_string_length(value))
                                 : NULL;
}

static mf_status read_generation(struct sampler_options *out, const json_t *json, mf_error *why)
{
    static const char where[] = "generation_config.json";
    bool samples = true;
    double temperature = (double)out->temperature, top_p = (double)out->top_p;
    double min_p = (double)out->min_p, repetition = (double)out->repetition_penalty;
    uint64_t top_k = (uint64_t)out->top_k;
    mf_status status = json_maybe_flag(&samples, json, "do_sample", where, why);
    if (status == MF_OK) status = json_maybe_real(&temperature, json, "temperature", where, why);
    if (status == MF_OK) status = json_maybe_real(&top_p, json, "top_p", where, why);
    if (status == MF_OK) status = json_maybe_real(&min_p, json, "min_p", where, why);
    if (status == MF_OK)
        status = json_maybe_real(&repetition, json, "repetition_penalty", where, why);
    if (status == MF_OK) status = json_maybe_count(&top_k, json, "top_k", 0, TOP_K_MAX, where, why);
    if (status != MF_OK) return status;
    out->temperature = samples ? (float)temperature : 0.0f;
    out->top_p = (float)top_p;
    out->min_p = (float)min_p;
    out->repetition_penalty = (float)repetition;
    out->top_k = (int32_t)top_k;
    return MF_OK;
}

static mf_status open_tokenizer(struct model_text *text, const struct model_text_source *source,
                                const json_t *config, mf_error *why)
{
    bool present = false;
    mf_status status = tokenizer_probe(&present, source->files, source->directory, why);
    if (status != MF_OK) return status;
    if (present)
        return tokenizer_open_configured_new(&text->tokenizer, source->files, source->directory,
                                             config, why);
    if (!source->artifacts) return MF_OK;
    struct ancestors_tokenizer packed = { source->artifacts, config, source->pre_tokenizer };
    return tokenizer_open_ancestors_new(&text->tokenizer, source->files, &packed, why);
}

static mf_status open_template(struct model_text *text, const struct model_text_source *source,
                               const json_t *config, mf_error *why)
{
    mf_error problem = { 0 };
    mf_status status =
        chat_template_open_new(&text->chat, source->files, source->directory, config, &problem);
    return keep_template_error(text, status, &problem, why);
}

mf_status model_text_open(struct model_text *out, const struct model_text_source *source,
                          mf_error *why)
{
    json_t *config = NULL;
    *out = (struct model_text){ 0 };
    model_text_defaults(&out->sampling);
    mf_status status = tokenizer_config_read_new(&config, source->files, source->directory, why);
    if (status == MF_OK) status = open_tokenizer(out, source, config, why);
    if (status == MF_OK) status = open_template(out, source, config, why);
    if (status == MF_OK)
        status = json_read_maybe_new(&out->generation, source->files, source->directory,
                                     "generation_config.json", GENERATION_BYTES_MAX, why);
    if (status == MF_OK && out->generation)
        status = read_generation(&out->sampling, out->generation, why);
    out->bos = token_text_new(config, "bos_token");
    out->eos = token_text_new(config, "eos_token");
    json_decref(config);
    if (status != MF_OK) model_text_clear(out);
    return status;
}

/* ------------------------------------------------------------------ GGUF */

/* The text of the token whose id stands under `key`; NULL where there is none. */
static json_t *metadata_token_text_new(const struct metadata *metadata, const char *key)
{
    struct metadata_array tokens;
    uint64_t id = UINT64_MAX;
    if (metadata_maybe_count(&id, metadata, key, 0, INT32_MAX, NULL) != MF_OK) return NULL;
    if (metadata_maybe_array(&tokens, metadata, "tokenizer.ggml.tokens", METADATA_TEXT, NULL) !=
        MF_OK)
        return NULL;
    if (id >= tokens.count) return NULL;
    struct metadata_text text = metadata_array_text(&tokens, id);
    return json_stringn(text.bytes, text.length);
}

static mf_status read_sampling(struct sampler_options *out, const struct metadata *metadata,
                               mf_error *why)
{
    struct {
        const char *key;
        float *to;
    } reals[] = {
        { "general.sampling.temp", &out->temperature },
        { "general.sampling.top_p", &out->top_p },
        { "general.sampling.min_p", &out->min_p },
        { "general.sampling.penalty_repeat", &out->repetition_penalty },
    };
    mf_status status = MF_OK;
    for (size_t i = 0; i < COUNT_OF(reals) && status == MF_OK; i++) {
        double value = (double)*reals[i].to;
        status = metadata_maybe_real(&value, metadata, reals[i].key, why);
        if (status == MF_OK) *reals[i].to = (float)value;
    }
    uint64_t top_k = (uint64_t)out->top_k;
    if (status == MF_OK)
        status =
            metadata_maybe_count(&top_k, metadata, "general.sampling.top_k", 0, TOP_K_MAX, why);
    if (status == MF_OK) out->top_k = (int32_t)top_k;
    return status;
}

mf_status model_text_from_metadata(struct model_text *out, const struct metadata *metadata,
                                   mf_error *why)
{
    const char *source = NULL;
    mf_error problem = { 0 };
    *out = (struct model_text){ 0 };
    model_text_defaults(&out->sampling);
    mf_status status = MF_OK;
    if (metadata_find(metadata, "tokenizer.ggml.tokens"))
        status = tokenizer_from_metadata_new(&out->tokenizer, metadata, why);
    if (status == MF_OK)
        status = metadata_maybe_text(&source, metadata, "tokenizer.chat_template", why);
    if (status == MF_OK && source)
        status = keep_template_error(
            out,
            chat_template_parse_new(&out->chat, source, strlen(source), metadata->path, &problem),
            &problem, why);
    if (status == MF_OK) status = read_sampling(&out->sampling, metadata, why);
    if (status == MF_OK) {
        out->bos = metadata_token_text_new(metadata, "tokenizer.ggml.bos_token_id");
        out->eos = metadata_token_text_new(metadata, "tokenizer.ggml.eos_token_id");
    } else {
        model_text_clear(out);
    }
    return status;
}
