/* head.h: the head of an HTTP response, as far as downloads need it.
 *
 * A hub answers with redirections; what it says about the file on the way (X-Repo-Commit,
 * X-Linked-Etag, X-Linked-Size) is kept, everything else is of the last response. */
#ifndef HUB_HEAD_H
#define HUB_HEAD_H

#include "common/basics.h"
#include "hub/name.h"

enum { HUB_ADDRESS_CAPACITY = 8192 };

struct hub_head {
    /* Of the whole way; "" and false: not said. */
    char commit[HUB_HASH_CAPACITY];
    char linked_hash[HUB_HASH_CAPACITY];
    bool has_linked_size;
    uint64_t linked_size;
    /* Of the last response; 0, "" and false: not said. */
    unsigned status;
    bool has_length, has_range;
    uint64_t length;             /* of the body */
    uint64_t first, last, total; /* of a range: its bytes first … last, of total */
    bool has_retry;
    double retry_seconds; /* to wait before the next request */
    char location[HUB_ADDRESS_CAPACITY];
    char next[HUB_ADDRESS_CAPACITY]; /* page of a listing */
    char error_code[64];
};

/* One line of the head, with or without its end; the head is all zeros at first.  A line
 * "HTTP/1.1 200 OK" begins the next response. */
void hub_head_take(struct hub_head *head, const char *line, size_t length);

/* The name of a commit in a file of refs/, without what surrounds it; false: none. */
bool hub_read_ref(char out[HUB_HASH_CAPACITY], const char *text, size_t length);

#endif
