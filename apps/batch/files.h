/* files.h: POST, GET, DELETE /v1/files: what batches read and write, in --state-dir. */
#ifndef BATCH_FILES_H
#define BATCH_FILES_H

#include "serve/failure.h"
#include "serve/serve.h"

void files_upload(struct serve *serve, struct exchange *exchange);
void files_list(struct serve *serve, struct exchange *exchange);
void files_one(struct serve *serve, struct exchange *exchange); /* and its …/content */
void files_delete(struct serve *serve, struct exchange *exchange);

/* 501: the server was started without --state-dir.  Returns false. */
bool refuse_no_store(struct failure *failure);

/* Which owner's records a request may see: a name that stands for the key, "" without keys. */
void files_owner(char out[33], const struct serve *serve, uint32_t owner);

/* The name behind "/files/" or "/batches/" in a path, without `ending` ("/content"); false: the
 * path does not end so, or the name is too long. */
bool files_name(char out[64], const struct exchange *exchange, const char *before,
                const char *ending);

/* A record without what only the server needs. */
json_t *files_public_new(json_t *record);

/* Replies with {"object":"list",…}: `records` (taken over), cut by the query's after and limit. */
void files_reply_list(struct exchange *exchange, json_t *records);

/* The record of a file that is there already as NAME.data. */
json_t *files_record_new(const char *name, const char *owner, const char *filename,
                         const char *purpose, uint64_t bytes);

#endif
