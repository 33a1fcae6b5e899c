#include "dialects/reasoning_token.h"

#include "common/basics.h"

#include <errno.h>
#include <fcntl.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

enum { VERSION = 1, MAC_BYTES = SHA256_DIGEST_SIZE, LEVEL = 3 };

_Static_assert(REASONING_KEY_BYTES == sizeof(((struct serve *)0)->secret), "one key");

/* ------------------------------------------------------------------ base64url */

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* `out` has room for ceil(count · 4 / 3) letters and a NUL. */
static void encode(char *out, const unsigned char *bytes, size_t count)
{
    uint32_t bits = 0;
    unsigned held = 0;

    for (size_t i = 0; i < count; i++) {
        bits = bits << 8 | bytes[i];
        for (held += 8; held >= 6; held -= 6) *out++ = letters[bits >> (held - 6) & 63];
    }
    if (held > 0) *out++ = letters[bits << (6 - held) & 63];
    *out = '\0';
}

static int value_of(char letter)
{
    const char *found = letter ? strchr(letters, letter) : NULL;

    return found ? (int)(found - letters) : -1;
}

/* Exactly one text stands for a row of bytes: other letters, padding, a letter too many and bits
 * that are left over but set are refused.  `out` has room for length · 3 / 4 bytes. */
static bool decode(unsigned char *out, size_t *count, const char *text, size_t length)
{
    uint32_t bits = 0;
    unsigned held = 0;

    *count = 0;
    for (size_t i = 0; i < length; i++) {
        int value = value_of(text[i]);
        if (value < 0) return false;
        bits = bits << 6 | (uint32_t)value;
        held += 6;
        if (held < 8) continue;
        held -= 8;
        out[(*count)++] = (unsigned char)(bits >> held);
    }
    return held < 6 && (bits & ((1u << held) - 1)) == 0;
}

/* ------------------------------------------------------------------------ key */

static mf_status random_key(unsigned char key[REASONING_KEY_BYTES], mf_error *why)
{
    if (getrandom(key, REASONING_KEY_BYTES, 0) == REASONING_KEY_BYTES) return MF_OK;
    return fail_errno(why, MF_ERR_IO, errno, "get %d random bytes", REASONING_KEY_BYTES);
}

/* *missing: there is no such file, which is no failure. */
static mf_status read_key(unsigned char key[REASONING_KEY_BYTES], bool *missing, const char *path,
                          mf_error *why)
{
    unsigned char bytes[REASONING_KEY_BYTES + 1];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    *missing = fd < 0 && errno == ENOENT;
    if (*missing) return MF_OK;
    if (fd < 0) return fail_errno(why, MF_ERR_IO, errno, "open %.256s", path);
    ssize_t count = read(fd, bytes, sizeof bytes);
    int problem = errno;
    close(fd);
    if (count < 0) return fail_errno(why, MF_ERR_IO, problem, "read %.256s", path);
    if (count != REASONING_KEY_BYTES)
        return fail(why, MF_ERR_FORMAT,
                    "%.256s has %s%zd bytes, a key has %d; remove the file to get a new one", path,
                    count > REASONING_KEY_BYTES ? "at least " : "", count, REASONING_KEY_BYTES);
    memcpy(key, bytes, REASONING_KEY_BYTES);
    return MF_OK;
}

static bool write_synced(int fd, const unsigned char *bytes, size_t count)
{
    ssize_t written = write(fd, bytes, count);

    if (written >= 0 && (size_t)written != count) errno = ENOSPC;
    return written == (ssize_t)count && fsync(fd) == 0;
}

static void sync_directory(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) return;
    fsync(fd);
    close(fd);
}

