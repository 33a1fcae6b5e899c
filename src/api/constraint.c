/* constraint.c: mf_constraint_*: the form of an answer. */
#include "api/handles.h"

#include "base/json.h"
#include "base/status.h"
#include "chat/constraint.h"
#include "grammar/matcher.h"

struct mf_constraint {
    const mf_allocator *allocator;
    struct grammar *grammar;
    struct grammar_vocabulary *vocabulary; /* its own; NULL: that of the model */
    struct grammar_matcher *matcher;
};

static mf_status read_choice(struct answer_form *form, const mf_constraint_options *options,
                             mf_error *why)
{
    const char *choice = options->tool_choice;
    if (choice && !options->tools)
        return fail(why, MF_ERR_ARGUMENT, "a tool_choice was given, but no tools");
    if (!choice || strcmp(choice, "auto") == 0) {
        form->choice = TOOL_CHOICE_AUTO;
    } else if (strcmp(choice, "none") == 0) {
        form->choice = TOOL_CHOICE_NONE;
    } else {
        form->choice = TOOL_CHOICE_REQUIRED;
        if (strcmp(choice, "required") != 0) form->only_tool = choice;
    }
    return MF_OK;
}

static mf_status read_form(struct answer_form *out, const mf_model *model,
                           const mf_constraint_options *options, mf_error *why)
{
    static const enum answer_reasoning reasonings[] = {
        [MF_REASONING_NONE] = ANSWER_NO_REASONING,
        [MF_REASONING_MAY] = ANSWER_MAY_REASON,
        [MF_REASONING_OPEN] = ANSWER_OPENS_REASONING,
    };
    if ((size_t)options->reasoning >= COUNT_OF(reasonings))
        return fail(why, MF_ERR_ARGUMENT, "%d is not an mf_reasoning", (int)options->reasoning);
    if (options->grammar && options->json_schema)
        return fail(why, MF_ERR_ARGUMENT, "a grammar and a JSON schema exclude each other");
    if (!options->grammar && !options->json_schema && !options->tools)
        return fail(why, MF_ERR_ARGUMENT, "there is no grammar, JSON schema or list of tools");
    out->reasoning = reasonings[options->reasoning];
    out->notation = options->grammar;
    out->one_call = options->one_call;
    out->schema_options.note = options->note;
    out->schema_options.user = options->note_user;
    const char *family = options->family ? options->family : mf_text_family(&model->text);
    mf_status status = api_find_family(&out->family, family, why);
    return status == MF_OK ? read_choice(out, options, why) : status;
}

static mf_status vocabulary_new(struct grammar_vocabulary **out, const mf_model *model,
                                const struct output_family *family, mf_error *why)
{
    struct answer_tokens tokens = { .tokenizer = model->text.parts.tokenizer,
                                    .family = family,
                                    .usable = model_usable_tokens(&model->model),
                                    .end_tokens = model->model.config.end_tokens,
                                    .end_count = model->model.config.end_token_count };
    return answer_vocabulary_new(out, &model->engine->allocator, &tokens, why);
}

/* The model keeps the vocabulary of the first family that is asked for, nearly always its own.  For
 * another family `own` is made. */
static mf_status find_vocabulary(const struct grammar_vocabulary **out,
                                 struct grammar_vocabulary **own, mf_model *model,
                                 const struct output_family *family, mf_error *why)
{
    mf_status status = MF_OK;
    pthread_mutex_lock(&model->vocabulary_lock);
    if (!model->vocabulary) {
        status = vocabulary_new(&model->vocabulary, model, family, why);
        model->vocabulary_family = family;
    }
    bool shared = model->vocabulary_family == family;
    *out = model->vocabulary;
    pthread_mutex_unlock(&model->vocabulary_lock);
    if (status != MF_OK || shared) return status;
    status = vocabulary_new(own, model, family, why);
    *out = *own;
    return status;
}

static mf_status open_parts(mf_constraint *constraint, const mf_model *model,
                            const struct answer_form *form, mf_error *why)
{
    const mf_allocator *allocator = constraint->allocator;
    const struct grammar_vocabulary *vocabulary;
    mf_status status = answer_grammar_new(&constraint->grammar, allocator, form, why);
    if (status == MF_OK)
        status = find_vocabulary(&vocabulary, &constraint->vocabulary, (mf_model *)(uintptr_t)model,
                                 form->family, why);
    if (status != MF_OK) return status;
    return grammar_matcher_new(&constraint->matcher, allocator, constraint->grammar, vocabulary,
                               why);
}

mf_status mf_constraint_open(mf_constraint **out, const mf_model *model,
                             const mf_constraint_options *options, mf_error *why)
{
    mf_constraint_options own;
    struct answer_form form = { 0 };
    json_t *schema = NULL, *tools = NULL;
    mf_constraint *constraint = NULL;
    if (!out) return api_missing(why, "out");
    *out = NULL;
    if (!model) return api_missing(why, "model");
    mf_status status = api_options_in(&own, sizeof own, options, "MF_CONSTRAINT_OPTIONS_INIT", why);
    if (status == MF_OK) status = api_need_tokenizer(&model->text, why);
    if (status == MF_OK) status = read_form(&form, model, &own, why);
    if (status == MF_OK && own.json_schema)
        status = json_schema_read_new(&schema, own.json_schema, strlen(own.json_schema), why);
    if (status == MF_OK) status = api_parse_array_new(&tools, own.tools, "tools", why);
    if (status != MF_OK) goto done;
    form.schema = schema;
    form.tools = tools;
    constraint = api_new_handle(&model->engine->allocator, sizeof *constraint);
    if (!constraint) {
        status = fail_memory(why, sizeof *constraint);
        goto done;
    }
    constraint->allocator = &model->engine->allocator;
    status = open_parts(constraint, model, &form, why);
    if (status != MF_OK) goto done;
    *out = constraint;
    constraint = NULL; /* the caller's now */
done:
    mf_constraint_close(constraint);
    json_decref(schema);
    json_decref(tools);
    return status;
}

void mf_constraint_close(mf_constraint *constraint)
{
    if (!constraint) return;
    grammar_matcher_free(constraint->matcher);
    grammar_free(constraint->grammar);
    grammar_vocabulary_free(constraint->vocabulary);
    constraint->allocator->release(constraint->allocator->user, constraint, sizeof *constraint);
}

int32_t mf_constraint_pick(mf_constraint *constraint, mf_sampler *sampler, const float *logits,
                           size_t remaining)
{
    if (!constraint || !sampler || !logits || remaining == 0) return -1;
    return matcher_pick(constraint->matcher, sampler->sampler, logits, remaining);
}

bool mf_constraint_accept(mf_constraint *constraint, int32_t token)
{
    return constraint && matcher_accept(constraint->matcher, token);
}

bool mf_constraint_is_complete(const mf_constraint *constraint)
{
    return constraint && matcher_is_complete(constraint->matcher);
}

bool mf_constraint_is_finished(const mf_constraint *constraint)
{
    return constraint && matcher_is_finished(constraint->matcher);
}

size_t mf_constraint_closing_tokens(mf_constraint *constraint)
{
    return constraint ? matcher_closing_tokens(constraint->matcher) : 0;
}

void mf_constraint_reset(mf_constraint *constraint)
{
    if (constraint) matcher_reset(constraint->matcher);
}
