/* Reasoning in tokens: what was written is read again, by this key alone, and nothing else is. */
#include "support/test.h"

#include "dialects/reasoning_token.h"
#include "support/reasoning_frame.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

static struct serve serve_with(unsigned char fill)
{
    struct serve serve = { 0 };
    memset(serve.secret, fill, sizeof serve.secret);
    return serve;
}

static void assert_refused(const struct serve *serve, const char *token)
{
    struct byte_list out = { 0 };
    assert_int_equal(byte_list_append(&out, "before", 6, NULL), MF_OK);
    if (reasoning_token_read(serve, token, &out)) fail_msg("accepted: %.80s", token);
    assert_string_equal(out.bytes, "before");
    byte_list_free(&out);
}

static void assert_gives(const struct serve *serve, const char *token, const char *text,
                         size_t length)
{
    struct byte_list out = { 0 };
    assert_int_equal(byte_list_append(&out, "<", 1, NULL), MF_OK);
    assert_true(reasoning_token_read(serve, token, &out));
    assert_int_equal(out.count, length + 1);
    assert_memory_equal(out.bytes + 1, text, length);
    byte_list_free(&out);
}

static void texts_come_back(void **state)
{
    (void)state;
    struct serve serve = serve_with(7);
    char *text = malloc(REASONING_TEXT_MAX);
    assert_non_null(text);
    for (size_t i = 0; i < REASONING_TEXT_MAX; i++) text[i] = (char)(i * 2654435761u >> 24);
    static const size_t lengths[] = { 0, 1, 2, 3, 4, 5, 100, 4095, 65537, REASONING_TEXT_MAX };
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char *token = reasoning_token_new(&serve, text, lengths[i]);
        assert_non_null(token);
        assert_int_equal(strspn(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                       "0123456789-_"),
                         strlen(token));
        assert_gives(&serve, token, text, lengths[i]);
        free(token);
    }
    free(text);
}

/* The form that the header states, made by other code. */
static void form_is_the_documented_one(void **state)
{
    (void)state;
    struct serve serve = serve_with(9);
    const char *text = "Is 91 prime? 7 * 13 = 91, so no. \xE2\x88\x8E";
    unsigned char frame[256];
    size_t size = ZSTD_compress(frame, sizeof frame, text, strlen(text), 19);
    assert_false(ZSTD_isError(size));
    char *token = signed_token_new(serve.secret, 1, frame, size);
    assert_gives(&serve, token, text, strlen(text));
    free(token);
    token = signed_token_new(serve.secret, 2, frame, size);
    assert_refused(&serve, token);
    free(token);
}

static void every_changed_bit_is_refused(void **state)
{
    (void)state;
    struct serve serve = serve_with(1);
    const char *text = "The user asks for the sum; 17 + 25 = 42.";
    for (size_t shorter = 0; shorter < 3; shorter++) { /* the three lengths of the last group */
        char *token = reasoning_token_new(&serve, text, strlen(text) - shorter);
        assert_non_null(token);
        size_t length = strlen(token);
        for (size_t i = 0; i < length; i++) {
            for (int bit = 0; bit < 8; bit++) {
                token[i] = (char)(token[i] ^ 1 << bit);
                assert_refused(&serve, token);
                token[i] = (char)(token[i] ^ 1 << bit);
            }
        }
        assert_gives(&serve, token, text, strlen(text) - shorter);
        for (size_t end = 0; end < length; end++) { /* and every beginning */
            char kept = token[end];
            token[end] = '\0';
            assert_refused(&serve, token);
            token[end] = kept;
        }
        free(token);
    }
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    struct serve serve = serve_with(1), other = serve_with(2);
    char *token = reasoning_token_new(&other, "text", 4), longer[1024];
    assert_non_null(token);
    assert_refused(&serve, token);
    assert_gives(&other, token, "text", 4);
    static const char *const after[] = { "A", "AAAA", "=", "==", "\n", " ", "*", "\xC3\xA9" };
    for (size_t i = 0; i < sizeof after / sizeof *after; i++) {
        snprintf(longer, sizeof longer, "%s%s", token, after[i]);
        assert_refused(&other, longer);
        snprintf(longer, sizeof longer, "%s%s", after[i], token);
        assert_refused(&other, longer);
    }
    free(token);
    static const char *const texts[] = {
        "", "A", "EqQBCgIYAhIkYzA3", "not a token at all", "====", "\xFF\xFE"
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) assert_refused(&serve, texts[i]);
}

