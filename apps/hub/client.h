/* client.h: questions to a hub, and what its refusals mean to the user. */
#ifndef HUB_CLIENT_H
#define HUB_CLIENT_H

#include "hub/listing.h"
#include "hub/transport.h"

/* How the caller follows what happens.  Members may be NULL. */
struct hub_observer {
    void *user;
    bool (*stop)(void *user); /* true: end with MF_ERR_CANCELLED, keeping what is there */
    void (*say)(void *user, const char *text);
    void (*progress)(void *user, uint64_t done, uint64_t total);
};

struct hub_client {
    const struct hub_settings *settings;
    struct transport *transport;
    const struct hub_observer *observer;
    const char *repository;
};

/* ------------------------------------------------------------------ retries */

/* Counts failures without progress in between; all zeros but for the limit at first. */
struct hub_retry {
    unsigned limit; /* that many are final */
    unsigned failures;
    double not_before; /* clock_seconds() */
};

/* After a transfer that was cut, or that got 429, 408 or 5xx: when the next may begin.  False: it
 * failed for good, or too often. */
bool hub_retry_later(struct hub_retry *retry, const struct transfer *transfer);

/* Why a transfer failed for good: one sentence for the user; returns the status. */
mf_status hub_explain(const struct hub_client *client, const struct transfer *transfer,
                      const char *what, mf_error *why);

bool hub_is_stopped(const struct hub_observer *observer);
void hub_say(const struct hub_observer *observer, const char *format, ...) MF_PRINTF(2, 3);

/* ---------------------------------------------------------------- questions */

/* Commit and files of the repository's main branch; after a failure `out` is empty. */
mf_status hub_list(struct hub_listing *out, const struct hub_client *client, mf_error *why);

/* The address of a file: ENDPOINT/org/name/resolve/COMMIT/PATH, escaped. */
mf_status hub_file_address(char *out, size_t capacity, const struct hub_client *client,
                           const char *commit, const char *path, mf_error *why);

#endif
