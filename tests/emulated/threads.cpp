/* threads.cpp: the threads of a block, as fibers.
 *
 * A fiber runs until it meets others: those of its warp (a shuffle, a vote, a product of fragments) or
 * those of its block.  Then the next one runs.  All fibers are of the thread that launches.
 *
 *     run_block ──▶ ready ──▶ runs ──▶ waits for its warp or its block ──▶ ready …
 *                               ╰────▶ ended
 *
 * Blocks, warps and lanes run in an order that differs from launch to launch, so that a kernel which
 * lacks a barrier gives other bits from time to time.  A meeting that cannot come about, or lanes that
 * meet for different reasons, end the program. */
#include "threads.h"

#include "backend/cuda/ptx.cuh"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace emulated
{
indices here;

void stop(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "emulated device: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, " (thread %u of %u, block %u %u %u)\n", here.thread.x, here.block_size.x,
            here.block.x, here.block.y, here.block.z);
    va_end(arguments);
    abort();
}

/* --------------------------------------------------------------------------------------- fibers */

/* Saves the registers that a call preserves and the stack pointer, then takes another stack. */
extern "C" void emulated_switch(void **from, void *to);
asm(".text\n"
    ".globl emulated_switch\n"
    ".hidden emulated_switch\n"
    ".type emulated_switch, @function\n"
    "emulated_switch:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq "
    "%r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n"
    ".size emulated_switch, .-emulated_switch\n");

enum { STACK_BYTES = 256 * 1024 };

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    unsigned group;
};

struct fiber {
    void *stack_pointer;
    uint8_t *stack;
    dim3 thread;
    unsigned warp, lane;
    const unsigned *waits_for; /* a generation, until it differs from `seen`; NULL: ready */
    unsigned seen;
    bool ended;
    std::vector<copy> copies; /* that are not made yet */
    unsigned group;           /* of the next copies */
};

/* Of fibers that wait for each other. */
struct barrier {
    unsigned live, arrived, generation;
};

struct warp {
    barrier lanes;
    meeting kind;
    alignas(64) uint8_t rooms[2][LANES][LANE_BYTES]; /* of this meeting and the one before */
};

static fiber fibers[BLOCK_THREADS_MAX];
static warp warps[BLOCK_THREADS_MAX / LANES];
static barrier whole_block;
static unsigned live_count;
static fiber *current;
static void *scheduler_stack;
static const std::function<void()> *current_kernel;
alignas(128) static uint8_t shared_memory[BLOCK_BYTES_MAX];

void *block_memory(void)
{
    return shared_memory;
}

/* AddressSanitizer has to know which stack is used. */
static void switch_to(void **from, void *to, const void *stack, size_t bytes, bool ends)
{
#if defined(__SANITIZE_ADDRESS__)
    void *fake = nullptr;
    __sanitizer_start_switch_fiber(ends ? nullptr : &fake, stack, bytes);
    emulated_switch(from, to);
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
    (void)stack, (void)bytes, (void)ends;
    emulated_switch(from, to);
#endif
}

#if defined(__SANITIZE_ADDRESS__)
static const void *host_stack;
static size_t host_stack_bytes;
#endif

static void leave(bool ends)
{
    fiber *f = current;
#if defined(__SANITIZE_ADDRESS__)
    switch_to(&f->stack_pointer, scheduler_stack, host_stack, host_stack_bytes, ends);
#else
    switch_to(&f->stack_pointer, scheduler_stack, nullptr, 0, ends);
#endif
}

static void complete(barrier *b)
{
    if (b->arrived < b->live || b->arrived == 0) return;
    b->arrived = 0;
    b->generation++;
}

static void arrive(barrier *b)
{
    fiber *f = current;
    f->waits_for = &b->generation;
    f->seen = b->generation;
    b->arrived++;
    complete(b);
    if (f->seen == b->generation) leave(false);
    f->waits_for = nullptr;
}

[[noreturn]] static void fiber_main(void)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &host_stack, &host_stack_bytes);
#endif
    (*current_kernel)();
    fiber *f = current;
    if (!f->copies.empty()) stop("a thread ends before its copies are made");
    f->ended = true;
    live_count--;
    warps[f->warp].lanes.live--;
    whole_block.live--;
    complete(&warps[f->warp].lanes);
    complete(&whole_block);
    leave(true);
    abort();
}

