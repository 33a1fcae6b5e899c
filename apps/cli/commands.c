/* commands.c: the list of the commands and the options that they share.  The program and the
 * generator of the man page and the completion (apps/manual) are made from it. */
#include "command.h"

#include "common/basics.h"

#include <stdarg.h>

static const struct command *const commands[] = {
#define COMMAND_ENTRY(name) &command_##name,
    COMMAND_LIST(COMMAND_ENTRY)
#undef COMMAND_ENTRY
};

const struct command *command_at(size_t index)
{
    return index < COUNT_OF(commands) ? commands[index] : NULL;
}

static const char *const expert_modes[] = { "auto", "resident", "mapped", NULL };
static const char *const read_aheads[] = { "auto", "never", "always", NULL };
static const char *const readers[] = { "auto", "io_uring", "threads", NULL };
static const char *const kv_types[] = { "f32", "f16", "q8", NULL };
static const char *const backends[] = { "reference", "cpu", "cuda", NULL };

static const struct option common_options[] = {
    { 'm', "model", OPTION_TEXT, offsetof(struct common_settings, model), "MODEL",
      .help = "checkpoint directory, GGUF file, or org/name[:QUANT] in the local Hugging Face "
              "cache (see "
              "`moeflux pull`); without it the embedded model" },
    { 't', "threads", OPTION_COUNT, offsetof(struct common_settings, threads), "N",
      .help = "threads; default: one for every core", .low = 1, .high = 1024 },
    { 'c', "context", OPTION_COUNT, offsetof(struct common_settings, context), "N",
      .help = "positions of the context; default: the model's, at most 4096", .low = 1,
      .high = 1 << 24 },
    { 0, "prompt-chunk", OPTION_COUNT, offsetof(struct common_settings, prompt_chunk), "N",
      .help = "prompt tokens per step; default 2048, or 512 with less than 4 GiB; a smaller "
              "chunk takes less memory and more time",
      .low = 1, .high = 1 << 24 },
    { 0, "memory", OPTION_SIZE, offsetof(struct common_settings, memory_bytes), "SIZE",
      .help = "limit for weights, state and experts, as in 8G; default: the memory of the "
              "machine" },
    { 0, "vram", OPTION_SIZE, offsetof(struct common_settings, device_bytes), "SIZE",
      .help =
          "with --backend cuda: limit for what this process takes of the device's memory, as in "
          "8G; default: what is free there" },
    { 0, "seed", OPTION_COUNT, offsetof(struct common_settings, seed), "N",
      .help = "seed of the sampler; the same seed gives the same text" },
    { 0, "backend", OPTION_CHOICE, offsetof(struct common_settings, backend), "NAME",
      .help =
          "reference (plain C, defines the result), cpu (tuned) or cuda (an NVIDIA GPU); default: "
          "cpu",
      .choices = backends },
    { 0, "kernels", OPTION_TEXT, offsetof(struct common_settings, kernels), "NAME",
      .help = "kernel set, as in avx2; default: the best one for this CPU" },
    { 0, "kv", OPTION_CHOICE, offsetof(struct common_settings, kv), "TYPE",
      .help =
          "keys and values of the context in f32, f16 or q8 (half of f16's memory, slightly less "
          "exact); default: f16, of the reference f32",
      .choices = kv_types },
    { 0, "expert-mode", OPTION_CHOICE, offsetof(struct common_settings, expert_mode), "MODE",
      .help = "keep all experts in memory (resident) or map the files (mapped); default: auto, by "
              "size",
      .choices = expert_modes },
    { 0, "read-ahead", OPTION_CHOICE, offsetof(struct common_settings, read_ahead), "WHEN",
      .help = "read predicted experts ahead: auto, never or always; default: auto, while it saves "
              "time",
      .choices = read_aheads },
    { 0, "reader", OPTION_CHOICE, offsetof(struct common_settings, reader), "NAME",
      .help = "how experts are read: auto, io_uring or threads; default: auto, io_uring for direct "
              "reads",
      .choices = readers },
    { 0, "no-checksums", OPTION_FLAG, offsetof(struct common_settings, no_checksums), NULL,
      .help = "do not verify the checksums of a converted model's experts" },
    { 0, "stats", OPTION_FLAG, offsetof(struct common_settings, stats), NULL,
      .help = "print a table of times and expert statistics on stderr at the end" },
    { 0, "stats-json", OPTION_FLAG, offsetof(struct common_settings, stats_json), NULL,
      .help = "the same as one line of JSON on stderr" },
    { 0, "trace", OPTION_TEXT, offsetof(struct common_settings, trace), "FILE.json",
      .help = "write a time line of all operations and reads, for ui.perfetto.dev" },
    { 0, "version", OPTION_FLAG, 0, NULL, .help = "print the version" },
    { 'h', "help", OPTION_FLAG, 0, NULL, .help = "print this text" },
};

enum { OPTIONS_OF_ALL = 2 }; /* the last ones */

static const struct option_group common_group = { "common options", common_options,
                                                  COUNT_OF(common_options), 0 };

/* Of commands that open no model. */
static const struct option_group least_group = {
    "common options", common_options + COUNT_OF(common_options) - OPTIONS_OF_ALL, OPTIONS_OF_ALL, 0
};

const struct option_group *command_common_group(const struct command *command)
{
    return command->opens_no_model ? &least_group : &common_group;
}

int usage_error(const struct command *command, const char *format, ...)
{
    va_list list;

    fprintf(stderr, "moeflux %s: ", command->name);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, "\nmoeflux: `moeflux %s --help` shows its options\n", command->name);
    return EXIT_USAGE;
}
