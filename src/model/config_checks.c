#include "model/config_checks.h"

#include "base/status.h"
#include "model/families.h"

#include <math.h>

/* YaRN's m(s, c): how much longer contexts sharpen attention. */
static double yarn_scale(double factor, double c)
{
    return factor <= 1.0 ? 1.0 : 0.1 * c * log(factor) + 1.0;
}

static void set_multipliers(struct model_config *c, struct rope_config *rope,
                            const struct yarn_fields *yarn)
{
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
    if (yarn->more > 0) rope->multiplier *= yarn->more;
    /* Only latent attention also scales its scores. */
    if (c->family->mixer == MIXER_LATENT && yarn->mscale_all_dim > 0) {
        double m = yarn_scale(rope->factor, yarn->mscale_all_dim);
        rope->score_multiplier = m * m;
    }
}

/* What the checks below share. */
struct checker {
    struct model_config *config;
    const struct field_names *names;
    const char *where;
    mf_error *why;
};

#define REFUSE(k, format, ...)                                                                     \
    fail((k)->why, MF_ERR_UNSUPPORTED, "%s: " format, (k)->where, __VA_ARGS__)

/* `value` has to be a multiple of `unit`. */
static mf_status check_multiple(const struct checker *k, const char *name, uint32_t value,
                                const char *unit_name, uint32_t unit)
{
    if (unit > 0 && value % unit == 0) return MF_OK;
    return REFUSE(k, "%s is %u, a multiple of %s (%u) was expected", name, value, unit_name, unit);
}

/* The width of `what` as a whole, whose parts are each within their limits. */
static mf_status check_width(const struct checker *k, const char *what, uint64_t width)
{
    if (width <= WIDTH_MAX) return MF_OK;
    return REFUSE(k, "the %s together are %llu wide, at most %d was expected", what,
                  (unsigned long long)width, WIDTH_MAX);
}

static mf_status finish_heads(const struct checker *k)
{
    struct model_config *c = k->config;
    const struct field_names *names = k->names;
    struct rope_config *rope = &c->rope;
    if (c->family->mixer == MIXER_LATENT) {
        c->kv_heads = c->heads;
        c->head_width = c->nope_width + rope->rotary_width;
        return check_width(k, "attention heads",
                           (uint64_t)c->heads * (c->nope_width + c->value_width));
    }
    if (c->head_width == 0) c->head_width = c->width / c->heads;
    if (c->head_width == 0)
        return REFUSE(k, "%s is %u, at least %s (%u) was expected", names->width, c->width,
                      names->heads, c->heads);
    if (!(rope->partial > 0.0 && rope->partial <= 1.0))
        return REFUSE(k, "%s is %g, above 0 and at most 1 was expected", names->partial,
                      rope->partial);
    if (rope->proportional) {
        rope->rotary_width = c->head_width;
        rope->turning = (uint32_t)(c->head_width * rope->partial / 2);
    }
    if (rope->rotary_width == 0) rope->rotary_width = (uint32_t)(c->head_width * rope->partial);
    return check_multiple(k, names->heads, c->heads, names->kv_heads, c->kv_heads);
}

/* What a file leaves out of its layers with a window is as in the others. */
static mf_status finish_window(const struct checker *k)
{
    struct model_config *c = k->config;
    struct window_config *window = &c->window;
    if (!c->family->windowed) {
        *window = (struct window_config){ 0 };
        return MF_OK;
    }
    /* Not at the context's length: that can be stretched. */
    window->positions = (uint32_t)min_size(window->positions, CONTEXT_MAX);
    if (window->kv_heads == 0) window->kv_heads = c->kv_heads;
    if (window->head_width == 0) window->head_width = c->head_width;
    if (window->rope.theta == 0) window->rope = c->rope;
    if (window->rope.rotary_width == 0) window->rope.rotary_width = window->head_width;
    mf_status status =
        check_multiple(k, k->names->heads, c->heads, k->names->kv_heads, window->kv_heads);
    if (status != MF_OK) return status;
    return check_width(k, "attention heads", (uint64_t)c->heads * window->head_width);
}

