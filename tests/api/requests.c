/* requests: the third layer of moeflux.h: many requests at a time give what each gives alone;
 * cancelling, stop strings, forms, limits, parking.
 *     api_requests MODEL [DIRECTORY]   (models/pebble; a directory to write to: parking alone) */
#include <moeflux.h>

#include "check.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { MANY = 12, ANSWER = 24, TOKENS_MAX = 600 };

static mf_error why;
static const char *path, *directory;
static mf_engine *engine;

static const char *const questions[MANY] = {
    "What is the capital of France?",
    "Count from one to ten.",
    "Name a colour.",
    "Tell me a story about a fox and a river, with many animals in it.",
    "Hello",
    "What is 2 + 2?",
    "Who wrote Hamlet?",
    "Say it again, please.",
    "Why is the sky blue?",
    "Translate \"good morning\" into German.",
    "A list of three fruits:",
    "What is the capital of Italy?",
};

/* One question and what came back. */
struct talk {
    mf_prompt *prompt;
    mf_request *request;
    char text[4096];
    size_t length;
    int32_t tokens[TOKENS_MAX];
    size_t token_count;
    atomic_size_t progress;
    size_t stop_after; /* tokens; 0: never */
    size_t cancel_at;  /* tokens of the prompt; 0: never */
    atomic_int ended;  /* calls of `ended` */
    size_t rows_seen;  /* of all layers that have experts … */
    uint64_t routes;   /* … and a sum over what was chosen for them */
    mf_request_result result;
};

static bool take_event(void *user, const mf_event *event)
{
    struct talk *talk = user;
    if (event->kind != MF_EVENT_CONTENT) return true;
    CHECK(talk->length + event->length < sizeof talk->text);
    memcpy(talk->text + talk->length, event->text, event->length);
    talk->length += event->length;
    talk->text[talk->length] = '\0';
    return true;
}

static bool take_token(void *user, const mf_request_token *token)
{
    struct talk *talk = user;
    CHECK(atomic_load(&talk->ended) == 0 && talk->token_count < TOKENS_MAX);
    talk->tokens[talk->token_count++] = token->token;
    return talk->stop_after == 0 || talk->token_count < talk->stop_after;
}

static void take_progress(void *user, size_t done, size_t total)
{
    struct talk *talk = user;
    CHECK(done >= atomic_load(&talk->progress) && done <= total);
    atomic_store(&talk->progress, done);
    if (talk->cancel_at > 0 && done >= talk->cancel_at) mf_request_cancel(talk->request);
}

