#include "batch/files.h"

#include "common/basics.h"
#include "batch/batches.h"
#include "serve/guard.h"
#include "serve/reply.h"
#include "serve/routes.h"
#include "records/multipart.h"
#include "records/state_store.h"

#include <fcntl.h>
#include <nettle/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LIST_MAX = 10000 };

/* ----------------------------------------------------------------- what is shared */

bool refuse_no_store(struct failure *failure)
{
    return refuse(failure, FAILURE_IMPOSSIBLE, NULL,
                  "files and batches need a directory: start the server with --state-dir DIR");
}

void files_owner(char out[33], const struct serve *serve, uint32_t owner)
{
    unsigned char digest[16];
    struct hmac_sha256_ctx mac;

    out[0] = '\0';
    if (owner == 0) return;
    const char *key = serve->options.keys[owner - 1];
    hmac_sha256_set_key(&mac, sizeof serve->secret, serve->secret);
    hmac_sha256_update(&mac, strlen(key), (const uint8_t *)key);
    hmac_sha256_digest(&mac, sizeof digest, digest);
    for (size_t i = 0; i < sizeof digest; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

bool files_name(char out[64], const struct exchange *exchange, const char *before,
                const char *ending)
{
    const char *name = route_path(exchange_path(exchange)) + strlen(before);
    size_t length = strlen(name), behind = strlen(ending);

    if (length <= behind || strcmp(name + length - behind, ending) != 0) return false;
    if (length - behind >= 64) return false;
    memcpy(out, name, length - behind);
    out[length - behind] = '\0';
    return true;
}

json_t *files_public_new(json_t *record)
{
    json_object_del(record, "owner");
    return record;
}

json_t *files_record_new(const char *name, const char *owner, const char *filename,
                         const char *purpose, uint64_t bytes)
{
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:o, s:s, s:s}", "id", name, "owner", owner,
                     "object", "file", "bytes", (json_int_t)bytes, "created_at",
                     (json_int_t)time(NULL), "filename", json_text_new(filename, strlen(filename)),
                     "purpose", purpose, "status", "processed");
}

void files_reply_list(struct exchange *exchange, json_t *records)
{
    const char *after = exchange_query(exchange, "after");
    const char *limit = exchange_query(exchange, "limit");
    const char *purpose = exchange_query(exchange, "purpose");
    size_t most = limit ? strtoul(limit, NULL, 10) : 20, i;
    bool begun = !after, more = false;
    json_t *data = json_array(), *record;

    if (most == 0 || most > LIST_MAX) most = LIST_MAX;
    json_array_foreach(records, i, record)
    {
        const char *id = json_string_value(json_object_get(record, "id"));
        const char *own = json_string_value(json_object_get(record, "purpose"));
        bool wanted = begun && (!purpose || (own && strcmp(own, purpose) == 0));
        if (!begun) begun = strcmp(id, after) == 0;
        if (!wanted) continue;
        more = json_array_size(data) == most;
        if (more) break;
        json_array_append(data, files_public_new(record));
    }
    json_decref(records);
    size_t count = json_array_size(data);
    json_t *first = json_object_get(json_array_get(data, 0), "id");
    json_t *last = count > 0 ? json_object_get(json_array_get(data, count - 1), "id") : NULL;
    reply_json(exchange, 200,
               json_pack("{s:s, s:o, s:b, s:O?, s:O?}", "object", "list", "data", data, "has_more",
                         (int)more, "first_id", first, "last_id", last));
}

static bool no_file(struct failure *failure, const char *name)
{
    return refuse(failure, FAILURE_NOT_FOUND, NULL, "No such File object: %.60s", name);
}

/* ------------------------------------------------------------------------- upload */

struct upload {
    struct multipart_part file;
    char purpose[32], filename[256];
};

static void copy_text(char *out, size_t capacity, const char *text, size_t length)
{
    length = min_size(length, capacity - 1);
    memcpy(out, text, length);
    out[length] = '\0';
}

static bool is_part(const struct multipart_part *part, const char *name)
{
    return part->name_length == strlen(name) && memcmp(part->name, name, part->name_length) == 0;
}

static bool read_parts(struct upload *out, const char *body, size_t length, const char *type,
                       struct failure *failure)
{
    char boundary[72];
    struct multipart_part part;
    size_t at = 0;

    *out = (struct upload){ 0 };
    if (!multipart_boundary(boundary, type))
        return refuse(failure, FAILURE_INVALID, NULL, "the Content-Type has no boundary");
    while (multipart_next(&part, &at, body, length, boundary)) {
        if (is_part(&part, "purpose"))
            copy_text(out->purpose, sizeof out->purpose, part.content, part.content_length);
        if (!is_part(&part, "file")) continue;
        out->file = part;
        copy_text(out->filename, sizeof out->filename, part.filename ? part.filename : "",
                  part.filename_length);
    }
    if (!out->file.content)
        return refuse_code(failure, "invalid_value", "file", "the body has no part \"file\"");
    if (strcmp(out->purpose, "batch") != 0)
        return refuse_code(failure, "invalid_value", "purpose",
                           "\"purpose\" is \"%.30s\": batch is the one that is known",
                           out->purpose);
    return true;
}

