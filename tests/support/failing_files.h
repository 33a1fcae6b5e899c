/* failing_files.h: files that fail, or come in small pieces, when they are told to.
 *
 *     struct failing_files files;
 *     failing_files_init(&files, &files_posix);
 *     for (uint64_t nth = 1;; nth++) {
 *         failing_files_arm(&files, nth);
 *         mf_status status = thing_open(&thing, &files.files, path);
 *         bool fired = failing_files_disarm(&files);
 *         assert_int_equal(status, fired ? MF_ERR_IO : MF_OK);
 *         thing_close(thing);
 *         if (!fired) break;
 *     }
 *
 * open, read and list count as calls.  The failing one gives EIO.  The other ways
 * to fail are members, to be set at will; disarm leaves them.
 * Threads: any; arm and disarm while no thread reads. */
#ifndef SUPPORT_FAILING_FILES_H
#define SUPPORT_FAILING_FILES_H

#include "moeflux.h"

#include <stdatomic.h>

struct failing_files {
    mf_files files;
    const mf_files *inner;      /* borrowed: does the reads */
    atomic_uint_fast64_t calls; /* since init or arm */
    /* Atomic: a test may change its mind while reads are under way. */
    atomic_uint_fast64_t fail_at;          /* the call that fails, from 1; 0: none */
    atomic_uint_fast64_t piece_bytes;      /* limit of bytes per read; 0: none */
    atomic_uint_fast64_t end_at;           /* no read goes beyond this offset; 0: no limit */
    atomic_uint_fast64_t bad_from, bad_to; /* a read of a byte in [from, to) gives EIO, always */
    atomic_uint_fast64_t fail_every;       /* every n-th call fails; 0: none */
    atomic_uint_fast64_t delay_us;         /* before every read */
    atomic_bool fired;
};

void failing_files_init(struct failing_files *files, const mf_files *inner);

/* The nth call from now, from 1, fails; those after it succeed again. */
void failing_files_arm(struct failing_files *files, uint64_t nth);

/* No more failures; true if there was one since arm. */
bool failing_files_disarm(struct failing_files *files);

#endif
