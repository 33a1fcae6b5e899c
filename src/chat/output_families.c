#include "chat/output_internal.h"

/* DeepSeek's markup uses U+FF5C and U+2581, which look like | and _. */
static const struct output_family families[] = {
    { .name = "think" },
    {
        .name = "hermes", /* Qwen2.5, QwQ, Qwen3, Hermes */
        .body = BODY_CALL,
        .call_begin = "<tool_call>",
        .call_end = "</tool_call>",
    },
    {
        .name = "qwen3_coder", /* the opening <tool_call> is sometimes left out */
        .body = BODY_PARAMETERS,
        .section_begin = "<tool_call>",
        .section_end = "</tool_call>",
        .bare_calls = true,
        .call_begin = "<function=",
        .name_end = ">",
        .parameter_begin = "<parameter=",
        .key_end = ">",
        .value_end = "</parameter>",
        .lines_around_values = true,
        .call_end = "</function>",
    },
    {
        .name = "qwen3_5", /* as qwen3_coder, with reasoning */
        .body = BODY_PARAMETERS,
        .section_begin = "<tool_call>",
        .section_end = "</tool_call>",
        .bare_calls = true,
        .call_begin = "<function=",
        .name_end = ">",
        .parameter_begin = "<parameter=",
        .key_end = ">",
        .value_end = "</parameter>",
        .lines_around_values = true,
        .call_end = "</function>",
        .call_ends_reasoning = true,
    },
    {
        .name = "deepseek_v3", /* V3-0324, R1: function<sep>NAME, then a fenced block */
        .body = BODY_ARGUMENTS,
        .section_begin = "<｜tool▁calls▁begin｜>",
        .section_end = "<｜tool▁calls▁end｜>",
        .bare_calls = true,
        .call_begin = "<｜tool▁call▁begin｜>",
        .name_end = "<｜tool▁sep｜>",
        .fenced_arguments = true,
        .call_end = "<｜tool▁call▁end｜>",
        .call_ends_reasoning = true,
    },
    {
        .name = "deepseek_v3_1",
        .body = BODY_ARGUMENTS,
        .section_begin = "<｜tool▁calls▁begin｜>",
        .section_end = "<｜tool▁calls▁end｜>",
        .bare_calls = true,
        .call_begin = "<｜tool▁call▁begin｜>",
        .name_end = "<｜tool▁sep｜>",
        .call_end = "<｜tool▁call▁end｜>",
        .call_ends_reasoning = true,
    },
    {
        .name = "deepseek_v3_2",
        .body = BODY_PARAMETERS,
        .section_begin = "<｜DSML｜function_calls>",
        .section_end = "</｜DSML｜function_calls>",
        .bare_calls = true,
        .call_begin = "<｜DSML｜invoke name=\"",
        .name_end = "\">",
        .parameter_begin = "<｜DSML｜parameter name=\"",
        .key_end = "\" string=\"",
        .says_strings = true,
        .value_end = "</｜DSML｜parameter>",
        .call_end = "</｜DSML｜invoke>",
        .call_ends_reasoning = true,
    },
    {
        .name = "kimi_k2", /* the section's markup is sometimes left out */
        .body = BODY_ARGUMENTS,
        .section_begin = "<|tool_calls_section_begin|>",
        .section_end = "<|tool_calls_section_end|>",
        .bare_calls = true,
        .call_begin = "<|tool_call_begin|>",
        .name_end = "<|tool_call_argument_begin|>",
        .numbered_names = true,
        .call_end = "<|tool_call_end|>",
        .call_ends_reasoning = true,
    },
    {
        .name = "glm_4_6", /* GLM-4.5 to 4.7 */
        .body = BODY_PARAMETERS,
        .call_begin = "<tool_call>",
        .parameter_begin = "<arg_key>",
        .key_end = "</arg_key>",
        .value_begin = "<arg_value>",
        .value_end = "</arg_value>",
        .call_end = "</tool_call>",
    },
    {
        .name = "minimax_m2",
        .body = BODY_PARAMETERS,
        .section_begin = "<minimax:tool_call>",
        .section_end = "</minimax:tool_call>",
        .call_begin = "<invoke name=\"",
        .name_end = "\">",
        .parameter_begin = "<parameter name=\"",
        .key_end = "\">",
        .value_end = "</parameter>",
        .call_end = "</invoke>",
    },
};

const struct output_family *output_family_at(size_t index)
{
    return index < COUNT_OF(families) ? &families[index] : NULL;
}

const char *output_family_name(const struct output_family *family)
{
    return family->name;
}

bool output_family_has_markup(const struct output_family *family, const char *text, size_t length)
{
    const char *const tags[] = {
        OUTPUT_THINK_BEGIN,      OUTPUT_THINK_END,    family->section_begin, family->section_end,
        family->call_begin,      family->call_end,    family->name_end,      family->key_end,
        family->parameter_begin, family->value_begin, family->value_end,
    };
    for (size_t i = 0; i < COUNT_OF(tags) && length > 0; i++)
        if (tags[i] && memmem(tags[i], strlen(tags[i]), text, length)) return true;
    return false;
}

const struct output_family *output_family_find(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(families); i++)
        if (strcmp(families[i].name, name) == 0) return &families[i];
    return NULL;
}

/* What only the templates of one family contain: the first row whose words are all there. */
static const struct {
    const char *words[2];
    const char *family;
} signs[] = {
    { { "｜DSML｜", NULL }, "deepseek_v3_2" },
    { { "<｜tool▁calls▁begin｜>", "```json" }, "deepseek_v3" },
    { { "<｜tool▁calls▁begin｜>", NULL }, "deepseek_v3_1" },
    { { "<|tool_calls_section_begin|>", NULL }, "kimi_k2" },
    { { "<minimax:tool_call>", NULL }, "minimax_m2" },
    { { "<arg_key>", NULL }, "glm_4_6" },
    { { "<function=", "<think>" }, "qwen3_5" },
    { { "<function=", "<tool_call>" }, "qwen3_coder" },
    { { "<tool_call>", NULL }, "hermes" },
};

const struct output_family *output_family_detect(const char *template_source)
{
    for (size_t i = 0; i < COUNT_OF(signs); i++) {
        const char *second = signs[i].words[1];
        if (strstr(template_source, signs[i].words[0]) &&
            (!second || strstr(template_source, second)))
            return output_family_find(signs[i].family);
    }
    return output_family_find("think");
}

bool output_prompt_opens_reasoning(const char *prompt, size_t length)
{
    static const char open[] = OUTPUT_THINK_BEGIN;
    while (length && strchr(" \n\t\r", prompt[length - 1]) && prompt[length - 1]) length--;
    size_t size = sizeof open - 1;
    return length >= size && memcmp(prompt + length - size, open, size) == 0;
}
