#include "support/one_call.h"

#include "grammar/builder.h"

mf_status grammar_parse_new(struct grammar **out, const mf_allocator *allocator, const char *text,
                            size_t length, mf_error *why)
{
    struct grammar_builder *builder;
    *out = NULL;
    mf_status status = grammar_builder_new(&builder, allocator, why);
    if (status != MF_OK) return status;
    uint32_t root = grammar_add_rules(builder, text, length);
    status = grammar_new(out, builder, root, why);
    grammar_builder_free(builder);
    return status;
}

mf_status json_schema_grammar_new(struct grammar **out, const mf_allocator *allocator,
                                  const json_t *schema, const struct json_schema_options *options,
                                  mf_error *why)
{
    struct grammar_builder *builder;
    *out = NULL;
    mf_status status = grammar_builder_new(&builder, allocator, why);
    if (status != MF_OK) return status;
    uint32_t root = json_schema_add_rule(builder, schema, options);
    status = grammar_new(out, builder, root, why);
    grammar_builder_free(builder);
    return status;
}

mf_status json_schema_parse_new(struct grammar **out, const mf_allocator *allocator,
                                const char *text, size_t length,
                                const struct json_schema_options *options, mf_error *why)
{
    json_t *schema;
    *out = NULL;
    mf_status status = json_schema_read_new(&schema, text, length, why);
    if (status == MF_OK) status = json_schema_grammar_new(out, allocator, schema, options, why);
    json_decref(schema);
    return status;
}

mf_status tokenizer_open_new(struct tokenizer **out, const mf_files *files, const char *directory,
                             mf_error *why)
{
    json_t *config = NULL;
    *out = NULL;
    mf_status status = tokenizer_config_read_new(&config, files, directory, why);
    if (status == MF_OK) status = tokenizer_open_configured_new(out, files, directory, config, why);
    json_decref(config);
    return status;
}

mf_status chat_template_render_with_new(char **out, size_t *length,
                                        const struct chat_template *chat, const json_t *context,
                                        const struct jinja_options *options,
                                        struct jinja_error *detail, mf_error *why)
{
    struct chat_rendering rendering;
    mf_status status = chat_template_render_marked(&rendering, chat, context, options, detail, why);
    *out = rendering.text;
    *length = rendering.length;
    rendering.text = NULL; /* the caller's now */
    chat_rendering_clear(&rendering);
    return status;
}

mf_status chat_template_render_new(char **out, size_t *length, const struct chat_template *chat,
                                   const json_t *context, mf_error *why)
{
    return chat_template_render_with_new(out, length, chat, context, NULL, NULL, why);
}
