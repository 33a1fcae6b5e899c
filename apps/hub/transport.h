/* transport.h: HTTP transfers, several at a time, in one thread.
 *
 *     begin --> [redirected ...] --> on_head --> on_body ... --> ended
 *
 * A redirection is followed here, with these rules, which also hold for the first address:
 *   - https, or http from this machine to this machine (127.0.0.0/8, ::1, localhost);
 *   - the token goes to the hub itself only: same scheme, host and port as HF_ENDPOINT;
 *   - at most 5 in a row, none with a user name in the address.
 *
 * Proxies of the environment are used for https only, by CONNECT; a request to this machine goes there
 * directly.
 *
 * A transfer belongs to its caller, must not move while it runs, and is all zeros before.
 * Without libcurl at build time transport_open fails with a sentence that says so. */
#ifndef HUB_TRANSPORT_H
#define HUB_TRANSPORT_H

#include "common/error.h"
#include "hub/head.h"
#include "hub/settings.h"

struct transport;

enum transfer_state {
    TRANSFER_IDLE,
    TRANSFER_RUNS,
    TRANSFER_DONE,   /* the response came as a whole; head.status says which one */
    TRANSFER_CUT,    /* the connection failed: trying again may help */
    TRANSFER_REFUSED /* by a rule above, a certificate, or a callback: trying again will not */
};

struct transfer {
    /* Set by the caller.  A callback that returns false ends the transfer (REFUSED). */
    bool (*on_head)(struct transfer *transfer); /* before the body; may be NULL */
    bool (*on_body)(struct transfer *transfer, const void *bytes, size_t count);
    void *user;
    /* To be read: */
    enum transfer_state state;
    struct hub_head head;
    char problem[256]; /* why it was cut or refused */
    /* Private. */
    struct transport *transport;
    void *easy, *fields;
    char *address;
    char range[48];
    unsigned redirections;
    size_t remark_bytes; /* of the body of a redirection or an error */
    bool head_shown;
};

/* Whether this program was built with libcurl. */
bool transport_is_there(void);

/* `settings` is borrowed; a transfer that brings nothing for `idle_seconds` is cut. */
mf_status transport_open(struct transport **out, const struct hub_settings *settings,
                         unsigned idle_seconds, mf_error *why);
void transport_close(struct transport *transport);

/* Asks for `address`; of the bytes first … end - 1, or for all if `end` is 0. */
mf_status transfer_begin(struct transfer *transfer, struct transport *transport,
                         const char *address, uint64_t first, uint64_t end, mf_error *why);

/* Ends it if it runs; the transfer can be begun again. */
void transfer_cancel(struct transfer *transfer);

/* The address that the response came from; valid until the transfer is begun again. */
const char *transfer_address(const struct transfer *transfer);

/* The address of the next page, transfer->head.next, by the rules of redirections; it must be at the
 * server that the response came from. */
mf_status transfer_next_page(char *out, size_t capacity, const struct transfer *transfer,
                             mf_error *why);

/* Whether `address` is one of the hub itself. */
bool transport_is_hub(const struct transport *transport, const char *address);

/* Lets all transfers go on; returns after something happened, a signal, or `wait_ms`. */
mf_status transport_step(struct transport *transport, int wait_ms, mf_error *why);

#endif
