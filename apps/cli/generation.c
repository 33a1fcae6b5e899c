#include "generation.h"

#include "common/basics.h"
#include "common/error.h"

#include <signal.h>
#include <termios.h>
#include <unistd.h>

/* --------------------------------------------------------------- interrupt */

static volatile sig_atomic_t interrupted;
static struct sigaction old_action;
static struct termios old_modes;
static volatile sig_atomic_t modes_kept; /* old_modes are to be restored */
static unsigned begun;                   /* and not ended */

static void restore_modes(void)
{
    if (modes_kept) tcsetattr(STDIN_FILENO, TCSANOW, &old_modes);
    modes_kept = 0;
}

static void hide_typing(void)
{
    struct termios modes = old_modes;

    modes.c_lflag &= ~(tcflag_t)ECHO;
    modes_kept = 1;
    tcsetattr(STDIN_FILENO, TCSANOW, &modes);
}

/* Signals that end or stop the process: the terminal shows what is typed again before they do.
 * Not every shell repairs that itself. */
static const int ending_signals[] = { SIGTERM, SIGQUIT, SIGHUP, SIGTSTP };
static struct sigaction old_endings[COUNT_OF(ending_signals)];

/* Only calls that are safe in a handler. */
static void on_ending(int signal_number)
{
    struct sigaction standard = { .sa_handler = SIG_DFL }, ours;
    sigset_t set;
    bool hidden = modes_kept;

    restore_modes();
    sigaction(signal_number, &standard, &ours);
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    raise(signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* here the process ends or stops */
    sigaction(signal_number, &ours, NULL);
    if (hidden) hide_typing();
}

static void take_endings(void)
{
    struct sigaction action = { .sa_handler = on_ending, .sa_flags = SA_RESTART };

    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < COUNT_OF(ending_signals); i++) {
        sigaction(ending_signals[i], NULL, &old_endings[i]);
        if (old_endings[i].sa_handler == SIG_DFL) sigaction(ending_signals[i], &action, NULL);
    }
}

static void give_endings_back(void)
{
    for (size_t i = 0; i < COUNT_OF(ending_signals); i++)
        sigaction(ending_signals[i], &old_endings[i], NULL);
}

static void on_interrupt(int signal_number)
{
    if (interrupted) {
        restore_modes();
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    interrupted = 1;
}

void interrupt_begin(void)
{
    struct sigaction action = { .sa_handler = on_interrupt, .sa_flags = SA_RESTART };

    if (begun++ > 0) return;
    interrupted = 0;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &old_action);
    take_endings();
    /* What is typed meanwhile waits for the next prompt and does not stand in the answer. */
    if (isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &old_modes) == 0) {
        hide_typing();
    }
}

bool interrupt_seen(void)
{
    bool seen = interrupted;

    interrupted = 0;
    return seen;
}

void interrupt_end(void)
{
    if (--begun > 0) return;
    restore_modes();
    sigaction(SIGINT, &old_action, NULL);
    give_endings_back();
}

/* -------------------------------------------------------------- generation */

struct reading {
    mf_sequence *sequence;
    struct progress progress;
};

/* Called between layers. */
static void watch_reading(void *user, size_t done, size_t total)
{
    struct reading *reading = user;

    (void)total;
    progress_update(&reading->progress, done);
    if (interrupt_seen()) mf_sequence_cancel(reading->sequence);
}

mf_status prompt_feed(mf_sequence *sequence, const int32_t *ids, size_t count,
                      const struct terminal *terminal, mf_error *why)
{
    uint32_t room = mf_sequence_context_length(sequence) - mf_sequence_position(sequence);
    struct reading reading = { .sequence = sequence };
    mf_status status;

    if (count > room) {
        return fail(why, MF_ERR_CONTEXT_FULL,
                    "the prompt has %zu tokens, and the context has room for %u (-c sets its size)",
                    count, room);
    }
    progress_begin(&reading.progress, terminal, "reading", "tokens", count);
    mf_sequence_watch_progress(sequence, watch_reading, &reading);
    status = mf_sequence_feed(sequence, MF_PHASE_PROMPT, ids, count, why);
    mf_sequence_watch_progress(sequence, NULL, NULL);
    progress_end(&reading.progress);
    if (status != MF_ERR_CANCELLED) return status;
    return fail(why, status, "stopped while the prompt was read (%zu tokens)", count);
}

/* How many tokens may still come: what the caller allows, and what the context holds (one
 * more than it has room for, as the last one need not be fed). */
static size_t remaining_tokens(const struct generation *generation)
{
    const mf_sequence *sequence = generation->sequence;
    size_t room = mf_sequence_context_length(sequence) - mf_sequence_position(sequence) + 1;

    return min_size(generation->count_limit - generation->count, room);
}

/* -1: nothing can follow. */
static int32_t pick(const struct generation *generation)
{
    const float *logits = mf_sequence_logits(generation->sequence);
    mf_constraint *constraint = generation->constraint;

    if (!constraint) return mf_sampler_pick(generation->sampler, logits);
    int32_t token =
        mf_constraint_pick(constraint, generation->sampler, logits, remaining_tokens(generation));
    if (token >= 0) mf_constraint_accept(constraint, token);
    return token;
}

/* An answer of a grammar is over when nothing can follow it. */
static bool is_over(const struct generation *generation)
{
    return mf_constraint_is_finished(generation->constraint);
}

static mf_status check_room(const struct generation *generation, mf_error *why)
{
    size_t needed = mf_constraint_closing_tokens(generation->constraint);
    size_t room = remaining_tokens(generation);

    if (needed <= room) return MF_OK;
    return fail(why, MF_ERR_CONTEXT_FULL,
                "the shortest text of the grammar has up to %zu tokens, and there is room for %zu",
                needed, room);
}

mf_status generation_run(struct generation *generation, mf_error *why)
{
    mf_sequence *sequence = generation->sequence;
    uint32_t limit = mf_sequence_context_length(sequence);

    generation->count = 0;
    generation->end = END_OF_COUNT;
    mf_status status = check_room(generation, why);
    if (status != MF_OK) return status;
    while (generation->count < generation->count_limit) {
        int32_t token = pick(generation);
        if (token < 0) return fail(why, MF_ERR_ARGUMENT, "the model's logits allow no token");
        if (!generation->ignore_end && mf_model_is_end(generation->model, token)) {
            generation->end = END_OF_TEXT;
            return MF_OK;
        }
        generation->count++;
        mf_sampler_accept(generation->sampler, token);
        if (!generation->each(generation->user, token)) {
            generation->end = END_BY_CALLER;
            return MF_OK;
        }
        if (is_over(generation)) {
            generation->end = END_OF_TEXT;
            return MF_OK;
        }
        if (interrupt_seen()) {
            generation->end = END_BY_INTERRUPT;
            return MF_OK;
        }
        if (generation->count == generation->count_limit) return MF_OK;
        if (mf_sequence_position(sequence) == limit) {
            generation->end = END_OF_CONTEXT;
            return MF_OK;
        }
        status = mf_sequence_feed(sequence, MF_PHASE_GENERATED, &token, 1, why);
        if (status != MF_OK) return status;
    }
    return MF_OK;
}
