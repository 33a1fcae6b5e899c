/* How fast text becomes tokens: `build/bench/bench_tokenizer [DIRECTORY [FILE...]]`.
 *
 * CSV on stdout: case, best, worst, unit, of several rounds in one thread.  Without arguments the
 * tokenizers are Pebble's and, where MOEFLUX_FIXTURES names the fixtures, Qwen2's; the texts
 * are Pebble's held-out text, made-up Chinese, and a megabyte each of what makes a bad
 * tokenizer slow. */
#include "base/file.h"
#include "base/utf8.h"
#include "support/one_call.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 5, TEXT_BYTES = 1 << 20 };

struct sample {
    const char *name;
    char *text;
    size_t length;
};

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(mf_status status, const mf_error *why)
{
    if (status == MF_OK) return;
    fprintf(stderr, "%s\n", why->text);
    exit(1);
}

static void print_range(const char *tokenizer, const char *name, double a, double b,
                        const char *unit)
{
    printf("tokenizer,%s %s,%.1f,%.1f,%s\n", tokenizer, name, a, b, unit);
}

static void time_encode(const char *name, const struct tokenizer *tokenizer,
                        const struct sample *sample)
{
    double best = 1e9, worst = 0;
    struct token_list ids = { 0 };
    mf_error why;
    for (int i = 0; i < ROUNDS; i++) {
        double start = now_s();
        ids.count = 0;
        must(tokenizer_encode(&ids, tokenizer, sample->text, sample->length, SPECIAL_PARSE, &why),
             &why);
        double taken = now_s() - start;
        best = taken < best ? taken : best;
        worst = taken > worst ? taken : worst;
    }
    double megabytes = (double)sample->length / 1e6;
    print_range(name, sample->name, megabytes / best, megabytes / worst, "MB/s");
    token_list_free(&ids);
}

static void time_directory(const char *name, const char *directory, const struct sample *samples,
                           size_t count)
{
    double best = 1e9, worst = 0;
    struct tokenizer *tokenizer = NULL;
    mf_error why;
    for (int i = 0; i < ROUNDS; i++) {
        tokenizer_free(tokenizer);
        double start = now_s();
        must(tokenizer_open_new(&tokenizer, &files_posix, directory, &why), &why);
        double taken = now_s() - start;
        best = taken < best ? taken : best;
        worst = taken > worst ? taken : worst;
    }
    print_range(name, "open", best * 1e3, worst * 1e3, "ms");
    for (size_t i = 0; i < count; i++) time_encode(name, tokenizer, &samples[i]);
    tokenizer_free(tokenizer);
}

/* `unit` again and again, TEXT_BYTES of it or a little less. */
static struct sample repeated(const char *name, const char *unit, size_t unit_length)
{
    struct sample sample = { name, malloc(TEXT_BYTES), 0 };
    if (!sample.text) exit(1);
    for (; sample.length + unit_length <= TEXT_BYTES; sample.length += unit_length)
        memcpy(sample.text + sample.length, unit, unit_length);
    return sample;
}

static struct sample from_file(const char *name, const char *path)
{
    struct sample sample = { .name = name };
    mf_error why;
    must(file_read_whole_new(&sample.text, &sample.length, &files_posix, path, 1 << 30, &why),
         &why);
    return sample;
}

/* Clauses of common characters, in no sensible order. */
static struct sample made_up_chinese(void)
{
    static const char characters[] =
        "的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就"
        "分对成会可主发年动同工也能下过子说产种面而方后多定行学法所民得经";
    struct sample sample = { "chinese", malloc(TEXT_BYTES), 0 };
    uint32_t state = 1;
    if (!sample.text) exit(1);
    while (sample.length + 3 <= TEXT_BYTES) {
        state = state * 1664525 + 1013904223;
        size_t which = (state >> 16) % (sizeof characters / 3);
        const char *from = (state >> 8) % 12 == 0 ? "，" : characters + 3 * which;
        memcpy(sample.text + sample.length, from, 3);
        sample.length += 3;
    }
    return sample;
}

int main(int argc, char **argv)
{
    struct sample samples[16];
    size_t count = 0;
    char path[PATH_CAPACITY];
    if (argc > 2)
        for (int i = 2; i < argc && count < COUNT_OF(samples); i++)
            samples[count++] = from_file(argv[i], argv[i]);
    if (count == 0) {
        const char *source = getenv("MOEFLUX_SOURCE");
        snprintf(path, sizeof path, "%s/tests/fixtures/pebble/heldout.txt", source ? source : ".");
        samples[count++] = from_file("english", path);
        samples[count++] = made_up_chinese();
        samples[count++] = repeated("letter", "a", 1);
        samples[count++] = repeated("spaces", " ", 1);
        samples[count++] = repeated("emoji", "😀", 4);
        samples[count++] = repeated("accents", "e\u0301\u0323", 5);
    }
    const char *fixtures = getenv("MOEFLUX_FIXTURES");
    if (argc > 1) {
        time_directory(argv[1], argv[1], samples, count);
    } else {
        time_directory("pebble", "models/pebble", samples, count);
        if (fixtures) {
            snprintf(path, sizeof path, "%s/tokenizers/qwen2", fixtures);
            time_directory("qwen2", path, samples, count);
        }
    }
    for (size_t i = 0; i < count; i++) free(samples[i].text);
    return 0;
}
