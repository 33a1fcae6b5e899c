/* rates_file: figures come back as they were kept, other machines' stay, and no damaged file gives
 * any. */
#include "support/test.h"

#include "plan/rates_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[] = "/tmp/moeflux-rates-XXXXXX";
static char path[128];

static int make_directory(void **state)
{
    (void)state;
    if (!mkdtemp(directory)) return -1;
    snprintf(path, sizeof path, "%s/deep/er/rates.json", directory);
    return 0;
}

static int remove_directory(void **state)
{
    char line[128];
    (void)state;
    snprintf(line, sizeof line, "rm -r %s", directory);
    return system(line); /* NOLINT(cert-env33-c): a directory of this test */
}

static struct known_rates example(double factor)
{
    struct known_rates known = { .rates = { .memory_bytes = 50e9 * factor,
                                            .matrix_flops = 1e12 * factor,
                                            .layer_seconds = 2e-6 * factor } };
    known.rates.formats[3] = (mf_format_rates){ .decode_bytes = 40e9 * factor,
                                                .prompt_rows = { 1, 4, 32, 128 },
                                                .prompt_flops = { 1e9, 2e9, 3e9, 4e9 * factor },
                                                .narrow_decode_bytes = 20e9 * factor,
                                                .narrow_prompt_flops = { 5e8, 6e8, 7e8, 8e8 } };
    rates_set_disk(&known, "8:1", 3e9 * factor);
    return known;
}

static void figures_come_back(void **state)
{
    struct known_rates known = example(1), other = example(2), found;
    (void)state;
    assert_int_equal(rates_save(&known, path, "this one", NULL), MF_OK);
    assert_int_equal(rates_save(&other, path, "another", NULL), MF_OK);
    rates_load(&found, path, "this one");
    assert_true(found.rates.memory_bytes == 50e9 && found.rates.matrix_flops == 1e12);
    assert_true(found.rates.layer_seconds == 2e-6);
    assert_true(found.rates.formats[3].decode_bytes == 40e9);
    assert_true(found.rates.formats[3].prompt_flops[3] == 4e9);
    assert_true(found.rates.formats[3].narrow_decode_bytes == 20e9);
    assert_true(found.rates.formats[3].narrow_prompt_flops[3] == 8e8);
    assert_true(found.rates.formats[4].decode_bytes == 0);
    assert_true(rates_disk(&found, "8:1") == 3e9 && rates_disk(&found, "8:2") == 0);
    assert_false(found.changed);
    rates_load(&found, path, "another");
    assert_true(found.rates.memory_bytes == 100e9);
    rates_load(&found, path, "a third");
    assert_true(found.rates.memory_bytes == 0 && found.disk_count == 0);
}

static void damaged_files_give_nothing(void **state)
{
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "7",
        "{\"version\":2,\"machines\":{\"m\":{\"memory_bytes\":1}}}",
        "{\"version\":1,\"machines\":[]}",
        "{\"version\":1,\"machines\":{\"m\":[1]}}",
        "{\"version\":1,\"machines\":{\"m\":{\"memory_bytes\":-1,\"matrix_flops\":\"x\","
        "\"formats\":{\"F32\":{\"decode_bytes\":1,\"narrow_decode_bytes\":1,\"prompt\":"
        "[[4,1,1],[1,1,1],[2,1,1],[3,1,1]]},"
        "\"F16\":{\"decode_bytes\":1,\"prompt\":[[1,1],[2,1],[3,1],[4,1]]}},"
        "\"disks\":{\"8:1\":null}}}}",
        "{\"version\":1,\"machines\":{\"m\":{\"formats\":[],\"disks\":3}}}",
    };
    struct known_rates found;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(texts[i], file);
        fclose(file);
        rates_load(&found, path, "m");
        assert_true(found.rates.memory_bytes == 0 && found.disk_count == 0);
        for (size_t f = 0; f < FORECAST_FORMATS; f++)
            assert_true(found.rates.formats[f].decode_bytes == 0);
        struct known_rates known = example(1);
        assert_int_equal(rates_save(&known, path, "m", NULL), MF_OK); /* and it is replaced */
        rates_load(&found, path, "m");
        assert_true(found.rates.memory_bytes == 50e9);
    }
}

static void the_oldest_disk_makes_room(void **state)
{
    struct known_rates known = { .changed = false };
    char name[32];
    (void)state;
    for (int i = 0; i <= RATES_DISKS; i++) {
        snprintf(name, sizeof name, "8:%d", i);
        rates_set_disk(&known, name, i + 1);
    }
    assert_int_equal(known.disk_count, RATES_DISKS);
    assert_true(rates_disk(&known, "8:0") == 0 && rates_disk(&known, "8:1") == 2);
    assert_true(rates_disk(&known, name) == RATES_DISKS + 1);
    rates_set_disk(&known, "8:1", 9);
    assert_true(rates_disk(&known, "8:1") == 9 && known.disk_count == RATES_DISKS);
}

static void a_fingerprint_names_the_machine(void **state)
{
    char found[FINGERPRINT_BYTES], expected[FINGERPRINT_BYTES];
    (void)state;
    rates_fingerprint(found, "vendor_id\t: X\nmodel name\t: A CPU @ 3 GHz\nflags : a\n", 4, "avx2");
    snprintf(expected, sizeof expected, "A CPU @ 3 GHz, 4 threads, avx2, moeflux %s", mf_version());
    assert_string_equal(found, expected);
    rates_fingerprint(found, "processor\t: 0\nCPU part\t: 0xd0c\n", 1, "neon");
    assert_true(strncmp(found, "0xd0c, 1 threads, neon", 22) == 0);
    rates_fingerprint(found, "", 1, "neon");
    assert_true(strncmp(found, "unknown CPU, 1 threads", 22) == 0);
    rates_fingerprint(found, "model name", 1, "neon");
    assert_true(strncmp(found, "unknown CPU", 11) == 0);
}

static void the_directory_is_that_of_the_environment(void **state)
{
    char found[64];
    (void)state;
    setenv("XDG_CACHE_HOME", "/x/cache", 1);
    setenv("HOME", "/home/a", 1);
    assert_true(rates_directory(found, sizeof found));
    assert_string_equal(found, "/x/cache/moeflux");
    setenv("XDG_CACHE_HOME", "relative", 1); /* the specification: to be ignored */
    assert_true(rates_directory(found, sizeof found));
    assert_string_equal(found, "/home/a/.cache/moeflux");
    unsetenv("HOME");
    assert_false(rates_directory(found, sizeof found));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_come_back),
        cmocka_unit_test(damaged_files_give_nothing),
        cmocka_unit_test(the_oldest_disk_makes_room),
        cmocka_unit_test(a_fingerprint_names_the_machine),
        cmocka_unit_test(the_directory_is_that_of_the_environment),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