static void begin_fiber(fiber *f, unsigned index)
{
    if (!f->stack) {
        void *stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stack == MAP_FAILED) stop("no memory for a stack");
        f->stack = (uint8_t *)stack;
    }
    void **top = (void **)(f->stack + STACK_BYTES) - 3;
    *top-- =
        nullptr; /* a return address for fiber_main, whose stack is then aligned as after a call */
    *top = (void *)fiber_main;
    f->stack_pointer = top - 6; /* six registers, whose values are of no use */
    f->thread = dim3(index);
    f->warp = index / LANES;
    f->lane = index % LANES;
    f->waits_for = nullptr;
    f->ended = false;
    f->group = 0;
    f->copies.clear();
}

static void resume(fiber *f)
{
    current = f;
    here.thread = f->thread;
    switch_to(&scheduler_stack, f->stack_pointer, f->stack, STACK_BYTES, false);
}

/* ------------------------------------------------------------------------------------- meetings */

unsigned this_lane(void)
{
    return current->lane;
}

bool lane_lives(unsigned lane)
{
    return !fibers[current->warp * LANES + lane].ended;
}

const uint8_t (*meet(meeting kind, const void *brought, size_t bytes))[LANE_BYTES]
{
    warp *w = &warps[current->warp];
    unsigned room = w->lanes.generation % 2;
    if (w->lanes.arrived == 0)
        w->kind = kind;
    else if (w->kind != kind)
        stop("lanes of a warp meet for different reasons, %d and %d", w->kind, kind);
    if (bytes > 0) memcpy(w->rooms[room][current->lane], brought, bytes);
    arrive(&w->lanes);
    return w->rooms[room];
}

void meet_block(void)
{
    arrive(&whole_block);
}

/* --------------------------------------------------------------------------------------- copies */

void copy_later(void *to, const void *from, size_t bytes)
{
    if ((uintptr_t)to % bytes != 0 || (uintptr_t)from % bytes != 0)
        stop("a copy of %zu bytes that are not aligned", bytes);
    current->copies.push_back({ to, from, bytes, current->group });
}

void end_copies(void)
{
    current->group++;
}

void wait_for_copies(unsigned left)
{
    std::vector<copy> *copies = &current->copies;
    size_t kept = 0;
    for (const copy &c : *copies) {
        if (c.group + left >= current->group)
            (*copies)[kept++] = c;
        else
            memcpy(c.to, c.from, c.bytes);
    }
    copies->resize(kept);
}

/* --------------------------------------------------------------------------------------- blocks */

static uint32_t random_state = 1;

static uint32_t random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

/* The numbers below `count`, from any of them, up or down. */
struct order {
    uint32_t first, count;
    bool down;

    explicit order(uint32_t count)
        : first(random_number() % count), count(count), down(random_number() & 1)
    {
    }
    uint32_t at(uint32_t i) const
    {
        return down ? (first + count - i) % count : (first + i) % count;
    }
};

/* Lets the lanes of a warp run until all of them wait for other warps or have ended. */
static bool run_warp(unsigned w, unsigned size, const order &lanes)
{
    bool any = false, moved = true;
    while (moved) {
        moved = false;
        for (uint32_t i = 0; i < lanes.count; i++) {
            unsigned index = w * LANES + lanes.at(i);
            if (index >= size) continue;
            fiber *f = &fibers[index];
            if (f->ended || (f->waits_for && *f->waits_for == f->seen)) continue;
            resume(f);
            any = moved = true;
        }
    }
    return any;
}

static void run_block(unsigned size)
{
    const unsigned warp_count = (size + LANES - 1) / LANES;
    live_count = size;
    whole_block = { size, 0, 0 };
    for (unsigned w = 0; w < warp_count; w++)
        warps[w].lanes = { std::min(size - w * LANES, (unsigned)LANES), 0, 0 };
    for (unsigned i = 0; i < size; i++) begin_fiber(&fibers[i], i);
    const order warp_order(warp_count), lane_order(LANES);
    while (live_count > 0) {
        bool any = false;
        for (unsigned w = 0; w < warp_count; w++)
            any = run_warp(warp_order.at(w), size, lane_order) || any;
        if (!any) stop("%u threads of a block wait for others that do not come", live_count);
    }
}

void run_grid(const std::function<void()> &call, dim3 grid, dim3 block)
{
    const uint64_t block_count = (uint64_t)grid.x * grid.y * grid.z;
    if (block_count == 0 || block.x == 0) return;
    const order blocks((uint32_t)block_count);
    current_kernel = &call;
    here.block_size = block;
    here.grid_size = grid;
    for (uint32_t i = 0; i < block_count; i++) {
        const uint32_t b = blocks.at(i);
        here.block = dim3(b % grid.x, b / grid.x % grid.y, b / grid.x / grid.y);
        memset(shared_memory, 0xff, 4096); /* what a block before has left is not to be relied on */
        run_block(block.x);
    }
}
} // namespace emulated
