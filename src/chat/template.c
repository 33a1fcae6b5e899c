#include "chat/template.h"

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "jinja/run.h"
#include "base/unicode.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    SOURCE_LIMIT = 1 << 20,
    CONFIG_LIMIT = 64 << 20, /* tokenizer_config.json lists every added token */
    OUTPUT_LIMIT = 64 << 20,
    MEMORY_LIMIT = 256 << 20,
    STEP_LIMIT = 100 * 1000 * 1000, /* some four seconds */
    DEPTH_LIMIT = 500,
};

struct chat_template {
    struct arena arena;
    struct jinja_tree tree;
    char *source;
    struct chat_template *with_tools; /* for conversations that have tools; may be NULL */
};

/* ------------------------------------------------------------------ opening */

mf_status chat_template_parse_new(struct chat_template **out, const char *source, size_t length,
                                  const char *where, mf_error *why)
{
    *out = NULL;
    if (length > SOURCE_LIMIT)
        return fail(why, MF_ERR_TEMPLATE, "%s: the template has %zu bytes, at most %d are taken",
                    where, length, SOURCE_LIMIT);
    struct chat_template *chat = calloc(1, sizeof *chat);
    if (!chat) return fail_memory(why, sizeof *chat);
    arena_init(&chat->arena, &allocator_heap);
    mf_status status;
    chat->source = arena_text(&chat->arena, source, length);
    if (chat->source)
        status = jinja_parse(&chat->tree, &chat->arena, source, length, where, why);
    else
        status = fail_memory(why, length);
    if (status == MF_OK)
        *out = chat;
    else
        chat_template_free(chat);
    return status;
}

void chat_template_free(struct chat_template *chat)
{
    if (!chat) return;
    chat_template_free(chat->with_tools);
    arena_free(&chat->arena);
    free(chat);
}

const char *chat_template_source(const struct chat_template *chat)
{
    return chat->source;
}

/* The template of that name in [{"name": …, "template": …}, …]; NULL: there is none. */
static const json_t *named_template(const json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *entry = json_array_get(list, i);
        const char *found = json_string_value(json_object_get(entry, "name"));
        const json_t *text = json_object_get(entry, "template");
        if (found && strcmp(found, name) == 0 && json_is_string(text)) return text;
    }
    return NULL;
}

static mf_status parse_string(struct chat_template **out, const json_t *text, const char *where,
                              mf_error *why)
{
    return chat_template_parse_new(out, json_string_value(text), json_string_length(text), where,
                                   why);
}

/* The field `chat_template` of a JSON file: a string or a list of named ones. */
static mf_status parse_field(struct chat_template **out, const json_t *field, const char *where,
                             mf_error *why)
{
    if (json_is_string(field)) return parse_string(out, field, where, why);
    if (!json_is_array(field))
        return fail(why, MF_ERR_FORMAT, "%s: chat_template is %s, a string or list was expected",
                    where, json_kind(field));
    const json_t *plain = named_template(field, "default");
    const json_t *tools = named_template(field, "tool_use");
    if (!plain && !tools)
        return fail(why, MF_ERR_FORMAT, "%s: chat_template has neither default nor tool_use",
                    where);
    mf_status status = parse_string(out, plain ? plain : tools, where, why);
    if (status == MF_OK && plain && tools)
        status = parse_string(&(*out)->with_tools, tools, where, why);
    if (status != MF_OK) {
        chat_template_free(*out);
        *out = NULL;
    }
    return status;
}

static mf_status parse_config(struct chat_template **out, const json_t *json, const char *where,
                              mf_error *why)
{
    const json_t *field = json_object_get(json, "chat_template");
    return field && !json_is_null(field) ? parse_field(out, field, where, why) : MF_OK;
}

/* chat_template.jinja; *out stays NULL where there is none. */
static mf_status open_source(struct chat_template **out, const mf_files *files,
                             const char *directory, mf_error *why)
{
    char path[PATH_CAPACITY], *text = NULL;
    size_t length;
    mf_status status = path_join(path, sizeof path, directory, "chat_template.jinja", why);
    if (status == MF_OK)
        status = file_read_maybe_new(&text, &length, files, path, SOURCE_LIMIT, why);
    if (status == MF_OK && text) status = chat_template_parse_new(out, text, length, path, why);
    free(text);
    return status;
}

/* chat_template.json, the same. */
static mf_status open_json(struct chat_template **out, const mf_files *files, const char *directory,
                           mf_error *why)
{
    static const char name[] = "chat_template.json";
    json_t *json;
    mf_status status = json_read_maybe_new(&json, files, directory, name, CONFIG_LIMIT, why);
    if (status == MF_OK && json) status = parse_config(out, json, name, why);
    json_decref(json);
    return status;
}

