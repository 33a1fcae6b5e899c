#include "tools/description.h"

#include "base/status.h"
#include "checkpoint/gguf.h"
#include "checkpoint/locate.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/ancestors.h"
#include "model/families.h"
#include "state/sequence.h"

enum { CONFIG_LIMIT = 64 << 20 };

/* ----------------------------------------------------------------- classes */

static mf_tensor_class class_of(enum weight_id id)
{
    switch (id) {
    case WEIGHT_EMBEDDING:
        return MF_TENSORS_EMBEDDING;
    case WEIGHT_HEAD:
        return MF_TENSORS_HEAD;
    case WEIGHT_FINAL_NORM:
    case WEIGHT_MIXER_NORM:
    case WEIGHT_FFN_NORM:
    case WEIGHT_Q_NORM:
    case WEIGHT_K_NORM:
    case WEIGHT_Q_A_NORM:
    case WEIGHT_KV_A_NORM:
    case WEIGHT_DELTA_NORM:
    case WEIGHT_MIXER_POST_NORM:
    case WEIGHT_FFN_POST_NORM:
    case WEIGHT_LAYER_SCALE:
    case WEIGHT_EXPERTS_POST_NORM:
    case WEIGHT_SHARED_NORM:
    case WEIGHT_SHARED_POST_NORM:
        return MF_TENSORS_NORMS;
    case WEIGHT_DELTA_QKV:
    case WEIGHT_DELTA_Z:
    case WEIGHT_DELTA_B:
    case WEIGHT_DELTA_A:
    case WEIGHT_DELTA_CONV:
    case WEIGHT_DELTA_DECAY:
    case WEIGHT_DELTA_DT_BIAS:
    case WEIGHT_DELTA_OUT:
        return MF_TENSORS_DELTA;
    case WEIGHT_ROUTER:
    case WEIGHT_ROUTER_BIAS:
    case WEIGHT_ROUTER_NORM:
    case WEIGHT_EXPERT_SCALE:
        return MF_TENSORS_ROUTERS;
    case WEIGHT_SHARED_GATE:
    case WEIGHT_SHARED_UP:
    case WEIGHT_SHARED_DOWN:
    case WEIGHT_SHARED_SCALE:
        return MF_TENSORS_SHARED;
    case WEIGHT_DENSE_GATE:
    case WEIGHT_DENSE_UP:
    case WEIGHT_DENSE_DOWN:
        return MF_TENSORS_DENSE;
    default:
        return MF_TENSORS_ATTENTION;
    }
}

static void count(struct description *i, mf_tensor_class class, enum format format,
                  mf_tensor_sum more)
{
    mf_tensor_sum *share = &i->classes[class][format];

    share->tensors += more.tensors;
    share->parameters += more.parameters;
    share->bytes += more.bytes;
    share->rows += more.rows;
}

static uint64_t bytes_of(const struct tensor *tensor)
{
    return tensor ? tensor->bytes : 0;
}

static void count_resident(struct description *i)
{
    const struct weights *weights = &i->model.weights;

    for (size_t o = 0; o < weights->origin_count; o++) {
        const struct weight_origin *origin = &weights->origins[o];
        mf_tensor_sum share = { .tensors = 1,
                                .rows = origin->shape.rows,
                                .parameters = origin->shape.rows * origin->shape.cols,
                                .bytes = bytes_of(origin->values) + bytes_of(origin->scales) +
                                         bytes_of(origin->biases) };
        count(i, class_of(origin->id), origin->shape.format, share);
    }
}

/* Bytes of one of a layer's experts. */
static uint64_t expert_bytes(const struct layer_weights *layer)
{
    uint64_t bytes = 0;

    for (int part = 0; part < EXPERT_PARTS; part++) {
        const struct expert_matrix *m = &layer->experts[part];
        bytes += expert_matrix_own_bytes(m);
    }
    return bytes;
}

