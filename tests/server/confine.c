/* confine: what the server has given up fails, what it needs works; each in a process of its own. */
#include "support/test.h"

#include "serve/confine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[] = "/tmp/confine.XXXXXX";
static char readable[64], writable[64], outside[64], link_target[64];

static void put(const char *path)
{
    int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    assert_true(file >= 0);
    assert_int_equal(write(file, "x", 1), 1);
    close(file);
}

static int make_files(void **state)
{
    char name[128];

    (void)state;
    if (!mkdtemp(root)) return -1;
    snprintf(readable, sizeof readable, "%s/model", root);
    snprintf(writable, sizeof writable, "%s/cache", root);
    snprintf(outside, sizeof outside, "%s/private", root);
    snprintf(link_target, sizeof link_target, "%s/blob", root);
    mkdir(readable, 0700);
    mkdir(writable, 0700);
    put(outside);
    put(link_target);
    snprintf(name, sizeof name, "%s/weights", readable);
    put(name);
    snprintf(name, sizeof name, "%s/linked", readable);
    return symlink(link_target, name);
}

static int remove_files(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

/* errno of opening `directory`/`name`, or 0. */
static int try_open(const char *directory, const char *name, int flags)
{
    char path[256];

    snprintf(path, sizeof path, "%s%s%s", directory, *name ? "/" : "", name);
    int file = open(path, flags | O_CLOEXEC, 0600);
    if (file < 0) return errno;
    close(file);
    return 0;
}

/* No program listens at the port: without confinement this is ECONNREFUSED. */
static int try_connect(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(1) };
    int out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int result = connect(out, (struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    close(out);
    return result;
}

static int try_program(void)
{
    execl("/bin/true", "true", (char *)NULL);
    return errno;
}

/* Runs `check` in a confined child; it exits with the number of what it found wrong. */
static int confined(int (*check)(const char *done))
{
    struct confine_paths paths = { .readable = { readable },
                                   .writable = { writable },
                                   .devices = "zer" };
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        char done[64];
        if (confine(done, sizeof done, &paths, NULL) != MF_OK) _exit(99);
        _exit(check(done));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int check_files(const char *done)
{
    if (!strstr(done, "Landlock")) return 77;
    if (try_open(readable, "weights", O_RDONLY) != 0) return 1;
    if (try_open(readable, "linked", O_RDONLY) != 0) return 2;
    if (try_open(readable, "weights", O_WRONLY) != EACCES) return 3;
    if (try_open(readable, "new", O_WRONLY | O_CREAT) != EACCES) return 4;
    if (try_open(outside, "", O_RDONLY) != EACCES) return 5;
    if (try_open(writable, "new", O_WRONLY | O_CREAT) != 0) return 6;
    if (try_open(writable, "new", O_RDONLY) != 0) return 7;
    if (try_open("/dev/null", "", O_WRONLY) != 0) return 8;
    if (try_open("/dev/zero", "", O_WRONLY) != 0) return 10;
    if (try_open("/dev/random", "", O_WRONLY) != EACCES) return 11;
    return try_open("/proc/meminfo", "", O_RDONLY) == 0 ? 0 : 9;
}

static int check_renames(const char *done)
{
    char from[128], to[128];

    if (!strstr(done, "Landlock")) return 77;
    if (try_open(writable, "a", O_WRONLY | O_CREAT) != 0) return 1;
    snprintf(from, sizeof from, "%s/a", writable);
    snprintf(to, sizeof to, "%s/b", writable);
    return rename(from, to) == 0 && truncate(to, 3) == 0 && unlink(to) == 0 ? 0 : 2;
}

static int check_calls(const char *done)
{
    if (!strstr(done, "seccomp")) return 77;
    return try_program() == EPERM ? 0 : 1;
}

/* Kernels that cannot keep a program from connecting refuse nothing: ECONNREFUSED. */
static int check_network(const char *done)
{
    (void)done;
    int result = try_connect();
    return result == EACCES ? 0 : result == ECONNREFUSED ? 77 : 1;
}

static void expect_done(int (*check)(const char *done))
{
    int code = confined(check);

    if (code == 77) {
        fprintf(stderr, "SKIPPED: this kernel cannot confine so far\n");
        skip();
    }
    assert_int_equal(code, 0);
}

static void only_named_files_are_reached(void **state)
{
    (void)state;
    expect_done(check_files);
}

static void writable_directories_can_be_kept_in_order(void **state)
{
    (void)state;
    expect_done(check_renames);
}

static void no_program_is_started(void **state)
{
    (void)state;
    expect_done(check_calls);
}

static void nothing_is_connected_to(void **state)
{
    (void)state;
    expect_done(check_network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_named_files_are_reached),
        cmocka_unit_test(writable_directories_can_be_kept_in_order),
        cmocka_unit_test(no_program_is_started),
        cmocka_unit_test(nothing_is_connected_to),
    };

    return cmocka_run_group_tests(tests, make_files, remove_files);
}
