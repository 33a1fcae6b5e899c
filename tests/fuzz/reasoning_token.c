/* Any bytes as a token of reasoning: as its letters, as the frame that a right signature stands
 * behind, and as the text that goes into one.  What is refused leaves the list as it was, what is
 * accepted is within the limit, and a text comes back as it was. */
#include "dialects/reasoning_token.h"
#include "support/reasoning_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds) abort();
}

static bool read_token(const struct serve *serve, const char *token, struct byte_list *out)
{
    bool done = reasoning_token_read(serve, token, out);
    must(done ? out->count <= REASONING_TEXT_MAX : out->count == 0);
    return done;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct serve serve = { .secret = "a key that no input holds" };
    struct byte_list out = { 0 };
    char *letters = malloc(size + 1);
    must(letters != NULL);
    if (size > 0) memcpy(letters, data, size);
    letters[size] = '\0';
    read_token(&serve, letters, &out);
    byte_list_free(&out);
    free(letters);

    letters = signed_token_new(serve.secret, 1, data, size);
    must(letters != NULL);
    read_token(&serve, letters, &out);
    byte_list_free(&out);
    free(letters);

    letters = reasoning_token_new(&serve, (const char *)data, size);
    must(letters != NULL);
    bool read = read_token(&serve, letters, &out);
    must(read == (size <= REASONING_TEXT_MAX));
    must(!read || (out.count == size && (size == 0 || memcmp(out.bytes, data, size) == 0)));
    byte_list_free(&out);
    free(letters);
    return 0;
}