static void count_experts(struct description *i)
{
    const struct model_config *config = &i->model.config;

    for (uint32_t l = 0; l < config->layer_count; l++) {
        if (config->ffns[l] != FFN_EXPERTS) continue;
        for (int part = 0; part < EXPERT_PARTS; part++) {
            const struct expert_matrix *m = &i->model.weights.layers[l].experts[part];
            mf_tensor_sum share = { .tensors = 1,
                                    .rows = m->shape.rows * config->experts,
                                    .parameters = m->shape.rows * m->shape.cols * config->experts,
                                    .bytes = expert_matrix_own_bytes(m) * config->experts };
            count(i, MF_TENSORS_EXPERTS, m->shape.format, share);
        }
    }
}

static uint64_t number_count(const struct tensor *tensor)
{
    uint64_t numbers = 1;

    for (uint32_t d = 0; d < tensor->rank; d++) {
        if (!checked_multiply(&numbers, numbers, tensor->shape[d])) return 0;
    }
    return numbers;
}

/* Those that no id wanted; all of them where there is no model. */
static void count_rest(struct description *i)
{
    for (size_t t = 0; t < i->directory->count; t++) {
        const struct tensor *tensor = &i->directory->tensors[t];
        bool extra = i->supported && weights_is_extra(tensor->name, i->model.config.layer_count);
        mf_tensor_sum share = { .tensors = 1,
                                .parameters = number_count(tensor),
                                .bytes = tensor->bytes };
        if (i->supported && tensor->used) continue;
        count(i, extra ? MF_TENSORS_EXTRA : MF_TENSORS_UNKNOWN, tensor->format, share);
    }
}

mf_tensor_sum description_sum(const struct description *description, int tensor_class, int format)
{
    mf_tensor_sum sum = { 0 };

    for (int c = 0; c < MF_TENSOR_CLASS_COUNT; c++) {
        for (int f = 0; f < FORMATS; f++) {
            const mf_tensor_sum *share = &description->classes[c][f];
            if ((tensor_class >= 0 && tensor_class != c) || (format >= 0 && format != f)) continue;
            sum.tensors += share->tensors;
            sum.parameters += share->parameters;
            sum.bytes += share->bytes;
            sum.rows += share->rows;
        }
    }
    return sum;
}

/* ----------------------------------------------------------------- opening */

static mf_status describe(struct description *i, mf_error *why)
{
    struct model_source source = {
        .files = &files_posix, .allocator = &allocator_heap, .path = i->path, .describe = true
    };

    return model_open(&i->model, &source, why);
}

/* What the checkpoint calls itself, where its family is not known. */
static mf_status list_directory(struct description *i, mf_error *why)
{
    char parts[PATH_CAPACITY], path[PATH_CAPACITY];
    json_t *config = NULL;
    bool ancestors;
    mf_status status = model_parts_path(parts, sizeof parts, &files_posix, i->path, why);

    if (status == MF_OK) status = path_join(path, sizeof path, parts, "config.json", why);
    if (status == MF_OK) {
        status = json_read_file_new(&config, &files_posix, path, CONFIG_LIMIT, why);
    }
    if (status != MF_OK) return status;
    const char *type = json_string_value(json_object_get(config, "model_type"));
    snprintf(i->family, sizeof i->family, "%s", type ? type : "unknown");
    json_decref(config);
    ancestors = strcmp(parts, i->path) != 0;
    i->layout = ancestors ? "ancestors" : "safetensors";
    return ancestors ? ancestors_open_parent(&i->listed, &files_posix, i->path, false, why)
                     : safetensors_open(&i->listed, &files_posix, i->path, why);
}

static mf_status list_gguf(struct description *i, const char *path, mf_error *why)
{
    const char *architecture = "unknown";
    struct metadata metadata;
    mf_status status;

    i->layout = "GGUF";
    metadata_init(&metadata, &allocator_heap);
    status = checkpoint_gguf_open(&i->listed, &metadata, &files_posix, path, why);
    if (status == MF_OK) {
        metadata_maybe_text(&architecture, &metadata, "general.architecture", NULL);
        snprintf(i->family, sizeof i->family, "%s", architecture);
    }
    metadata_free(&metadata);
    return status;
}

