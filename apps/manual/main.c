/* main.c: writes the man pages and the completions, from the option tables of the program.
 *
 *     manual pages DIRECTORY        moeflux.1 and moeflux-<command>.1
 *     manual bash | zsh | fish      the completion for a shell, on stdout
 *
 * Built and run with the program, not installed. */
#include "manual/manual.h"

#include <string.h>

static bool ended_well(FILE *out)
{
    return fflush(out) == 0 && !ferror(out);
}

/* `command` NULL: the overview. */
static bool write_page(const char *directory, const struct command *command)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/moeflux%s%s.1", directory, command ? "-" : "",
                          command ? command->name : "");
    FILE *out = length < (int)sizeof path ? fopen(path, "w") : NULL;

    if (!out) {
        fprintf(stderr, "manual: %s cannot be written\n", path);
        return false;
    }
    if (command)
        manual_write_page(out, command);
    else
        manual_write_overview(out);
    bool well = ended_well(out);
    return fclose(out) == 0 && well;
}

static int write_pages(const char *directory)
{
    bool well = write_page(directory, NULL);

    for (size_t i = 0; command_at(i) && well; i++) well = write_page(directory, command_at(i));
    return well ? 0 : 1;
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*write)(FILE *out);
    } shells[] = {
        { "bash", manual_write_bash },
        { "zsh", manual_write_zsh },
        { "fish", manual_write_fish },
    };

    if (count == 3 && strcmp(words[1], "pages") == 0) return write_pages(words[2]);
    for (size_t i = 0; i < COUNT_OF(shells) && count == 2; i++) {
        if (strcmp(words[1], shells[i].name) != 0) continue;
        shells[i].write(stdout);
        return ended_well(stdout) ? 0 : 1;
    }
    fputs("usage: manual pages DIRECTORY | bash | zsh | fish\n", stderr);
    return 2;
}
