#include "support/fixture_files.h"

#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>

static char root[PATH_CAPACITY];

bool fixtures_choose(const char *below)
{
    const char *fixtures = getenv("MOEFLUX_FIXTURES");
    if (fixtures) return path_join(root, sizeof root, fixtures, below, NULL) == MF_OK;
    fprintf(stderr, "SKIPPED: MOEFLUX_FIXTURES is not set; it names the directory that holds %s/\n",
            below);
    return false;
}

void fixture_path(char out[PATH_CAPACITY], const char *name)
{
    if (path_join(out, PATH_CAPACITY, root, name, NULL) != MF_OK) fail_msg("%s: too long", name);
}

char *read_fixture(const char *name, size_t *length)
{
    char path[PATH_CAPACITY], *text;
    mf_error why;
    fixture_path(path, name);
    if (file_read_whole_new(&text, length, &files_posix, path, 64 << 20, &why) != MF_OK)
        fail_msg("%s (%s)", why.text, why.origin);
    return text;
}
