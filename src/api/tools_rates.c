/* tools_rates.c: what an engine computes per second, and what there is of it on this machine. */
#include "api/tools.h"

#include "api/handles.h"
#include "backend/cuda/cuda.h"
#include "base/machine_limits.h"
#include "base/status.h"
#include "tools/rates.h"

#include <math.h>
#include <sched.h>

/* What is measured lies in memory of the host, which no device reads. */
static mf_status need_host(const mf_engine *engine, mf_error *why)
{
    if (!engine) return api_missing(why, "engine");
    if (!backend_is_device(engine->backend)) return MF_OK;
    return fail(why, MF_ERR_UNSUPPORTED, "rates are measured of the backends reference and cpu");
}

mf_status mf_format_rates_measure(mf_format_rates *rates, mf_engine *engine, uint32_t format,
                                  mf_error *why)
{
    mf_format_rates whole;
    if (!rates) return api_missing(why, "rates");
    mf_status status = need_host(engine, why);
    if (status != MF_OK) return status;
    status = api_options_in(&whole, sizeof whole, rates, "MF_FORMAT_RATES_INIT", why);
    if (status != MF_OK) return status;
    if (format >= FORMAT_COUNT)
        return fail(why, MF_ERR_ARGUMENT, "%u is not the index of a known format", format);
    pthread_mutex_lock(&engine->lock);
    status = rates_measure(&whole, engine->backend, &engine->allocator, &engine->machine,
                           (enum format)format, why);
    pthread_mutex_unlock(&engine->lock);
    if (status != MF_OK) return status;
    return api_statistics_out(rates, &whole, sizeof whole, "MF_FORMAT_RATES_INIT", why);
}

mf_status mf_layer_seconds_measure(double *seconds, mf_engine *engine, mf_error *why)
{
    if (!seconds) return api_missing(why, "seconds");
    mf_status status = need_host(engine, why);
    if (status != MF_OK) return status;
    pthread_mutex_lock(&engine->lock);
    status = rates_measure_layer(seconds, engine->backend, why);
    pthread_mutex_unlock(&engine->lock);
    return status;
}

const char *mf_kernel_set_at(uint32_t index)
{
    struct machine machine;
    machine_probe(&machine);
    const struct kernels *set = kernels_at(&machine, index);
    return set ? set->name : NULL;
}

mf_status mf_machine_get_limits(mf_machine_limits *out, mf_error *why)
{
    struct machine_limits found;
    struct machine machine;
    cpu_set_t set;
    if (!out) return api_missing(why, "out");
    machine_probe(&machine);
    machine_read_limits(&found, "");
    bool known = sched_getaffinity(0, sizeof set, &set) == 0;
    mf_machine_limits limits = {
        .cores = known ? (uint32_t)CPU_COUNT(&set) : machine.core_count,
        .cpu_quota = isfinite(found.cpus) ? found.cpus : 0,
        .memory_bytes = found.memory_bytes != UINT64_MAX ? found.memory_bytes : 0,
    };
    return api_statistics_out(out, &limits, sizeof limits, "MF_MACHINE_LIMITS_INIT", why);
}

mf_status mf_device_describe(mf_device_description *out, mf_error *why)
{
    struct cuda_device device;
    if (!out) return api_missing(why, "out");
    mf_status status = backend_cuda_describe(&device, why);
    if (status != MF_OK) return status;
    mf_device_description found = { .major = device.major,
                                    .minor = device.minor,
                                    .driver = device.driver,
                                    .runtime = device.runtime,
                                    .total_bytes = device.total_bytes,
                                    .free_bytes = device.free_bytes };
    memcpy(found.name, device.name, sizeof found.name);
    return api_statistics_out(out, &found, sizeof found, "MF_DEVICE_DESCRIPTION_INIT", why);
}

bool mf_built_with_io_uring(void)
{
#ifdef MOEFLUX_HAVE_URING
    return true;
#else
    return false;
#endif
}