static mf_status check_rope(const struct checker *k, struct rope_config *rope, uint32_t head_width)
{
    const struct field_names *names = k->names;
    if (rope->rotary_width < 2 || rope->rotary_width % 2 || rope->rotary_width > head_width)
        return REFUSE(k, "%s makes %u of a head's %u channels turn, an even number was expected",
                      names->rotary, rope->rotary_width, head_width);
    if (!(rope->theta > 1.0 && rope->theta < 1e12))
        return REFUSE(k, "%s is %g, above 1 and below 1e12 was expected", names->theta,
                      rope->theta);
    if (!(rope->factor > 1.0)) return MF_OK;
    if (rope->original_context == 0) rope->original_context = k->config->context_length;
    const struct {
        const char *name;
        double value;
    } positive[] = { { names->original_context, rope->original_context },
                     { names->beta_fast, rope->beta_fast },
                     { names->beta_slow, rope->beta_slow } };
    for (size_t i = 0; i < COUNT_OF(positive); i++)
        if (!(positive[i].value > 0 && isfinite(positive[i].value)))
            return REFUSE(k, "%s is %g, a number above 0 was expected", positive[i].name,
                          positive[i].value);
    return MF_OK;
}

static mf_status finish_yarn(const struct checker *k, const struct yarn_fields *yarn)
{
    const struct rope_config *rope = &k->config->rope;
    struct rope_config *window = &k->config->window.rope;
    set_multipliers(k->config, &k->config->rope, yarn);
    bool same = window->factor > 1.0;
    window->factor = same ? rope->factor : 1.0;
    window->multiplier = same ? rope->multiplier : 1.0;
    window->score_multiplier = same ? rope->score_multiplier : 1.0;
    if (isfinite(rope->multiplier) && isfinite(rope->score_multiplier)) return MF_OK;
    return REFUSE(k, "YaRN's factors multiply angles by %g and scores by %g, numbers were expected",
                  rope->multiplier, rope->score_multiplier);
}

static mf_status check_groups(const struct checker *k)
{
    struct model_config *c = k->config;
    const struct field_names *names = k->names;
    if (c->router_groups == 0) c->router_groups = c->router_top_groups = 1;
    mf_status status =
        check_multiple(k, names->experts, c->experts, names->groups, c->router_groups);
    if (status != MF_OK) return status;
    if (c->router_top_groups == 0 || c->router_top_groups > c->router_groups)
        return REFUSE(k, "%s is %u, from 1 to %s (%u) was expected", names->top_groups,
                      c->router_top_groups, names->groups, c->router_groups);
    uint32_t size = c->experts / c->router_groups, reachable = size * c->router_top_groups;
    if (c->experts_per_token > reachable)
        return REFUSE(k, "%s is %u, at most the %u experts of %s groups were expected",
                      names->experts_per_token, c->experts_per_token, reachable, names->top_groups);
    /* A group is scored by its two best experts. */
    if (c->router == ROUTER_SIGMOID && c->router_groups > 1 && size < 2)
        return REFUSE(k, "%s is %u, which leaves %u expert to a group; two were expected",
                      names->groups, c->router_groups, size);
    return MF_OK;
}

