/* tools_describe.c: mf_description_*: a checkpoint as its headers show it. */
#include "api/tools.h"

#include "api/handles.h"
#include "base/status.h"
#include "io/async_read.h"
#include "tools/description.h"
#include "tools/workload.h"

struct mf_description {
    struct description description;
};

const char *mf_tensor_class_name(mf_tensor_class tensor_class)
{
    static const char *const names[] = {
#define CLASS_NAME(suffix, name) [MF_TENSORS_##suffix] = name,
        MF_TENSOR_CLASS_LIST(CLASS_NAME)
#undef CLASS_NAME
    };
    return (size_t)tensor_class < COUNT_OF(names) ? names[tensor_class] : NULL;
}

uint32_t mf_format_count(void)
{
    return FORMATS;
}

const char *mf_format_name(uint32_t format)
{
    if (format >= FORMATS) return NULL;
    return format < FORMAT_COUNT ? format_info((enum format)format)->name : "unknown";
}

mf_status mf_description_open(mf_description **out, const char *path, mf_error *why)
{
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!path) return api_missing(why, "path");
    mf_description *description = api_new_handle(&allocator_heap, sizeof *description);
    if (!description) return fail_memory(why, sizeof *description);
    mf_status status = description_open(&description->description, path, why);
    if (status == MF_OK)
        *out = description;
    else
        allocator_heap.release(NULL, description, sizeof *description);
    return status;
}

void mf_description_close(mf_description *description)
{
    if (!description) return;
    description_close(&description->description);
    allocator_heap.release(NULL, description, sizeof *description);
}

static void fill_packed(mf_description_info *info, const struct description *d)
{
    const struct packed_origin *origin = &d->model.packed.origin;
    if (!d->supported || d->model.packed.tensor_count == 0) return;
    info->packed_layout = PACKED_LAYOUT;
    info->packed_name = origin->name;
    info->packed_kind = origin->kind;
    info->packed_fingerprint = origin->fingerprint;
    info->packed_experts = origin->experts;
    info->packed_rest = origin->rest;
}

static uint64_t header_bytes(const struct tensor_directory *directory)
{
    uint64_t first = UINT64_MAX;
    for (size_t t = 0; t < directory->count; t++) {
        const struct tensor *tensor = &directory->tensors[t];
        if (tensor->file == 0 && tensor->offset < first) first = tensor->offset;
    }
    return first == UINT64_MAX ? 0 : first;
}

mf_status mf_description_get(mf_description_info *out, const mf_description *description,
                             mf_error *why)
{
    if (!out) return api_missing(why, "out");
    if (!description) return api_missing(why, "description");
    const struct description *d = &description->description;
    struct parameter_counts counts = description_parameters(d);
    mf_description_info info = {
        .path = d->path,
        .name = d->name,
        .layout = d->layout,
        .family = d->family,
        .supported = d->supported,
        .problem = d->supported ? NULL : d->problem,
        .file_count = d->directory->file_count,
        .tensor_count = d->directory->count,
        .bytes = description_sum(d, -1, -1).bytes,
        .parameters = counts.total,
        .expert_parameters = counts.experts,
        .active_parameters = counts.active,
        .header_bytes = header_bytes(d->directory),
    };
    if (d->supported) {
        struct token_bytes bytes = description_token_bytes(d);
        info.token_resident_bytes = bytes.always;
        info.token_expert_bytes = bytes.experts;
        info.token_state_bytes = bytes.state;
    }
    fill_packed(&info, d);
    return api_statistics_out(out, &info, sizeof info, "MF_DESCRIPTION_INFO_INIT", why);
}

mf_status mf_description_get_shape(mf_model_shape *out, const mf_description *description,
                                   mf_error *why)
{
    if (!out) return api_missing(why, "out");
    if (!description) return api_missing(why, "description");
    mf_model_shape shape = { 0 };
    if (description->description.supported)
        tools_fill_shape(&shape, &description->description.model.config);
    return api_statistics_out(out, &shape, sizeof shape, "MF_MODEL_SHAPE_INIT", why);
}

bool mf_description_is_direct(const mf_description *description)
{
    if (!description) return false;
    const struct tensor_directory *directory = description->description.directory;
    for (size_t i = 0; i < directory->file_count; i++)
        if (async_read_alignment(&directory->files[i]) <= 1) return false;
    return directory->file_count > 0;
}

mf_tensor_sum mf_description_sum(const mf_description *description, int tensor_class, int format)
{
    if (!description) return (mf_tensor_sum){ 0 };
    return description_sum(&description->description, tensor_class, format);
}

bool mf_description_unknown(const mf_description *description, size_t index, mf_tensor_info *out)
{
    if (!description || !out) return false;
    const struct tensor *tensor = description_unknown(&description->description, index);
    if (!tensor) return false;
    out->name = tensor->name;
    out->format = mf_format_name((uint32_t)tensor->format);
    tensor_shape_text(tensor, out->shape, sizeof out->shape);
    return true;
}

mf_status mf_description_workload(mf_workload *out, const mf_description *description,
                                  const char *kv_type, mf_error *why)
{
    int kv_format = kv_type ? KV_F32 : KV_F16;
    mf_workload whole;
    if (!out) return api_missing(why, "out");
    if (!description) return api_missing(why, "description");
    const struct description *d = &description->description;
    if (!d->supported) return fail(why, MF_ERR_UNSUPPORTED, "%s", d->problem);
    while (kv_type && kv_format <= KV_Q8 &&
           strcmp(kv_type, kv_format_name((enum kv_format)kv_format)) != 0)
        kv_format++;
    if (kv_format > KV_Q8)
        return fail(why, MF_ERR_ARGUMENT, "the key/value type \"%.32s\" is not known", kv_type);
    workload_count(&whole, &d->model, (enum kv_format)kv_format);
    return api_statistics_out(out, &whole, sizeof whole, "MF_WORKLOAD_INIT", why);
}

mf_status mf_ceilings_measure_files(mf_ceilings *ceilings, const mf_description *description,
                                    mf_error *why)
{
    if (!ceilings) return api_missing(why, "ceilings");
    if (!description) return api_missing(why, "description");
    return tools_measure_files(ceilings, description->description.directory, why);
}
