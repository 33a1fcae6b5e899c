/* verify.c: is what lies on the disk what the source gives? */
#include "base/status.h"
#include "convert/internal.h"

#include <stdlib.h>

struct comparison {
    struct conversion *c;
    const char *directory;
    struct file file;    /* of the current unit */
    int64_t file_number; /* which one; -1: none */
    char path[PATH_CAPACITY];
};

static mf_status turn_to_file(struct comparison *v, uint32_t number, mf_error *why)
{
    char name[PACKED_NAME_CAPACITY];
    if (v->file_number == number) return MF_OK;
    file_close(&v->file);
    v->file_number = -1;
    packed_file_name(name, &v->c->manifest, number);
    mf_status status = path_join(v->path, sizeof v->path, v->directory, name, why);
    if (status == MF_OK) status = file_open(&v->file, v->c->options->files, v->path, why);
    if (status == MF_OK) v->file_number = number;
    return status;
}

static mf_status compare_piece(void *user, uint64_t unit, uint64_t offset, const void *bytes,
                               size_t count, mf_error *why)
{
    struct comparison *v = user;
    const struct packed_manifest *m = &v->c->manifest;
    struct packed_place place = packed_unit_place(m, unit);
    mf_status status = turn_to_file(v, place.file, why);
    if (status == MF_OK)
        status = file_read(&v->file, v->c->found, place.offset + offset, count, why);
    if (status != MF_OK || memcmp(v->c->found, bytes, count) == 0) return status;
    if (unit < m->tensor_count)
        return fail(why, MF_ERR_MISMATCH, "%s: tensor %s is not what the source gives", v->path,
                    m->tensors[unit].name);
    uint64_t number = unit - m->tensor_count;
    return fail(why, MF_ERR_MISMATCH, "%s: layer %u, expert %u is not what the source gives",
                v->path, m->layers[number / m->experts].number, (unsigned)(number % m->experts));
}

static mf_status compare_units(struct comparison *v, mf_error *why)
{
    const struct convert_options *options = v->c->options;
    struct packed_manifest *m = &v->c->manifest;
    uint64_t done = 0, total = v->c->result->resident_bytes + v->c->result->expert_bytes;
    mf_status status = MF_OK;
    for (uint64_t i = 0; i < packed_unit_count(m) && status == MF_OK; i++) {
        uint64_t checksum = 0;
        status = conversion_make_unit(&checksum, v->c, i, compare_piece, v, why);
        if (status == MF_OK && checksum != packed_get_checksum(m, i))
            status = fail(why, MF_ERR_MISMATCH,
                          "%s: the checksum of unit %llu in the manifest is not that of its bytes",
                          v->directory, (unsigned long long)i);
        done += packed_unit_place(m, i).bytes;
        if (options->progress) options->progress(options->user, CONVERT_VERIFYING, done, total);
    }
    return status;
}

static mf_status compare_side_file(const struct comparison *v, size_t index, mf_error *why)
{
    const struct side_file *expected = &v->c->side_files[index];
    char path[PATH_CAPACITY], *bytes = NULL;
    size_t count = 0;
    mf_status status =
        path_join(path, sizeof path, v->directory, v->c->manifest.files[index].name, why);
    if (status == MF_OK)
        status = file_read_whole_new(&bytes, &count, v->c->options->files, path,
                                     expected->count + 1, why);
    if (status == MF_OK && (count != expected->count || memcmp(bytes, expected->bytes, count) != 0))
        status = fail(why, MF_ERR_MISMATCH, "%s is not what the source has", path);
    free(bytes);
    return status;
}

mf_status conversion_verify(struct conversion *c, const char *directory, mf_error *why)
{
    struct comparison v = { .c = c, .directory = directory, .file_number = -1 };
    mf_status status = compare_units(&v, why);
    for (size_t i = 0; i < c->manifest.file_count && status == MF_OK; i++)
        status = compare_side_file(&v, i, why);
    file_close(&v.file);
    return status;
}
