#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *need_environment(const char *name)
{
    const char *value = getenv(name);

    if (!value) fail_msg("%s is not set", name);
    return value;
}

const char *source_path(const char *below)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/%s", need_environment("MOEFLUX_SOURCE"), below);
    return path;
}

static const char *program_path(void)
{
    static char path[4096];

    snprintf(path, sizeof path, "%s/moeflux", need_environment("MOEFLUX_BUILD"));
    return path;
}

/* All that was written to a memory file. */
static char *take_text(int file, size_t *length)
{
    off_t end = lseek(file, 0, SEEK_END);
    char *text = malloc((size_t)end + 1);

    assert_non_null(text);
    assert_int_equal(pread(file, text, (size_t)end, 0), end);
    text[end] = '\0';
    *length = (size_t)end;
    close(file);
    return text;
}

static int open_input(const char *input)
{
    int file;

    if (!input) return open("/dev/null", O_RDONLY);
    file = memfd_create("input", 0);
    assert_int_equal(write(file, input, strlen(input)), strlen(input));
    lseek(file, 0, SEEK_SET);
    return file;
}

/* Whether the process has a handler for a signal, as the kernel lists them. */
static bool catches(pid_t child, int signal_number)
{
    char path[64], line[256];
    unsigned long long caught = 0;
    FILE *status;

    snprintf(path, sizeof path, "/proc/%d/status", (int)child);
    status = fopen(path, "r");
    while (status && fgets(line, sizeof line, status)) {
        if (sscanf(line, "SigCgt: %llx", &caught) == 1) break;
    }
    if (status) fclose(status);
    return caught >> (signal_number - 1) & 1;
}

/* One Ctrl-C, a moment after the program is ready for it. */
static void interrupt(pid_t child)
{
    enum { WAIT_MS = 60000, STEP_MS = 10, MOMENT_MS = 100 };
    int waited = 0;

    for (; waited < WAIT_MS && !catches(child, SIGINT); waited += STEP_MS) usleep(STEP_MS * 1000);
    usleep(MOMENT_MS * 1000);
    kill(child, SIGINT);
    if (waited >= WAIT_MS) fail_msg("the program did not catch SIGINT within a minute");
}

static struct run spawn(const char *path, const char *const *words, const char *input,
                        bool interrupted)
{
    int in = open_input(input), out = memfd_create("out", 0), err = memfd_create("err", 0);
    struct run run;
    struct rusage usage;
    int status;
    pid_t child = fork();

    assert_true(in >= 0 && out >= 0 && err >= 0 && child >= 0);
    if (child == 0) {
        dup2(in, STDIN_FILENO);
        dup2(out, STDOUT_FILENO);
        dup2(err, STDERR_FILENO);
        execv(path, (char *const *)words);
        _exit(127);
    }
    close(in);
    if (interrupted) interrupt(child);
    assert_int_equal(wait4(child, &status, 0, &usage), child);
    run.peak_kib = usage.ru_maxrss;
    run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    run.killed = WIFSIGNALED(status);
    run.out = take_text(out, &run.out_length);
    run.err = take_text(err, &run.err_length);
    return run;
}

static struct run run_words(const char *input, const char *const *words, bool interrupted)
{
    const char *all[64] = { program_path() };
    size_t count = 1;

    for (; *words; words++) {
        assert_true(count + 1 < sizeof all / sizeof all[0]);
        all[count++] = *words;
    }
    return spawn(all[0], all, input, interrupted);
}

struct run program_run(const char *input, const char *const *words)
{
    return run_words(input, words, false);
}

struct run program_interrupted(const char *input, const char *const *words)
{
    return run_words(input, words, true);
}

struct run shell_run(const char *line)
{
    const char *words[] = { "/bin/sh", "-c", line, NULL };

    setenv("MOEFLUX", program_path(), 1);
    setenv("SOURCE", need_environment("MOEFLUX_SOURCE"), 1);
    return spawn(words[0], words, NULL, false);
}

void run_free(struct run *run)
{
    free(run->out);
    free(run->err);
}

void assert_contains(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("\"%s\" does not contain \"%s\"", text, part);
}

void assert_refused(struct run *run, int code, const char *part)
{
    if (run->code != code) fail_msg("exit status %d, expected %d: %s", run->code, code, run->err);
    assert_string_equal(run->out, "");
    assert_memory_equal(run->err, "moeflux", 7);
    assert_contains(run->err, part);
    run_free(run);
}
