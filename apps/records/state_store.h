/* state_store.h: records and files that outlive the server, in --state-dir:
 *
 *     NAME.json   a record: {"id":NAME,"owner":…,…}     NAME.data   the bytes of a file
 *     lock        held while a server uses the directory
 *     NAME.new    a file that is being written; removed at the next opening
 *
 * A record appears, changes and goes as a whole: it is written under another name, synced and
 * renamed.  A file's record is written after its bytes and removed before them.  Names are made
 * here; none comes from a request.
 *
 * Threads: every function from any thread. */
#ifndef RECORDS_STATE_STORE_H
#define RECORDS_STATE_STORE_H

#include "common/error.h"

#include <jansson.h>

struct state_store;

enum { STATE_NAME_CAPACITY = 48, STATE_PATH_CAPACITY = 4096 + 64 };

/* Makes the directory if it is not there (mode 0700); one that every user may change is refused.
 * MF_ERR_BUSY: another server uses it. */
mf_status state_store_open(struct state_store **out, const char *directory, uint64_t limit_bytes,
                           mf_error *why);
void state_store_close(struct state_store *store); /* NULL is legal */

/* "file-" and 24 letters. */
void state_new_name(char out[STATE_NAME_CAPACITY], const char *prefix);

/* DIRECTORY/NAME.data, or with another ending. */
void state_path(char out[STATE_PATH_CAPACITY], const struct state_store *store, const char *name,
                const char *ending);

/* Whether `bytes` more are within the limit; MF_ERR_MEMORY with the numbers if not. */
mf_status state_has_room(struct state_store *store, uint64_t bytes, mf_error *why);

/* Adds a record or replaces the one with its "id". */
mf_status state_put(struct state_store *store, const json_t *record, mf_error *why);

/* Removes record and bytes.  False: there is no such record. */
bool state_remove(struct state_store *store, const char *name);

/* Deep copies, of the owner alone (NULL: any); NULL: there is no such record. */
json_t *state_get_new(struct state_store *store, const char *name, const char *owner);

/* All records whose names begin with `prefix`, the newest first. */
json_t *state_list_new(struct state_store *store, const char *prefix, const char *owner);

/* A descriptor of a file without a name, for bytes that arrive; -1: none. */
int state_spool(const struct state_store *store);

/* DIRECTORY/NAME.data with bytes of `from`, synced; MF_ERR_MEMORY: they are beyond the limit. */
mf_status state_write_data(struct state_store *store, const char *name, int from, uint64_t offset,
                           uint64_t count, mf_error *why);

#endif
