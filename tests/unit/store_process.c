/* store: a cache directory on a file system, and processes that end without warning. */
#include "support/test.h"

#include "support/cache_texts.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KILLS = 100, LIMIT = 1 << 20, BYTES_MAX = 40000, CHAIN = 5 };

static char place[256], directory[512];

static int make_place(void **state)
{
    const char *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(place, sizeof place, "%s/moeflux_store.XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(place)) return -1;
    snprintf(directory, sizeof directory, "%s/a/cache", place);
    return 0;
}

static int remove_place(void **state)
{
    char command[600];
    (void)state;
    snprintf(command, sizeof command, "rm -r '%s'", place);
    return system(command);
}

static struct cache_store *open_store(bool *held, struct cache_key *root)
{
    struct cache_store *store;
    mf_error why;
    struct cache_store_options options = { .directory = directory, .limit_bytes = LIMIT };
    if (cache_store_open(&store, held, &options, &why) != MF_OK) fail_msg("%s", why.text);
    if (store) assert_int_equal(cache_store_root(root, store, "m", 1, "model", NULL), MF_OK);
    return store;
}

static uint64_t directory_bytes(void)
{
    uint64_t sum = 0;
    DIR *stream = opendir(directory);
    struct dirent *item;
    if (!stream) return 0;
    while ((item = readdir(stream))) {
        char path[1024];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", directory, item->d_name);
        if (item->d_name[0] == '.' || stat(path, &info) != 0) continue;
        sum += align_up((uint64_t)info.st_size, 4096);
        assert_int_equal(info.st_mode & 0777, 0600);
    }
    closedir(stream);
    return sum;
}

static void only_the_owner_can_read_it(void **state)
{
    struct cache_key root;
    struct cache_text text;
    struct stat info;
    bool held;
    (void)state;
    struct cache_store *store = open_store(&held, &root);
    cache_text_make(&text, store, CACHE_PAGE, &root, NULL, 1, 64, 5000);
    assert_int_equal(cache_text_put(store, &text), MF_OK);
    assert_int_equal(stat(directory, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_true(directory_bytes() > 8192);
    assert_true(directory_bytes() <= cache_store_statistics(store).used_bytes);
    cache_store_close(store);
}

/* Records one below the other and side by side, until it is killed. */
static void write_without_end(uint32_t seed)
{
    struct cache_key root;
    bool held;
    struct cache_store *store = open_store(&held, &root);
    struct cache_text texts[CHAIN];
    srand(seed);
    for (;;) {
        for (uint32_t i = 0; i < CHAIN; i++) {
            enum cache_kind kind = rand() % 4 == 0 ? CACHE_CHECKPOINT : CACHE_PAGE;
            bool below = i > 0 && texts[i - 1].record.kind == CACHE_PAGE;
            cache_text_make(&texts[i], store, kind, &root, below ? &texts[i - 1] : NULL,
                            (uint32_t)rand() % 200, 1 + (uint32_t)rand() % 64,
                            1 + (uint32_t)rand() % BYTES_MAX);
            cache_text_put(store, &texts[i]);
            if (rand() % 2) cache_store_touch(store, &texts[(uint32_t)rand() % (i + 1)].record.key);
            if (rand() % 20 == 0) cache_store_drop(store, &texts[i].record.key);
        }
    }
}

static void pause_ms(long milliseconds)
{
    struct timespec pause = { 0, milliseconds * 1000000 };
    nanosleep(&pause, NULL);
}

static void a_killed_process_leaves_a_directory_that_opens(void **state)
{
    uint64_t served = 0;
    (void)state;
    for (uint32_t i = 0; i < KILLS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) write_without_end(i);
        pause_ms(1 + (long)(i * 37 % 41));
        assert_int_equal(kill(child, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_true(directory_bytes() <= LIMIT);
        struct cache_key root;
        bool held;
        struct cache_store *store = open_store(&held, &root);
        assert_non_null(store); /* the lock has gone with the process */
        assert_true(cache_store_check_invariants(store));
        int right = cache_text_get_all(store, &root);
        struct cache_store_statistics s = cache_store_statistics(store);
        assert_int_equal(right, s.records);
        assert_int_equal(s.damaged, 0);
        served += s.records;
        cache_store_close(store);
        assert_true(directory_bytes() <= LIMIT);
    }
    assert_true(served > KILLS);
    print_message("%llu payloads after %d kills\n", (unsigned long long)served, KILLS);
}

static void a_second_process_is_told_that_it_is_held(void **state)
{
    struct cache_key root;
    bool held = true;
    int pipes[2];
    char ready;
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        struct cache_store *store = open_store(&held, &root);
        if (write(pipes[1], "r", 1) != 1 || !store) _exit(1);
        for (;;) pause();
    }
    assert_int_equal(read(pipes[0], &ready, 1), 1);
    assert_null(open_store(&held, &root));
    assert_true(held);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    struct cache_store *store = open_store(&held, &root);
    assert_non_null(store);
    assert_false(held);
    struct cache_key other;
    bool twice;
    assert_null(open_store(&twice, &other)); /* of the same process */
    assert_true(twice);
    cache_store_close(store);
    close(pipes[0]);
    close(pipes[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_owner_can_read_it),
        cmocka_unit_test(a_killed_process_leaves_a_directory_that_opens),
        cmocka_unit_test(a_second_process_is_told_that_it_is_held),
    };
    return cmocka_run_group_tests(tests, make_place, remove_place);
}