/* A model that cannot be run is still listed, if it is a checkpoint at all. */
static mf_status open_any(struct description *i, mf_error *why)
{
    mf_error problem = { .text = "" };
    struct checkpoint_place place;
    mf_status status = describe(i, &problem);

    i->supported = status == MF_OK;
    i->directory = i->supported ? &i->model.directory : &i->listed;
    if (i->supported) {
        i->layout = i->model.kind;
        snprintf(i->family, sizeof i->family, "%s", i->model.config.family->name);
        return MF_OK;
    }
    snprintf(i->problem, sizeof i->problem, "%s", problem.text);
    status = checkpoint_locate(&place, &files_posix, i->path, why);
    if (status != MF_OK) return status;
    if (place.kind == CHECKPOINT_GGUF) return list_gguf(i, place.path, why);
    if (place.kind == CHECKPOINT_PACKED) return fail(why, problem.status, "%s", problem.text);
    return list_directory(i, why);
}

mf_status description_open(struct description *out, const char *path, mf_error *why)
{
    const char *slash;
    size_t length;
    mf_status status;

    *out = (struct description){ .name = NULL };
    tensor_directory_init(&out->listed, &allocator_heap);
    length = strlen(path);
    status = length < sizeof out->path ? MF_OK : fail(why, MF_ERR_ARGUMENT, "the path is too long");
    if (status == MF_OK) {
        memcpy(out->path, path, length + 1);
        while (length > 1 && out->path[length - 1] == '/') out->path[--length] = '\0';
        slash = strrchr(out->path, '/');
        out->name = slash && slash[1] ? slash + 1 : out->path;
        status = open_any(out, why);
    }
    if (status != MF_OK) {
        description_close(out);
        return status;
    }
    if (out->supported) {
        count_resident(out);
        count_experts(out);
    }
    count_rest(out);
    return MF_OK;
}

void description_close(struct description *description)
{
    if (description->supported) model_close(&description->model);
    tensor_directory_free(&description->listed);
}

/* ----------------------------------------------------------------- answers */

struct parameter_counts description_parameters(const struct description *description)
{
    const struct model_config *config = &description->model.config;
    struct parameter_counts out = { .total = description_sum(description, -1, -1).parameters };

    if (!description->supported) return out;
    out.total -= description_sum(description, MF_TENSORS_EXTRA, -1).parameters;
    out.total -= description_sum(description, MF_TENSORS_UNKNOWN, -1).parameters;
    out.experts = description_sum(description, MF_TENSORS_EXPERTS, -1).parameters;
    out.active =
        out.total - out.experts + out.experts / config->experts * config->experts_per_token;
    return out;
}

struct token_bytes description_token_bytes(const struct description *description)
{
    const struct model_config *config = &description->model.config;
    const struct weight *embedding = &description->model.weights.weights[WEIGHT_EMBEDDING];
    struct token_bytes out = { .state = state_position_bytes(config, KV_F16) };
    bool tied = description_sum(description, MF_TENSORS_HEAD, -1).bytes == 0;

    for (int c = 0; c < MF_TENSORS_EXPERTS; c++) {
        if (c != MF_TENSORS_EMBEDDING || tied)
            out.always += description_sum(description, c, -1).bytes;
    }
    if (!tied) {
        out.always += embedding->row_bytes;
        if (embedding->scale_row_bytes) out.always += 2 * embedding->scale_row_bytes;
    }
    for (uint32_t l = 0; l < config->layer_count; l++) {
        if (config->ffns[l] != FFN_EXPERTS) continue;
        out.experts +=
            expert_bytes(&description->model.weights.layers[l]) * config->experts_per_token;
    }
    return out;
}

const struct tensor *description_unknown(const struct description *description, size_t index)
{
    const struct tensor_directory *directory = description->directory;

    for (size_t t = 0; t < directory->count && description->supported; t++) {
        const struct tensor *tensor = &directory->tensors[t];
        if (tensor->used || weights_is_extra(tensor->name, description->model.config.layer_count)) {
            continue;
        }
        if (index-- == 0) return tensor;
    }
    return NULL;
}
