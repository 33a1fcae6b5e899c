#include "checkpoint/dtype.h"

#include "base/status.h"

/* Types that the table of formats does not have still have a size to check. */
static const struct {
    const char *name;
    enum format format;
    unsigned bits;
} dtypes[] = {
    { "F64", FORMAT_F64, 64 },        { "F32", FORMAT_F32, 32 },
    { "F16", FORMAT_F16, 16 },        { "BF16", FORMAT_BF16, 16 },
    { "F8_E4M3", FORMAT_F8_E4M3, 8 }, { "F8_E5M2", FORMAT_F8_E5M2, 8 },
    { "F8_E8M0", FORMAT_F8_E8M0, 8 }, { "BOOL", FORMAT_BOOL, 8 },
    { "I8", FORMAT_I8, 8 },           { "U8", FORMAT_U8, 8 },
    { "I16", FORMAT_I16, 16 },        { "U16", FORMAT_U16, 16 },
    { "I32", FORMAT_I32, 32 },        { "U32", FORMAT_U32, 32 },
    { "I64", FORMAT_I64, 64 },        { "U64", FORMAT_U64, 64 },
    { "C64", FORMAT_COUNT, 64 },      { "F8_E4M3FNUZ", FORMAT_COUNT, 8 },
    { "F4", FORMAT_COUNT, 4 },        { "F8_E5M2FNUZ", FORMAT_COUNT, 8 },
    { "F6_E2M3", FORMAT_COUNT, 6 },   { "F6_E3M2", FORMAT_COUNT, 6 },
};

enum format dtype_find(unsigned *bits, const char *name)
{
    *bits = 0;
    for (size_t i = 0; i < COUNT_OF(dtypes); i++) {
        if (strcmp(dtypes[i].name, name) != 0) continue;
        *bits = dtypes[i].bits;
        return dtypes[i].format;
    }
    return FORMAT_COUNT;
}

bool dtype_size_matches(const struct tensor *tensor, unsigned bits, uint64_t bytes)
{
    if (bits == 0) return true;
    uint64_t total = bits;
    bool fits = true;
    /* A zero anywhere makes the product zero, whatever the others are. */
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] == 0) total = 0;
    for (uint32_t i = 0; i < tensor->rank && total; i++)
        fits = fits && checked_multiply(&total, total, tensor->shape[i]);
    return fits && total % 8 == 0 && total / 8 == bytes;
}

mf_status tensor_from_json(struct tensor *tensor, unsigned *bits, const json_t *entry,
                           const char *path, const char *name, mf_error *why)
{
    if (!json_is_object(entry))
        return fail(why, MF_ERR_FORMAT, TENSOR_NAMED " is %s, an object was expected", path, name,
                    json_kind(entry));
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype)
        return fail(why, MF_ERR_FORMAT, TENSOR_NAMED ": dtype is %s, a string was expected", path,
                    name, json_kind(json_object_get(entry, "dtype")));
    tensor->format = dtype_find(bits, dtype);
    if (!json_whole_numbers(tensor->shape, &tensor->rank, TENSOR_RANK_MAX,
                            json_object_get(entry, "shape")))
        return fail(why, MF_ERR_FORMAT,
                    TENSOR_NAMED ": shape is not an array of at most %d whole numbers", path, name,
                    TENSOR_RANK_MAX);
    return MF_OK;
}
