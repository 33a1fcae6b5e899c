#include "tools/ceilings.h"

#include "tools/loops.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/thread_pool.h"
#include "base/status.h"
#include "io/async_read.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ATTEMPTS = 5 };

static void raise_to(double *best, double found)
{
    if (found > *best) *best = found;
}

/* ------------------------------------------------------------------- loops */

static const struct loops *choose_loops(const struct machine *machine)
{
    (void)machine;
#ifdef HAVE_KERNELS_AVX512
    if (machine->avx512) return &loops_avx512;
#endif
#ifdef HAVE_KERNELS_AVX2
    if (machine->avx2) return &loops_avx2;
#endif
#ifdef HAVE_KERNELS_NEON
    if (machine->neon_dotprod && machine->neon_f16) return &loops_neon;
#endif
    return &loops_generic;
}

/* One job on every worker; what each does is `rounds` of a loop, or its share of memory. */
struct burst {
    const struct loops *loops;
    void (*tiles)(size_t rounds);
    size_t rounds;
    uint8_t *memory;
    size_t memory_bytes;
    uint64_t results[1024]; /* one per worker, so that no work can be left out */
};

static void run_multiply_add(void *argument, struct worker worker)
{
    struct burst *burst = argument;
    burst->results[worker.index] = burst->loops->multiply_add(burst->rounds) > 1e30f;
}

#ifdef HAVE_LOOPS_BF16
static void run_bf16(void *argument, struct worker worker)
{
    struct burst *burst = argument;
    burst->results[worker.index] = loops_bf16(burst->rounds) > 1e30f;
}
#endif

#ifdef HAVE_LOOPS_AMX
static void run_tiles(void *argument, struct worker worker)
{
    const struct burst *burst = argument;
    (void)worker;
    burst->tiles(burst->rounds);
}
#endif

static struct share memory_share(const struct burst *burst, struct worker worker)
{
    return worker_share(worker, burst->memory_bytes, 1 << 16);
}

/* The thread that reads a page is the one that touched it first: it is near. */
static void touch_memory(void *argument, struct worker worker)
{
    const struct burst *burst = argument;
    struct share share = memory_share(burst, worker);
    memset(burst->memory + share.begin, 1, share.end - share.begin);
}

static void read_memory(void *argument, struct worker worker)
{
    struct burst *burst = argument;
    struct share share = memory_share(burst, worker);
    burst->results[worker.index] =
        burst->loops->read(burst->memory + share.begin, share.end - share.begin);
}

static double time_of(struct thread_pool *pool, pool_task task, struct burst *burst)
{
    double begin = clock_seconds();
    thread_pool_run(pool, task, burst);
    return clock_seconds() - begin;
}

/* Operations per second of all threads together.  An attempt takes about 20 ms: long
 * against the start of a run, short against the turns of a scheduler. */
static double best_rate(struct thread_pool *pool, pool_task task, struct burst *burst,
                        double ops_per_round)
{
    double best = 0, seconds = 0;
    for (burst->rounds = 1000; burst->rounds < (size_t)1 << 40; burst->rounds *= 2) {
        seconds = time_of(pool, task, burst);
        if (seconds > 0.01) break;
    }
    burst->rounds = (size_t)((double)burst->rounds * 0.02 / seconds) + 1;
    for (int i = 0; i < ATTEMPTS; i++) {
        seconds = time_of(pool, task, burst);
        raise_to(&best, (double)burst->rounds * ops_per_round / seconds);
    }
    return best * thread_pool_size(pool);
}

/* ------------------------------------------------------------------ memory */

/* Four times the last cache, a GiB at least, a quarter of what is free at most. */
static size_t buffer_bytes(const struct machine *machine)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t wanted = max_size((size_t)1 << 30, cache > 0 ? (size_t)cache * 4 : 0);
    uint64_t limit = machine->available_bytes / 4;
    return (size_t)(wanted < limit ? wanted : limit) & ~(size_t)0x1fffff;
}

