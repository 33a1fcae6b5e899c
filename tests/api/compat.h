/* compat.h: what tests/api/compat.c needs besides the public headers. */
#ifndef TESTS_API_COMPAT_H
#define TESTS_API_COMPAT_H

#include <moeflux_compat.h>

#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static mf_error why;

static float *floats(size_t count)
{
    float *out = calloc(count, sizeof *out);
    CHECK(out);
    return out;
}

/* Between -1 and 1. */
static float *random_floats(size_t count)
{
    static uint32_t state = 1;
    float *out = floats(count);
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        out[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
    return out;
}

static mf_numbers in(mf_floats array)
{
    return (mf_numbers){ array.values, array.count };
}

/* Of the largest number: for what the order of f32 sums changes, or the 8 bits of bf16. */
static float tolerance;

static void check_close(const float *found, const float *expected, size_t count)
{
    float most = 0, error = 0;
    for (size_t i = 0; i < count; i++) {
        most = fmaxf(most, fabsf(expected[i]));
        error = fmaxf(error, fabsf(found[i] - expected[i]));
    }
    if (!(error <= tolerance * most))
        fprintf(stderr, "off by %g of %g\n", (double)error, (double)most);
    CHECK(error <= tolerance * most);
}

/* --------------------------------------------- a copy of a model directory */

static const char *const copied[] = { "config.json",
                                      "model.safetensors.index.json",
                                      "model-00001-of-00002.safetensors",
                                      "model-00002-of-00002.safetensors",
                                      "tokenizer.json",
                                      "tokenizer_config.json" };

static void copy_file(const char *to, const char *from)
{
    char piece[65536];
    size_t count;
    FILE *in_file = fopen(from, "rb"), *out_file = fopen(to, "wb");
    CHECK(in_file && out_file);
    while ((count = fread(piece, 1, sizeof piece, in_file)) > 0)
        CHECK(fwrite(piece, 1, count, out_file) == count);
    fclose(in_file);
    CHECK(fclose(out_file) == 0);
}

static void copy_model(char *out, size_t capacity, const char *path)
{
    char from[4200], to[256];
    snprintf(out, capacity, "/tmp/moeflux-compat-XXXXXX");
    CHECK(mkdtemp(out));
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        snprintf(from, sizeof from, "%s/%s", path, copied[i]);
        snprintf(to, sizeof to, "%s/%s", out, copied[i]);
        copy_file(to, from);
    }
}

static void remove_model(const char *directory)
{
    char path[256];
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        snprintf(path, sizeof path, "%s/%s", directory, copied[i]);
        remove(path);
    }
    remove(directory);
}

/* Inverts the first of the bytes, where the file has them. */
static void flip_byte_of(const char *path, const uint8_t *bytes, size_t size)
{
    const size_t known = size < 64 ? size : 64; /* values of an expert, enough to be unique */
    FILE *file = fopen(path, "r+b");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    size_t length = (size_t)ftell(file), at = 0;
    uint8_t *whole = malloc(length);
    rewind(file);
    CHECK(whole && fread(whole, 1, length, file) == length);
    while (at + known <= length && memcmp(whole + at, bytes, known) != 0) at++;
    CHECK(at + known <= length);
    CHECK(fseek(file, (long)at, SEEK_SET) == 0 && fputc(bytes[0] ^ 0xff, file) != EOF);
    CHECK(fclose(file) == 0);
    free(whole);
}

#endif
