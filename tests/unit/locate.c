/* locate and hub: what a path or a name turns out to be, and the sentence for what is no model. */
#include "support/test.h"

#include "checkpoint/hub.h"
#include "checkpoint/locate.h"
#include "model/model.h"
#include "moeflux.h"
#include "support/memory_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct memory_files files;

static void put(const char *path, const char *text)
{
    memory_files_put(&files, path, text, strlen(text));
}

static void expect_place(const char *path, enum checkpoint_kind kind, const char *found)
{
    struct checkpoint_place place;
    mf_error why = { 0 };
    if (checkpoint_locate(&place, &files.files, path, &why) != MF_OK)
        fail_msg("%s: %s", path, why.text);
    assert_int_equal(place.kind, kind);
    assert_string_equal(place.path, found);
    assert_int_equal(files.open_count, 0);
}

static void expect_refused(const mf_files *from, const char *path, const char *words)
{
    struct checkpoint_place place;
    mf_error why = { 0 };
    if (checkpoint_locate(&place, from, path, &why) == MF_OK || !strstr(why.text, words))
        fail_msg("%s: \"%s\", \"%s\" was expected", path, why.text, words);
    assert_int_equal(files.open_count, 0);
}

static void kinds_are_told_apart(void **state)
{
    (void)state;
    memory_files_init(&files);
    put("sha256-abcdef", "GGUF....");
    put("X.GGUF", "GGUF....");
    put("hf/config.json", "{}");
    put("hf/model-00001-of-00002.safetensors", "");
    put("packed/moeflux.json", "{}");
    put("old/artifacts/model_weights.json", "{}");
    put("one/README.md", "");
    put("one/model.Q4_K_M.gguf", "GGUF");
    put("one/mmproj-model.gguf", "GGUF");
    put("split/m-00002-of-00002.gguf", "GGUF");
    put("split/m-00001-of-00002.gguf", "GGUF");
    put("renamed/README.md", "a model");
    put("renamed/sha256-0123", "GGUF");
    put("renamed/mmproj-model", "GGUF");
    put("deep/README.md", "");
    put("deep/Q4_K_M/m-00001-of-00002.gguf", "GGUF");
    put("deep/Q4_K_M/m-00002-of-00002.gguf", "GGUF");
    expect_place("sha256-abcdef", CHECKPOINT_GGUF, "sha256-abcdef");
    expect_place("X.GGUF", CHECKPOINT_GGUF, "X.GGUF");
    expect_place("hf", CHECKPOINT_SAFETENSORS, "hf");
    expect_place("packed", CHECKPOINT_PACKED, "packed");
    expect_place("old", CHECKPOINT_ANCESTORS, "old");
    expect_place("one", CHECKPOINT_GGUF, "one/model.Q4_K_M.gguf");
    expect_place("split", CHECKPOINT_GGUF, "split/m-00001-of-00002.gguf");
    expect_place("renamed", CHECKPOINT_GGUF, "renamed/sha256-0123");
    expect_place("deep", CHECKPOINT_GGUF, "deep/Q4_K_M/m-00001-of-00002.gguf");
}

#define POINTER                                                                                    \
    "version https://git-lfs.github.com/spec/v1\n"                                                 \
    "oid sha256:0000000000000000000000000000000000000000000000000000000000000000\nsize 9\n"

