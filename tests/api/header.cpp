// The public headers must be usable from C++, and the shared library from outside.
#include "moeflux.h"
#include "moeflux_compat.h"
#include "moeflux_tools.h"

#include <cstdio>
#include <cstring>

int main()
{
    mf_error error = {};
    error.status = MF_ERR_IO;
    if (std::strcmp(mf_status_name(error.status), "MF_ERR_IO") != 0) {
        std::fprintf(stderr, "MF_ERR_IO is called %s\n", mf_status_name(error.status));
        return 1;
    }
    mf_model_options model = MF_MODEL_OPTIONS_INIT;
    mf_ceilings ceilings = MF_CEILINGS_INIT;
    mf_simulation_options options = MF_SIMULATION_OPTIONS_INIT;
    if (ceilings.struct_size != sizeof ceilings || options.struct_size != sizeof options ||
        model.struct_size != sizeof model || model.memory_bytes != 0) {
        std::fprintf(stderr, "an initialiser does not set the size\n");
        return 1;
    }
    return 0;
}
