#include "chat/output_internal.h"

#define THINK .reasoning_begin = "<think>", .reasoning_end = "</think>"

static const char *const glm_stops[] = { "<|endoftext|>", "<|user|>", "<|observation|>", NULL };
static const char *const minimax_stops[] = { "[e~[", NULL };

static const char *const harmony_markers[] = {
    "<|start|>",  "<|channel|>",     "<|constrain|>", "<|message|>",     "<|end|>", "<|call|>",
    "<|return|>", "<|startoftext|>", "<|endoftext|>", "<|endofprompt|>", NULL,
};
static const char *const harmony_stops[] = { "<|return|>", "<|call|>", "<|endoftext|>", NULL };

static const char *const gemma4_markers[] = {
    "<|channel>",       "<channel|>", "<|tool_call>", "<tool_call|>", "<|tool_response>",
    "<tool_response|>", "<|\"|>",     "<|turn>",      "<turn|>",      "<|tool>",
    "<tool|>",          "<|think|>",  "<bos>",        "<eos>",        NULL,
};
static const char *const gemma4_stops[] = { "<eos>", "<turn|>", "<|tool_response>", NULL };

/* DeepSeek's markup uses U+FF5C and U+2581, which look like | and _. */
static const struct output_family families[] = {
    { .name = "think", THINK },
    {
        .name = "hermes", /* Qwen2.5, QwQ, Qwen3, Hermes */
        .body = BODY_CALL,
        THINK,
        .call_begin = "<tool_call>",
        .call_end = "</tool_call>",
    },
    {
        .name = "qwen3_coder", /* the opening <tool_call> is sometimes left out */
        .body = BODY_PARAMETERS,
        THINK,
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
        THINK,
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
        THINK,
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
        THINK,
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
        THINK,
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
        THINK,
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
        THINK,
        .call_begin = "<tool_call>",
        .parameter_begin = "<arg_key>",
        .key_end = "</arg_key>",
        .value_begin = "<arg_value>",
        .value_end = "</arg_value>",
        .call_end = "</tool_call>",
        .stops = glm_stops,
    },
    {
        .name = "minimax_m2", /* calls may stand without their section, or in the reasoning */
        .body = BODY_PARAMETERS,
        THINK,
        .section_begin = "<minimax:tool_call>",
        .section_end = "</minimax:tool_call>",
        .bare_calls = true,
        .call_begin = "<invoke name=\"",
        .name_end = "\">",
        .parameter_begin = "<parameter name=\"",
        .key_end = "\">",
        .value_end = "</parameter>",
        .call_end = "</invoke>",
        .call_ends_reasoning = true,
        .stops = minimax_stops,
    },
    {
        .name = "harmony", /* gpt-oss */
        .body = BODY_ARGUMENTS,
        .channels = true,
        .reasoning_begin = "<|channel|>analysis<|message|>",
        .reasoning_end = "<|end|>",
        .call_end = "<|call|>",
        .call_ends_reasoning = true,
        .markers = harmony_markers,
        .stops = harmony_stops,
        .no_stop = "<|end|>",
    },
    {
        .name = "gemma4",
        .body = BODY_PAIRS,
        .reasoning_begin = "<|channel>",
        .reasoning_end = "<channel|>",
        .reasoning_name = "thought",
        .call_begin = "<|tool_call>",
        .name_begin = "call:",
        .name_end = "{",
        .quote = "<|\"|>",
        .call_end = "<tool_call|>",
        .call_ends_reasoning = true,
        .result_begin = "<|tool_response>",
        .result_end = "<tool_response|>",
        .turn_begin = "<|turn>",
        .turn_role = "model",
        .turn_end = "<turn|>",
        .markers = gemma4_markers,
        .stops = gemma4_stops,
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

static bool is_part_of(const char *tag, const char *text, size_t length)
{
    return tag && memmem(tag, strlen(tag), text, length);
}

bool output_family_has_markup(const struct output_family *family, const char *text, size_t length)
{
    const char *const tags[] = {
        family->reasoning_begin, family->reasoning_end,   family->section_begin,
        family->section_end,     family->call_begin,      family->call_end,
        family->name_end,        family->parameter_begin, family->key_end,
        family->value_begin,     family->value_end,
    };
    if (length == 0) return false;
    for (size_t i = 0; i < COUNT_OF(tags); i++)
        if (is_part_of(tags[i], text, length)) return true;
    for (const char *const *marker = family->markers; marker && *marker; marker++)
        if (is_part_of(*marker, text, length)) return true;
    return false;
}

bool output_family_reasons(const struct output_family *family, const char *template_source)
{
    return family->channels || strstr(template_source, family->reasoning_begin);
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
    { { "<|channel|>", "<|message|>" }, "harmony" },
    { { "<|channel>", NULL }, "gemma4" },
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

/* Less the white space at its end. */
static size_t trimmed(const char *text, size_t length)
{
    while (length && text[length - 1] && strchr(" \n\t\r", text[length - 1])) length--;
    return length;
}

static bool ends_with(const char *text, size_t length, const char *end)
{
    size_t size = strlen(end);
    return length >= size && memcmp(text + length - size, end, size) == 0;
}

bool output_prompt_opens_reasoning(const struct output_family *family, const char *prompt,
                                   size_t length)
{
    const char *name = family->reasoning_name;
    length = trimmed(prompt, length);
    if (name && ends_with(prompt, length, name)) length -= strlen(name);
    return ends_with(prompt, length, family->reasoning_begin);
}

bool output_prompt_closes_reasoning(const struct output_family *family, const char *prompt,
                                    size_t length)
{
    /* The end of a message says nothing of the next one. */
    return !family->channels && ends_with(prompt, trimmed(prompt, length), family->reasoning_end);
}
