#include "streams.h"

#include "shown.h"

#include "common/error.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

void streams_guard(void)
{
    signal(SIGPIPE, SIG_IGN);
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
        /* The lowest free number is taken.  The wrong direction on purpose: reading and
         * writing keep failing as on a closed stream, instead of seeming to work. */
        int holder = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        if (holder != stream && holder >= 0) close(holder);
    }
}

/* errno of the first write to stdout that failed: stdio itself forgets it. */
static int output_problem;

/* Another output has failed, and that has been said. */
static bool other_failed;

static bool remember_problem(bool failed)
{
    if (failed && output_problem == 0) output_problem = errno;
    return failed;
}

/* A pipe or socket whose other end is closed still says so later. */
static bool reader_is_gone(void)
{
    struct pollfd output = { .fd = STDOUT_FILENO, .events = POLLOUT };

    return poll(&output, 1, 0) > 0 && (output.revents & (POLLERR | POLLHUP));
}

void output_write(const void *bytes, size_t length)
{
    if (length > 0) remember_problem(fwrite(bytes, 1, length, stdout) != length);
}

bool output_is_lost(void)
{
    return remember_problem(fflush(stdout) != 0) || ferror(stdout);
}

int streams_finish(int code)
{
    if (other_failed && code == EXIT_DONE) code = EXIT_FAILED;
    if (!output_is_lost()) return code;
    if (output_problem == EPIPE || reader_is_gone()) return code;
    fprintf(stderr, "moeflux: standard output cannot be written%s%s\n", output_problem ? ": " : "",
            output_problem ? strerror(output_problem) : "");
    return EXIT_FAILED;
}

static bool wrong_usage;

void report_as_usage(void)
{
    wrong_usage = true;
}

int report(const mf_error *why)
{
    fputs("moeflux: ", stderr);
    visible_print(stderr, why->text[0] ? why->text : mf_status_text(why->status));
    fputc('\n', stderr);
    return wrong_usage ? EXIT_USAGE : EXIT_FAILED;
}

void output_failed(const mf_error *why)
{
    report(why);
    other_failed = true;
}

void note(const char *format, ...)
{
    char text[1024];
    va_list list;

    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fputs("moeflux: note: ", stderr);
    visible_print(stderr, text);
    fputc('\n', stderr);
}

/* ------------------------------------------------------------------- input */

enum { INPUT_LIMIT = 1 << 30 };

static mf_status read_all(char **out, size_t *length, int descriptor, const char *name,
                          mf_error *why)
{
    size_t capacity = 1 << 16, used = 0;
    char *text = malloc(capacity);

    for (;;) {
        if (!text) return fail_memory(why, capacity);
        ssize_t got = read(descriptor, text + used, capacity - used - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            free(text);
            return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be read", name);
        }
        if (got == 0) break;
        used += (size_t)got;
        if (used > INPUT_LIMIT) {
            free(text);
            return fail(why, MF_ERR_ARGUMENT, "%.256s has more than 1 GiB", name);
        }
        if (capacity - used < 2) {
            char *larger = realloc(text, capacity * 2);
            if (!larger) free(text);
            text = larger;
            capacity *= 2;
        }
    }
    text[used] = '\0';
    *out = text;
    *length = used;
    return MF_OK;
}

static bool is_standard(const char *path)
{
    return !path || strcmp(path, "-") == 0;
}

const char *input_name(const char *path)
{
    return is_standard(path) ? "standard input" : path;
}

mf_status input_read_new(char **out, size_t *length, const char *path, mf_error *why)
{
    mf_status status;
    int descriptor;

    *out = NULL;
    *length = 0;
    if (is_standard(path)) {
        return read_all(out, length, STDIN_FILENO, input_name(path), why);
    }
    descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be opened", path);
    status = read_all(out, length, descriptor, path, why);
    close(descriptor);
    return status;
}

/* ------------------------------------------------------------------ output */

mf_status output_file_open(struct output_file *out, const char *path, mf_error *why)
{
    struct stat info;
    int descriptor, used;

    *out = (struct output_file){ .path = path };
    /* A device or a pipe cannot be replaced: it is written as it is. */
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) {
        out->stream = fopen(path, "wbe");
        if (!out->stream) {
            return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be written", path);
        }
        return MF_OK;
    }
    used = snprintf(out->temporary, sizeof out->temporary, "%s.part.%ld", path, (long)getpid());
    if (used >= (int)sizeof out->temporary) {
        return fail(why, MF_ERR_ARGUMENT, "the output's path is too long");
    }
    descriptor = open(out->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor >= 0) out->stream = fdopen(descriptor, "wb");
    if (!out->stream) {
        out->temporary[0] = '\0';
        return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be written", path);
    }
    return MF_OK;
}

mf_status output_file_commit(struct output_file *file, mf_error *why)
{
    bool failed = fflush(file->stream) != 0 || ferror(file->stream);
    int number = errno;

    if (!failed && file->temporary[0] && fsync(fileno(file->stream)) != 0) {
        failed = true;
        number = errno;
    }
    if (fclose(file->stream) != 0 && !failed) {
        failed = true;
        number = errno;
    }
    file->stream = NULL;
    if (!failed && file->temporary[0] && rename(file->temporary, file->path) != 0) {
        failed = true;
        number = errno;
    }
    if (!failed) {
        file->temporary[0] = '\0';
        return MF_OK;
    }
    output_file_abandon(file);
    return fail_errno(why, MF_ERR_IO, number, "%.256s cannot be written", file->path);
}

void output_file_abandon(struct output_file *file)
{
    if (file->stream) fclose(file->stream);
    file->stream = NULL;
    if (file->temporary[0]) unlink(file->temporary);
    file->temporary[0] = '\0';
}
