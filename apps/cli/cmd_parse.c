/* `moeflux parse`: a model's output taken apart: reasoning, content, tool calls. */
#include "command.h"
#include "json_lines.h"

#include "common/basics.h"
#include "common/error.h"

#include <stdlib.h>

struct parse_settings {
    struct common_settings common;
    const char *family;
    const char *tools;
    struct maybe_count chunk;
    bool opens_think;
    bool json_lines;
};

#define FAMILIES                                                                                   \
    "think, hermes, qwen3_coder, qwen3_5, deepseek_v3, deepseek_v3_1, deepseek_v3_2, kimi_k2, "    \
    "glm_4_6, minimax_m2, harmony or gemma4"

static const struct option options[] = {
    { 0, "family", OPTION_TEXT, offsetof(struct parse_settings, family), "NAME",
      .help = "whose syntax: " FAMILIES },
    { 0, "tools", OPTION_TEXT, offsetof(struct parse_settings, tools), "FILE",
      .help = "JSON array of the tools on offer, for the types of their parameters" },
    { 0, "chunk", OPTION_COUNT, offsetof(struct parse_settings, chunk), "N",
      .help = "feed N bytes at a time; default: all at once", .low = 1, .high = 1 << 30 },
    { 0, "prompt-opens-think", OPTION_FLAG, offsetof(struct parse_settings, opens_think), NULL,
      .help = "the prompt ended inside of reasoning" },
    { 0, "jsonl", OPTION_FLAG, offsetof(struct parse_settings, json_lines), NULL,
      .help = "one JSON object per line in and out" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

struct parse_context {
    const char *family; /* NULL: every line names its own */
    char *tools;        /* JSON, or NULL */
    size_t chunk;
};

/* One output, as the caller describes it. */
struct parse_job {
    const char *family;
    const char *text;
    size_t length;
    bool opens_think;
    bool final; /* the output is over: what waited is released */
};

static mf_status feed_all(mf_parser *parser, const struct parse_job *job, size_t chunk,
                          mf_error *why)
{
    mf_status status = MF_OK;

    for (size_t done = 0; done < job->length && status == MF_OK; done += chunk) {
        status = mf_parser_feed(parser, job->text + done, min_size(chunk, job->length - done), why);
    }
    if (status == MF_OK && job->final) status = mf_parser_finish(parser, why);
    return status;
}

static mf_status parse_job(char **out, const struct parse_context *context,
                           const struct parse_job *job, mf_error *why)
{
    mf_parser_options settings = MF_PARSER_OPTIONS_INIT;
    mf_parser *parser = NULL;
    const char *message = NULL;
    mf_status status;

    settings.family = job->family;
    settings.tools = context->tools;
    settings.reasoning = job->opens_think ? MF_REASONING_OPEN : MF_REASONING_NONE;
    status = mf_parser_open(&parser, &settings, why);
    if (status == MF_OK) status = feed_all(parser, job, context->chunk, why);
    if (status == MF_OK) status = mf_parser_message(&message, parser, why);
    if (status == MF_OK) {
        *out = strdup(message);
        if (!*out) status = fail_memory(why, strlen(message) + 1);
    }
    mf_parser_close(parser);
    return status;
}

/* ------------------------------------------------------------------- lines */

static mf_status answer_line(char **out, const json_t *line, void *user, mf_error *why)
{
    const struct parse_context *context = user;
    const json_t *output = json_object_get(line, "output");
    const char *family = NULL;
    struct parse_job job = {
        .family = context->family,
        .text = json_string_value(output),
        .length = json_string_length(output),
        .final = true,
    };
    mf_status status = json_field_text(&family, line, "family", "the line", why);

    if (status == MF_OK) {
        status = json_field_flag(&job.opens_think, line, "prompt_opens_think", "the line", why);
    }
    if (status == MF_OK) status = json_field_flag(&job.final, line, "final", "the line", why);
    if (status != MF_OK) return status;
    if (!json_is_string(output)) {
        return fail(why, MF_ERR_FORMAT, "\"output\" is %s, expected a string",
                    json_type_name(output));
    }
    if (family) job.family = family;
    if (!job.family) return fail(why, MF_ERR_ARGUMENT, "there is no family \"\"");
    return parse_job(out, context, &job, why);
}

/* ------------------------------------------------------------------ command */

static mf_status parse_input(const struct parse_context *context, bool opens_think, mf_error *why)
{
    struct parse_job job = {
        .family = context->family,
        .opens_think = opens_think,
        .final = true,
    };
    char *text = NULL, *out = NULL;
    mf_status status = input_read_new(&text, &job.length, NULL, why);

    job.text = text;
    if (status == MF_OK) status = parse_job(&out, context, &job, why);
    if (status == MF_OK) json_print_text(out);
    free(out);
    free(text);
    return status;
}

static bool is_family(const char *family)
{
    const char *name;

    for (size_t i = 0; (name = mf_family_name(i)); i++) {
        if (strcmp(name, family) == 0) return true;
    }
    return false;
}

static int unknown_family(const char *family)
{
    const char *names[32];
    size_t count = 0, near;

    for (const char *name; count < COUNT_OF(names) && (name = mf_family_name(count));) {
        names[count++] = name;
    }
    near = nearest_name(family, names, count);
    if (near < count) {
        return usage_error(&command_parse, "there is no family %.64s; did you mean %s?", family,
                           names[near]);
    }
    return usage_error(&command_parse, "there is no family %.64s: it is " FAMILIES, family);
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct parse_settings *settings = settings_;
    struct parse_context context = {
        .chunk = settings->chunk.given ? settings->chunk.value : SIZE_MAX / 2,
    };
    mf_error why = { .text = "" };
    int code = EXIT_DONE;

    (void)arguments;
    if (settings->family) {
        context.family = settings->family;
        if (!is_family(settings->family)) return unknown_family(settings->family);
    } else if (!settings->json_lines) {
        return usage_error(&command_parse, "--family is missing");
    }
    if (settings->tools && tools_text_new(&context.tools, settings->tools, &why) != MF_OK) {
        code = report(&why);
    } else if (settings->json_lines) {
        code = json_lines_run_text(answer_line, &context);
    } else if (parse_input(&context, settings->opens_think, &why) != MF_OK) {
        code = report(&why);
    }
    free(context.tools);
    return code;
}

const struct command command_parse = {
    .name = "parse",
    .summary = "parse a model's output into reasoning, content and tool calls",
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "Reads the output on stdin, prints\n"
        "{\"reasoning\":…,\"content\":…,\"tool_calls\":[{\"name\":…,\"arguments\":{…}}]}.\n"
        "With --jsonl a line is {\"family\":…,\"prompt_opens_think\":…,\"final\":…,\"output\":…};\n"
        "\"final\": false means that the output is not over yet.",
    .examples = "  printf '<think>\\nhm\\n</think>\\n\\nYes.' | moeflux parse --family qwen3_5\n"
                "  moeflux parse --jsonl --tools tools.json --chunk 1 < outputs.jsonl\n",
    .settings_bytes = sizeof(struct parse_settings),
    .run = run,
};
