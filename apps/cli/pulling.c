#include "pulling.h"

#include "model_path.h"
#include "planning.h"
#include "shown.h"
#include "terminal.h"

#include "common/error.h"
#include "hub/local.h"
#include "hub/pull.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* --------------------------------------------------------------- observing */

static volatile sig_atomic_t interrupted;

static void interrupt(int number)
{
    (void)number;
    interrupted = 1;
}

/* What the signals did before. */
struct signals {
    struct sigaction interrupt, terminate;
};

static void catch_signals(struct signals *before)
{
    struct sigaction action = { .sa_handler = interrupt };

    interrupted = 0;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, &before->interrupt);
    sigaction(SIGTERM, &action, &before->terminate);
}

static void restore_signals(const struct signals *before)
{
    sigaction(SIGINT, &before->interrupt, NULL);
    sigaction(SIGTERM, &before->terminate, NULL);
}

struct watch {
    struct terminal terminal;
    struct progress bar;
    bool begun;
    const char *name;
};

static bool is_interrupted(void *user)
{
    (void)user;
    return interrupted != 0;
}

static void say(void *user, const char *text)
{
    struct watch *watch = user;

    progress_end(&watch->bar);
    note("%s", text);
}

static void draw(void *user, uint64_t done, uint64_t total)
{
    struct watch *watch = user;

    if (!watch->begun) {
        progress_begin(&watch->bar, &watch->terminal, watch->name, "B", total);
        watch->begun = true;
    }
    progress_transfer(&watch->bar, done);
}

/* ----------------------------------------------------------------- showing */

static void show_plan(const struct hub_pull *pull)
{
    char all[32], missing[32], disk[32];
    const struct hub_candidate *chosen = pull->chosen;

    visible_printf(stderr, "moeflux: %s:%s", pull->name.repository, chosen->label);
    if (pull->reason) fprintf(stderr, " (%s)", pull->reason);
    fprintf(stderr, ": %zu file%s, %s", chosen->file_count, chosen->file_count == 1 ? "" : "s",
            size_text(chosen->bytes, all, sizeof all));
    if (chosen->missing_bytes == 0) {
        fputs(", all here\n", stderr);
        return;
    }
    if (chosen->missing_bytes < chosen->bytes)
        fprintf(stderr, ", %s of it not here", size_text(chosen->missing_bytes, missing, 32));
    fprintf(stderr, "; %s free in ", size_text(pull->disk_bytes, disk, sizeof disk));
    visible_printf(stderr, "%s\n", pull->settings.cache);
    if (!chosen->runs) {
        note("moeflux does not run %s yet; other programs can use the files", chosen->label);
    }
}

/* A list is what was asked for; only a quantisation that was named and is not there is a failure. */
static int list_candidates(const struct hub_pull *pull)
{
    char size[32];

    for (size_t i = 0; i < pull->candidates.count; i++) {
        const struct hub_candidate *c = &pull->candidates.items[i];
        visible_printf(stdout, "%-14s %10s  %zu file%s%s%s%s\n", c->label,
                       size_text(c->bytes, size, sizeof size), c->file_count,
                       c->file_count == 1 ? "" : "s", c->missing_bytes == 0 ? ", here" : "",
                       c->runs ? "" : ", moeflux does not run it yet",
                       c == pull->chosen ? "  <- would be pulled" : "");
    }
    if (pull->chosen) return EXIT_DONE;
    if (pull->name.quantisation[0]) return report(&pull->none);
    note("none would be pulled: %s", pull->none.text);
    return EXIT_DONE;
}

/* ----------------------------------------------------------------- running */

static int end(struct hub_pull *pull, mf_status status, const mf_error *why)
{
    if (status == MF_OK) return EXIT_DONE;
    if (status == MF_ERR_CANCELLED) {
        note("interrupted; what has arrived is kept, and the same command goes on from there");
        return EXIT_INTERRUPTED;
    }
    if (status == MF_ERR_ARGUMENT && !pull->name.repository[0]) report_as_usage();
    return report(why);
}

