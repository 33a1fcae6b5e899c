/* The small texts beside a model's weights, any bytes each:
 *
 *     generation_config.json NUL tokenizer_config.json NUL tokenizer NUL chat_template.json
 *
 * A tokenizer that begins with '{' is tokenizer.json, any other tiktoken.model; an empty part
 * is a file that is not there.  The weights are a tiny model's and right.  What opens must have
 * end tokens within its vocabulary, and decode what it encodes to. */
#include "support/fuzzed_model.h"
#include "support/tiny_model.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXTS = 4 };

/* One layer, and room for the ids of a tiktoken.model: it always has 256 reserved ones. */
static const struct tiny_model *weights(void)
{
    static struct tiny_model tiny;
    if (tiny.tensor_count > 0) return &tiny;
    struct tiny_shape shape = tiny_standard;
    shape.layers = shape.interval = 1;
    shape.vocab_size = 600;
    tiny_model_init(&tiny, &shape);
    tiny_model_write(&tiny);
    return &tiny;
}

static void use(mf_model *model)
{
    const struct model_config *config = &model->model.config;
    for (size_t i = 0; i < config->end_token_count; i++)
        must(config->end_tokens[i] >= 0 && (uint32_t)config->end_tokens[i] < config->vocab_size);
    fuzzed_model_encode(model);
}

/* The same files without the weights. */
static void try_text(const mf_files *files)
{
    struct model_text text;
    mf_error why = { 0 };
    mf_status status = model_open_text(&text, files, TINY_PATH, &why);
    must(status == MF_OK || (!text.chat && why.text[0] != '\0'));
    must(text.chat_error.status == MF_OK || (!text.chat && text.chat_error.text[0] != '\0'));
    model_text_clear(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *names[TEXTS] = { TINY_PATH "/generation_config.json",
                                 TINY_PATH "/tokenizer_config.json", TINY_PATH "/tokenizer.json",
                                 TINY_PATH "/chat_template.json" };
    struct memory_files files;
    memory_files_init(&files);
    for (size_t i = 0; i < weights()->files.count; i++) {
        const struct memory_file *file = &weights()->files.list[i];
        memory_files_put(&files, file->path, file->data, file->size);
    }
    for (size_t i = 0; i < TEXTS && size > 0; i++) {
        const uint8_t *end = i + 1 < TEXTS ? memchr(data, '\0', size) : NULL;
        size_t length = end ? (size_t)(end - data) : size;
        if (i == 2 && data[0] != '{') names[i] = TINY_PATH "/tiktoken.model";
        if (length > 0) memory_files_put(&files, names[i], data, length);
        data += length + (end != NULL);
        size -= length + (end != NULL);
    }
    fuzzed_model_try(&files, TINY_PATH, use);
    try_text(&files.files);
    must(files.open_count == 0);
    return 0;
}
