/* replay.c: the main of a fuzz target in a normal build.  Every file of the directories (and
 * every file) named on the command line is given to the target once; a crash is the failure. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, size_t size)
{
    FILE *stream = fopen(path, "rb");
    uint8_t *data = malloc(size ? size : 1); /* exact, so that ASan sees a read past the end */
    int problem = !stream || !data || fread(data, 1, size, stream) != size;
    if (problem)
        perror(path);
    else
        LLVMFuzzerTestOneInput(data, size);
    free(data);
    if (stream) fclose(stream);
    return problem;
}

/* The number of inputs replayed; what cannot be read counts in *problems. */
static int replay(const char *path, int *problems)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        perror(path);
        ++*problems;
        return 0;
    }
    if (!S_ISDIR(info.st_mode)) {
        *problems += replay_file(path, (size_t)info.st_size);
        return 1;
    }
    int count = 0;
    struct dirent **entries;
    int found = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < found; i++) {
        char inner[4096];
        if (entries[i]->d_name[0] != '.') {
            snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
            count += replay(inner, problems);
        }
        free(entries[i]);
    }
    if (found >= 0) free(entries);
    return count;
}

int main(int argc, char **argv)
{
    int count = 0, problems = 0;
    for (int i = 1; i < argc; i++) count += replay(argv[i], &problems);
    printf("%d inputs replayed\n", count);
    if (count == 0) fprintf(stderr, "there was nothing to replay\n");
    return problems > 0 || count == 0;
}
