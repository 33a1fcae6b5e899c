/* output_parser: outputs of every family against what they mean, fed whole, in bytes and in
 * random pieces.  The data is described in the README of the fixtures' toolcalls directory. */
#include "support/test.h"

#include "base/file.h"
#include "base/json.h"
#include "chat/output_parser.h"
#include "support/call_vectors.h"
#include "support/fixture_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct call_vectors vectors;

static void every_output_means_what_it_should(void **state)
{
    (void)state;
    srand(1);
    for (size_t i = 0; output_family_at(i); i++) {
        char name[128], path[PATH_CAPACITY];
        snprintf(name, sizeof name, "%s.jsonl", output_family_name(output_family_at(i)));
        fixture_path(path, name);
        if (access(path, R_OK) == 0) call_vectors_check(&vectors, path, NULL);
    }
    print_message("%zu outputs, %zu with the first choice\n", vectors.count, vectors.first);
    assert_true(vectors.count >= 101);
}

static void published_templates_name_their_family(void **state)
{
    (void)state;
    static const char *const families[][2] = {
        { "Qwen-Qwen2.5-7B-Instruct.jinja", "hermes" },
        { "Qwen-QwQ-32B.jinja", "hermes" },
        { "Qwen-Qwen3-0.6B.jinja", "hermes" },
        { "Qwen3-Coder.jinja", "qwen3_coder" },
        { "Qwen3.5-4B.jinja", "qwen3_5" },
        { "deepseek-ai-DeepSeek-V3.1.jinja", "deepseek_v3_1" },
        { "deepseek-ai-DeepSeek-V3.2.jinja", "deepseek_v3_2" },
        { "Kimi-K2-Instruct.jinja", "kimi_k2" },
        { "Kimi-K2-Thinking.jinja", "kimi_k2" },
        { "moonshotai-Kimi-K2.jinja", "kimi_k2" },
        { "GLM-4.6.jinja", "glm_4_6" },
        { "MiniMax-M2.jinja", "minimax_m2" },
    };
    for (size_t i = 0; i < COUNT_OF(families); i++) {
        char name[256];
        size_t length;
        snprintf(name, sizeof name, "../templates/%s", families[i][0]);
        char *source = read_fixture(name, &length);
        assert_string_equal(output_family_name(output_family_detect(source)), families[i][1]);
        free(source);
    }
}

int main(void)
{
    if (!fixtures_choose("toolcalls")) return EXIT_SKIPPED;
    size_t length;
    char *text = read_fixture("tools.json", &length);
    if (json_parse_new(&vectors.tools, text, length, "tools.json", NULL) != MF_OK) return 1;
    free(text);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_output_means_what_it_should),
        cmocka_unit_test(published_templates_name_their_family),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(vectors.tools);
    return failed;
}
