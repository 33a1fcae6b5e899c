#include "model/config_checks.h"

#include "base/status.h"
#include "model/families.h"

#include <math.h>

/* YaRN's m(s, c): how much longer contexts sharpen attention. */
static double yarn_scale(double factor, double c)
{
    return factor <= 1.0 ? 1.0 : 0.1 * c * log(factor) + 1.0;
}

static void finish_yarn(struct model_config *c, const struct yarn_fields *yarn)
{
    struct rope_config *rope = &c->rope;
    bool both = yarn->mscale > 0 && yarn->mscale_all_dim > 0;
    rope->multiplier = rope->score_multiplier = 1.0;
    if (!(rope->factor > 1.0)) {
        rope->factor = 1.0;
        return;
    }
    if (yarn->attention_factor > 0)
        rope->multiplier = yarn->attention_factor;
    else if (both)
        rope->multiplier =
            yarn_scale(rope->factor, yarn->mscale) / yarn_scale(rope->factor, yarn->mscale_all_dim);
    else
        rope->multiplier = yarn_scale(rope->factor, 1.0);
    /* Only latent attention also scales its scores. */
    if (c->family->mixer == MIXER_LATENT && yarn->mscale_all_dim > 0) {
        double m = yarn_scale(rope->factor, yarn->mscale_all_dim);
        rope->score_multiplier = m * m;
    }
}

static const char *find_attention_problem(struct model_config *c)
{
    struct rope_config *rope = &c->rope;
    if (c->family->mixer == MIXER_LATENT) {
        c->kv_heads = c->heads;
        c->head_width = c->nope_width + rope->rotary_width;
        if ((uint64_t)c->heads * (c->nope_width + c->value_width) > WIDTH_MAX)
            return "the attention heads are too wide";
    } else {
        if (c->head_width == 0) c->head_width = c->width / c->heads;
        if (c->head_width == 0) return "hidden_size is smaller than num_attention_heads";
        if (c->heads % c->kv_heads)
            return "num_attention_heads is not a multiple of "
                   "num_key_value_heads";
        if (!(rope->partial > 0.0 && rope->partial <= 1.0))
            return "partial_rotary_factor is not above 0 and at most 1";
        if (rope->rotary_width == 0) rope->rotary_width = (uint32_t)(c->head_width * rope->partial);
    }
    if ((uint64_t)c->heads * c->head_width > WIDTH_MAX) return "the attention heads are too wide";
    if (rope->rotary_width < 2 || rope->rotary_width % 2 || rope->rotary_width > c->head_width)
        return "the rotary part of a head is not an even number of its channels";
    if (!(rope->theta > 1.0 && rope->theta < 1e12)) return "rope_theta is out of range";
    bool yarn = rope->factor > 1.0;
    if (yarn && !(rope->original_context > 0 && rope->beta_fast > 0 && rope->beta_slow > 0))
        return "YaRN's original context or betas are missing or not positive";
    return NULL;
}

static const char *find_expert_problem(struct model_config *c)
{
    if (c->experts_per_token > c->experts) return "num_experts_per_tok is greater than num_experts";
    if (c->router_groups == 0) c->router_groups = c->router_top_groups = 1;
    if (c->experts % c->router_groups) return "the number of experts is not a multiple of n_group";
    if (c->router_top_groups == 0 || c->router_top_groups > c->router_groups)
        return "topk_group is not between 1 and n_group";
    uint32_t reachable = c->experts / c->router_groups * c->router_top_groups;
    if (c->experts_per_token > reachable)
        return "num_experts_per_tok is greater than what topk_group groups hold";
    /* A group is scored by its two best experts. */
    if (c->router == ROUTER_SIGMOID && c->router_groups > 1 && c->experts / c->router_groups < 2)
        return "a group has less than two experts";
    /* The width of a step's buffer of answers. */
    if ((uint64_t)c->experts_per_token * c->width > UINT32_MAX)
        return "num_experts_per_tok x hidden_size is too large";
    if (c->shared_width > 0 && !family_has_slot(c->family, SLOT_SHARED_GATE))
        return "a shared expert is asked for, and this family has none";
    if (c->routed_scale == 0.0f) c->routed_scale = 1.0f;
    if (!isfinite(c->routed_scale)) return "routed_scaling_factor is not a number";
    if (c->sparse_step == 0) c->sparse_step = 1;
    return NULL;
}

static const char *find_delta_problem(const struct model_config *c)
{
    if (!c->family->hybrid) return NULL;
    if (c->delta_value_heads % c->delta_key_heads)
        return "linear_num_value_heads is not a multiple of linear_num_key_heads";
    uint64_t keys = (uint64_t)c->delta_key_heads * c->delta_key_width;
    uint64_t values = (uint64_t)c->delta_value_heads * c->delta_value_width;
    return 2 * keys + values > WIDTH_MAX ? "the linear attention heads are too wide" : NULL;
}

mf_status config_finish(struct model_config *config, const struct yarn_fields *yarn,
                        const char *where, mf_error *why)
{
    const char *problem = NULL;
    if (!(config->norm_epsilon >= 0.0f && config->norm_epsilon < 1.0f))
        problem = "rms_norm_eps is not between 0 and 1";
    if (!problem) problem = find_attention_problem(config);
    if (!problem) problem = find_delta_problem(config);
    if (!problem) problem = find_expert_problem(config);
    if (problem) return fail(why, MF_ERR_UNSUPPORTED, "%s: %s", where, problem);
    finish_yarn(config, yarn);
    return MF_OK;
}

mf_status config_new_lists(struct model_config *config, struct arena *arena, mf_error *why)
{
    config->mixers = ARENA_NEW(arena, enum mixer_kind, config->layer_count);
    config->ffns = ARENA_NEW(arena, enum ffn_kind, config->layer_count);
    if (!config->mixers || !config->ffns)
        return fail_memory(why, config->layer_count * sizeof *config->mixers);
    return MF_OK;
}

uint32_t config_delta_channels(const struct model_config *config)
{
    return (uint32_t)dimension_size(config, DIM_DELTA_CHANNELS);
}

uint32_t config_count_mixers(const struct model_config *config, enum mixer_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < config->layer_count; i++) count += config->mixers[i] == kind;
    return count;
}

mf_status config_add_end_token(struct model_config *config, int64_t id, const char *where,
                               mf_error *why)
{
    if (id < 0 || id >= config->vocab_size)
        return fail(why, MF_ERR_FORMAT, "%s: the end token %lld is not a token id below %u", where,
                    (long long)id, config->vocab_size);
    for (size_t i = 0; i < config->end_token_count; i++)
        if (config->end_tokens[i] == id) return MF_OK;
    if (config->end_token_count == END_TOKENS_MAX)
        return fail(why, MF_ERR_UNSUPPORTED, "%s: more than %d end tokens", where, END_TOKENS_MAX);
    config->end_tokens[config->end_token_count++] = (int32_t)id;
    return MF_OK;
}