/* The file appears whole, or another process has made one: then that is the key. */
static mf_status make_key(unsigned char key[REASONING_KEY_BYTES], const char *directory,
                          const char *path, mf_error *why)
{
    char fresh[PATH_CAPACITY];
    bool missing;
    mf_status status = random_key(key, why);

    if (status != MF_OK) return status;
    if (snprintf(fresh, sizeof fresh, "%s.XXXXXX", path) >= (int)sizeof fresh)
        return fail(why, MF_ERR_ARGUMENT, "the path %.256s… is too long", path);
    int fd = mkostemp(fresh, O_CLOEXEC); /* mode 0600 */
    if (fd < 0) return fail_errno(why, MF_ERR_IO, errno, "create %.256s", fresh);
    if (!write_synced(fd, key, REASONING_KEY_BYTES))
        status = fail_errno(why, MF_ERR_IO, errno, "write %.256s", fresh);
    close(fd);
    if (status == MF_OK && renameat2(AT_FDCWD, fresh, AT_FDCWD, path, RENAME_NOREPLACE) != 0) {
        if (errno == EEXIST)
            status = read_key(key, &missing, path, why);
        else if (errno != EINVAL || rename(fresh, path) != 0) /* EINVAL: not on this file system */
            status = fail_errno(why, MF_ERR_IO, errno, "rename %.256s", fresh);
    }
    unlink(fresh); /* still there after a failure only */
    if (status == MF_OK) sync_directory(directory);
    return status;
}

mf_status reasoning_key_load(unsigned char key[REASONING_KEY_BYTES], const char *directory,
                             mf_error *why)
{
    char path[PATH_CAPACITY];
    bool missing;

    if (!directory) return random_key(key, why);
    if (snprintf(path, sizeof path, "%s/reasoning.key", directory) >= (int)sizeof path)
        return fail(why, MF_ERR_ARGUMENT, "the path %.256s… is too long", directory);
    if (mkdir(directory, 0700) != 0 && errno != EEXIST)
        return fail_errno(why, MF_ERR_IO, errno, "create the directory %.256s", directory);
    mf_status status = read_key(key, &missing, path, why);
    return status == MF_OK && missing ? make_key(key, directory, path, why) : status;
}

/* --------------------------------------------------------------------- tokens */

static void sign(unsigned char mac[MAC_BYTES], const struct serve *serve,
                 const unsigned char *bytes, size_t count)
{
    struct hmac_sha256_ctx hmac;

    hmac_sha256_set_key(&hmac, sizeof serve->secret, serve->secret);
    hmac_sha256_update(&hmac, count, bytes);
    hmac_sha256_digest(&hmac, MAC_BYTES, mac);
}

char *reasoning_token_new(const struct serve *serve, const char *text, size_t length)
{
    if (length > REASONING_TEXT_MAX) return calloc(1, 1);
    size_t capacity = 1 + ZSTD_compressBound(length) + MAC_BYTES;
    unsigned char *packed = malloc(capacity);
    char *token = NULL;

    if (!packed) return NULL;
    packed[0] = VERSION;
    size_t size = ZSTD_compress(packed + 1, capacity - 1 - MAC_BYTES, text, length, LEVEL);
    if (!ZSTD_isError(size)) token = malloc((1 + size + MAC_BYTES + 2) / 3 * 4 + 1);
    if (token) {
        sign(packed + 1 + size, serve, packed, 1 + size);
        encode(token, packed, 1 + size + MAC_BYTES);
    }
    free(packed);
    return token;
}

/* The frame was written by us: the size that it states is checked all the same. */
static bool unpack(const unsigned char *frame, size_t size, struct byte_list *out)
{
    unsigned long long length = ZSTD_getFrameContentSize(frame, size);

    if (length > REASONING_TEXT_MAX) return false; /* unknown and wrong are beyond it */
    char *text = malloc((size_t)length + 1);
    if (!text) return false;
    bool done = ZSTD_decompress(text, (size_t)length, frame, size) == length &&
                byte_list_append(out, text, (size_t)length, NULL) == MF_OK;
    free(text);
    return done;
}

bool reasoning_token_read(const struct serve *serve, const char *token, struct byte_list *out)
{
    size_t length = strlen(token), count;
    unsigned char mac[MAC_BYTES], *packed = malloc(length + 1);
    bool done = packed && decode(packed, &count, token, length) && count > 1 + MAC_BYTES &&
                packed[0] == VERSION;

    if (done) {
        sign(mac, serve, packed, count - MAC_BYTES);
        done = memeql_sec(mac, packed + count - MAC_BYTES, MAC_BYTES) &&
               unpack(packed + 1, count - MAC_BYTES - 1, out);
    }
    free(packed);
    return done;
}