/* How fast it will run here, if that is known without measuring anything now. */
static void say_speed(struct hub_pull *pull, const struct pulling *pulling)
{
    char speed[128];
    struct hub_name name = pull->name;
    struct planning_query query = { .name = &name,
                                    .observer = &pull->observer,
                                    .kernels = pulling->kernels,
                                    .threads = pulling->threads,
                                    .memory_bytes = pulling->memory_bytes };

    snprintf(name.quantisation, sizeof name.quantisation, "%s", pull->chosen->label);
    if (!pull->chosen->runs || interrupted) return;
    if (planning_tell_speed(speed, sizeof speed, &query))
        note("it will generate %s; `moeflux plan %s:%s` says why", speed, name.repository,
             name.quantisation);
    else if (!interrupted)
        note("`moeflux plan %s:%s` tells how fast it will run here", name.repository,
             name.quantisation);
}

static int ask(bool *declined)
{
    if (interrupted) return EXIT_INTERRUPTED;
    fputs("Download it now?", stderr);
    if (terminal_ask()) return EXIT_DONE;
    if (interrupted) {
        fputc('\n', stderr);
        return EXIT_INTERRUPTED;
    }
    if (declined) *declined = true;
    note("nothing was downloaded");
    return EXIT_FAILED;
}

static int download(struct hub_pull *pull, const struct pulling *pulling, struct watch *watch,
                    char path[PATH_CAPACITY])
{
    mf_error why = { .text = "" };

    if (pulling->list) return list_candidates(pull);
    show_plan(pull);
    if (pulling->ask) {
        say_speed(pull, pulling);
        int code = ask(pulling->declined);
        if (code != EXIT_DONE) return code;
    }
    mf_status status = hub_pull_run(pull, path, &why);
    progress_end(&watch->bar);
    return end(pull, status, &why);
}

int pulling_run(const struct pulling *pulling, char path[PATH_CAPACITY])
{
    struct watch watch = { .name = pulling->name };
    struct hub_observer observer = { &watch, is_interrupted, say, draw };
    struct hub_pull_options options = { .name = pulling->name,
                                        .observer = &observer,
                                        .connections = pulling->connections,
                                        .idle_seconds = pulling->idle_seconds,
                                        .memory_bytes = pulling->memory_bytes,
                                        .list = pulling->list };
    struct hub_pull pull;
    struct signals before;
    mf_error why = { .text = "" };

    path[0] = '\0';
    terminal_probe(&watch.terminal);
    watch.bar.terminal = &watch.terminal;
    catch_signals(&before);
    mf_status status = hub_pull_open(&pull, &options, &why);
    int code = status == MF_OK ? download(&pull, pulling, &watch, path) : end(&pull, status, &why);
    if (status == MF_OK) hub_pull_close(&pull);
    restore_signals(&before);
    return code;
}

/* ---------------------------------------------------------------- offering */

/* Whether the cache has something that the name can mean. */
static bool is_here(const struct hub_name *name)
{
    char cache[PATH_CAPACITY], path[PATH_CAPACITY];
    bool found = false;

    if (hub_cache_directory(cache, NULL) != MF_OK) return true; /* opening it says what is wrong */
    if (!cache[0]) return false;
    return hub_local_find(&found, path, cache, name, NULL) != MF_OK || found;
}

int pulling_offer(const struct common_settings *common, const char *model, bool *declined)
{
    struct hub_name name;
    struct terminal terminal;
    struct pulling pulling = { .name = model,
                               .memory_bytes = common->memory_bytes.value,
                               .kernels = common->kernels,
                               .threads = (unsigned)common->threads.value,
                               .declined = declined };
    char path[PATH_CAPACITY];

    if (!model_path_is_name(&name, model) || is_here(&name)) return EXIT_DONE;
    terminal_probe(&terminal);
    pulling.ask = !common->yes;
    if (common->yes || (terminal.in && terminal.err && transport_is_there())) {
        return pulling_run(&pulling, path);
    }
    const char *colon = name.quantisation[0] ? ":" : "";
    mf_error why = { .text = "" };
    fail(&why, MF_ERR_IO, "%.128s%s%.64s is not here; `%s %.128s%s%.64s` downloads it%s",
         name.repository, colon, name.quantisation,
         transport_is_there() ? "moeflux pull" : "hf download", name.repository,
         transport_is_there() ? colon : "", transport_is_there() ? name.quantisation : "",
         transport_is_there() ? ", and so does --yes with this command" : "");
    return report(&why);
}
