#include "checkpoint/locate.h"

#include "base/status.h"
#include "checkpoint/ancestors.h"
#include "checkpoint/packed.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Weights in a format of PyTorch's, which is not read. */
static const char *const foreign_endings[] = { ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack" };

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    if (length < end_length) return false;
    for (size_t i = 0; i < end_length; i++)
        if (tolower((unsigned char)text[length - end_length + i]) != end[i]) return false;
    return true;
}

/* ------------------------------------------------------------- single files */

bool checkpoint_is_gguf(const mf_files *files, const char *path)
{
    struct file file;
    char magic[4];
    if (file_open(&file, files, path, NULL) != MF_OK) return false;
    bool found = file.size >= sizeof magic &&
                 file_read(&file, magic, 0, sizeof magic, NULL) == MF_OK &&
                 memcmp(magic, "GGUF", sizeof magic) == 0;
    file_close(&file);
    return found;
}

/* What an opened file is: GGUF, or the reason why it is no model. */
static mf_status judge_file(const struct file *file, mf_error *why)
{
    char head[FILE_POINTER_BYTES] = "";
    size_t count = file->size < sizeof head ? (size_t)file->size : sizeof head;
    mf_status status = file_read(file, head, 0, count, why);
    if (status != MF_OK) return status;
    if (count >= 4 && memcmp(head, "GGUF", 4) == 0) return MF_OK;
    status = file_refuse_pointer(file->path, head, count, why);
    if (status != MF_OK) return status;
    if (count == 0)
        return fail(why, MF_ERR_FORMAT, "%s is empty; the download may be incomplete", file->path);
    if (ends_with(file->path, ".safetensors"))
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%s is a part of a checkpoint: give the directory that it is in", file->path);
    return fail(why, MF_ERR_UNSUPPORTED,
                "%s is neither a checkpoint directory nor a GGUF file, which begins with \"GGUF\"",
                file->path);
}

/* ------------------------------------------------------------- directories */

/* What a listing has of interest. */
struct contents {
    bool safetensors, config;
    char foreign[256];  /* weights in a format that is not read; "" none */
    char names[4][256]; /* GGUF models, of a split one the first part; the least name first */
    size_t gguf_count;
    char part[256]; /* a later part of a split GGUF, "" none */
};

/* "-00002-of-00003.gguf" at the end; *part counts from 1. */
static bool is_split_part(unsigned long *part, const char *name)
{
    static const char form[] = "-00000-of-00000.gguf";
    size_t length = strlen(name);
    if (length < sizeof form - 1) return false;
    const char *at = name + length - (sizeof form - 1);
    for (size_t i = 0; i < sizeof form - 1; i++) {
        bool digit = form[i] == '0';
        if (digit ? !isdigit((unsigned char)at[i]) : tolower((unsigned char)at[i]) != form[i])
            return false;
    }
    *part = strtoul(at + 1, NULL, 10);
    return true;
}

static void keep_name(char out[256], const char *name)
{
    if (!out[0] || strcmp(name, out) < 0) snprintf(out, 256, "%s", name);
}

static void add_gguf(struct contents *c, const char *name)
{
    size_t at = c->gguf_count < COUNT_OF(c->names) ? c->gguf_count : COUNT_OF(c->names) - 1;
    snprintf(c->names[at], sizeof c->names[at], "%s", name);
    for (; at > 0 && strcmp(c->names[at], c->names[at - 1]) < 0; at--) {
        char swap[256];
        memcpy(swap, c->names[at], sizeof swap);
        memcpy(c->names[at], c->names[at - 1], sizeof swap);
        memcpy(c->names[at - 1], swap, sizeof swap);
    }
    c->gguf_count++;
}

static void take_name(void *context, const char *name)
{
    struct contents *c = context;
    unsigned long part = 0;
    if (name[0] == '.' || strlen(name) >= sizeof c->part) return;
    if (strcmp(name, "config.json") == 0) c->config = true;
    bool model = strncmp(name, "model", 5) == 0;
    if (model && (ends_with(name, ".safetensors") || ends_with(name, ".safetensors.index.json")))
        c->safetensors = true;
    for (size_t i = 0; i < COUNT_OF(foreign_endings); i++)
        if (ends_with(name, foreign_endings[i])) keep_name(c->foreign, name);
    /* A file mmproj-*.gguf beside a model is its vision part. */
    if (!ends_with(name, ".gguf") || strncmp(name, "mmproj", 6) == 0) return;
    if (is_split_part(&part, name) && part != 1)
        keep_name(c->part, name);
    else
        add_gguf(c, name);
}

static mf_status use_gguf(struct checkpoint_place *out, const mf_files *files, const char *path,
                          const struct contents *c, mf_error *why)
{
    if (c->gguf_count > 1)
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%s holds %zu GGUF models (%.64s, %.64s%s): give the path of one of them", path,
                    c->gguf_count, c->names[0], c->names[1], c->gguf_count > 2 ? ", …" : "");
    out->kind = CHECKPOINT_GGUF;
    mf_status status = path_join(out->path, sizeof out->path, path, c->names[0], why);
    if (status != MF_OK) return status;
    struct file file;
    status = file_open(&file, files, out->path, why);
    if (status != MF_OK) return status;
    status = judge_file(&file, why);
    file_close(&file);
    return status;
}

