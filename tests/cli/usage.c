/* Help, the welcome text, and messages for mistyped commands and options. */
#include "program.h"

#include "../../apps/cli/command.h"

#include <string.h>

static const char *const commands[] = {
#define COMMAND_NAME(name) #name,
    COMMAND_LIST(COMMAND_NAME)
#undef COMMAND_NAME
};

static void no_arguments_show_what_can_be_done(void **state)
{
    struct run run = program_run(NULL, (const char *const[]){ NULL });

    (void)state;
    assert_int_equal(run.code, 0);
    assert_contains(run.out, "moeflux run \"");
    for (size_t i = 0; i < COMMAND_COUNT; i++) assert_contains(run.out, commands[i]);
    assert_string_equal(run.err, "");
    assert_null(strchr(run.out, '\033')); /* not a terminal: no colours */
    run_free(&run);
}

/* Commands that open no model have options of their own only. */
static bool opens_a_model(const char *command)
{
    static const char *const without[] = { "simulate", "cache", "connect", "plan", "doctor",
                                           "pull",     "list",  "show",    "rm" };

    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        if (strcmp(command, without[i]) == 0) return false;
    }
    return true;
}

static void every_command_has_help_with_examples(void **state)
{
    (void)state;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        struct run run = PROGRAM(NULL, commands[i], "--help");
        struct run other = PROGRAM(NULL, "help", commands[i]);
        char usage[64], example[64];
        snprintf(usage, sizeof usage, "usage: moeflux %s", commands[i]);
        snprintf(example, sizeof example, "moeflux %s", commands[i]);
        assert_int_equal(run.code, 0);
        assert_contains(run.out, usage);
        assert_int_equal(strstr(run.out, "-m, --model MODEL") != NULL, opens_a_model(commands[i]));
        assert_contains(run.out, "-h, --help");
        assert_contains(run.out, "examples:\n");
        assert_contains(strstr(run.out, "examples:\n"), example);
        assert_string_equal(run.err, "");
        assert_string_equal(run.out, other.out);
        run_free(&run);
        run_free(&other);
    }
}

static void help_lines_fit_in_a_narrow_window(void **state)
{
    (void)state;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        struct run run = PROGRAM(NULL, commands[i], "--help");
        for (const char *line = run.out; *line;) {
            size_t columns = 0, length = strcspn(line, "\n");
            for (size_t j = 0; j < length; j++) columns += (line[j] & 0xc0) != 0x80;
            if (columns > 96) fail_msg("%s: \"%.*s\"", commands[i], (int)length, line);
            line += length + (line[length] == '\n');
        }
        run_free(&run);
    }
}

static void the_version_is_known_everywhere(void **state)
{
    struct run plain = PROGRAM(NULL, "--version");

    (void)state;
    assert_int_equal(plain.code, 0);
    assert_string_equal(plain.out, "moeflux " MOEFLUX_VERSION "\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        struct run run = PROGRAM(NULL, commands[i], "--version");
        assert_int_equal(run.code, 0);
        assert_string_equal(run.out, plain.out);
        run_free(&run);
    }
    run_free(&plain);
}

static void mistyped_commands_get_a_suggestion(void **state)
{
    struct run run = PROGRAM(NULL, "tokenise");

    (void)state;
    assert_refused(&run, 2, "there is no command tokenise; did you mean tokenize?");
    run = PROGRAM(NULL, "detok");
    assert_refused(&run, 2, "did you mean detokenize?");
    run = PROGRAM(NULL, "xyzzy");
    assert_refused(&run, 2, "there is no command xyzzy\n");
    run = PROGRAM(NULL, "help", "tokenise");
    assert_refused(&run, 2, "did you mean tokenize?");
    run = PROGRAM(NULL, "");
    assert_refused(&run, 2, "there is no command");
    run = PROGRAM(NULL, "-m", "x", "tokenize");
    assert_refused(&run, 2, "the command comes first");
}

static void mistyped_options_get_a_suggestion(void **state)
{
    (void)state;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (!opens_a_model(commands[i])) continue;
        struct run run = PROGRAM(NULL, commands[i], "--treads", "2");
        assert_refused(&run, 2, "there is no option --treads; did you mean --threads?");
        run = PROGRAM(NULL, commands[i], "--model");
        assert_refused(&run, 2, "-m (--model) needs a value: MODEL");
        run = PROGRAM(NULL, commands[i], "-t", "0");
        assert_refused(&run, 2, "0 is outside 1 … 1024");
        run = PROGRAM(NULL, commands[i], "--backend", "cup");
        assert_refused(&run, 2, "did you mean cpu?");
        if (strcmp(commands[i], "run") == 0) continue; /* several words are one prompt */
        run = PROGRAM(NULL, commands[i], "one", "two", "three");
        assert_refused(&run, 2, "what is \"");
    }
}

/* Whatever stands on the command line: a sentence and status 1 or 2, never a crash. */
static void any_arguments_give_a_sentence_and_no_crash(void **state)
{
    static char long_word[100000];
    static const char *const words[] = {
        "",   "-",      "--",    "---",          "--=",           "-=",       "--tokens=",
        "%s", "%n%n%n", "\xff",  "--\xff\xfe=x", "--tokens=\xf0", "-\x80",    "--memory=9e99",
        "\n", "../..",  "--m=x", "--seed=-1",    "--context=1e9", "--stats=", long_word,
    };

    (void)state;
    memset(long_word, 'x', sizeof long_word - 1);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        for (size_t j = 0; j < sizeof words / sizeof words[0]; j++) {
            struct run run = PROGRAM(NULL, commands[i], "-m", "/nonexistent", words[j]);
            if (run.code != 1 && run.code != 2) {
                fail_msg("%s %s: status %d", commands[i], words[j], run.code);
            }
            assert_memory_equal(run.err, "moeflux", 7);
            assert_string_equal(run.out, "");
            run_free(&run);
        }
    }
    struct run run = PROGRAM(NULL, long_word);
    assert_refused(&run, 2, "there is no command xxx");
}

/* 2: the command line is wrong with every model; 1: it does not fit this one. */
static void wrong_values_end_with_2(void **state)
{
    struct run run = PROGRAM(NULL, "generate", "--tokens", "1", "--kernels", "nonsense");

    (void)state;
    assert_refused(&run, 2, "the kernel set \"nonsense\"");
    run = PROGRAM(NULL, "generate", "--tokens", "1", "--backend", "nonsense");
    assert_refused(&run, 2, "\"nonsense\" is not one of reference, cpu");
    run = PROGRAM(NULL, "bench", "--ops", "--no-ceilings", "--kernels", "nonsense");
    assert_refused(&run, 2, "the kernel set \"nonsense\"");
    run = PROGRAM(NULL, "bench", "--ops", "--no-ceilings", "--only", "nothing");
    assert_refused(&run, 2, "no operation and no format is called \"nothing\"");
    run = PROGRAM(NULL, "generate", "--tokens", "1", "-c", "100000");
    assert_refused(&run, 1, "the model goes to 4096 positions");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_arguments_show_what_can_be_done),
        cmocka_unit_test(every_command_has_help_with_examples),
        cmocka_unit_test(help_lines_fit_in_a_narrow_window),
        cmocka_unit_test(the_version_is_known_everywhere),
        cmocka_unit_test(mistyped_commands_get_a_suggestion),
        cmocka_unit_test(mistyped_options_get_a_suggestion),
        cmocka_unit_test(any_arguments_give_a_sentence_and_no_crash),
        cmocka_unit_test(wrong_values_end_with_2),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