/* False: nothing is free. */
static bool take_memory(struct burst *burst, struct thread_pool *pool,
                        const struct machine *machine)
{
    burst->memory_bytes = buffer_bytes(machine);
    if (burst->memory_bytes == 0) return false;
    burst->memory =
        mmap(NULL, burst->memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (burst->memory == MAP_FAILED) return false;
    madvise(burst->memory, burst->memory_bytes, MADV_HUGEPAGE); /* as the experts' slots */
    thread_pool_run(pool, touch_memory, burst);
    return true;
}

static void measure_memory(mf_ceilings *c, struct thread_pool *pool, struct burst *burst,
                           const struct machine *machine)
{
    if (!take_memory(burst, pool, machine)) return; /* it stays unknown */
    for (int i = 0; i < ATTEMPTS; i++)
        raise_to(&c->memory_bytes, (double)burst->memory_bytes / time_of(pool, read_memory, burst));
    munmap(burst->memory, burst->memory_bytes);
}

struct memory_probe {
    struct thread_pool *pool;
    struct burst burst;
};

mf_status memory_probe_new(struct memory_probe **out, const struct machine *machine,
                           unsigned thread_count, mf_error *why)
{
    *out = NULL;
    struct memory_probe *probe = calloc(1, sizeof *probe);
    if (!probe) return fail_memory(why, sizeof *probe);
    mf_status status = thread_pool_new(&probe->pool, &allocator_heap, thread_count, why);
    probe->burst.loops = choose_loops(machine);
    if (status == MF_OK && take_memory(&probe->burst, probe->pool, machine)) {
        *out = probe;
        return MF_OK;
    }
    thread_pool_free(probe->pool);
    free(probe);
    return status;
}

void memory_probe_free(struct memory_probe *probe)
{
    if (!probe) return;
    munmap(probe->burst.memory, probe->burst.memory_bytes);
    thread_pool_free(probe->pool);
    free(probe);
}

double memory_probe_rate(struct memory_probe *probe)
{
    double best = 0;
    for (int i = 0; i < 2; i++)
        raise_to(&best, (double)probe->burst.memory_bytes /
                            time_of(probe->pool, read_memory, &probe->burst));
    return best;
}

static mf_status measure_all(mf_ceilings *c, struct thread_pool *pool,
                             const struct machine *machine, mf_error *why)
{
    struct burst *burst = calloc(1, sizeof *burst);
    if (!burst) return fail_memory(why, sizeof *burst);
    burst->loops = choose_loops(machine);
    c->instruction_set = burst->loops->name;
    c->thread_count = thread_pool_size(pool);
    raise_to(&c->f32_flops,
             best_rate(pool, run_multiply_add, burst, (double)burst->loops->flops_per_round));
#ifdef HAVE_LOOPS_BF16
    if (machine->avx512_bf16)
        raise_to(&c->bf16_flops, best_rate(pool, run_bf16, burst, BF16_OPS_PER_ROUND));
#endif
#ifdef HAVE_LOOPS_AMX
    burst->tiles = loops_amx_bf16;
    if (machine->amx_bf16)
        raise_to(&c->amx_bf16_flops, best_rate(pool, run_tiles, burst, AMX_BF16_OPS_PER_ROUND));
    burst->tiles = loops_amx_int8;
    if (machine->amx_int8)
        raise_to(&c->amx_int8_ops, best_rate(pool, run_tiles, burst, AMX_INT8_OPS_PER_ROUND));
#endif
    measure_memory(c, pool, burst, machine);
    free(burst);
    return MF_OK;
}

mf_status ceilings_measure(mf_ceilings *ceilings, const struct machine *machine,
                           unsigned thread_count, mf_error *why)
{
    struct thread_pool *pool;
    mf_status status = thread_pool_new(&pool, &allocator_heap, thread_count, why);
    if (status != MF_OK) return status;
    status = measure_all(ceilings, pool, machine, why);
    thread_pool_free(pool);
    return status;
}

/* -------------------------------------------------------------------- disk */

enum { DISK_BLOCK = 1 << 20, DISK_DEPTH = 16 };

struct disk {
    struct async_reader *reader;
    const struct file *files;
    size_t file_count;
    uint64_t blocks; /* in all files */
    uint64_t state;  /* of the choice of places */
    uint8_t *memory; /* [DISK_DEPTH][DISK_BLOCK] */
    struct async_read reads[DISK_DEPTH];
};

/* An absent file has no handle. */
static uint64_t blocks_of(const struct file *file)
{
    return file->handle ? file->size / DISK_BLOCK : 0;
}

/* Scattered, as experts lie. */
static void choose_place(struct disk *disk, struct async_read *read)
{
    disk->state = disk->state * 6364136223846793005u + 1442695040888963407u;
    uint64_t block = (disk->state >> 20) % disk->blocks;
    size_t index = (size_t)(read - disk->reads), file = 0;
    for (; block >= blocks_of(&disk->files[file]); file++) block -= blocks_of(&disk->files[file]);
    *read = (struct async_read){ .file = (uint32_t)file,
                                 .offset = block * DISK_BLOCK,
                                 .count = DISK_BLOCK,
                                 .needed = DISK_BLOCK,
                                 .tag = (uint32_t)index,
                                 .out = disk->memory + index * DISK_BLOCK };
}

static mf_status read_for(struct disk *disk, double *rate, double seconds, mf_error *why)
{
    uint64_t done = 0;
    double begin = clock_seconds(), passed = 0;
    for (size_t i = 0; i < DISK_DEPTH; i++) {
        choose_place(disk, &disk->reads[i]);
        async_reader_submit(disk->reader, &disk->reads[i]);
    }
    while (passed < seconds) {
        struct async_read *read = async_reader_wait(disk->reader, true), *next;
        passed = clock_seconds() - begin;
        for (; read; read = next) {
            next = read->next;
            if (read->error)
                return fail_errno(why, MF_ERR_IO, read->error, "%s cannot be read",
                                  disk->files[read->file].path);
            done += read->count;
            choose_place(disk, read);
            async_reader_submit(disk->reader, read);
        }
    }
    *rate = (double)done / passed;
    return MF_OK;
}

mf_status ceilings_measure_disk(mf_ceilings *ceilings, const struct file *files, size_t file_count,
                                mf_error *why)
{
    /* Other places at every call: those of the last one may be in a cache below the system's. */
    struct disk disk = { .files = files,
                         .file_count = file_count,
                         .state = (uint64_t)(clock_seconds() * 1e9) };
    struct async_reader_options options = { .allocator = &allocator_heap,
                                            .files = files,
                                            .file_count = file_count,
                                            .direct = true,
                                            .uncached = true,
                                            .buffer_count = DISK_DEPTH };
    const size_t bytes = (size_t)DISK_DEPTH * DISK_BLOCK;
    for (size_t i = 0; i < file_count; i++) disk.blocks += blocks_of(&files[i]);
    if (disk.blocks == 0) return MF_OK;
    disk.memory = allocator_heap.allocate(NULL, bytes, DISK_BLOCK);
    if (!disk.memory) return fail_memory(why, bytes);
    mf_status status = async_reader_new(&disk.reader, &options, why);
    double rate = 0;
    if (status == MF_OK) {
        ceilings->disk_direct = async_reader_alignment(disk.reader, 0) > 1;
        for (uint32_t i = 0; i < DISK_DEPTH; i++)
            async_reader_register_buffer(disk.reader, i, disk.memory + i * DISK_BLOCK, DISK_BLOCK);
        status = read_for(&disk, &rate, 0.7, why);
        async_reader_free(disk.reader); /* waits for what is under way */
    }
    raise_to(&ceilings->disk_bytes, rate);
    allocator_heap.release(NULL, disk.memory, bytes);
    return status;
}