static void each_kind_of_wrong_file_has_its_own_message(void **state)
{
    (void)state;
    memory_files_init(&files);
    put("pointer.gguf", POINTER);
    put("empty.gguf", "");
    put("text.gguf", "hello");
    put("model.safetensors", "\x08\0\0\0\0\0\0\0{}");
    put("two/b.gguf", "GGUF");
    put("two/a.gguf", "GGUF");
    put("blobs/sha256-2", "GGUF");
    put("blobs/sha256-1", "GGUF");
    put("later/m-00002-of-00003.gguf", "GGUF");
    put("torch/pytorch_model.bin", "PK");
    put("weightless/config.json", "{}");
    put("other/README.md", "");
    put("pointed/x.gguf", POINTER);
    expect_refused(&files.files, "pointer.gguf", "is a pointer of git-lfs");
    expect_refused(&files.files, "pointed", "pointed/x.gguf is a pointer of git-lfs");
    expect_refused(&files.files, "empty.gguf", "is empty; the download may be incomplete");
    expect_refused(&files.files, "text.gguf", "neither a checkpoint directory nor a GGUF file");
    expect_refused(&files.files, "model.safetensors", "give the directory that it is in");
    expect_refused(&files.files, "two", "holds 2 GGUF models (a.gguf, b.gguf): give the path");
    expect_refused(&files.files, "blobs", "holds 2 GGUF models (sha256-1, sha256-2)");
    expect_refused(&files.files, "later", "not the first part of it; the download may be");
    expect_refused(&files.files, "torch", "the format of pytorch_model.bin is not read");
    expect_refused(&files.files, "weightless", "no GGUF file; the download may be incomplete");
    expect_refused(&files.files, "other", "other has no model*.safetensors and no GGUF file");
    expect_refused(&files.files, "nowhere", "nowhere cannot be opened");
}

/* The program would wait for a writer that never comes; the test's alarm ends it. */
static void pipes_sockets_and_devices_are_refused_at_once(void **state)
{
    (void)state;
    static const char sentence[] = "is a pipe, a socket or a device";
    char directory[] = "/tmp/moeflux-locate-XXXXXX", path[128];
    assert_non_null(mkdtemp(directory));
    memory_files_init(&files);
    snprintf(path, sizeof path, "%s/fifo.gguf", directory);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20);
    expect_refused(&files_posix, path, sentence);
    alarm(0);
    unlink(path);

    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int descriptor = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", directory);
    assert_int_equal(bind(descriptor, (struct sockaddr *)&address, sizeof address), 0);
    expect_refused(&files_posix, address.sun_path, sentence);
    close(descriptor);
    unlink(address.sun_path);
    rmdir(directory);
    expect_refused(&files_posix, "/dev/null", sentence);
}

/* A file may be read as if it had been opened as usual: io_uring needs that. */
static void opened_files_are_in_blocking_mode(void **state)
{
    (void)state;
    struct file file;
    assert_int_equal(file_open(&file, &files_posix, "/proc/self/exe", NULL), MF_OK);
    int descriptor = files_posix.descriptor(NULL, file.handle);
    assert_int_equal(fcntl(descriptor, F_GETFL) & O_NONBLOCK, 0);
    file_close(&file);
}

static void tokenizers_may_be_pointers_too(void **state)
{
    (void)state;
    struct model_text text;
    mf_error why = { 0 };
    memory_files_init(&files);
    put("model/tokenizer.json", POINTER);
    assert_int_equal(model_open_text(&text, &files.files, "model", &why), MF_ERR_FORMAT);
    assert_non_null(strstr(why.text, "tokenizer.json is a pointer of git-lfs"));
    model_text_clear(&text);
}

/* ------------------------------------------------------------------- names */

static void expect_found(const char *name, const char *cache, const char *found)
{
    char path[PATH_CAPACITY];
    mf_error why = { 0 };
    if (mf_model_find(path, sizeof path, name, cache, &files.files, &why) != MF_OK)
        fail_msg("%s: %s", name, why.text);
    assert_string_equal(path, found);
}

static void expect_unknown(const char *name, const char *cache, const char *words)
{
    char path[PATH_CAPACITY];
    mf_error why = { 0 };
    mf_status status = mf_model_find(path, sizeof path, name, cache, &files.files, &why);
    if (status == MF_OK || !strstr(why.text, words))
        fail_msg("%s: \"%s\", \"%s\" was expected", name, why.text, words);
}