/* What is in a directory, one after the other. */
struct deeper {
    const mf_files *files;
    const char *path;
    struct contents found;
};

/* A GGUF file under another name; a file mmproj-* is the vision part of a model. */
static void look_inside(void *context, const char *name)
{
    struct deeper *d = context;
    char path[PATH_CAPACITY];
    if (name[0] == '.' || strncmp(name, "mmproj", 6) == 0) return;
    if (strlen(name) >= sizeof d->found.part) return;
    if (path_join(path, sizeof path, d->path, name, NULL) != MF_OK) return;
    if (checkpoint_is_gguf(d->files, path)) add_gguf(&d->found, name);
}

static void look_deeper(void *context, const char *name)
{
    struct deeper *d = context;
    char path[PATH_CAPACITY];
    struct contents c = { 0 };
    if (name[0] == '.' || strlen(name) >= sizeof d->found.part) return;
    if (path_join(path, sizeof path, d->path, name, NULL) != MF_OK) return;
    if (d->files->list(d->files->user, path, take_name, &c) < 0) return;
    for (size_t i = 0; i < c.gguf_count && i < COUNT_OF(c.names); i++) {
        char joined[256];
        int needed = snprintf(joined, sizeof joined, "%s/%s", name, c.names[i]);
        if (needed > 0 && (size_t)needed < sizeof joined) add_gguf(&d->found, joined);
    }
}

static mf_status refuse_directory(const char *path, const struct contents *c, mf_error *why)
{
    if (c->part[0])
        return fail(why, MF_ERR_IO,
                    "%s has %.128s and not the first part of it; the download may be incomplete",
                    path, c->part);
    if (c->foreign[0])
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%s has no model*.safetensors and no GGUF file; the format of %.128s is not "
                    "read, most models are published as safetensors, too",
                    path, c->foreign);
    return fail(why, MF_ERR_IO, "%s has no model*.safetensors and no GGUF file%s", path,
                c->config ? "; the download may be incomplete" : "");
}

static mf_status judge_directory(struct checkpoint_place *out, const mf_files *files,
                                 const char *path, mf_error *why)
{
    bool present = false;
    struct contents c = { 0 };
    int result = files->list(files->user, path, take_name, &c);
    if (result < 0) return fail_errno(why, MF_ERR_IO, -result, "%s cannot be listed", path);
    mf_status status = packed_probe(&present, files, path, why);
    if (status != MF_OK) return status;
    if (present) {
        out->kind = CHECKPOINT_PACKED;
        return MF_OK;
    }
    status = ancestors_probe(&present, files, path, why);
    if (status != MF_OK) return status;
    out->kind = present ? CHECKPOINT_ANCESTORS : CHECKPOINT_SAFETENSORS;
    if (present || c.safetensors) return MF_OK;
    if (c.gguf_count > 0) return use_gguf(out, files, path, &c, why);
    struct deeper deeper = { .files = files, .path = path };
    if (!c.part[0]) files->list(files->user, path, look_inside, &deeper);
    if (deeper.found.gguf_count == 0) files->list(files->user, path, look_deeper, &deeper);
    if (deeper.found.gguf_count > 0) return use_gguf(out, files, path, &deeper.found, why);
    return refuse_directory(path, &c, why);
}

/* ------------------------------------------------------------------- whole */

static void ignore_name(void *context, const char *name)
{
    (void)context;
    (void)name;
}

bool checkpoint_is_directory(const mf_files *files, const char *path)
{
    return files->list(files->user, path, ignore_name, NULL) == 0;
}

mf_status checkpoint_locate(struct checkpoint_place *out, const mf_files *files, const char *path,
                            mf_error *why)
{
    struct file file = { .files = files, .path = path };
    *out = (struct checkpoint_place){ .kind = CHECKPOINT_SAFETENSORS };
    size_t length = strlen(path);
    if (length >= sizeof out->path)
        return fail(why, MF_ERR_ARGUMENT, "the path %.64s… is longer than %zu bytes", path,
                    sizeof out->path);
    memcpy(out->path, path, length + 1);
    int result = files->open(files->user, path, &file.handle, &file.size);
    if (result == 0) {
        out->kind = CHECKPOINT_GGUF;
        mf_status status = judge_file(&file, why);
        file_close(&file);
        return status;
    }
    /* Files that are not on a disk need not tell directories from what is not there. */
    if (result == -EISDIR || (result == -ENOENT && checkpoint_is_directory(files, path)))
        return judge_directory(out, files, path, why);
    if (result == -EINVAL || result == -ENXIO)
        return fail(why, MF_ERR_UNSUPPORTED,
                    "%s is a pipe, a socket or a device; a model is a file or a directory", path);
    return fail_errno(why, MF_ERR_IO, -result, "%s cannot be opened", path);
}
