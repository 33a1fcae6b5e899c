#include "hub/blob.h"

#include "hub/files.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/sha1.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------- paths */

mf_status hub_blob_name(struct hub_blob *out, const struct hub_file *file, const char *cache,
                        const char *repository, mf_error *why)
{
    char folder[HUB_REPOSITORY_CAPACITY + 32];
    int longest;

    *out = (struct hub_blob){ .file = file, .lock = -1, .descriptor = -1 };
    hub_folder_name(folder, sizeof folder, repository);
    snprintf(out->path, sizeof out->path, "%s/%s/blobs/%s", cache, folder, file->hash);
    snprintf(out->incomplete, sizeof out->incomplete, "%s/%s/blobs/%s.moeflux.incomplete", cache,
             folder, file->hash);
    longest = snprintf(out->record, sizeof out->record, "%s/%s/blobs/%s.moeflux.ranges", cache,
                       folder, file->hash);
    snprintf(out->lock_path, sizeof out->lock_path, "%s/.locks/%s/%s.lock", cache, folder,
             file->hash);
    if (longest + 32 < PATH_CAPACITY) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT, "the path of the Hugging Face cache is too long");
}

bool hub_blob_is_there(const struct hub_blob *blob)
{
    struct stat info;

    return stat(blob->path, &info) == 0 && S_ISREG(info.st_mode) &&
           (uint64_t)info.st_size == blob->file->size;
}

uint64_t hub_blob_allocated(const struct hub_blob *blob)
{
    struct stat info;
    const uint64_t block = 512; /* whatever st_blksize says */

    if (lstat(blob->incomplete, &info) != 0) return 0;
    return (uint64_t)info.st_blocks * block;
}

/* -------------------------------------------------------------------- open */

/* What an earlier run has left. */
static void read_record(struct hub_blob *blob)
{
    char *text = NULL;
    size_t length = 0;
    struct stat info;

    if (hub_read_file_new(&text, &length, blob->record, 16 << 20) &&
        hub_ranges_read(&blob->there, text, length, blob->file->hash, blob->file->size) &&
        fstat(blob->descriptor, &info) == 0 && blob->there.count > 0 &&
        blob->there.items[blob->there.count - 1].end > (uint64_t)info.st_size) {
        hub_ranges_clear(&blob->there); /* the file is shorter than its record says */
    }
    free(text);
    blob->resumed = blob->there.count > 0;
}

