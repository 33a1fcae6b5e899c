/* cuda.h: the backend on an NVIDIA device.
 *
 *     libmoeflux ── load.c ── dlopen ──▶ moeflux-cuda.so: plugin.c and all else of this directory
 *
 * The library does not link to CUDA: the plugin lies beside it, or is absent without harm. */
#ifndef BACKEND_CUDA_CUDA_H
#define BACKEND_CUDA_CUDA_H

#include "backend/backend.h"

struct cuda_options {
    const mf_allocator *allocator; /* of the host's memory */
    bool exact;                    /* prompts in f32, which is slower */
    uint64_t device_bytes;         /* that the process may take of the device; 0: what is free */
};

/* A device, for people. */
struct cuda_device {
    char name[256];
    int major, minor;    /* compute capability */
    int driver, runtime; /* versions, as in 13000 */
    uint64_t total_bytes, free_bytes;
};

/* What the plugin exports, under the name cuda_plugin. */
struct cuda_plugin {
    const char *version; /* of the library that it was built with, as in "0.2.0" */
    size_t table_bytes;  /* sizeof(struct backend_functions), which it was built with */
    mf_status (*describe)(struct cuda_device *out, mf_error *why);
    mf_status (*open)(struct backend **out, const struct cuda_options *options, mf_error *why);
};

/* MF_ERR_DEVICE: the plugin, a driver or a device is missing, or it fails; the text says which. */
mf_status backend_cuda_new(struct backend **out, const struct cuda_options *options, mf_error *why);
mf_status backend_cuda_describe(struct cuda_device *out, mf_error *why);

#endif
