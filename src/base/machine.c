#include "base/machine.h"

#include "base/machine_limits.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

static unsigned allowed_cores(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return (unsigned)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

/* Allowed by affinity and quota.  One thread beyond the quota gets all of them throttled for the
 * rest of each period. */
static unsigned usable_cores(const struct machine_limits *limits)
{
    unsigned cores = allowed_cores();
    if (limits->cpus < cores) cores = (unsigned)(limits->cpus + 0.999);
    return cores ? cores : 1;
}

/* The number after `label` in /proc/meminfo, in bytes; 0 when it is not there. */
static uint64_t meminfo_bytes(const char *label)
{
    FILE *stream = fopen("/proc/meminfo", "re");
    if (!stream) return 0;
    char line[256];
    uint64_t bytes = 0;
    size_t length = strlen(label);
    while (!bytes && fgets(line, sizeof line, stream)) {
        if (strncmp(line, label, length) == 0) bytes = strtoull(line + length, NULL, 10) * 1024;
    }
    fclose(stream);
    return bytes;
}

static void probe_memory(struct machine *m, const struct machine_limits *limits)
{
    long page = sysconf(_SC_PAGESIZE);
    m->page_bytes = page > 0 ? (size_t)page : 4096;
    uint64_t limit = limits->memory_bytes;
    m->memory_bytes = meminfo_bytes("MemTotal:");
    m->available_bytes = meminfo_bytes("MemAvailable:");
    if (m->memory_bytes > limit) m->memory_bytes = limit;
    if (m->available_bytes > limit) m->available_bytes = limit;
}

#if defined(__x86_64__)

/* Linux requires a process to request the 8 KiB of AMX tile state. */
static bool amx_permitted(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* Which register states the system saves: bits of XCR0. */
static uint64_t saved_states(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static void probe_ticks(struct machine *m)
{
    const unsigned power_leaf = 0x80000007u, invariant_tsc = 1u << 8;
    unsigned a = 0, b = 0, c = 0, d = 0;
    m->steady_ticks = __get_cpuid(power_leaf, &a, &b, &c, &d) && (d & invariant_tsc);
}

static bool made_by_amd(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx &&
           d == signature_AMD_edx;
}

static void probe_instructions(struct machine *m)
{
    enum { STATE_AVX = 0x6, STATE_AVX512 = 0xe6, STATE_AMX = 0x60000 };
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return;
    bool fma = c & bit_FMA, f16c = c & bit_F16C;
    uint64_t saved = saved_states();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return;

    m->avx2 = (saved & STATE_AVX) == STATE_AVX && (b & bit_AVX2) && fma && f16c;
    unsigned wanted = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD;
    m->avx512 = m->avx2 && (saved & STATE_AVX512) == STATE_AVX512 && (b & wanted) == wanted;
    m->avx512_vnni = m->avx512 && (c & bit_AVX512VNNI);
    m->avx512_vbmi = m->avx512 && (c & bit_AVX512VBMI);

    enum { BIT_AMX_BF16 = 1 << 22, BIT_AMX_TILE = 1 << 24, BIT_AMX_INT8 = 1 << 25 };
    bool tiles =
        m->avx512 && (saved & STATE_AMX) == STATE_AMX && (d & BIT_AMX_TILE) && amx_permitted();
    m->amx_bf16 = tiles && (d & BIT_AMX_BF16);
    m->amx_int8 = tiles && (d & BIT_AMX_INT8);

    enum { BIT_AVX_VNNI = 1 << 4, BIT_AVX512_BF16 = 1 << 5 };
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) return;
    m->avx_vnni = m->avx2 && (a & BIT_AVX_VNNI);
    m->avx512_bf16 = m->avx512 && (a & BIT_AVX512_BF16);
    /* Measured: a vector of pairs every cycle on Zen 4, as with floats; on Emerald Rapids one in
     * two cycles, in which it multiplies four vectors of floats. */
    m->quick_bf16 = m->avx512_bf16 && made_by_amd();
}

#elif defined(__aarch64__)

static void probe_ticks(struct machine *m)
{
    m->steady_ticks = true; /* cntvct_el0 is one by definition */
}

static void probe_instructions(struct machine *m)
{
    unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
    m->neon = first & HWCAP_ASIMD;
    m->neon_dotprod = first & HWCAP_ASIMDDP;
    m->neon_f16 = (first & HWCAP_FPHP) && (first & HWCAP_ASIMDHP);
    m->neon_i8mm = second & HWCAP2_I8MM;
}

#else

static void probe_ticks(struct machine *m)
{
    (void)m;
}

static void probe_instructions(struct machine *m)
{
    (void)m;
}

#endif

void machine_probe(struct machine *out)
{
    struct machine_limits limits;
    machine_read_limits(&limits, "");
    *out = (struct machine){ .core_count = usable_cores(&limits) };
    probe_memory(out, &limits);
    probe_ticks(out);
    probe_instructions(out);
}