mf_status chat_template_open_new(struct chat_template **out, const mf_files *files,
                                 const char *directory, const json_t *config, mf_error *why)
{
    *out = NULL;
    mf_status status = open_source(out, files, directory, why);
    if (status == MF_OK && !*out) status = open_json(out, files, directory, why);
    if (status == MF_OK && !*out && config)
        status = parse_config(out, config, "tokenizer_config.json", why);
    return status;
}

/* ------------------------------------------------------------------ rendering */

static void begin(struct jinja_run *run, const struct chat_template *chat, const json_t *context,
                  const struct jinja_options *options)
{
    *run = (struct jinja_run){
        .tree = &chat->tree, .literals = &chat->arena, .context = context, .options = options
    };
    arena_init(&run->arena, &allocator_heap);
    run->memory_left = options->memory_limit_bytes ? options->memory_limit_bytes : MEMORY_LIMIT;
    run->output_limit = options->output_limit_bytes ? options->output_limit_bytes : OUTPUT_LIMIT;
    run->steps_left = options->step_limit ? options->step_limit : STEP_LIMIT;
    run->depth_left = options->depth_limit ? options->depth_limit : DEPTH_LIMIT;
    run->block = jinja_failed();
    run->base = jinja_scope_new(run, NULL);
    run->scope = run->base ? jinja_scope_new(run, run->base) : NULL;
}

/* The rendering's first error as a status, a sentence and, if wanted, in detail. */
static mf_status report(const struct jinja_run *run, struct jinja_error *detail, mf_error *why)
{
    /* A message that was cut may end within a character. */
    size_t length = unicode_check(run->error_message, run->error_length);
    int shown = (int)unicode_check(run->error_message, min_size(length, 400));
    if (detail) {
        *detail = (struct jinja_error){ .kind = run->error_kind,
                                        .line = run->error_line,
                                        .column = run->error_column,
                                        .message = strndup(run->error_message, length) };
        if (!detail->message) return fail_memory(why, length);
    }
    if (run->error_kind == JINJA_ERROR_MEMORY)
        return fail(why, MF_ERR_MEMORY, "out of memory while the chat template was rendered");
    return fail(why, MF_ERR_TEMPLATE, "chat template: line %u, column %u: %.*s", run->error_line,
                run->error_column, shown, run->error_message);
}

void chat_rendering_clear(struct chat_rendering *rendering)
{
    free(rendering->text);
    free(rendering->content);
    *rendering = (struct chat_rendering){ 0 };
}

/* The stretches of the output that are content; NULL: count them. */
static size_t list_content(struct jinja_run *run, mf_range *out, const struct jinja_builder *output)
{
    size_t count = 0;
    for (size_t at = 0, length; at < output->length; at += length) {
        bool markup;
        length = jinja_marks_stretch(run, &markup, output->data + at, output->length - at);
        if (markup) continue;
        if (out) out[count] = (mf_range){ at, length };
        count++;
    }
    return count;
}

static mf_status finish(struct chat_rendering *out, struct jinja_run *run,
                        const struct jinja_builder *output, mf_error *why)
{
    out->text = malloc(output->length + 1);
    out->content_count = list_content(run, NULL, output);
    out->content = malloc(max_size(out->content_count, 1) * sizeof *out->content);
    if (!out->text || !out->content) {
        chat_rendering_clear(out);
        return fail_memory(why, output->length + 1);
    }
    if (output->length) memcpy(out->text, output->data, output->length);
    out->text[output->length] = '\0';
    out->length = output->length;
    list_content(run, out->content, output);
    return MF_OK;
}

mf_status chat_template_render_marked(struct chat_rendering *out, const struct chat_template *chat,
                                      const json_t *context, const struct jinja_options *options,
                                      struct jinja_error *detail, mf_error *why)
{
    static const struct jinja_options defaults = { 0 };
    *out = (struct chat_rendering){ 0 };
    if (detail) *detail = (struct jinja_error){ 0 };
    if (!json_is_object(context))
        return fail(why, MF_ERR_ARGUMENT, "the template's variables are %s, not an object",
                    json_kind(context));
    const json_t *tools = json_object_get(context, "tools");
    if (chat->with_tools && json_array_size(tools)) chat = chat->with_tools;
    struct jinja_run *run = malloc(sizeof *run);
    if (!run) return fail_memory(why, sizeof *run);
    begin(run, chat, context, options ? options : &defaults);
    struct jinja_builder output = { .run = run };
    run->output = &output;
    if (run->scope) jinja_execute(run, chat->tree.body);
    mf_status status = run->failed ? report(run, detail, why) : finish(out, run, &output, why);
    jinja_marks_free(run);
    arena_free(&run->arena);
    free(run);
    return status;
}
