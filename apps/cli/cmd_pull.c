/* `moeflux pull`: downloads a model from a Hugging Face hub into its cache. */
#include "command.h"
#include "pulling.h"

#include "hub/download.h"

struct pull_settings {
    struct common_settings common;
    struct maybe_count connections, idle;
    struct maybe_count memory;
    bool dry;
};

static const struct option options[] = {
    { 'n', "dry-run", OPTION_FLAG, offsetof(struct pull_settings, dry), NULL,
      .help = "list the quantisations of the repository and which one would be pulled" },
    { 0, "memory", OPTION_SIZE, offsetof(struct pull_settings, memory), "SIZE",
      .help = "choose for a machine with this much memory; default: this machine's" },
    { 0, "connections", OPTION_COUNT, offsetof(struct pull_settings, connections), "N",
      .help = "ranges that are read at a time; default 8", .low = 1, .high = HUB_CONNECTION_LIMIT },
    { 0, "idle", OPTION_COUNT, offsetof(struct pull_settings, idle), "SECONDS",
      .help = "give up a connection that brings nothing for this long, and try again; default 30",
      .low = 1, .high = 3600 },
};

static const struct option_group groups[] = { { "options", options, COUNT_OF(options), 0 } };

static int run(const void *settings_, const struct arguments *arguments)
{
    const struct pull_settings *settings = settings_;
    char path[PATH_CAPACITY];

    if (arguments->count == 0) return usage_error(&command_pull, "which model? ORG/NAME[:QUANT]");
    struct pulling pulling = { .name = arguments->values[0],
                               .connections = (unsigned)settings->connections.value,
                               .idle_seconds = (unsigned)settings->idle.value,
                               .memory_bytes = settings->memory.value,
                               .list = settings->dry };
    int code = pulling_run(&pulling, path);
    if (code == EXIT_DONE && path[0]) {
        output_write(path, strlen(path));
        output_write("\n", 1);
    }
    return code;
}

const struct command command_pull = {
    .name = "pull",
    .summary = "download a model into the Hugging Face cache",
    .arguments = "NAME[:QUANT]",
    .argument_limit = 1,
    .groups = groups,
    .group_count = COUNT_OF(groups),
    .opens_no_model = true,
    .notes =
        "NAME is org/name on huggingface.co, or on the hub that HF_ENDPOINT names. QUANT chooses\n"
        "GGUF files, as in Q4_K_M; without it the largest of at most 8 bits that fits into memory\n"
        "is taken, else the smallest of at least 4, whose experts are then read from disk. Other\n"
        "tools share the cache (HF_HOME, HF_HUB_CACHE). A download that was interrupted, however,\n"
        "goes on with the same command. Files get their names after their checksums were\n"
        "compared. The path of the model is printed on stdout. HF_TOKEN, or the file that\n"
        "`hf auth login` writes, opens private and gated models; HF_HUB_OFFLINE=1 forbids\n"
        "everything.",
    .examples = "  moeflux pull Qwen/Qwen3-30B-A3B-GGUF\n"
                "  moeflux pull Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M\n"
                "  moeflux pull Qwen/Qwen3-30B-A3B-GGUF --dry-run\n"
                "  moeflux run Qwen/Qwen3-30B-A3B-GGUF:Q4_K_M --yes \"Hello\"\n",
    .settings_bytes = sizeof(struct pull_settings),
    .run = run,
};