/* What is signed but unpacks to more than is allowed, to another size than it states, or to none. */
static void signed_bombs_are_refused(void **state)
{
    (void)state;
    struct serve serve = serve_with(3);
    size_t large = (size_t)REASONING_TEXT_MAX + 1, capacity = ZSTD_compressBound(large);
    char *zeros = calloc(1, large);
    unsigned char *frame = malloc(capacity);
    assert_non_null(zeros);
    assert_non_null(frame);
    size_t size = ZSTD_compress(frame, capacity, zeros, large, 19);
    assert_true(size < 1000);
    char *token = signed_token_new(serve.secret, 1, frame, size);
    assert_refused(&serve, token);
    free(token);

    size = ZSTD_compress(frame, capacity, zeros, large - 1, 19); /* the largest that is allowed */
    token = signed_token_new(serve.secret, 1, frame, size);
    assert_gives(&serve, token, zeros, large - 1);
    free(token);
    token = signed_token_new(serve.secret, 1, frame, size - 1); /* cut off */
    assert_refused(&serve, token);
    free(token);

    size_t second = ZSTD_compress(frame + size, capacity - size, zeros, 10, 3); /* two frames */
    token = signed_token_new(serve.secret, 1, frame, size + second);
    assert_refused(&serve, token);
    free(token);

    ZSTD_CCtx *packer = ZSTD_createCCtx(); /* a frame that does not state its size */
    ZSTD_CCtx_setParameter(packer, ZSTD_c_contentSizeFlag, 0);
    size = ZSTD_compress2(packer, frame, capacity, zeros, large);
    ZSTD_freeCCtx(packer);
    token = signed_token_new(serve.secret, 1, frame, size);
    assert_refused(&serve, token);
    free(token);

    token = signed_token_new(serve.secret, 1, "no frame", 8);
    assert_refused(&serve, token);
    free(token);
    token = signed_token_new(serve.secret, 1, "", 0);
    assert_refused(&serve, token);
    free(token);
    token = reasoning_token_new(&serve, zeros, large); /* is not written either */
    assert_string_equal(token, "");
    free(token);
    free(zeros);
    free(frame);
}

/* ------------------------------------------------------------------------ key */

static void key_is_made_once_and_private(void **state)
{
    (void)state;
    char directory[] = "/tmp/moeflux-key-XXXXXX", inner[64], path[128], command[256];
    unsigned char first[REASONING_KEY_BYTES], again[REASONING_KEY_BYTES];
    mf_error why = { .text = "" };
    struct stat info;
    assert_non_null(mkdtemp(directory));
    snprintf(inner, sizeof inner, "%s/state", directory);
    snprintf(path, sizeof path, "%s/reasoning.key", inner);
    umask(0);
    assert_int_equal(reasoning_key_load(first, inner, &why), MF_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode, S_IFREG | 0600);
    assert_int_equal(info.st_size, REASONING_KEY_BYTES);
    assert_int_equal(stat(inner, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0700);
    assert_int_equal(reasoning_key_load(again, inner, &why), MF_OK);
    assert_memory_equal(first, again, sizeof first);
    snprintf(command, sizeof command, "test \"$(ls -A %s)\" = reasoning.key", inner);
    assert_int_equal(system(command), 0); /* no temporary file is left */

    assert_int_equal(unlink(path), 0);
    assert_int_equal(reasoning_key_load(again, inner, &why), MF_OK);
    assert_memory_not_equal(first, again, sizeof first);
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

static void random_keys_differ(void **state)
{
    (void)state;
    unsigned char a[REASONING_KEY_BYTES] = { 0 }, b[REASONING_KEY_BYTES] = { 0 };
    assert_int_equal(reasoning_key_load(a, NULL, NULL), MF_OK);
    assert_int_equal(reasoning_key_load(b, NULL, NULL), MF_OK);
    assert_memory_not_equal(a, b, sizeof a);
}

static void wrong_key_files_are_named(void **state)
{
    (void)state;
    char directory[] = "/tmp/moeflux-key-XXXXXX", path[64], command[64];
    unsigned char key[REASONING_KEY_BYTES];
    mf_error why = { .text = "" };
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof path, "%s/reasoning.key", directory);
    static const size_t sizes[] = { 0, 31, 33, 4096 };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int fd = open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
        assert_int_equal(ftruncate(fd, (off_t)sizes[i]), 0);
        close(fd);
        assert_int_equal(reasoning_key_load(key, directory, &why), MF_ERR_FORMAT);
        assert_non_null(strstr(why.text, path));
    }
    unlink(path);
    assert_int_equal(symlink("/dev/zero", path), 0); /* a link is not followed */
    assert_int_equal(reasoning_key_load(key, directory, &why), MF_ERR_IO);
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(reasoning_key_load(key, directory, &why), MF_ERR_IO);
    assert_int_equal(reasoning_key_load(key, "/proc/none/such", &why), MF_ERR_IO);
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_back),
        cmocka_unit_test(form_is_the_documented_one),
        cmocka_unit_test(every_changed_bit_is_refused),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(signed_bombs_are_refused),
        cmocka_unit_test(key_is_made_once_and_private),
        cmocka_unit_test(random_keys_differ),
        cmocka_unit_test(wrong_key_files_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
