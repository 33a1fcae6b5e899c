/* source.c: what stands beside the weights, and what the source is known by. */
#include "base/checksum.h"
#include "base/status.h"
#include "convert/internal.h"

#include "model/fingerprint.h"

#include <stdio.h>
#include <stdlib.h>

/* All that any command reads from a model's directory, and what its licence asks to keep.
 * The ancestors' own tokenizer lies with their weights. */
static const char *const artifact_names[] = { "tokenizer.bin", "vocab.bin" };
static const char *const side_names[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tiktoken.model",
    "chat_template.jinja",
    "chat_template.json",
    "LICENSE",
    "LICENSE.txt",
    "NOTICE",
};

enum { SIDE_BYTES_MAX = 256 << 20 };

static void append(struct conversion *c, const char *name, char *bytes, size_t count)
{
    struct packed_manifest *m = &c->manifest;
    m->files[m->file_count] = (struct packed_side_file){ .name = name,
                                                         .bytes = count,
                                                         .checksum = checksum_of(bytes, count) };
    c->side_files[m->file_count++] = (struct side_file){ bytes, count };
}

static mf_status read_values(struct conversion *c, mf_error *why)
{
    uint8_t *bytes = NULL;
    size_t count = 0;
    mf_status status = metadata_write_new(&bytes, &count, &c->source.metadata, why);
    if (status == MF_OK) append(c, PACKED_METADATA, (char *)bytes, count);
    return status;
}

static mf_status read_named(struct conversion *c, const char *directory, const char *name,
                            mf_error *why)
{
    const mf_files *files = c->options->files;
    char path[PATH_CAPACITY], *bytes = NULL;
    size_t count = 0;
    bool present = false;
    mf_status status = path_join(path, sizeof path, directory, name, why);
    if (status == MF_OK) status = file_probe(&present, files, path, why);
    if (status != MF_OK || !present) return status;
    status = file_read_whole_new(&bytes, &count, files, path, SIDE_BYTES_MAX, why);
    if (status == MF_OK) append(c, name, bytes, count);
    return status;
}

mf_status conversion_read_side_files(struct conversion *c, mf_error *why)
{
    char directory[PATH_CAPACITY];
    size_t most = COUNT_OF(side_names) + COUNT_OF(artifact_names) + 1;
    c->manifest.files = ARENA_NEW(&c->manifest.arena, struct packed_side_file, most);
    c->side_files = ARENA_NEW(&c->arena, struct side_file, most);
    if (!c->manifest.files || !c->side_files) return fail_memory(why, most * sizeof *c->side_files);
    if (c->source.weights.gguf) return read_values(c, why);
    mf_status status =
        model_parts_path(directory, sizeof directory, c->options->files, c->source.path, why);
    for (size_t i = 0; i < COUNT_OF(side_names) && status == MF_OK; i++)
        status = read_named(c, directory, side_names[i], why);
    if (status == MF_OK)
        status = path_join(directory, sizeof directory, c->source.path,
                           strcmp(c->source.kind, "ancestors") == 0 ? "artifacts" : ".", why);
    for (size_t i = 0; i < COUNT_OF(artifact_names) && status == MF_OK; i++)
        status = read_named(c, directory, artifact_names[i], why);
    return status;
}

/* ------------------------------------------------------------- fingerprint */

mf_status conversion_fingerprint(struct conversion *c, mf_error *why)
{
    const struct tensor_directory *directory = &c->source.directory;
    struct checksum sum;
    char text[CHECKSUM_WIDE_TEXT];
    checksum_begin(&sum);
    mf_status status = fingerprint_add(&sum, directory, why);
    if (status != MF_OK) return status;
    for (size_t i = 0; i < c->manifest.file_count; i++)
        checksum_add(&sum, c->side_files[i].bytes, c->side_files[i].count);
    checksum_end_wide(&sum, text);
    c->manifest.origin.fingerprint = arena_text(&c->manifest.arena, text, strlen(text));
    return c->manifest.origin.fingerprint ? MF_OK : fail_memory(why, sizeof text);
}
