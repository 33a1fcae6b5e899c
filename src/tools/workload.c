#include "tools/workload.h"

#include "state/sequence.h"

static uint64_t weight_bytes(const struct weight *weight)
{
    if (!weight->values && !weight->row_bytes) return 0; /* the family has no such id */
    uint64_t bytes = weight->rows * weight->row_bytes;
    if (!weight->scale_row_bytes) return bytes;
    uint64_t tiles = (weight->rows + weight->group_rows - 1) / weight->group_rows;
    return bytes + tiles * weight->scale_row_bytes * (weight->biases ? 2 : 1);
}

static double weight_flops(const struct weight *weight)
{
    bool is_matrix = weight->rows > 1;
    return is_matrix ? 2.0 * (double)weight->rows * (double)weight->cols : 0;
}

static void count_experts(mf_workload *out, const struct layer_weights *layer, uint32_t chosen)
{
    for (int part = 0; part < EXPERT_PARTS; part++) {
        const struct expert_matrix *matrix = &layer->experts[part];
        out->weight_bytes += chosen * expert_matrix_own_bytes(matrix);
        out->token_flops += chosen * weight_flops(&matrix->shape);
    }
}

static void count_mixer(mf_workload *out, const struct model_config *c, enum mixer_kind kind)
{
    struct attention_sizes a = config_attention(c, kind);
    if (kind == MIXER_ATTENTION || kind == MIXER_WINDOW)
        out->pair_flops += 4.0 * a.heads * a.head_width;
    else if (kind == MIXER_LATENT)
        out->pair_flops += 2.0 * c->heads * (c->head_width + c->value_width);
    else
        out->token_flops +=
            7.0 * c->delta_value_heads * (double)c->delta_key_width * c->delta_value_width;
}

void workload_count(mf_workload *out, const struct model *model, enum kv_format kv_format)
{
    const struct model_config *c = &model->config;
    const struct weights *weights = &model->weights;
    *out = (mf_workload){
        .struct_size = sizeof *out,
        .weight_bytes = weight_bytes(&weights->weights[WEIGHT_HEAD]) +
                        weight_bytes(&weights->weights[WEIGHT_FINAL_NORM]) +
                        weights->weights[WEIGHT_EMBEDDING].row_bytes,
        .state_position_bytes = state_position_bytes(c, kv_format),
        .state_fixed_bytes = 2 * state_fixed_bytes(c),
        .head_flops = weight_flops(&weights->weights[WEIGHT_HEAD]),
    };
    for (uint32_t i = 0; i < c->layer_count; i++) {
        const struct layer_weights *layer = &weights->layers[i];
        for (int id = 0; id < WEIGHT_COUNT; id++) {
            out->weight_bytes += weight_bytes(&layer->weights[id]);
            out->token_flops += weight_flops(&layer->weights[id]);
        }
        if (c->ffns[i] == FFN_EXPERTS) count_experts(out, layer, c->experts_per_token);
        count_mixer(out, c, c->mixers[i]);
    }
}
