#include "runner.h"

#include "common/clock.h"
#include "common/error.h"

#include <sys/random.h>

/* A random seed: another text every time. */
static uint64_t any_seed(void)
{
    uint64_t seed = 0;

    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = (uint64_t)(clock_seconds() * 1e9);
    return seed;
}

/* Whose markup answers have: as the template shows, or as was asked for. */
static mf_status choose_family(struct runner *runner, mf_error *why)
{
    const char *name = runner->settings->family, *known;

    runner->family = mf_text_family(mf_model_text(runner->opened.model));
    if (!name) return MF_OK;
    for (size_t i = 0; (known = mf_family_name(i)); i++) {
        if (strcmp(known, name) != 0) continue;
        runner->family = known;
        return MF_OK;
    }
    report_as_usage();
    return fail(why, MF_ERR_ARGUMENT,
                "there is no family \"%.64s\"; `moeflux parse --help` lists them", name);
}

/* What the checkpoint and the settings say about drawing tokens. */
static mf_status open_sampling(struct runner *runner, mf_error *why)
{
    const struct run_settings *settings = runner->settings;
    mf_status status;

    runner->sampling = (mf_sampler_options)MF_SAMPLER_OPTIONS_INIT;
    status = mf_text_sampling(mf_model_text(runner->opened.model), &runner->sampling, why);
    if (status != MF_OK) return status;
    sampling_apply(&runner->sampling, &settings->sampling);
    runner->sampling.seed = settings->common.seed.given ? settings->common.seed.value : any_seed();
    status = sampling_read_biases(runner->biases, &runner->sampling, &settings->sampling,
                                  &runner->opened, why);
    return status == MF_OK ? sampling_stops_new(&runner->stops, &settings->sampling, why) : status;
}

/* The form of answers, tools and reasoning. */
static mf_status open_form(struct runner *runner, mf_error *why)
{
    const struct run_settings *settings = runner->settings;
    struct conversation *conversation = &runner->conversation;
    mf_status status = constraint_open(&runner->constraint, &settings->constraint, &runner->opened,
                                       runner->family, why);

    if (status != MF_OK) return status;
    /* A form is for the answer: reasoning before it would not fit. */
    if (constraint_shapes_content(&runner->constraint)) conversation->thinking = THINKING_OFF;
    if (settings->think) conversation->thinking = THINKING_ON;
    if (settings->no_think) conversation->thinking = THINKING_OFF;
    if (!settings->tools) return MF_OK;
    status = conversation_read_tools(conversation, settings->tools, why);
    constraint_set_tools(&runner->constraint, conversation->tools, settings->tool_choice,
                         settings->one_call);
    return status;
}

mf_status runner_open(struct runner *out, const struct run_settings *settings, mf_error *why)
{
    mf_status status;

    *out = (struct runner){ .settings = settings };
    terminal_probe(&out->terminal);
    out->view = reasoning_view_named(settings->reasoning, &out->terminal);
    status = opened_open(&out->opened, &settings->common, why);
    if (status == MF_OK) {
        status = recording_begin(&out->recording, &settings->recording, &out->opened, why);
    }
    if (status == MF_OK) status = conversation_open(&out->conversation, &out->opened, why);
    if (status == MF_OK) status = choose_family(out, why);
    if (status == MF_OK) status = open_form(out, why);
    if (status == MF_OK) status = open_sampling(out, why);
    if (status != MF_OK) return status;
    conversation_use_cache(&out->conversation, settings->common.cache);
    if (settings->system && !conversation_set_system(&out->conversation, settings->system)) {
        return fail(why, MF_ERR_ARGUMENT, "the system message is not UTF-8");
    }
    return MF_OK;
}

int runner_close(struct runner *runner, int code)
{
    code = recording_end(&runner->recording, code);
    answer_free(&runner->answer);
    mf_stops_close(runner->stops);
    constraint_close(&runner->constraint);
    conversation_close(&runner->conversation);
    opened_close(&runner->opened);
    return code;
}

static bool take_token(void *user, int32_t token)
{
    struct runner *runner = user;

    return answer_push(&runner->answer, token);
}

mf_status runner_answer(struct runner *runner, const mf_prompt *prompt, bool raw,
                        enum generation_end *end, mf_error *why)
{
    const struct run_settings *settings = runner->settings;
    struct generation generation = {
        .sequence = runner->opened.sequence,
        .model = runner->opened.model,
        .count_limit = settings->count.given ? settings->count.value
                       : raw                 ? 256
                                             : SIZE_MAX,
        .ignore_end = settings->ignore_end,
        .each = take_token,
        .user = runner,
    };
    struct answer_options options = {
        .terminal = &runner->terminal,
        .text = mf_model_text(runner->opened.model),
        .family = raw ? NULL : runner->family,
        .tools = runner->conversation.tools,
        .reasoning = mf_prompt_reasoning(prompt),
        .view = runner->view,
        .stops = runner->stops,
        .silent = settings->json,
    };
    mf_status status;

    answer_free(&runner->answer);
    status = constraint_begin(&runner->constraint, mf_prompt_reasoning(prompt),
                              &generation.constraint, why);
    if (status != MF_OK) return status;
    interrupt_begin();
    status = conversation_read(&runner->conversation, prompt, &runner->terminal, why);
    if (status == MF_OK) {
        status = mf_sampler_open(&generation.sampler, runner->opened.model, &runner->sampling, why);
    }
    if (status == MF_OK) status = answer_begin(&runner->answer, &options, why);
    if (status == MF_OK) {
        size_t count;
        const int32_t *ids = mf_prompt_tokens(prompt, &count);
        mf_sampler_accept_prompt(generation.sampler, ids, count);
        status = generation_run(&generation, why);
        answer_end(&runner->answer);
        if (runner->answer.stopped) generation.end = END_OF_TEXT;
    }
    interrupt_end();
    mf_sampler_close(generation.sampler);
    runner->sampling.seed++;
    *end = generation.end;
    runner->answer_tokens = generation.count;
    mf_prompt_tokens(prompt, &runner->prompt_tokens);
    return status;
}