static uint64_t mix(uint64_t sum, const void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum = (sum ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
    return sum;
}

/* The same for any order of rows. */
static void take_routes(void *user, const mf_routes *routes)
{
    struct talk *talk = user;
    for (uint32_t row = 0; row < routes->row_count; row++) {
        const uint32_t key[] = { routes->layer, routes->position + row,
                                 (uint32_t)routes->tokens[row] };
        size_t first = (size_t)row * routes->per_row;
        uint64_t sum = mix(UINT64_C(0xcbf29ce484222325), key, sizeof key);
        sum = mix(sum, routes->experts + first, routes->per_row * sizeof *routes->experts);
        talk->routes += mix(sum, routes->weights + first, routes->per_row * sizeof(float));
        talk->rows_seen++;
    }
}

static void take_end(void *user, const mf_request_result *result)
{
    struct talk *talk = user;
    talk->result = *result;
    atomic_fetch_add(&talk->ended, 1);
}

static mf_model *open_model_with(uint32_t sequences, uint32_t context, uint64_t memory,
                                 const char *cache)
{
    mf_model_options options = MF_MODEL_OPTIONS_INIT;
    mf_model *model;
    options.cache = cache;
    options.sequences = sequences;
    options.context_length = context;
    options.memory_bytes = memory;
    CHECK(mf_model_open(&model, engine, path, &options, &why) == MF_OK);
    return model;
}

static mf_model *open_model(uint32_t sequences, uint32_t context, uint64_t memory)
{
    return open_model_with(sequences, context, memory, NULL);
}

static mf_scheduler *open_scheduler(mf_model *model, uint32_t parallel, uint32_t waiting)
{
    mf_scheduler_options options = MF_SCHEDULER_OPTIONS_INIT;
    mf_scheduler *scheduler;
    options.parallel = parallel;
    options.waiting = waiting;
    CHECK(mf_scheduler_open(&scheduler, model, &options, &why) == MF_OK);
    return scheduler;
}

static void begin_talk(struct talk *talk, const mf_model *model, const char *question)
{
    char messages[512];
    mf_chat_options options = MF_CHAT_OPTIONS_INIT;
    memset(talk, 0, sizeof *talk);
    char quoted[256];
    size_t length = 0;
    for (const char *c = question; *c; c++) {
        if (*c == '"') quoted[length++] = '\\';
        quoted[length++] = *c;
    }
    quoted[length] = '\0';
    snprintf(messages, sizeof messages, "[{\"role\":\"user\",\"content\":\"%s\"}]", quoted);
    options.messages = messages;
    CHECK(mf_chat_render(&talk->prompt, mf_model_text(model), &options, &why) == MF_OK);
}

/* Options of a talk's request: greedy, and all callbacks. */
static mf_request_options request_options(struct talk *talk)
{
    mf_request_options options = MF_REQUEST_OPTIONS_INIT;
    options.prompt = talk->prompt;
    options.max_tokens = ANSWER;
    options.family = "think";
    options.routes = take_routes;
    options.token = take_token;
    options.event = take_event;
    options.progress = take_progress;
    options.ended = take_end;
    options.user = talk;
    return options;
}

static void submit(struct talk *talk, mf_scheduler *scheduler)
{
    mf_request_options options = request_options(talk);
    CHECK(mf_request_submit(&talk->request, scheduler, &options, &why) == MF_OK);
}

static void end_talk(struct talk *talk)
{
    mf_request_close(talk->request);
    CHECK(atomic_load(&talk->ended) == 1);
    mf_prompt_close(talk->prompt);
}

/* The ids that a lone sequence gives. */
static void answer_alone(struct talk *talk, mf_model *model)
{
    mf_sequence *sequence;
    mf_sampler *sampler;
    size_t count;
    const int32_t *prompt = mf_prompt_tokens(talk->prompt, &count);
    CHECK(mf_sequence_open(&sequence, model, NULL, &why) == MF_OK);
    CHECK(mf_sampler_open(&sampler, model, NULL, &why) == MF_OK);
    mf_sequence_watch_routes(sequence, take_routes, talk);
    CHECK(mf_sequence_feed(sequence, MF_PHASE_PROMPT, prompt, count, &why) == MF_OK);
    while (talk->token_count < ANSWER) {
        int32_t token = mf_sampler_pick(sampler, mf_sequence_logits(sequence));
        if (mf_model_is_end(model, token)) break;
        talk->tokens[talk->token_count++] = token;
        if (talk->token_count == ANSWER) break; /* nothing follows it */
        CHECK(mf_sequence_feed(sequence, MF_PHASE_GENERATED, &token, 1, &why) == MF_OK);
    }
    mf_sampler_close(sampler);
    mf_sequence_close(sequence);
}

static mf_scheduler_statistics stats_of(const mf_scheduler *scheduler)
{
    mf_scheduler_statistics found = MF_SCHEDULER_STATISTICS_INIT;
    uint64_t known;
    CHECK(mf_scheduler_stats(scheduler, &found, &why) == MF_OK);
    known = found.running + found.waiting_interactive + found.waiting_background + found.parked;
    for (int i = 0; i < MF_FINISH_CAPACITY; i++) known += found.ended[i];
    CHECK(known == found.submitted);
    return found;
}

/* ------------------------------------------------------------------------ tests */

static struct talk alone[MANY];

/* What the reports of all steps say together. */
struct reported {
    uint64_t steps, prompt_rows, decode_rows, experts;
    double seconds;
};

static void take_report(void *user, const mf_step_report *report)
{
    struct reported *sum = user;
    double stages = 0;
    for (int i = 0; i < MF_STAGE_COUNT; i++) {
        CHECK(report->stage_seconds[i] >= 0);
        stages += report->stage_seconds[i];
    }
    /* A tick's length is measured while the program runs. */
    CHECK(stages > 0 && stages < 1.05 * report->seconds + 1e-3);
    CHECK(report->expert_wait_seconds >= 0 && report->expert_wait_seconds <= report->seconds);
    CHECK(report->experts > 0);
    sum->steps++;
    sum->prompt_rows += report->prompt_rows;
    sum->decode_rows += report->decode_rows;
    sum->experts += report->experts;
    sum->seconds += report->seconds;
}

static void check_reports(const struct reported *sum, const mf_scheduler *scheduler,
                          const mf_model *model)
{
    const mf_scheduler_statistics found = stats_of(scheduler);
    mf_model_statistics statistics = MF_MODEL_STATISTICS_INIT;
    CHECK(mf_model_stats(model, &statistics, &why) == MF_OK);
    CHECK(sum->steps == found.steps && sum->prompt_rows == found.prompt_rows);
    CHECK(sum->decode_rows == found.decode_rows);
    CHECK(sum->seconds > 0.999 * found.step_seconds && sum->seconds < 1.001 * found.step_seconds);
    CHECK(sum->experts == statistics.expert_hits + statistics.expert_misses);
}

/* Steps have had every row, each once; a last token that nothing follows has none. */
static void check_totals(const mf_scheduler *scheduler, size_t prompt, size_t answer, size_t cut)
{
    const mf_scheduler_statistics found = stats_of(scheduler);
    CHECK(found.running == 0 && found.submitted == MANY && found.parked_times == 0);
    CHECK(found.ended[MF_FINISH_LENGTH] == cut && found.ended[MF_FINISH_END] == MANY - cut);
    CHECK(found.prompt_rows == prompt && found.decode_rows == answer - cut);
    CHECK(found.steps > 0 && found.steps <= prompt + answer && found.step_seconds > 0);
    CHECK(found.last_prompt_rows == 0 && found.last_decode_rows > 0);
    CHECK(found.last_step_seconds > 0 && found.last_step_seconds < found.step_seconds);
}

static void many_give_what_each_gives_alone(void)
{
    size_t prompt_rows = 0, answer_rows = 0, cut = 0;
    mf_model *model = open_model(8, 512, 0);
    struct reported reported = { 0 };
    mf_scheduler_options options = MF_SCHEDULER_OPTIONS_INIT;
    mf_scheduler *scheduler;
    struct talk talks[MANY];
    options.parallel = 8;
    options.step = take_report;
    options.step_user = &reported;
    CHECK(mf_scheduler_open(&scheduler, model, &options, &why) == MF_OK);
    for (int i = 0; i < MANY; i++) {
        begin_talk(&alone[i], model, questions[i]);
        answer_alone(&alone[i], model);
        begin_talk(&talks[i], model, questions[i]);
    }
    CHECK(stats_of(scheduler).steps == 0);
    mf_model_reset_stats(model);
    for (int i = 0; i < MANY; i++) submit(&talks[i], scheduler);
    for (int i = 0; i < MANY; i++) {
        mf_request_result result = MF_REQUEST_RESULT_INIT;
        size_t prompt;
        mf_prompt_tokens(talks[i].prompt, &prompt);
        CHECK(mf_request_wait(talks[i].request, &result, &why) == MF_OK);
        CHECK(result.finish == MF_FINISH_END || result.finish == MF_FINISH_LENGTH);
        CHECK(result.prompt_tokens == prompt && atomic_load(&talks[i].progress) == prompt);
        CHECK(talks[i].token_count == alone[i].token_count);
        CHECK(memcmp(talks[i].tokens, alone[i].tokens, alone[i].token_count * sizeof(int32_t)) ==
              0);
        CHECK(result.answer_tokens == alone[i].token_count);
        CHECK(talks[i].rows_seen == alone[i].rows_seen && talks[i].routes == alone[i].routes);
        prompt_rows += prompt;
        answer_rows += result.answer_tokens;
        cut += result.finish == MF_FINISH_LENGTH;
        CHECK(result.wait_seconds >= 0 && result.prompt_seconds > 0 && result.answer_seconds >= 0);
        end_talk(&talks[i]);
    }
    check_totals(scheduler, prompt_rows, answer_rows, cut);
    check_reports(&reported, scheduler, model);
    mf_scheduler_close(scheduler);
    mf_model_close(model);
}

enum { PARKED = 5 };

/* More answers begin than the pool holds in the end: some are parked and come back. */
static void a_full_pool_parks_requests_and_loses_nothing(void)
{
    mf_model *model = open_model(2, 1400, 26 << 20);
    mf_scheduler_options options = MF_SCHEDULER_OPTIONS_INIT;
    mf_scheduler *scheduler;
    struct talk talks[PARKED];
    uint32_t parked = 0;
    int32_t expected[TOKENS_MAX];
    options.parallel = PARKED;
    options.park_directory = directory;
    CHECK(mf_scheduler_open(&scheduler, model, &options, &why) == MF_OK);
    for (int i = 0; i < PARKED; i++) {
        begin_talk(&talks[i], model, questions[3]);
        mf_request_options wanted = request_options(&talks[i]);
        wanted.max_tokens = 500;
        wanted.ignore_end = true;
        CHECK(mf_request_submit(&talks[i].request, scheduler, &wanted, &why) == MF_OK);
    }
    for (int i = 0; i < PARKED; i++) {
        mf_request_result result = MF_REQUEST_RESULT_INIT;
        CHECK(mf_request_wait(talks[i].request, &result, &why) == MF_OK);
        CHECK(result.finish == MF_FINISH_LENGTH && talks[i].token_count == 500);
        if (i == 0) memcpy(expected, talks[i].tokens, sizeof expected);
        CHECK(memcmp(expected, talks[i].tokens, 500 * sizeof(int32_t)) == 0);
        parked += result.parked;
        end_talk(&talks[i]);
    }
    CHECK(parked > 0 && stats_of(scheduler).parked_times == parked);
    CHECK(stats_of(scheduler).parked == 0 && stats_of(scheduler).ended[MF_FINISH_LENGTH] == PARKED);
    mf_scheduler_close(scheduler);
    mf_model_close(model);
}

enum { SHARING = 5, HEAD = 400 };

/* Prompts with a long common beginning, the rest of each its own. */
static void make_prompts(int32_t prompts[SHARING][HEAD + 20])
{
    for (int i = 0; i < SHARING; i++)
        for (int t = 0; t < HEAD + 20; t++)
            prompts[i][t] = t < HEAD ? 300 + t * 7 % 900 : 300 + (t * 11 + i * 101) % 900;
}

static void submit_ids(struct talk *talk, mf_scheduler *scheduler, const int32_t *prompt)
{
    memset(talk, 0, sizeof *talk);
    mf_request_options options = request_options(talk);
    static const uint32_t breakpoint = HEAD;
    options.prompt = NULL;
    options.tokens = prompt;
    options.token_count = HEAD + 20;
    options.breakpoints = &breakpoint;
    options.breakpoint_count = 1;
    options.ignore_end = true;
    CHECK(mf_request_submit(&talk->request, scheduler, &options, &why) == MF_OK);
}

/* All at once: the first computes the common beginning, the others wait for it and resume. */
static void a_common_beginning_is_computed_once(void)
{
    static int32_t prompts[SHARING][HEAD + 20];
    int32_t expected[SHARING][ANSWER];
    struct talk talks[SHARING];
    static const char *const modes[] = { NULL, "exact", "reuse" };
    make_prompts(prompts);
    for (int m = 0; m < 3; m++) {
        mf_model_options options = MF_MODEL_OPTIONS_INIT;
        mf_model *model;
        uint32_t resumed = 0;
        options.sequences = SHARING;
        options.context_length = 512;
        options.cache = modes[m];
        CHECK(mf_model_open(&model, engine, path, &options, &why) == MF_OK);
        mf_scheduler *scheduler = open_scheduler(model, SHARING, 0);
        for (int i = 0; i < SHARING; i++) submit_ids(&talks[i], scheduler, prompts[i]);
        for (int i = 0; i < SHARING; i++) {
            mf_request_result result = MF_REQUEST_RESULT_INIT;
            CHECK(mf_request_wait(talks[i].request, &result, &why) == MF_OK);
            CHECK(talks[i].token_count == ANSWER);
            CHECK((result.cached.reason == MF_RESUME_OFF) == (m == 0));
            resumed += result.cached.resumed;
            if (m == 0) memcpy(expected[i], talks[i].tokens, sizeof expected[i]);
            CHECK(memcmp(expected[i], talks[i].tokens, sizeof expected[i]) == 0);
            end_talk(&talks[i]);
        }
        CHECK(resumed == (m == 0 ? 0 : (SHARING - 1) * HEAD));
        mf_scheduler_close(scheduler);
        mf_model_close(model);
    }
}

/* A prompt that is cancelled while it is read goes on where it was when it is asked again. */
static void a_cancelled_prompt_is_found_again(void)
{
    static int32_t prompts[SHARING][HEAD + 20];
    mf_model_options options = MF_MODEL_OPTIONS_INIT;
    mf_request_result result = MF_REQUEST_RESULT_INIT;
    mf_model *model;
    struct talk talk = { 0 };
    make_prompts(prompts);
    options.sequences = 2;
    options.context_length = 512;
    options.chunk_rows = 32;
    options.cache = "exact";
    CHECK(mf_model_open(&model, engine, path, &options, &why) == MF_OK);
    mf_scheduler *scheduler = open_scheduler(model, 2, 0);
    mf_request_options wanted = request_options(&talk);
    wanted.prompt = NULL;
    wanted.tokens = prompts[0];
    wanted.token_count = HEAD + 20;
    talk.cancel_at = 320; /* beginnings below 256 tokens are not worth a checkpoint */
    CHECK(mf_request_submit(&talk.request, scheduler, &wanted, &why) == MF_OK);
    CHECK(mf_request_wait(talk.request, NULL, &why) == MF_ERR_CANCELLED);
    CHECK(atomic_load(&talk.progress) < HEAD);
    mf_request_close(talk.request);
    submit_ids(&talk, scheduler, prompts[0]);
    CHECK(mf_request_wait(talk.request, &result, &why) == MF_OK);
    CHECK(result.cached.resumed >= 256);
    end_talk(&talk);
    mf_scheduler_close(scheduler);
    mf_model_close(model);
}

/* The places of a conversation: where the next one leaves it, whatever its template adds. */
static void a_chat_has_places(void)
{
    mf_model *model = open_model(1, 512, 0);
    mf_chat_options options = MF_CHAT_OPTIONS_INIT;
    mf_prompt *first, *second, *other;
    size_t count, many[3], i;
    options.messages = "[{\"role\":\"system\",\"content\":\"Be short.\"},"
                       "{\"role\":\"user\",\"content\":\"One?\"}]";
    options.find_places = true;
    CHECK(mf_chat_render(&first, mf_model_text(model), &options, &why) == MF_OK);
    options.messages = "[{\"role\":\"system\",\"content\":\"Be short.\"},"
                       "{\"role\":\"user\",\"content\":\"One?\"},"
                       "{\"role\":\"assistant\",\"content\":\"Yes.\"},"
                       "{\"role\":\"user\",\"content\":\"Two?\"}]";
    CHECK(mf_chat_render(&second, mf_model_text(model), &options, &why) == MF_OK);
    options.messages = "[{\"role\":\"system\",\"content\":\"Be short.\"},"
                       "{\"role\":\"user\",\"content\":\"Another\"}]";
    CHECK(mf_chat_render(&other, mf_model_text(model), &options, &why) == MF_OK);
    const int32_t *ids[3] = { mf_prompt_tokens(first, &many[0]), mf_prompt_tokens(second, &many[1]),
                              mf_prompt_tokens(other, &many[2]) };
    const mf_prompt_place *places = mf_prompt_places(first, &count);
    CHECK(count == 2 && places[0].place == MF_PLACE_HEAD && places[1].place == MF_PLACE_PROMPT_END);
    for (i = 0; i < many[0] && ids[0][i] == ids[2][i]; i++) continue;
    CHECK(places[0].position > 3 && places[0].position <= i);
    for (i = 0; i < many[0] && ids[0][i] == ids[1][i]; i++) continue;
    CHECK(places[1].position <= i && places[1].position + 8 > i);
    places = mf_prompt_places(second, &count);
    CHECK(count == 3 && places[1].place == MF_PLACE_LAST_USER);
    CHECK(places[0].position < places[1].position && places[1].position < places[2].position);
    mf_prompt_close(first);
    mf_prompt_close(second);
    mf_prompt_close(other);
    mf_model_close(model);
}

static void a_callback_ends_a_request(void)
{
    mf_model *model = open_model(2, 512, 0);
    mf_scheduler *scheduler = open_scheduler(model, 2, 0);
    struct talk talk;
    mf_request_result result = MF_REQUEST_RESULT_INIT;
    begin_talk(&talk, model, questions[1]);
    talk.stop_after = 3;
    submit(&talk, scheduler);
    CHECK(mf_request_wait(talk.request, &result, &why) == MF_ERR_CANCELLED);
    CHECK(result.finish == MF_FINISH_CANCELLED && talk.token_count == 3);
    end_talk(&talk);
    mf_scheduler_close(scheduler);
    mf_model_close(model);
}

static void *cancel_soon(void *request)
{
    usleep(20000);
    mf_request_cancel(request);
    return NULL;
}

static void another_thread_cancels_and_memory_comes_back(void)
{
    mf_model *model = open_model(4, 512, 0);
    mf_scheduler *scheduler = open_scheduler(model, 4, 0);
    mf_model_statistics statistics = MF_MODEL_STATISTICS_INIT;
    struct talk talks[4];
    pthread_t thread;
    for (int i = 0; i < 4; i++) {
        begin_talk(&talks[i], model, questions[i]);
        mf_request_options options = request_options(&talks[i]);
        options.max_tokens = 400;
        options.ignore_end = true;
        CHECK(mf_request_submit(&talks[i].request, scheduler, &options, &why) == MF_OK);
    }
    CHECK(pthread_create(&thread, NULL, cancel_soon, talks[2].request) == 0);
    CHECK(mf_request_wait(talks[2].request, NULL, &why) == MF_ERR_CANCELLED);
    pthread_join(thread, NULL);
    mf_request_cancel(talks[2].request); /* once more does no harm */
    mf_scheduler_close(scheduler);       /* cancels the others */
    for (int i = 0; i < 4; i++) {
        CHECK(mf_request_wait(talks[i].request, NULL, NULL) == MF_ERR_CANCELLED);
        end_talk(&talks[i]);
    }
    CHECK(mf_model_stats(model, &statistics, &why) == MF_OK);
    CHECK(statistics.pool_pages == 0 && statistics.pool_states == 0);
    mf_model_close(model);
}

static void stops_forms_and_messages(void)
{
    mf_model *model = open_model(3, 512, 0);
    mf_scheduler *scheduler = open_scheduler(model, 3, 0);
    mf_constraint_options form = MF_CONSTRAINT_OPTIONS_INIT;
    static const char *const stop[] = { "aris" };
    const char *message;
    struct talk talks[2];
    mf_request_result result = MF_REQUEST_RESULT_INIT;
    begin_talk(&talks[0], model, questions[0]);
    mf_request_options options = request_options(&talks[0]);
    options.stops = stop;
    options.stop_count = 1;
    CHECK(mf_request_submit(&talks[0].request, scheduler, &options, &why) == MF_OK);
    begin_talk(&talks[1], model, questions[2]);
    options = request_options(&talks[1]);
    form.json_schema = "{\"type\":\"object\",\"properties\":{\"n\":{\"enum\":[7]}},"
                       "\"required\":[\"n\"],\"additionalProperties\":false}";
    options.constraint = &form;
    options.max_tokens = 100;
    options.logprobs = 3;
    options.token_logprobs = true;
    CHECK(mf_request_submit(&talks[1].request, scheduler, &options, &why) == MF_OK);
    CHECK(mf_request_wait(talks[0].request, &result, &why) == MF_OK);
    CHECK(result.finish == MF_FINISH_STOP && strcmp(result.stop, "aris") == 0);
    CHECK(!strstr(talks[0].text, "aris") && strstr(talks[0].text, "P"));
    CHECK(mf_request_wait(talks[1].request, &result, &why) == MF_OK);
    CHECK(mf_request_message(&message, talks[1].request, &why) == MF_OK);
    CHECK(result.finish == MF_FINISH_END && strstr(message, "\\\"n\\\""));
    for (int i = 0; i < 2; i++) end_talk(&talks[i]);
    mf_scheduler_close(scheduler);
    mf_model_close(model);
}

static void what_cannot_be_answered_is_refused(void)
{
    mf_model *model = open_model(1, 256, 0);
    mf_scheduler *scheduler = open_scheduler(model, 1, 1);
    mf_request *request;
    static int32_t tokens[300];
    struct talk talks[2];
    mf_request_options options = MF_REQUEST_OPTIONS_INIT;
    CHECK(mf_request_submit(&request, scheduler, &options, &why) == MF_ERR_ARGUMENT);
    options.tokens = tokens;
    CHECK(mf_request_submit(&request, scheduler, &options, &why) == MF_ERR_ARGUMENT);
    options.token_count = 300;
    CHECK(mf_request_submit(&request, scheduler, &options, &why) == MF_ERR_CONTEXT_FULL);
    options.token_count = 3;
    tokens[1] = -5;
    CHECK(mf_request_submit(&request, scheduler, &options, &why) == MF_ERR_ARGUMENT);
    tokens[1] = 5;
    options.logprobs = 1000;
    CHECK(mf_request_submit(&request, scheduler, &options, &why) == MF_ERR_ARGUMENT);
    CHECK(!request);
    /* One is answered, one waits. */
    for (int i = 0; i < 2; i++) {
        begin_talk(&talks[i], model, questions[i]);
        mf_request_options wanted = request_options(&talks[i]);
        wanted.max_tokens = 200;
        wanted.ignore_end = true;
        if (i == 1) wanted.priority = MF_PRIORITY_BACKGROUND;
        CHECK(mf_request_submit(&talks[i].request, scheduler, &wanted, &why) == MF_OK);
        while (i == 0 && atomic_load(&talks[0].progress) == 0) usleep(100);
    }
    options.logprobs = 0;
    CHECK(mf_request_submit(&request, scheduler, &options, &why) == MF_ERR_BUSY);
    mf_scheduler_statistics found = stats_of(scheduler);
    CHECK(found.refused_busy == 1 && found.refused_large == 1 && found.refused_wrong == 4);
    CHECK(found.submitted == 2 && found.running == 1 && found.waiting_background == 1);
    CHECK(found.waiting_interactive == 0 && found.parked == 0);
    for (int i = 0; i < 2; i++) end_talk(&talks[i]);
    mf_scheduler_close(scheduler);
    mf_model_close(model);
}

enum { SCORED = 300, SCORED_TOP = 3 };

/* How probable the tokens of a prompt are: by a sequence, and by a request. */
struct scores {
    const int32_t *tokens;
    mf_sampler *sampler;
    float values[SCORED];
    mf_logprob best[SCORED][SCORED_TOP];
    size_t count;
};

static void score_row(void *user, size_t index, const float *logits)
{
    struct scores *scores = user;
    size_t next = index + 1;
    if (next == SCORED) return;
    scores->values[next] = mf_sampler_logprob_of(scores->sampler, logits, scores->tokens[next]);
    CHECK(mf_sampler_logprobs(scores->sampler, scores->best[next], SCORED_TOP, logits) ==
          SCORED_TOP);
    scores->count++;
}

static void score_token(void *user, size_t position, const mf_request_token *token)
{
    struct scores *scores = user;
    CHECK(position == scores->count + 1 && position < SCORED);
    CHECK(token->token == scores->tokens[position] && token->logprob_count == SCORED_TOP);
    scores->values[position] = token->logprob;
    memcpy(scores->best[position], token->logprobs, sizeof scores->best[position]);
    scores->count++;
}

/* Beside answers under way, with the prompt in the prefix cache already: the same bits. */
static void a_prompt_is_scored_as_a_sequence_would(void)
{
    mf_model *model = open_model_with(4, 512, 0, "exact");
    mf_scheduler *scheduler = open_scheduler(model, 4, 0);
    mf_sequence *sequence;
    int32_t tokens[SCORED];
    struct talk talks[2];
    const uint32_t kept = 256;
    struct scores expected = { .tokens = tokens }, found = { .tokens = tokens };
    mf_request_options options = MF_REQUEST_OPTIONS_INIT;
    for (int i = 0; i < SCORED; i++) tokens[i] = 100 + (i * 37) % 900;
    CHECK(mf_sequence_open(&sequence, model, NULL, &why) == MF_OK);
    CHECK(mf_sampler_open(&expected.sampler, model, NULL, &why) == MF_OK);
    CHECK(mf_sequence_feed_each(sequence, MF_PHASE_PROMPT, tokens, SCORED, score_row, &expected,
                                &why) == MF_OK);
    for (int i = 0; i < 2; i++) {
        begin_talk(&talks[i], model, questions[3]);
        mf_request_options wanted = request_options(&talks[i]);
        wanted.max_tokens = 200;
        wanted.ignore_end = true;
        CHECK(mf_request_submit(&talks[i].request, scheduler, &wanted, &why) == MF_OK);
    }
    options.tokens = tokens;
    options.token_count = SCORED;
    options.breakpoints = &kept;
    options.breakpoint_count = 1;
    options.max_tokens = 1;
    for (int scored = 0; scored < 2; scored++) { /* the first one fills the cache */
        mf_request *request;
        mf_request_result result = MF_REQUEST_RESULT_INIT;
        if (scored) {
            options.prompt_token = score_token;
            options.user = &found;
            options.logprobs = SCORED_TOP;
            options.token_logprobs = true;
        }
        CHECK(mf_request_submit(&request, scheduler, &options, &why) == MF_OK);
        CHECK(mf_request_wait(request, &result, &why) == MF_OK);
        CHECK(result.cached.resumed == 0);
        mf_request_close(request);
    }
    CHECK(found.count == SCORED - 1 && expected.count == SCORED - 1);
    CHECK(memcmp(found.values, expected.values, sizeof found.values) == 0);
    CHECK(memcmp(found.best, expected.best, sizeof found.best) == 0);
    for (int i = 0; i < 2; i++) end_talk(&talks[i]);
    mf_sampler_close(expected.sampler);
    mf_sequence_close(sequence);
    mf_scheduler_close(scheduler);
    mf_model_close(model);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2 || argc == 3);
    path = argv[1];
    directory = argv[2];
    mf_engine_options options = MF_ENGINE_OPTIONS_INIT;
    options.thread_count = 2;
    options.profile = true;
    CHECK(mf_engine_open(&engine, &options, &why) == MF_OK);
    if (directory) {
        a_full_pool_parks_requests_and_loses_nothing();
        mf_engine_close(engine);
        return 0;
    }
    many_give_what_each_gives_alone();
    a_common_beginning_is_computed_once();
    a_cancelled_prompt_is_found_again();
    a_chat_has_places();
    a_callback_ends_a_request();
    another_thread_cancels_and_memory_comes_back();
    stops_forms_and_messages();
    what_cannot_be_answered_is_refused();
    a_prompt_is_scored_as_a_sequence_would();
    for (int i = 0; i < MANY; i++) mf_prompt_close(alone[i].prompt);
    mf_engine_close(engine);
    puts("requests: all as expected");
    return 0;
}
