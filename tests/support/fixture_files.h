/* fixture_files.h: the big fixtures, which $MOEFLUX_FIXTURES names and not every machine has. */
#ifndef SUPPORT_FIXTURE_FILES_H
#define SUPPORT_FIXTURE_FILES_H

#include "base/file.h"

/* Chooses a directory of the fixtures.  False, and a sentence that the test is skipped: they are
 * not here. */
bool fixtures_choose(const char *below);

/* In the directory that was chosen; any trouble fails the test.  The text is freed with free(). */
void fixture_path(char out[PATH_CAPACITY], const char *name);
char *read_fixture(const char *name, size_t *length);

#endif
