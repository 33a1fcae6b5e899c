#include "chat/constraint.h"

#include "base/status.h"
#include "chat/constraint_internal.h"
#include "grammar/vocabulary.h"
#include "tokenizer/tokenizer.h"

/* -------------------------------------------------------------------- calls */

const struct expression *answer_gap(struct grammar_builder *builder)
{
    static const struct code_range white[] = { { '\n', '\n' }, { ' ', ' ' } };
    return expression_repeat(builder, expression_class(builder, white, COUNT_OF(white)), 0, 2);
}

const struct expression *answer_rule(struct grammar_builder *b, const struct expression *body)
{
    uint32_t rule = builder_add_rule(b, NULL);
    builder_define(b, rule, body);
    return expression_rule(b, rule);
}

static const struct expression *text(struct answer *a, const char *literal)
{
    return expression_text(a->builder, literal);
}

static const struct expression *gap(struct answer *a)
{
    return answer_gap(a->builder);
}

static const struct expression *repeat_calls(struct answer *a, const struct expression *call)
{
    return expression_repeat(a->builder, SEQUENCE(a->builder, gap(a), call), 0,
                             a->form->one_call ? 0 : REPEAT_ANY);
}

/* The pieces of calls; `after_section` and `after_call` follow the markup that opens them. */
static void make_calls(struct answer *a)
{
    struct grammar_builder *b = a->builder;
    const struct output_family *family = a->family;
    const struct expression *rest = answer_rule(b, answer_call_rest(a));
    const struct expression *call = SEQUENCE(b, text(a, family->call_begin), rest);
    if (!family->section_begin) {
        a->after_call = SEQUENCE(b, rest, repeat_calls(a, call));
        a->calls = SEQUENCE(b, text(a, family->call_begin), a->after_call);
        return;
    }
    const struct expression *more = answer_rule(b, repeat_calls(a, call));
    const struct expression *section =
        answer_rule(b, SEQUENCE(b, gap(a), call, more, gap(a), text(a, family->section_end)));
    const struct expression *opened = SEQUENCE(b, text(a, family->section_begin), section);
    const struct expression *sections = answer_rule(b, repeat_calls(a, opened));
    a->after_section = SEQUENCE(b, section, sections);
    a->calls = SEQUENCE(b, text(a, family->section_begin), a->after_section);
    if (!family->bare_calls) return;
    const struct expression *end =
        expression_repeat(b, SEQUENCE(b, gap(a), text(a, family->section_end)), 0, 1);
    a->after_call = SEQUENCE(b, rest, more, end, sections);
}

/* ------------------------------------------------------------------ answers */

enum { ENDS_MAX = 24 }; /* of a text: the markup that ends it, and markers */

/* What begins a call in free text, and what follows it; without calls nothing may. */
static size_t add_openers(const struct answer *a, struct text_end *ends)
{
    const struct output_family *family = a->family;
    size_t count = 0;
    if (family->section_begin)
        ends[count++] = (struct text_end){ family->section_begin, a->after_section };
    if (family->call_begin && (!family->section_begin || family->bare_calls))
        ends[count++] = (struct text_end){ family->call_begin, a->after_call };
    return count;
}

/* Markers that mean nothing in a text must not occur in it. */
static size_t add_markers(const struct answer *a, struct text_end *ends, size_t count)
{
    size_t known = count;
    for (const char *const *marker = a->family->markers; marker && *marker && count < ENDS_MAX;
         marker++) {
        bool means = false;
        for (size_t i = 0; i < known; i++) means = means || strcmp(ends[i].literal, *marker) == 0;
        if (!means) ends[count++] = (struct text_end){ *marker, NULL };
    }
    return count;
}

/* `given`: what the content must be; NULL: it is free. */
static const struct expression *make_content(struct answer *a, const struct expression *given)
{
    struct text_end ends[ENDS_MAX];
    if (a->form->choice == TOOL_CHOICE_REQUIRED) return SEQUENCE(a->builder, gap(a), a->calls);
    if (given && a->calls) return CHOICE(a->builder, given, SEQUENCE(a->builder, gap(a), a->calls));
    if (given) return given;
    size_t count = add_markers(a, ends, add_openers(a, ends));
    return expression_text_until(a->builder, ends, count, true);
}

bool answer_is_free(const struct answer_form *form)
{
    return !form->schema && !form->notation && form->choice != TOOL_CHOICE_REQUIRED;
}

/* Reasoning whose beginning has been read.  An answer that must have content must get to it. */
static const struct expression *make_reasoning(struct answer *a, const struct expression *content)
{
    struct text_end ends[ENDS_MAX] = {
        { a->family->reasoning_end, SEQUENCE(a->builder, gap(a), content) },
    };
    size_t count = 1;
    bool free = answer_is_free(a->form);
    if (a->family->call_ends_reasoning) count += add_openers(a, ends + 1);
    return expression_text_until(a->builder, ends, add_markers(a, ends, count), free);
}

