/* `moeflux template`: a conversation to the prompt that the model sees. */
#include "command.h"
#include "json_lines.h"
#include "model_parts.h"

#include "common/basics.h"
#include "common/error.h"

#include <stdlib.h>

struct template_settings {
    struct common_settings common;
    const char *file;
    const char *bos, *eos;
    bool no_generation_prompt;
    bool json_lines;
};

static const struct option options[] = {
    { 0, "template", OPTION_TEXT, offsetof(struct template_settings, file), "FILE",
      .help = "a Jinja template instead of the model's" },
    { 0, "no-generation-prompt", OPTION_FLAG,
      offsetof(struct template_settings, no_generation_prompt), NULL,
      .help = "do not open the assistant's turn at the end" },
    { 0, "bos", OPTION_TEXT, offsetof(struct template_settings, bos), "TEXT",
      .help = "bos_token of the template" },
    { 0, "eos", OPTION_TEXT, offsetof(struct template_settings, eos), "TEXT",
      .help = "eos_token of the template" },
    { 0, "jsonl", OPTION_FLAG, offsetof(struct template_settings, json_lines), NULL,
      .help = "one JSON object per line in and out" },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

struct renderer {
    const struct template_settings *settings;
    mf_text *text;           /* NULL: the model was not looked at */
    mf_template *from_file;  /* NULL: the model's */
    const mf_template *chat; /* NULL: every line brings its own */
    const char *bos, *eos;   /* NULL: none */
};

/* Every key of the conversation is a variable of the template, those in "kwargs" too. */
static json_t *context_new(const json_t *conversation, const struct renderer *renderer)
{
    json_t *context = json_object();
    const json_t *further = json_object_get(conversation, "kwargs");

    if (renderer->bos) json_object_set_new(context, "bos_token", json_string(renderer->bos));
    if (renderer->eos) json_object_set_new(context, "eos_token", json_string(renderer->eos));
    json_object_set_new(context, "tools", json_null());
    json_object_set_new(context, "add_generation_prompt", json_true());
    json_object_update(context, (json_t *)(uintptr_t)conversation);
    json_object_del(context, "kwargs");
    if (json_is_object(further)) json_object_update(context, (json_t *)(uintptr_t)further);
    if (renderer->settings->no_generation_prompt) {
        json_object_set_new(context, "add_generation_prompt", json_false());
    }
    return context;
}

static mf_status render_new(mf_prompt **out, const mf_template *chat, const json_t *context,
                            mf_template_problem *problem, mf_error *why)
{
    char *variables = json_dumps(context, JSON_COMPACT | JSON_REAL_PRECISION(17));
    mf_status status =
        variables ? mf_template_render(out, chat, variables, problem, why) : fail_memory(why, 1);

    free(variables);
    return status;
}

/* {"text":…}, or {"error":{"kind":…,"message":…}}: a template that refuses is an answer too. */
static mf_status render_line(json_t **out, const mf_template *chat, const json_t *context,
                             mf_error *why)
{
    mf_template_problem problem = MF_TEMPLATE_PROBLEM_INIT;
    mf_prompt *prompt = NULL;
    mf_status status = render_new(&prompt, chat, context, &problem, why);
    size_t length;

    if (status == MF_OK) {
        const char *text = mf_prompt_text(prompt, &length);
        *out = json_pack("{s:s%}", "text", text, length);
    } else if (status == MF_ERR_TEMPLATE) {
        *out =
            json_pack("{s:{s:s,s:s}}", "error", "kind", problem.kind, "message", problem.message);
        status = MF_OK;
    }
    mf_prompt_close(prompt);
    return status;
}

/* {"template":…,"context":{…}} */
static mf_status answer_bare(json_t **out, const json_t *line, mf_error *why)
{
    const json_t *source = json_object_get(line, "template");
    const json_t *context = json_object_get(line, "context");
    mf_template *chat = NULL;
    json_t *empty = json_object();
    mf_status status = mf_template_open(&chat, json_string_value(source),
                                        json_string_length(source), "template", why);

    if (status == MF_ERR_TEMPLATE) {
        *out = json_pack("{s:{s:s,s:s}}", "error", "kind", "syntax_error", "message", why->text);
        status = MF_OK;
    } else if (status == MF_OK) {
        status = render_line(out, chat, json_is_object(context) ? context : empty, why);
    }
    mf_template_close(chat);
    json_decref(empty);
    return status;
}

static mf_status answer_line(json_t **out, const json_t *line, void *user, mf_error *why)
{
    const struct renderer *renderer = user;
    json_t *context;
    mf_status status;

    if (json_is_string(json_object_get(line, "template"))) return answer_bare(out, line, why);
    if (!renderer->chat) {
        return fail(why, MF_ERR_TEMPLATE, "there is no template: the model has none");
    }
    context = context_new(line, renderer);
    status = render_line(out, renderer->chat, context, why);
    json_decref(context);
    return status;
}

static mf_status render_input(const struct renderer *renderer, mf_error *why)
{
    char *text = NULL;
    size_t length = 0;
    json_t *conversation = NULL, *context = NULL;
    mf_prompt *prompt = NULL;
    mf_status status;

    if (!renderer->chat) return fail(why, MF_ERR_TEMPLATE, "the model has no chat template");
    status = input_read_new(&text, &length, NULL, why);
    if (status == MF_OK) {
        status = json_text_read_new(&conversation, text, length, "the conversation", why);
    }
    if (status == MF_OK && !json_is_object(conversation)) {
        status = fail(why, MF_ERR_FORMAT, "the conversation is %s, expected {\"messages\":[…]}",
                      json_type_name(conversation));
    }
    if (status == MF_OK) {
        context = context_new(conversation, renderer);
        status = render_new(&prompt, renderer->chat, context, NULL, why);
    }
    if (status == MF_OK) {
        const char *rendered = mf_prompt_text(prompt, &length);
        output_write(rendered, length);
    }
    json_decref(context);
    json_decref(conversation);
    mf_prompt_close(prompt);
    free(text);
    return status;
}

static mf_status parse_file(mf_template **out, const char *path, mf_error *why)
{
    char *source = NULL;
    size_t length = 0;
    mf_status status = input_read_new(&source, &length, path, why);

    if (status == MF_OK) status = mf_template_open(out, source, length, path, why);
    free(source);
    return status;
}

/* The model is looked at only where the command line does not say everything. */
static mf_status open_renderer(struct renderer *out, const struct template_settings *settings,
                               mf_error *why)
{
    mf_status status = MF_OK;

    *out = (struct renderer){ .settings = settings, .bos = settings->bos, .eos = settings->eos };
    if (settings->file) status = parse_file(&out->from_file, settings->file, why);
    out->chat = out->from_file;
    if (status == MF_OK && (settings->common.model || !settings->file)) {
        status = model_parts_open(&out->text, settings->common.model, why);
        if (!out->bos) out->bos = mf_text_bos_token(out->text);
        if (!out->eos) out->eos = mf_text_eos_token(out->text);
    }
    if (status == MF_OK && !settings->file) status = mf_text_template(&out->chat, out->text, why);
    return status;
}

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct template_settings *settings = settings_;
    struct renderer renderer;
    mf_error why = { .text = "" };
    int code = EXIT_DONE;

    (void)arguments;
    if (open_renderer(&renderer, settings, &why) != MF_OK) {
        code = report(&why);
    } else if (settings->json_lines) {
        code = json_lines_run(answer_line, &renderer);
    } else if (render_input(&renderer, &why) != MF_OK) {
        code = report(&why);
    }
    mf_template_close(renderer.from_file);
    mf_text_close(renderer.text);
    return code;
}

const struct command command_template = {
    .name = "template",
    .summary = "render a conversation with the chat template",
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .notes =
        "Reads {\"messages\":[…],\"tools\":[…],\"enable_thinking\":…,…} on stdin; every key is a\n"
        "variable of the template. The model's own template gets the messages as `moeflux serve`\n"
        "gives them to it, one of --template as they are. With --jsonl a line is such an object\n"
        "(further variables may stand in \"kwargs\"), or {\"template\":…,\"context\":{…}} for a\n"
        "bare Jinja template; the answer is {\"text\":…} or\n"
        "{\"error\":{\"kind\":…,\"message\":…}}.",
    .examples =
        "  echo '{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}' | moeflux template\n"
        "  moeflux template --template chat.jinja --bos '<s>' < conversation.json\n",
    .settings_bytes = sizeof(struct template_settings),
    .run = run,
};