static void names_are_found_in_the_cache(void **state)
{
    (void)state;
    memory_files_init(&files);
    put("hub/models--org--st/refs/main", "abc\n");
    put("hub/models--org--st/snapshots/abc/model.safetensors", "");
    put("hub/models--org--st/snapshots/def/model.safetensors", "");
    put("hub/models--org--gg/snapshots/only/m.Q8_0.gguf", "GGUF");
    put("hub/models--org--two/snapshots/a/m.gguf", "GGUF");
    put("hub/models--org--two/snapshots/b/m.gguf", "GGUF");
    put("hub/models--org--evil/refs/main", "../../outside");
    put("org/here/model.safetensors", "");
    put("tokenizer/tokenizer.json", "{}");
    expect_found("org/st", "hub", "hub/models--org--st/snapshots/abc");
    expect_found("org/gg", "hub", "hub/models--org--gg/snapshots/only/m.Q8_0.gguf");
    expect_found("org/here", "hub", "org/here"); /* what is on disk goes first */
    expect_found("org/here", NULL, "org/here");
    expect_found("tokenizer", NULL, "tokenizer"); /* no weights: for the tokenizer's sake */
    expect_unknown("org/two", "hub", "without a main snapshot; `moeflux pull org/two`");
    expect_unknown("org/evil", "hub", "without a main snapshot");
    expect_unknown("org/st", NULL, "no Hugging Face cache is known");
}

static void a_snapshot_is_called_as_the_hub_calls_it(void **state)
{
    (void)state;
    static const struct {
        const char *path, *name;
    } cases[] = {
        { "hub/models--org--st/snapshots/abc", "st" },
        { "/c/models--org--a--b/snapshots/0123", "a--b" },
        { "models--org--name/snapshots/abc", "name" },
        { "hub/models--org--st/snapshots/abc/m.gguf", NULL },
        { "hub/models--org/snapshots/abc", NULL },
        { "hub/models--org--/snapshots/abc", NULL },
        { "hub/other--org--st/snapshots/abc", NULL },
        { "snapshots/abc", NULL },
        { "/snapshots/abc", NULL },
        { "abc", NULL },
        { "", NULL },
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        size_t length = 0;
        const char *name = hub_name_in(&length, cases[i].path);
        assert_int_equal(name != NULL, cases[i].name != NULL);
        if (!name) continue;
        assert_int_equal(length, strlen(cases[i].name));
        assert_memory_equal(name, cases[i].name, length);
    }
}

static void names_that_are_not_here_say_how_to_get_the_model(void **state)
{
    (void)state;
    char path[8];
    memory_files_init(&files);
    put("here/model.safetensors", "");
    expect_unknown("org/name", "hub", "`moeflux pull org/name` puts it there");
    expect_unknown("hf.co/org/name:Q4_K_M", "hub", "`moeflux pull org/name` puts it into");
    expect_unknown("https://huggingface.co/org/name/tree/main", "hub", "it is called org/name");
    expect_unknown("https://example.com/x.gguf", "hub", "nothing is downloaded here");
    expect_unknown("qwen3:30b", "hub", "`ollama show --modelfile qwen3:30b`");
    expect_unknown("nothing.gguf", "hub", "nothing.gguf does not exist; a model is");
    expect_unknown("", "hub", "the model's name is empty");
    assert_int_equal(mf_model_find(NULL, 0, "here", NULL, &files.files, NULL), MF_ERR_ARGUMENT);
    assert_int_equal(mf_model_find(path, 8, NULL, NULL, &files.files, NULL), MF_ERR_ARGUMENT);
    assert_int_equal(mf_model_find(path, 4, "here", NULL, &files.files, NULL), MF_ERR_BUFFER_SIZE);
    assert_int_equal(mf_model_find(path, 5, "here", NULL, &files.files, NULL), MF_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_are_told_apart),
        cmocka_unit_test(each_kind_of_wrong_file_has_its_own_message),
        cmocka_unit_test(pipes_sockets_and_devices_are_refused_at_once),
        cmocka_unit_test(opened_files_are_in_blocking_mode),
        cmocka_unit_test(tokenizers_may_be_pointers_too),
        cmocka_unit_test(names_are_found_in_the_cache),
        cmocka_unit_test(a_snapshot_is_called_as_the_hub_calls_it),
        cmocka_unit_test(names_that_are_not_here_say_how_to_get_the_model),
    };
    return cmocka_run_group_tests_name("locate", tests, NULL, NULL);
}
