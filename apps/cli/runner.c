#include "runner.h"

#include "common/clock.h"

#include "api/handles.h"
#include "base/status.h"

#include <sys/random.h>

/* The seed where the user gives none: another text every time. */
static uint64_t any_seed(void)
{
    uint64_t seed = 0;

    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = (uint64_t)(clock_seconds() * 1e9);
    return seed;
}

/* Whose markup answers have: as the template shows, or as was asked for. */
static mf_status open_family(struct runner *runner, mf_error *why)
{
    const char *name = runner->settings->family;
    const struct chat_template *chat = runner->conversation.chat;

    runner->family = name   ? output_family_find(name)
                     : chat ? output_family_detect(chat_template_source(chat))
                            : output_family_find("think");
    if (!runner->family) {
        return fail(why, MF_ERR_ARGUMENT,
                    "there is no family \"%.64s\"; `moeflux parse --help` lists them", name);
    }
    constraint_set_family(&runner->constraint, runner->family);
    return MF_OK;
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
    if (status == MF_OK) {
        status = conversation_open(&out->conversation, &out->opened, why);
    }
    if (status != MF_OK) return status;
    out->sampling = out->opened.model->text.sampling;
    status = constraint_open(&out->constraint, &settings->constraint, &out->opened, why);
    if (status != MF_OK) return status;
    sampling_apply(&out->sampling, &settings->sampling);
    status =
        sampling_read_biases(out->biases, &out->sampling, &settings->sampling, &out->opened, why);
    if (status == MF_OK) status = sampling_stops_new(&out->stops, &settings->sampling, why);
    if (status != MF_OK) return status;
    out->sampling.seed = settings->common.seed.given ? settings->common.seed.value : any_seed();
    /* A form is for the answer: reasoning before it would not fit. */
    if (constraint_shapes_content(&out->constraint)) out->conversation.thinking = THINKING_OFF;
    if (settings->think) out->conversation.thinking = THINKING_ON;
    if (settings->no_think) out->conversation.thinking = THINKING_OFF;
    status = open_family(out, why);
    if (status == MF_OK && settings->tools) {
        status = conversation_read_tools(&out->conversation, settings->tools, why);
        constraint_set_tools(&out->constraint, out->conversation.tools, settings->tool_choice);
        out->constraint.form.one_call = settings->one_call;
    }
    if (status != MF_OK) return status;
    if (settings->system && !conversation_set_system(&out->conversation, settings->system)) {
        return fail(why, MF_ERR_ARGUMENT, "the system message is not UTF-8");
    }
    return MF_OK;
}

int runner_close(struct runner *runner, int code)
{
    code = recording_end(&runner->recording, code);
    answer_free(&runner->answer);
    stop_strings_free(runner->stops);
    constraint_close(&runner->constraint);
    conversation_close(&runner->conversation);
    opened_close(&runner->opened);
    return code;
}

static bool take_token(void *user, int32_t token)
{
    struct runner *runner = user;

    conversation_hold(&runner->conversation, token);
    return answer_push(&runner->answer, token);
}

/* Where the prompt leaves the model: inside of reasoning, before it, or past it. */
static enum answer_reasoning reasoning_after(const struct runner *runner, const char *prompt,
                                             size_t length, bool raw)
{
    const struct conversation *conversation = &runner->conversation;

    if (raw || !conversation->chat) return ANSWER_NO_REASONING;
    if (output_prompt_opens_reasoning(prompt, length)) return ANSWER_OPENS_REASONING;
    if (conversation->thinking == THINKING_OFF) return ANSWER_NO_REASONING;
    return strstr(chat_template_source(conversation->chat), "<think>") ? ANSWER_MAY_REASON
                                                                       : ANSWER_NO_REASONING;
}

mf_status runner_answer(struct runner *runner, const char *prompt, size_t length, bool raw,
                        enum generation_end *end, mf_error *why)
{
    const struct run_settings *settings = runner->settings;
    struct generation generation = {
        .session = runner->opened.session,
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
        .tokenizer = runner->opened.model->text.tokenizer,
        .family = raw ? NULL : runner->family,
        .tools = runner->conversation.tools,
        .prompt = prompt,
        .prompt_length = length,
        .view = runner->view,
        .stops = runner->stops,
    };
    mf_status status;

    answer_free(&runner->answer);
    status = constraint_begin(&runner->constraint, reasoning_after(runner, prompt, length, raw),
                              &generation.matcher, why);
    if (status != MF_OK) return status;
    interrupt_begin();
    status = conversation_read(&runner->conversation, prompt, length, &runner->terminal, why);
    if (status == MF_OK) {
        status = sampling_open_new(&generation.sampler, &runner->opened, &runner->sampling, why);
    }
    if (status == MF_OK) status = answer_begin(&runner->answer, &options, why);
    if (status == MF_OK) {
        const struct token_list *held = &runner->conversation.held;
        sampler_accept_prompt(generation.sampler, held->ids, held->count);
        status = generation_run(&generation, why);
        answer_end(&runner->answer);
        if (runner->answer.stopped) generation.end = END_OF_TEXT;
    }
    interrupt_end();
    sampler_free(generation.sampler);
    runner->sampling.seed++;
    *end = generation.end;
    return status;
}
