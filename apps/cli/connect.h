/* connect.h: configurations of clients for a running server.
 *
 *     connect_server.c    asks the server for the name of its model and its context
 *     connect_clients.c   what each client must be told, and how that joins a file of its own
 *     cmd_connect.c       shows it, or writes it */
#ifndef CLI_CONNECT_H
#define CLI_CONNECT_H

#include "common/error.h"
#include "common/lists.h"

struct connect_target {
    char url[300]; /* "http://127.0.0.1:8080" */
    char key[512]; /* "": none */
    char model[256];
    uint32_t context;
};

/* Fills model and context by GET /v1/moeflux/info; url and key are set. */
mf_status connect_ask(struct connect_target *target, mf_error *why);

struct connect_client {
    const char *name;
    const char *directory_variable; /* of the environment, in place of `directory`; or NULL */
    const char *directory, *file;   /* below the home directory */
    const char *start;              /* the command that uses it */
    uint32_t first_tokens;          /* what its first prompt takes, roughly */
    bool json;                      /* an object that is merged; else lines between two marks */
    bool key_in_environment;        /* the key is not in the file */
    const char *const *own;         /* lines of the user that would contradict; ends with NULL */
    void (*write)(struct byte_list *out, const struct connect_target *target);
};

/* NULL: there is none of this name. */
const struct connect_client *connect_find(const char *name);

/* The file's new content from its old one ("" where there is none); `path` is for messages. */
mf_status connect_join(struct byte_list *out, const struct connect_client *client,
                       const struct connect_target *target, const char *old, const char *path,
                       mf_error *why);

#endif
