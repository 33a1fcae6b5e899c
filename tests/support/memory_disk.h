/* memory_disk.h: a file system in memory that can be stopped at any call, fill up, and lose
 * what was not synced.
 *
 *     struct memory_disk disk;
 *     memory_disk_init(&disk);
 *     for (uint64_t nth = 1;; nth++) {
 *         memory_disk_stop(&disk, nth, STOP_BEFORE);
 *         thing_write(&disk.disk, ...);           from the nth call on nothing works
 *         bool stopped = memory_disk_restart(&disk, power_cut);
 *         ... what does a later run find?
 *         if (!stopped) break;
 *     }
 *     memory_disk_free(&disk);
 *
 * A file's bytes are safe when it was synced, a name when its directory was.  `disk` writes,
 * `files` reads what is there now.  Threads: one. */
#ifndef SUPPORT_MEMORY_DISK_H
#define SUPPORT_MEMORY_DISK_H

#include "base/disk.h"

enum {
    MEMORY_DISK_NODES = 512, /* ever made: later ones end the test */
    MEMORY_DISK_NAME = 64,
    MEMORY_DISK_BLOCK = 256, /* bytes */
};

struct memory_bytes {
    uint8_t *bytes;
    uint64_t count;
};

struct memory_entry {
    int parent; /* node; -1: free */
    char name[MEMORY_DISK_NAME];
    int node;
};

struct memory_node {
    bool directory, locked;
    struct memory_bytes now, safe;
    uint8_t *blocks; /* those that were written to take room: holes take none */
    size_t block_count;
};

enum stop_kind {
    STOP_BEFORE, /* the call does nothing */
    STOP_AFTER,  /* the call does its work, and the process ends before it returns */
    FAIL_BEFORE, /* the call does nothing; those after it work */
    FAIL_AFTER,  /* the call does its work (a write: half of it) and fails; those after it work */
};

struct memory_disk {
    struct disk disk;
    mf_files files;
    struct memory_node nodes[MEMORY_DISK_NODES]; /* the first is the root */
    size_t node_count;
    struct memory_entry now[MEMORY_DISK_NODES], safe[MEMORY_DISK_NODES];
    uint64_t calls; /* of `disk`, since the last stop or restart */
    uint64_t stop_at;
    enum stop_kind kind;
    bool stopped;
    uint64_t capacity; /* bytes of all blocks in use; 0: no limit */
    uint64_t piece;    /* limit of bytes per write; 0: none */
    size_t open_count; /* handles of both interfaces */
};

void memory_disk_init(struct memory_disk *disk);
void memory_disk_free(struct memory_disk *disk);

/* A safe file, with its directories. */
void memory_disk_put(struct memory_disk *disk, const char *path, const void *bytes, size_t count);

/* The nth call from now fails with ENOSPC, or it and all after it fail with EIO; 0: none. */
void memory_disk_stop(struct memory_disk *disk, uint64_t nth, enum stop_kind kind);

/* Works again; true if it had stopped or failed.  With a power cut only what was safe is left. */
bool memory_disk_restart(struct memory_disk *disk, bool power_cut);

/* What `path` holds now; NULL: it is not there, or is a directory. */
struct memory_bytes *memory_disk_find(struct memory_disk *disk, const char *path);

/* Bytes of all blocks in use. */
uint64_t memory_disk_used(const struct memory_disk *disk);

/* Whether there is anything of that name. */
bool memory_disk_has(const struct memory_disk *disk, const char *path);

/* Whether directory `a` of one and `b` of the other have the same files with the same bytes. */
bool memory_disk_same(struct memory_disk *disk, const char *a, struct memory_disk *other,
                      const char *b);

#endif
