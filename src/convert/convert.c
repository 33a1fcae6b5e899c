#include "convert/convert.h"

#include "base/status.h"
#include "convert/internal.h"

#include <errno.h>
#include <stdlib.h>

/* ----------------------------------------------------------------- writing */

static mf_status write_piece(void *user, uint64_t unit, uint64_t offset, const void *bytes,
                             size_t count, mf_error *why)
{
    return packed_writer_write(user, unit, offset, bytes, count, why);
}

static mf_status write_units(struct conversion *c, struct packed_writer *writer, mf_error *why)
{
    const struct convert_options *options = c->options;
    uint64_t done = 0, total = c->result->resident_bytes + c->result->expert_bytes;
    mf_status status = MF_OK;
    for (uint64_t i = 0; i < packed_unit_count(&c->manifest) && status == MF_OK; i++) {
        if (!packed_writer_has(writer, i)) {
            uint64_t checksum = 0;
            status = conversion_make_unit(&checksum, c, i, write_piece, writer, why);
            if (status == MF_OK) status = packed_writer_end_unit(writer, i, checksum, why);
        }
        done += packed_unit_place(&c->manifest, i).bytes;
        if (options->progress) options->progress(options->user, CONVERT_WRITING, done, total);
    }
    return status == MF_OK ? packed_writer_settle(writer, why) : status;
}

static mf_status write_side_files(struct conversion *c, struct packed_writer *writer, mf_error *why)
{
    mf_status status = MF_OK;
    for (size_t i = 0; i < c->manifest.file_count && status == MF_OK; i++)
        status = packed_writer_put(writer, c->manifest.files[i].name, c->side_files[i].bytes,
                                   c->side_files[i].count, why);
    return status;
}

static mf_status write_all(struct conversion *c, mf_error *why)
{
    const struct convert_options *options = c->options;
    struct packed_writer_options writing = { .allocator = options->allocator,
                                             .disk = options->disk,
                                             .files = options->files,
                                             .target = options->target,
                                             .manifest = &c->manifest,
                                             .sync_bytes = options->sync_bytes };
    struct packed_writer *writer;
    mf_status status = packed_writer_open(&writer, &writing, why);
    if (status != MF_OK) return status;
    c->result->resumed = packed_writer_resumed(writer);
    c->result->interrupted = true;
    bool complete = packed_writer_is_complete(writer);
    if (!complete) status = write_units(c, writer, why);
    if (status == MF_OK && !complete) status = write_side_files(c, writer, why);
    if (status == MF_OK && options->verify)
        status = conversion_verify(c, packed_writer_directory(writer), why);
    if (status == MF_OK && !complete) status = packed_writer_put_manifest(writer, why);
    if (status == MF_OK) status = packed_writer_finish(writer, why);
    if (status == MF_OK) c->result->interrupted = false;
    packed_writer_close(writer);
    return status;
}

/* ------------------------------------------------------- a target that is there */

static void count_entry(void *context, const char *name)
{
    size_t *count = context;
    if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0) ++*count;
}

/* *present: it is what this conversion would make.  Anything else is in the way. */
static mf_status look_at_target(bool *present, struct conversion *c, mf_error *why)
{
    const mf_files *files = c->options->files;
    const char *target = c->options->target;
    size_t entries = 0;
    *present = false;
    int result = files->list(files->user, target, count_entry, &entries);
    if (result == -ENOENT || (result == 0 && entries == 0)) return MF_OK;
    if (result == 0) {
        struct packed_manifest found;
        struct tensor_directory directory;
        char here[CHECKSUM_WIDE_TEXT], there[CHECKSUM_WIDE_TEXT];
        packed_manifest_init(&found, c->options->allocator);
        tensor_directory_init(&directory, c->options->allocator);
        *present = packed_open(&found, &directory, files, target, NULL) == MF_OK &&
                   packed_identify(there, &found, NULL) == MF_OK &&
                   packed_identify(here, &c->manifest, NULL) == MF_OK && strcmp(here, there) == 0;
        for (uint64_t i = 0; *present && i < packed_unit_count(&found); i++)
            packed_set_checksum(&c->manifest, i, packed_get_checksum(&found, i));
        tensor_directory_free(&directory);
        packed_manifest_free(&found);
    }
    if (*present) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT,
                "%s exists already and is not this model with these options: name another target "
                "or remove it",
                target);
}

/* ------------------------------------------------------------------- whole */

static mf_status run(struct conversion *c, mf_error *why)
{
    bool present = false;
    struct model_source source = { .files = c->options->files,
                                   .allocator = c->options->allocator,
                                   .path = c->options->source,
                                   .logger = c->options->logger,
                                   .describe = true };
    mf_status status = model_open(&c->source, &source, why);
    if (status == MF_OK) status = conversion_plan(c, why);
    if (status == MF_OK) status = conversion_read_side_files(c, why);
    if (status == MF_OK) status = conversion_fingerprint(c, why);
    if (status == MF_OK) status = look_at_target(&present, c, why);
    if (status == MF_OK) status = conversion_take_memory(c, why);
    if (status != MF_OK) return status;
    c->result->already = present;
    if (!present) return write_all(c, why);
    return c->options->verify ? conversion_verify(c, c->options->target, why) : MF_OK;
}

mf_status convert_run(struct convert_result *out, const struct convert_options *options,
                      mf_error *why)
{
    *out = (struct convert_result){ 0 };
    struct conversion c = { .options = options, .result = out };
    arena_init(&c.arena, options->allocator);
    packed_manifest_init(&c.manifest, options->allocator);
    mf_status status = run(&c, why);
    for (size_t i = 0; i < c.manifest.file_count; i++) free(c.side_files[i].bytes);
    conversion_release_memory(&c);
    model_close(&c.source);
    packed_manifest_free(&c.manifest);
    arena_free(&c.arena);
    return status;
}
