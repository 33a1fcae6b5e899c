// moeflux.h must be usable from C++, and the shared library from outside.
#include "moeflux.h"

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
    return 0;
}