static const struct expression *make_answer(struct answer *a, const struct expression *given)
{
    struct grammar_builder *b = a->builder;
    const struct expression *content = answer_rule(b, make_content(a, given)), *reasoning;
    if (a->form->reasoning == ANSWER_NO_REASONING) return content;
    reasoning = make_reasoning(a, content);
    if (a->form->reasoning == ANSWER_OPENS_REASONING) return reasoning;
    const char *name = a->family->reasoning_name;
    return CHOICE(b,
                  SEQUENCE(b, gap(a), text(a, a->family->reasoning_begin),
                           text(a, name ? name : ""), text(a, name ? "\n" : ""), reasoning),
                  content);
}

/* -------------------------------------------------------------------- whole */

/* Whether calls are possible, and the tools that may be called are there. */
static mf_status check_tools(const struct answer_form *form, bool *calls, mf_error *why)
{
    size_t count = json_array_size(form->tools), found = 0;
    *calls = form->choice != TOOL_CHOICE_NONE && count > 0 && form->family->body != BODY_NONE;
    for (size_t i = 0; i < count; i++) {
        const json_t *function = output_tool_function(json_array_get(form->tools, i));
        const char *name = json_string_value(json_object_get(function, "name"));
        if (!name) return fail(why, MF_ERR_FORMAT, "tool %zu has no name", i + 1);
        if (form->only_tool && strcmp(form->only_tool, name) == 0) found++;
        if (*calls && !output_is_name(name) && form->family->body != BODY_CALL)
            return fail(why, MF_ERR_UNSUPPORTED, "tool \"%.80s\" has a name that cannot be called",
                        name);
    }
    if (form->only_tool && found == 0)
        return fail(why, MF_ERR_ARGUMENT, "there is no tool \"%.80s\"", form->only_tool);
    if (form->choice == TOOL_CHOICE_REQUIRED && !*calls)
        return count ? fail(why, MF_ERR_UNSUPPORTED, "this model's template knows no tool calls")
                     : fail(why, MF_ERR_ARGUMENT, "a call is required, and there are no tools");
    return MF_OK;
}

mf_status answer_grammar_new(struct grammar **out, const mf_allocator *allocator,
                             const struct answer_form *form, mf_error *why)
{
    struct answer a = { .form = form, .family = form->family };
    const struct expression *given = NULL;
    mf_error problem = { 0 };
    bool calls;
    *out = NULL;
    mf_status status = check_tools(form, &calls, why);
    if (status == MF_OK) status = grammar_builder_new(&a.builder, allocator, why);
    if (status != MF_OK) return status;
    /* A notation comes first, into a builder without other names. */
    if (form->notation) {
        uint32_t rule = grammar_add_rules(a.builder, form->notation, strlen(form->notation));
        given = expression_rule(a.builder, rule);
    } else if (form->schema) {
        uint32_t rule = json_schema_add_rule(a.builder, form->schema, &form->schema_options);
        given = expression_rule(a.builder, rule);
    }
    if (calls && !a.family->channels) make_calls(&a);
    uint32_t root = builder_add_rule(a.builder, "answer");
    builder_define(a.builder, root,
                   a.family->channels ? answer_of_channels(&a, calls, given)
                                      : make_answer(&a, given));
    status = grammar_new(out, a.builder, root, &problem);
    if (status == MF_ERR_GRAMMAR && strstr(problem.text, "ever ends")) {
        if (form->choice == TOOL_CHOICE_REQUIRED)
            fail(&problem, status, "tools: no arguments satisfy the parameters of any of them");
        else if (form->schema)
            fail(&problem, status, "schema: no value satisfies it");
    }
    if (status != MF_OK && why) *why = problem;
    grammar_builder_free(a.builder);
    return status;
}

/* --------------------------------------------------------------- vocabulary */

static const char *bytes_of(void *user, int32_t id, size_t *length)
{
    const struct answer_tokens *tokens = user;
    const char *bytes = tokenizer_token_bytes(tokens->tokenizer, id, length);
    if (!bytes || !tokenizer_is_special(tokens->tokenizer, id)) return bytes;
    bool markup = tokens->family && output_family_has_markup(tokens->family, bytes, *length);
    return markup ? bytes : NULL;
}

mf_status answer_vocabulary_new(struct grammar_vocabulary **out, const mf_allocator *allocator,
                                const struct answer_tokens *tokens, mf_error *why)
{
    struct vocabulary_source source = {
        .token_count = tokens->usable,
        .bytes = bytes_of,
        .user = (void *)(uintptr_t)tokens,
        .end_tokens = tokens->end_tokens,
        .end_count = tokens->end_count,
    };
    return grammar_vocabulary_new(out, allocator, &source, why);
}