static json_t *keep_file(struct serve *serve, struct exchange *exchange, int spool,
                         const char *body, const struct upload *upload, struct failure *failure)
{
    char name[STATE_NAME_CAPACITY], owner[33];
    uint64_t offset = (uint64_t)(upload->file.content - body);
    mf_error why = { .text = "" };

    state_new_name(name, "file-");
    files_owner(owner, serve, guard_owner(serve, exchange));
    json_t *record =
        files_record_new(name, owner, upload->filename, "batch", upload->file.content_length);
    mf_status status =
        state_write_data(serve->store, name, spool, offset, upload->file.content_length, &why);
    if (status == MF_OK) status = state_put(serve->store, record, &why);
    if (status == MF_OK) return files_public_new(record);
    json_decref(record);
    if (status == MF_ERR_MEMORY)
        refuse(failure, FAILURE_TOO_LARGE, NULL, "%s", why.text);
    else
        refuse_error(failure, &why);
    return NULL;
}

void files_upload(struct serve *serve, struct exchange *exchange)
{
    uint64_t length;
    int spool = exchange_spool(exchange, &length);
    struct failure failure;
    struct upload upload;
    json_t *record = NULL;
    char *body = length > 0 ? mmap(NULL, length, PROT_READ, MAP_PRIVATE, spool, 0) : MAP_FAILED;

    if (body == MAP_FAILED)
        refuse(&failure, FAILURE_INVALID, NULL, "the body is empty");
    else if (read_parts(&upload, body, length, exchange_header(exchange, "Content-Type"), &failure))
        record = keep_file(serve, exchange, spool, body, &upload, &failure);
    if (body != MAP_FAILED) munmap(body, length);
    if (record)
        reply_json(exchange, 200, record);
    else
        failure_reply(exchange, DIALECT_OPENAI, &failure);
}

/* ------------------------------------------------------------------ list, one, delete */

void files_list(struct serve *serve, struct exchange *exchange)
{
    char owner[33];
    struct failure failure;

    if (!serve->store) {
        refuse_no_store(&failure);
        failure_reply(exchange, DIALECT_OPENAI, &failure);
        return;
    }
    files_owner(owner, serve, guard_owner(serve, exchange));
    files_reply_list(exchange, state_list_new(serve->store, "file-", owner));
}

/* The record that a path names, of the caller's own files; NULL with *failure filled. */
static json_t *find_record(char name[64], struct serve *serve, struct exchange *exchange,
                           const char *ending, struct failure *failure)
{
    char owner[33];
    json_t *record = NULL;

    if (!serve->store) {
        refuse_no_store(failure);
        return NULL;
    }
    files_owner(owner, serve, guard_owner(serve, exchange));
    if (!files_name(name, exchange, "/files/", ending))
        name[0] = '\0';
    else if (strncmp(name, "file-", 5) == 0)
        record = state_get_new(serve->store, name, owner);
    if (!record) no_file(failure, name);
    return record;
}

static void reply_content(struct serve *serve, struct exchange *exchange, const char *name)
{
    char path[STATE_PATH_CAPACITY];
    struct stat info;
    struct failure failure;

    state_path(path, serve->store, name, ".data");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && fstat(fd, &info) == 0) {
        exchange_reply_file(exchange, 200, "application/octet-stream", fd, (uint64_t)info.st_size);
        return;
    }
    if (fd >= 0) close(fd);
    no_file(&failure, name);
    failure_reply(exchange, DIALECT_OPENAI, &failure);
}

void files_one(struct serve *serve, struct exchange *exchange)
{
    const char *path = exchange_path(exchange);
    size_t length = strlen(path), ending = strlen("/content");
    bool content = length > ending && strcmp(path + length - ending, "/content") == 0;
    struct failure failure;
    char name[64];
    json_t *record = find_record(name, serve, exchange, content ? "/content" : "", &failure);

    if (!record) {
        failure_reply(exchange, DIALECT_OPENAI, &failure);
        return;
    }
    if (!content) {
        reply_json(exchange, 200, files_public_new(record));
        return;
    }
    json_decref(record);
    reply_content(serve, exchange, name);
}

void files_delete(struct serve *serve, struct exchange *exchange)
{
    struct failure failure;
    char name[64];
    json_t *record = find_record(name, serve, exchange, "", &failure);
    bool done = record && (!batches_use_file(serve->batches, name) ||
                           refuse(&failure, FAILURE_CONFLICT, NULL,
                                  "the file %s is used by a batch that has not ended", name));

    json_decref(record);
    if (!done) {
        failure_reply(exchange, DIALECT_OPENAI, &failure);
        return;
    }
    state_remove(serve->store, name);
    reply_json(exchange, 200,
               json_pack("{s:s, s:s, s:b}", "id", name, "object", "file", "deleted", 1));
}