static mf_status open_incomplete(struct hub_blob *blob, mf_error *why)
{
    mf_status status = hub_make_directories(blob->incomplete, why);
    struct stat info;

    if (status != MF_OK) return status;
    blob->descriptor = open(blob->incomplete, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (blob->descriptor < 0) {
        return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be opened", blob->incomplete);
    }
    if (fstat(blob->descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
        return fail(why, MF_ERR_IO, "%.256s is no file", blob->incomplete);
    }
    read_record(blob);
    return MF_OK;
}

mf_status hub_blob_open(enum hub_blob_state *state, struct hub_blob *blob, mf_error *why)
{
    *state = HUB_BLOB_THERE;
    if (hub_blob_is_there(blob)) return MF_OK;
    *state = HUB_BLOB_BUSY;
    mf_status status = hub_take_lock(&blob->lock, blob->lock_path, why);
    if (status != MF_OK || blob->lock < 0) return status;
    if (hub_blob_is_there(blob)) { /* it came while another process held the lock */
        *state = HUB_BLOB_THERE;
        hub_blob_close(blob);
        return MF_OK;
    }
    *state = HUB_BLOB_MINE;
    status = open_incomplete(blob, why);
    if (status != MF_OK) hub_blob_close(blob);
    return status;
}

/* ----------------------------------------------------------------- writing */

mf_status hub_blob_write(struct hub_blob *blob, const void *bytes, size_t count, uint64_t at,
                         mf_error *why)
{
    const char *from = bytes;

    for (size_t done = 0; done < count;) {
        ssize_t wrote = pwrite(blob->descriptor, from + done, count - done, (off_t)(at + done));
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0 && (errno == ENOSPC || errno == EDQUOT)) {
            return fail(why, MF_ERR_IO,
                        "the disk of the cache is full; what is there is kept: make room and run "
                        "the same command again");
        }
        if (wrote < 0) {
            return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be written", blob->incomplete);
        }
        done += (size_t)wrote;
    }
    blob->unrecorded += count;
    return hub_ranges_add(&blob->there, at, at + count, why);
}

mf_status hub_blob_record(struct hub_blob *blob, mf_error *why)
{
    struct byte_list text = { NULL, 0, 0 };
    mf_status status =
        hub_ranges_write(&text, &blob->there, blob->file->hash, blob->file->size, why);

    if (status == MF_OK) status = hub_replace_file(blob->record, text.bytes, text.count, why);
    if (status == MF_OK) blob->unrecorded = 0;
    byte_list_free(&text);
    return status;
}

/* ------------------------------------------------------------ verification */

enum { READ_BYTES = 1 << 20 };

struct digest {
    bool sha256;
    struct sha256_ctx large;
    struct sha1_ctx small;
};

static void digest_begin(struct digest *digest, const struct hub_file *file)
{
    char head[32];

    digest->sha256 = strlen(file->hash) == 64;
    sha256_init(&digest->large);
    sha1_init(&digest->small);
    int length = snprintf(head, sizeof head, "blob %llu", (unsigned long long)file->size);
    sha1_update(&digest->small, (size_t)length + 1, (const uint8_t *)head); /* with the NUL */
}

static void digest_end(char out[HUB_HASH_CAPACITY], struct digest *digest)
{
    uint8_t bytes[SHA256_DIGEST_SIZE];
    size_t count = digest->sha256 ? SHA256_DIGEST_SIZE : SHA1_DIGEST_SIZE;

    if (digest->sha256)
        sha256_digest(&digest->large, count, bytes);
    else
        sha1_digest(&digest->small, count, bytes);
    for (size_t i = 0; i < count; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

mf_status hub_blob_verify(const struct hub_blob *blob, const bool *stop, mf_error *why)
{
    char found[HUB_HASH_CAPACITY];
    struct digest digest;
    uint8_t *buffer = malloc(READ_BYTES);
    mf_status status = buffer ? MF_OK : fail_memory(why, READ_BYTES);

    digest_begin(&digest, blob->file);
    for (uint64_t at = 0; status == MF_OK && at < blob->file->size;) {
        ssize_t got = pread(blob->descriptor, buffer, READ_BYTES, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            status = fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be read", blob->incomplete);
        } else if (got == 0) {
            break; /* shorter than it should be: the hash says so */
        } else if (__atomic_load_n(stop, __ATOMIC_RELAXED)) {
            status = fail(why, MF_ERR_CANCELLED, "interrupted");
        } else if (digest.sha256) {
            sha256_update(&digest.large, (size_t)got, buffer);
        } else {
            sha1_update(&digest.small, (size_t)got, buffer);
        }
        at += (uint64_t)(got > 0 ? got : 0);
    }
    free(buffer);
    if (status != MF_OK) return status;
    digest_end(found, &digest);
    if (strcmp(found, blob->file->hash) == 0) return MF_OK;
    return fail(why, MF_ERR_MISMATCH,
                "%.128s came with the %s %.16s…, and the hub promised %.16s…; nothing of it was "
                "kept: run the same command again",
                blob->file->path, digest.sha256 ? "SHA-256" : "hash", found, blob->file->hash);
}

mf_status hub_blob_commit(struct hub_blob *blob, mf_error *why)
{
    struct stat info;

    if (fstat(blob->descriptor, &info) == 0 && (uint64_t)info.st_size != blob->file->size) {
        return fail(why, MF_ERR_MISMATCH, "%.128s has not the size that the hub promised",
                    blob->file->path);
    }
    if (fsync(blob->descriptor) != 0 || rename(blob->incomplete, blob->path) != 0) {
        return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be completed", blob->path);
    }
    unlink(blob->record);
    blob->unrecorded = 0;
    hub_blob_close(blob);
    return MF_OK;
}

mf_status hub_blob_discard(struct hub_blob *blob, mf_error *why)
{
    hub_ranges_clear(&blob->there);
    blob->unrecorded = 0;
    blob->resumed = false;
    unlink(blob->record);
    if (ftruncate(blob->descriptor, 0) == 0) return MF_OK;
    return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be emptied", blob->incomplete);
}

void hub_blob_close(struct hub_blob *blob)
{
    if (blob->descriptor >= 0 && blob->unrecorded > 0) hub_blob_record(blob, NULL);
    if (blob->descriptor >= 0) close(blob->descriptor);
    hub_ranges_free(&blob->there);
    if (blob->lock >= 0) close(blob->lock);
    blob->descriptor = blob->lock = -1;
}
