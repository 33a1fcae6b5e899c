/* main.c: writes the man page or the bash completion, from the option tables of the program.
 *
 *     manual man          moeflux.1 on stdout
 *     manual completion   the completion for bash
 *
 * Built and run with the program, not installed. */
#include "manual/manual.h"

#include <string.h>

int main(int count, char **words)
{
    const char *what = count == 2 ? words[1] : "";

    if (strcmp(what, "man") == 0) {
        manual_write_page(stdout);
    } else if (strcmp(what, "completion") == 0) {
        manual_write_completion(stdout);
    } else {
        fputs("usage: manual man | completion\n", stderr);
        return 2;
    }
    return fflush(stdout) == 0 && !ferror(stdout) ? 0 : 1;
}
