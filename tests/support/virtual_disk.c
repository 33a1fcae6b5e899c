#include "support/virtual_disk.h"

#include <stdlib.h>

struct virtual_disk *virtual_disk_present;

struct virtual_engine {
    struct read_engine engine;
    struct virtual_disk *disk;
};

static double time_of(void *user)
{
    return ((const struct virtual_disk *)user)->now;
}

const struct clock *virtual_disk_clock(struct virtual_disk *disk)
{
    disk->clock = (struct clock){ time_of, disk };
    return &disk->clock;
}

void virtual_disk_spend(struct virtual_disk *disk, double seconds)
{
    disk->now += seconds;
}

static struct virtual_disk *disk_of(struct read_engine *engine)
{
    return ((struct virtual_engine *)engine)->disk;
}

/* Begins what may begin now. */
static void virtual_wake(struct read_engine *engine, uint32_t room)
{
    struct virtual_disk *disk = disk_of(engine);
    struct async_read *read;
    (void)room;
    while (!engine->reader->stop && (read = async_reader_take(engine->reader))) {
        if (disk->free_at < disk->now) disk->free_at = disk->now;
        if (disk->bytes_per_second > 0)
            disk->free_at += (double)read->count / disk->bytes_per_second;
        disk->under_way[disk->count] = read;
        disk->done_at[disk->count++] = disk->free_at + disk->latency;
    }
}

static uint32_t next_done(const struct virtual_disk *disk)
{
    uint32_t next = 0;
    for (uint32_t i = 1; i < disk->count; i++)
        if (disk->done_at[i] < disk->done_at[next]) next = i;
    return next;
}

/* Everything that was finished until now is finished at its time, in its order; with
 * `block` the time goes on until something is. */
static void virtual_help(struct read_engine *engine, bool block)
{
    struct virtual_disk *disk = disk_of(engine);
    double present = disk->now;
    bool came = false;
    while (disk->count > 0) {
        uint32_t next = next_done(disk);
        if (disk->done_at[next] > present && (came || !block)) break;
        struct async_read *read = disk->under_way[next];
        disk->now = disk->done_at[next];
        disk->count--;
        disk->under_way[next] = disk->under_way[disk->count];
        disk->done_at[next] = disk->done_at[disk->count];
        read->done = read->count;
        async_reader_finish(engine->reader, read);
        virtual_wake(engine, 0); /* the next one begins when this one ends */
        came = true;
        if (disk->now > present) present = disk->now;
    }
    disk->now = present;
}

static void virtual_free(struct read_engine *engine)
{
    free(engine);
}

static const struct read_engine_functions virtual_functions = {
    .name = "virtual", .wake = virtual_wake, .free = virtual_free, .help = virtual_help
};

mf_status virtual_disk_engine_new(struct read_engine **out, struct async_reader *reader,
                                  mf_error *why)
{
    (void)why;
    struct virtual_engine *engine = calloc(1, sizeof *engine);
    *engine = (struct virtual_engine){ { &virtual_functions, reader }, virtual_disk_present };
    *out = &engine->engine;
    return MF_OK;
}
