/* statistics.h: prints the statistics of a run on stderr, as a line, a table or JSON. */
#ifndef CLI_STATISTICS_H
#define CLI_STATISTICS_H

#include "opened.h"
#include "terminal.h"

struct run_statistics {
    mf_sequence_statistics sequence;
    mf_model_statistics model;
};

/* Since the sequence and the model were opened, or since the reset of both. */
void statistics_read(struct run_statistics *out, const struct opened *opened);
void statistics_reset(const struct opened *opened);

/* "8 prompt tokens at 410/s, 64 tokens at 395/s, experts 100.0% from memory"; `answer_tokens`
 * counts the last one, which need not be fed. */
void statistics_print_line(const struct run_statistics *stats, size_t answer_tokens,
                           const struct terminal *terminal);

/* Speed, times by stage, experts, and which of them each layer used. */
void statistics_print(const struct opened *opened);

/* That, if --stats asks for it, and the numbers as a line of JSON for --stats-json. */
void statistics_report(const struct opened *opened, const struct common_settings *settings);

/* 0 if `seconds` is 0. */
double rate_per_second(uint64_t count, double seconds);

#endif
