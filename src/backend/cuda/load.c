/* load.c: finds the plugin beside the library, or where it is installed. */
#include "backend/cuda/cuda.h"

#include "base/status.h"

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#define PLUGIN_NAME "moeflux-cuda.so"
static const char plugin_name[] = PLUGIN_NAME;

/* The directory of the object that this function is in: the library's, or the program's. */
static bool own_directory(char *out, size_t capacity)
{
    Dl_info info;
    if (!dladdr((const void *)plugin_name, &info) || !info.dli_fname) return false;
    const char *slash = strrchr(info.dli_fname, '/');
    int length = slash ? (int)(slash - info.dli_fname) : 1;
    int written = snprintf(out, capacity, "%.*s", length, slash ? info.dli_fname : ".");
    return written > 0 && (size_t)written < capacity;
}

/* NULL: the file is not there, or it does not load. */
static void *open_file(const char *path, bool *found)
{
    *found = access(path, F_OK) == 0;
    if (!*found) return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static void *open_plugin(mf_error *why)
{
    /* Beside the program or installed below the library; two levels up for the build's own tests. */
    static const char *const places[] = { "%s/%s", "%s/moeflux/%s", "%s/../%s", "%s/../../%s" };
    static const char installed[] = MOEFLUX_LIBRARY_DIRECTORY "/moeflux";
    char directory[4096], path[4200];
    bool found = false;
    void *handle = NULL;
    bool known = own_directory(directory, sizeof directory);
    for (size_t i = 0; known && !found && i < COUNT_OF(places); i++) {
        snprintf(path, sizeof path, places[i], directory, plugin_name);
        handle = open_file(path, &found);
    }
    snprintf(path, sizeof path, "%s/%s", installed, plugin_name);
    if (!found) handle = open_file(path, &found);
    if (!handle)
        (void)fail(why, MF_ERR_DEVICE, "the backend cuda cannot be loaded: %s",
                   found ? dlerror()
                         : "there is no " PLUGIN_NAME
                           " beside the library; it is built where nvcc is");
    return handle;
}

/* NULL: *why says why there is none. */
static const struct cuda_plugin *find_plugin(mf_error *why)
{
    void *handle = open_plugin(why);
    if (!handle) return NULL;
    const struct cuda_plugin *plugin = dlsym(handle, "cuda_plugin");
    dlclose(handle); /* it stays: RTLD_NODELETE */
    if (plugin && strcmp(plugin->version, MOEFLUX_VERSION) == 0 &&
        plugin->table_bytes == sizeof(struct backend_functions))
        return plugin;
    (void)fail(why, MF_ERR_DEVICE, "%s is not of this version of moeflux, which is %s", plugin_name,
               MOEFLUX_VERSION);
    return NULL;
}

mf_status backend_cuda_new(struct backend **out, const struct cuda_options *options, mf_error *why)
{
    const struct cuda_plugin *plugin = find_plugin(why);
    *out = NULL;
    return plugin ? plugin->open(out, options, why) : MF_ERR_DEVICE;
}

mf_status backend_cuda_describe(struct cuda_device *out, mf_error *why)
{
    const struct cuda_plugin *plugin = find_plugin(why);
    return plugin ? plugin->describe(out, why) : MF_ERR_DEVICE;
}