static mf_status check_experts(const struct checker *k)
{
    struct model_config *c = k->config;
    const struct field_names *names = k->names;
    if (c->experts_per_token > c->experts)
        return REFUSE(k, "%s is %u, at most %s (%u) was expected", names->experts_per_token,
                      c->experts_per_token, names->experts, c->experts);
    mf_status status = check_groups(k);
    if (status != MF_OK) return status;
    /* The width of a step's buffer of answers. */
    if ((uint64_t)c->experts_per_token * c->width > UINT32_MAX)
        return REFUSE(k, "%s x %s is %llu, at most %u was expected", names->experts_per_token,
                      names->width, (unsigned long long)c->experts_per_token * c->width,
                      UINT32_MAX);
    if (c->shared_width > 0 && !family_has_weight(c->family, WEIGHT_SHARED_GATE))
        return REFUSE(k, "%s asks for a shared expert %u wide, and the family %s has none",
                      names->shared, c->shared_width, c->family->name);
    if (c->routed_scale == 0.0f) c->routed_scale = 1.0f;
    if (!isfinite(c->routed_scale))
        return REFUSE(k, "%s is %g, a finite number was expected", names->routed_scale,
                      (double)c->routed_scale);
    if (c->sparse_step == 0) c->sparse_step = 1;
    return MF_OK;
}

static mf_status check_delta(const struct checker *k)
{
    const struct model_config *c = k->config;
    if (!c->family->hybrid) return MF_OK;
    mf_status status = check_multiple(k, k->names->delta_value_heads, c->delta_value_heads,
                                      k->names->delta_key_heads, c->delta_key_heads);
    if (status != MF_OK) return status;
    uint64_t keys = (uint64_t)c->delta_key_heads * c->delta_key_width;
    uint64_t values = (uint64_t)c->delta_value_heads * c->delta_value_width;
    return check_width(k, "linear attention heads", 2 * keys + values);
}

mf_status config_finish(struct model_config *config, const struct yarn_fields *yarn,
                        const struct field_names *names, const char *where, mf_error *why)
{
    const struct checker k = { config, names, where, why };
    if (!(config->norm_epsilon >= 0.0f && config->norm_epsilon < 1.0f))
        return REFUSE(&k, "%s is %g, from 0 to below 1 was expected", names->epsilon,
                      (double)config->norm_epsilon);
    mf_status status = finish_heads(&k);
    if (status == MF_OK)
        status = check_width(&k, "attention heads", (uint64_t)config->heads * config->head_width);
    if (status == MF_OK) status = check_rope(&k, &config->rope, config->head_width);
    if (status == MF_OK) status = finish_window(&k);
    if (status == MF_OK && config->window.positions > 0)
        status = check_rope(&k, &config->window.rope, config->window.head_width);
    if (status == MF_OK) status = check_delta(&k);
    if (status == MF_OK) status = check_experts(&k);
    return status == MF_OK ? finish_yarn(&k, yarn) : status;
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
    return (uint32_t)dimension_size(config, MIXER_DELTA, DIM_DELTA_CHANNELS);
}

struct attention_sizes config_attention(const struct model_config *config, enum mixer_kind kind)
{
    const struct window_config *window = &config->window;
    if (kind != MIXER_WINDOW)
        return (struct attention_sizes){ .heads = config->heads,
                                         .kv_heads = config->kv_heads,
                                         .head_width = config->head_width,
                                         .values_are_keys = config->values_are_keys,
                                         .rope = &config->rope };
    return (struct attention_sizes){ .heads = config->heads,
                                     .kv_heads = window->kv_heads,
                                     .head_width = window->head_width,
                                     .window = window->positions,
                                     .rope = &window->rope };
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

void config_remove_end_token(struct model_config *config, int32_t id)
{
    size_t left = 0;
    for (size_t i = 0; i < config->end_token_count; i++)
        if (config->end_tokens[i] != id) config->end_tokens[left++] = config->end_tokens[i];
    config->end_token_count = left;
}

mf_status config_refuse_family(const char *where, const char *field, const char *name, bool experts,
                               const char *known, mf_error *why)
{
    if (!experts)
        return fail(
            why, MF_ERR_UNSUPPORTED,
            "%s: %s \"%.64s\" is a dense model, and moeflux runs mixture-of-experts models; "
            "known: %s",
            where, field, name, known);
    return fail(why, MF_ERR_UNSUPPORTED, "%s: %s \"%.64s\" is not supported; known: %s", where,
                field, name, known);
}
