/* engine: how many threads one has. */
#include "support/test.h"

#include "api/handles.h"

struct notes {
    unsigned count;
    char last[256];
};

static void take_note(void *user, mf_log_level level, const char *text)
{
    struct notes *notes = user;
    assert_int_equal(level, MF_LOG_WARNING);
    notes->count++;
    snprintf(notes->last, sizeof notes->last, "%s", text);
}

static unsigned threads_of(unsigned wanted, struct notes *notes)
{
    mf_engine *engine;
    mf_engine_options options = MF_ENGINE_OPTIONS_INIT;
    options.thread_count = wanted;
    options.log = take_note;
    options.log_user = notes;
    assert_int_equal(mf_engine_open(&engine, &options, NULL), MF_OK);
    unsigned count = mf_engine_thread_count(engine);
    assert_int_equal(count, thread_pool_size(engine->pool));
    mf_engine_close(engine);
    return count;
}

static void more_threads_than_cpus_are_not_used_and_noted(void **state)
{
    (void)state;
    struct machine machine;
    struct notes notes = { 0 };
    char wanted[64];
    machine_probe(&machine);
    assert_int_equal(threads_of(0, &notes), machine.core_count);
    assert_int_equal(threads_of(machine.core_count, &notes), machine.core_count);
    assert_int_equal(threads_of(1, &notes), 1);
    assert_int_equal(notes.count, 0);
    if (machine.core_count == THREADS_MAX) skip();
    assert_int_equal(threads_of(machine.core_count + 1, &notes), machine.core_count);
    assert_int_equal(notes.count, 1);
    snprintf(wanted, sizeof wanted, "%u threads were asked for", machine.core_count + 1);
    assert_non_null(strstr(notes.last, wanted));
}

static void absurd_counts_are_refused(void **state)
{
    (void)state;
    mf_engine *engine;
    mf_error why = { 0 };
    mf_engine_options options = MF_ENGINE_OPTIONS_INIT;
    options.thread_count = THREADS_MAX + 1;
    assert_int_equal(mf_engine_open(&engine, &options, &why), MF_ERR_ARGUMENT);
    assert_null(engine);
    assert_non_null(strstr(why.text, "1 to 1024"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(more_threads_than_cpus_are_not_used_and_noted),
        cmocka_unit_test(absurd_counts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
