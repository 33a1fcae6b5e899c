/* read_model PATH...: opens each GGUF file or safetensors directory and looks at some rows of
 * every matrix.  The random checkpoints give n inputs a standard deviation near 1/sqrt(n)
 * (embeddings near 1), so a format that is read wrongly shows. */
#include "checkpoint/gguf.h"
#include "checkpoint/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The tensor of `module` that is called `part`, read whole; NULL when there is none. */
static uint8_t *part_new(struct tensor **out, const struct tensor_directory *directory,
                         const char *module, const char *part)
{
    char name[600];
    snprintf(name, sizeof name, "%s.%s", module, part);
    *out = tensor_find(directory, name);
    uint8_t *bytes = *out ? malloc((*out)->bytes + 1) : NULL;
    if (bytes && tensor_read(directory, *out, bytes, NULL) != MF_OK) exit(1);
    return bytes;
}

/* Some rows of `weight`, by their root mean square times sqrt(cols). */
static bool rows_are_sane(const struct weight *weight, const char *name)
{
    double sum = 0.0, count = 0.0;
    float *row = malloc(weight->cols * sizeof *row);
    if (!row) exit(1);
    for (uint64_t r = 0; r < weight->rows; r += 1 + weight->rows / 37) {
        weight_dequantise_row(row, weight, r);
        for (uint64_t c = 0; c < weight->cols; c++) sum += (double)row[c] * (double)row[c];
        count += (double)weight->cols;
    }
    free(row);
    double size = sqrt(sum / count);
    bool embedding = strstr(name, "embd") || strstr(name, "embed_tokens");
    bool router = strstr(name, "ffn_gate_inp.") || strstr(name, "router.proj");
    double product = size * sqrt((double)weight->cols);
    /* Some models scale embeddings, and what a router reads, on their own. */
    bool scaled = (embedding || router) && size > 0.4 && size < 1.3;
    if (!scaled) size = product;
    /* The gains are 1/2 and 1; of the projection behind attention, 1/10 where many layers would
     * else make all tokens alike. */
    bool attention_out = strstr(name, "attn_output") || strstr(name, "self_attn.o_proj");
    bool sane = (size > 0.4 && size < 1.3) || (attention_out && size > 0.08 && size < 0.13);
    if (!sane)
        printf("%s (%s): size %.3g, near 1 was expected\n", name, format_info(weight->format)->name,
               size);
    return sane;
}

/* An MLX module with scales, FP8 with those of its tiles, or a matrix that stands for itself; others
 * are passed over. */
static bool matrix_is_sane(const struct tensor_directory *directory, const struct tensor *tensor)
{
    size_t length = strlen(tensor->name);
    if (length < 7 || strcmp(tensor->name + length - 7, ".weight") != 0 || tensor->rank < 2)
        return true;
    if (strstr(tensor->name, "conv1d")) return true; /* its rows are not inputs */
    char module[512];
    snprintf(module, sizeof module, "%.*s", (int)(length - 7), tensor->name);
    struct tensor *values, *scales, *biases;
    uint8_t *value_bytes = part_new(&values, directory, module, "weight");
    bool tiled = tensor->format == FORMAT_F8_E4M3;
    uint8_t *scale_bytes =
        part_new(&scales, directory, module, tiled ? "weight_scale_inv" : "scales");
    uint8_t *bias_bytes = part_new(&biases, directory, module, "biases");
    uint64_t last = tensor->shape[tensor->rank - 1], rows = 1;
    for (uint32_t i = 0; i + 1 < tensor->rank; i++) rows *= tensor->shape[i];
    struct weight weight = { .format = tensor->format,
                             .rows = rows,
                             .cols = last,
                             .values = value_bytes,
                             .row_bytes = tensor->bytes / rows };
    if (scales) { /* the group size is the caller's: all of ours have 64, and tiles 128 x 128 */
        uint64_t groups = scales->shape[scales->rank - 1];
        if (!tiled) {
            weight.cols = groups * 64;
            weight.format = format_affine((unsigned)(32 * last / weight.cols));
        }
        weight.group_rows = tiled ? 128 : 1;
        weight.group_cols = tiled ? 128 : 64;
        weight.scale_format = scales->format;
        weight.scales = scale_bytes;
        weight.biases = bias_bytes;
        weight.scale_row_bytes = groups * format_info(scales->format)->block_bytes;
    }
    bool readable = format_info(weight.format)->dequantise != NULL;
    if (!readable) printf("%s is not a weight\n", tensor->name);
    bool sane = readable && rows_are_sane(&weight, tensor->name);
    free(value_bytes);
    free(scale_bytes);
    free(bias_bytes);
    return sane;
}

static bool check_model(const char *path)
{
    struct tensor_directory directory;
    struct metadata metadata;
    mf_error why = { 0 };
    tensor_directory_init(&directory, &allocator_heap);
    metadata_init(&metadata, &allocator_heap);
    bool gguf = strstr(path, ".gguf") != NULL;
    mf_status status = gguf ? checkpoint_gguf_open(&directory, &metadata, &files_posix, path, &why)
                            : safetensors_open(&directory, &files_posix, path, &why);
    bool sane = status == MF_OK;
    if (!sane) printf("%s\n", why.text);
    for (size_t i = 0; i < directory.count && status == MF_OK; i++)
        sane &= matrix_is_sane(&directory, &directory.tensors[i]);
    printf("%s: %zu tensors in %zu files: %s\n", path, directory.count, directory.file_count,
           sane ? "sane" : "NOT SANE");
    metadata_free(&metadata);
    tensor_directory_free(&directory);
    return sane;
}

int main(int argc, char **argv)
{
    bool sane = argc > 1;
    for (int i = 1; i < argc; i++) sane &= check_model(argv[i]);
    return sane ? 0 : 1;
}
