#include "kernels/select.h"

#include "base/status.h"

#include <stdio.h>

extern const struct kernels kernels_generic;
extern const struct kernels kernels_avx2;
extern const struct kernels kernels_avx2vnni;
extern const struct kernels kernels_avx512;
extern const struct kernels kernels_avx512vnni;
extern const struct kernels kernels_avx512bf16;
extern const struct kernels kernels_amx;
extern const struct kernels kernels_neon;
extern const struct kernels kernels_neoni8mm;

static bool runs_anywhere(const struct machine *machine)
{
    (void)machine;
    return true;
}

#ifdef HAVE_KERNELS_AVX2
static bool runs_avx2(const struct machine *machine)
{
    return machine->avx2;
}
#endif

#ifdef HAVE_KERNELS_AVX2VNNI
static bool runs_avx2vnni(const struct machine *machine)
{
    return machine->avx2 && machine->avx_vnni;
}
#endif

#ifdef HAVE_KERNELS_AVX512
static bool runs_avx512(const struct machine *machine)
{
    return machine->avx512;
}
#endif

#ifdef HAVE_KERNELS_AVX512VNNI
static bool runs_avx512vnni(const struct machine *machine)
{
    return machine->avx512_vnni && machine->avx512_vbmi;
}
#endif

#ifdef HAVE_KERNELS_AVX512BF16
static bool runs_avx512bf16(const struct machine *machine)
{
    return machine->avx512_vnni && machine->avx512_vbmi && machine->quick_bf16;
}
#endif

#ifdef HAVE_KERNELS_AMX
static bool runs_amx(const struct machine *machine)
{
    return machine->avx512_vnni && machine->avx512_vbmi && machine->avx512_bf16 &&
           machine->amx_int8 && machine->amx_bf16;
}
#endif

#ifdef HAVE_KERNELS_NEON
static bool runs_neon(const struct machine *machine)
{
    return machine->neon && machine->neon_dotprod && machine->neon_f16;
}
#endif

#ifdef HAVE_KERNELS_NEONI8MM
static bool runs_neoni8mm(const struct machine *machine)
{
    return runs_neon(machine) && machine->neon_i8mm;
}
#endif

/* Best first. */
static const struct {
    const struct kernels *kernels;
    bool (*runs_on)(const struct machine *machine);
} sets[] = {
#ifdef HAVE_KERNELS_AMX
    { &kernels_amx, runs_amx },
#endif
#ifdef HAVE_KERNELS_AVX512BF16
    { &kernels_avx512bf16, runs_avx512bf16 },
#endif
#ifdef HAVE_KERNELS_AVX512VNNI
    { &kernels_avx512vnni, runs_avx512vnni },
#endif
#ifdef HAVE_KERNELS_AVX512
    { &kernels_avx512, runs_avx512 },
#endif
#ifdef HAVE_KERNELS_AVX2VNNI
    { &kernels_avx2vnni, runs_avx2vnni },
#endif
#ifdef HAVE_KERNELS_AVX2
    { &kernels_avx2, runs_avx2 },
#endif
#ifdef HAVE_KERNELS_NEONI8MM
    { &kernels_neoni8mm, runs_neoni8mm },
#endif
#ifdef HAVE_KERNELS_NEON
    { &kernels_neon, runs_neon },
#endif
    { &kernels_generic, runs_anywhere },
};

const struct kernels *kernels_select(const struct machine *machine, const char *name)
{
    for (size_t i = 0; i < COUNT_OF(sets); i++) {
        bool wanted = !name || strcmp(name, sets[i].kernels->name) == 0;
        if (wanted && sets[i].runs_on(machine)) return sets[i].kernels;
    }
    return NULL;
}

mf_status kernels_choose(const struct kernels **out, const struct machine *machine,
                         const char *name, mf_error *why)
{
    char list[256] = "";
    *out = kernels_select(machine, name);
    if (*out) return MF_OK;
    for (size_t i = 0; kernels_at(machine, i); i++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                 kernels_at(machine, i)->name);
    }
    return fail(why, MF_ERR_ARGUMENT,
                "the kernel set \"%.32s\" does not run on this machine; these do: %s", name, list);
}

const struct kernels *kernels_at(const struct machine *machine, size_t index)
{
    for (size_t i = 0; i < COUNT_OF(sets); i++)
        if (sets[i].runs_on(machine) && index-- == 0) return sets[i].kernels;
    return NULL;
}
