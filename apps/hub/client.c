#include "hub/client.h"

#include "common/clock.h"
#include "common/lists.h"

#include <stdarg.h>
#include <stdio.h>

enum { FAILURE_LIMIT = 5, PAGE_LIMIT = 2000, ANSWER_LIMIT = 64 << 20 };
static const double longest_wait_seconds = 900;

bool hub_is_stopped(const struct hub_observer *observer)
{
    return observer->stop && observer->stop(observer->user);
}

void hub_say(const struct hub_observer *observer, const char *format, ...)
{
    char text[512];
    va_list list;

    if (!observer->say) return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    observer->say(observer->user, text);
}

/* ------------------------------------------------------------------ retries */

static bool may_pass(const struct transfer *transfer)
{
    unsigned status = transfer->head.status;

    if (transfer->state == TRANSFER_CUT) return true;
    return transfer->state == TRANSFER_DONE && (status == 429 || status == 408 || status >= 500);
}

bool hub_retry_later(struct hub_retry *retry, const struct transfer *transfer)
{
    double now = clock_seconds(), wait = 0.25;

    if (!may_pass(transfer)) return false;
    /* Connections that fail together count once. */
    if (now < retry->not_before) return true;
    if (++retry->failures >= retry->limit) return false;
    for (unsigned i = 1; i < retry->failures; i++) wait *= 2;
    if (transfer->state == TRANSFER_DONE && transfer->head.has_retry) {
        if (transfer->head.retry_seconds > longest_wait_seconds) return false;
        if (transfer->head.retry_seconds > wait) wait = transfer->head.retry_seconds;
    }
    retry->not_before = now + wait;
    return true;
}

/* 401: the hub says it of repositories that do not exist, too. */
static mf_status explain_unauthorised(const struct hub_client *client, mf_error *why)
{
    const char *endpoint = client->settings->endpoint;

    if (client->settings->token[0]) {
        return fail(why, MF_ERR_IO,
                    "%.200s does not accept the token for %.128s: make a new one at "
                    "%.200s/settings/tokens and put it into HF_TOKEN",
                    endpoint, client->repository, endpoint);
    }
    return fail(why, MF_ERR_IO,
                "there is no public model %.128s at %.200s; if it is private or gated, put a token "
                "from %.200s/settings/tokens into HF_TOKEN",
                client->repository, endpoint, endpoint);
}

mf_status hub_explain(const struct hub_client *client, const struct transfer *transfer,
                      const char *what, mf_error *why)
{
    const struct hub_head *head = &transfer->head;
    const char *endpoint = client->settings->endpoint, *name = client->repository;

    if (transfer->state != TRANSFER_DONE) {
        return fail(why, MF_ERR_IO, "%.128s could not be read from %.128s: %.200s", what, endpoint,
                    transfer->problem);
    }
    if (!transport_is_hub(client->transport, transfer_address(transfer))) {
        return fail(why, MF_ERR_IO,
                    "the server that %.128s names for %.200s answers with status %u; run the same "
                    "command again later",
                    endpoint, what, head->status);
    }
    if (strcmp(head->error_code, "GatedRepo") == 0) {
        return fail(why, MF_ERR_IO,
                    "%.128s is gated: accept its terms at %.128s/%.128s and put a token of that "
                    "account into HF_TOKEN",
                    name, endpoint, name);
    }
    switch (head->status) {
    case 401:
        return explain_unauthorised(client, why);
    case 403:
        return fail(why, MF_ERR_IO, "%.128s forbids %s to read %.200s%s", endpoint,
                    client->settings->token[0] ? "the account of the token"
                                               : "requests without a token",
                    what,
                    client->settings->token[0]
                        ? ": the token may lack the permission, or a firewall may be between"
                        : "; if it is private, put a token into HF_TOKEN");
    case 404:
    case 410:
        return fail(why, MF_ERR_IO, "%.128s has no %.200s", endpoint, what);
    case 429:
        return fail(why, MF_ERR_IO,
                    "%.128s answers only few requests at the moment%s: wait %.0f s and run the "
                    "same command again",
                    endpoint, client->settings->token[0] ? "" : " without HF_TOKEN",
                    head->has_retry ? head->retry_seconds : 60.0);
    default:
        return fail(why, MF_ERR_IO,
                    "%.128s answers the request for %.200s with status %u; run the "
                    "same command again later",
                    endpoint, what, head->status);
    }
}

/* ---------------------------------------------------------------- questions */

struct question {
    struct transfer transfer;
    struct byte_list answer;
};

static bool take_answer(struct transfer *transfer, const void *bytes, size_t count)
{
    struct question *question = transfer->user;

    if (transfer->head.status != 200) return true;
    if (question->answer.count + count > ANSWER_LIMIT) {
        snprintf(transfer->problem, sizeof transfer->problem, "the answer has more than 64 MiB");
        return false;
    }
    return byte_list_append(&question->answer, bytes, count, NULL) == MF_OK;
}

/* Waits for the end of the transfer, or until `moment` if it is not running. */
static mf_status wait_for(struct question *question, const struct hub_client *client, double moment,
                          mf_error *why)
{
    const struct transfer *transfer = &question->transfer;

    while (transfer->state == TRANSFER_RUNS || clock_seconds() < moment) {
        if (hub_is_stopped(client->observer)) return fail(why, MF_ERR_CANCELLED, "interrupted");
        mf_status status = transport_step(client->transport, 100, why);
        if (status != MF_OK) return status;
    }
    return MF_OK;
}

/* One answer of status 200, asked for until it comes. */
static mf_status ask(struct question *question, const struct hub_client *client,
                     const char *address, const char *what, mf_error *why)
{
    struct hub_retry retry = { .limit = FAILURE_LIMIT };
    mf_error reason = { .text = "" };

    question->transfer.on_body = take_answer;
    question->transfer.user = question;
    for (;;) {
        question->answer.count = 0;
        if (transfer_begin(&question->transfer, client->transport, address, 0, 0, &reason) != MF_OK)
            return fail(why, MF_ERR_IO, "%.200s: %.200s", address, reason.text);
        mf_status status = wait_for(question, client, 0, why);
        if (status != MF_OK) return status;
        bool done = question->transfer.state == TRANSFER_DONE;
        if (done && question->transfer.head.status == 200) return MF_OK;
        if (!hub_retry_later(&retry, &question->transfer))
            return hub_explain(client, &question->transfer, what, why);
        if (retry.not_before - clock_seconds() > 2) {
            hub_say(client->observer, "the hub is busy: trying again in %.0f s",
                    retry.not_before - clock_seconds());
        }
        status = wait_for(question, client, retry.not_before, why);
        if (status != MF_OK) return status;
    }
}

static const char *answer_text(const struct question *question)
{
    return question->answer.count ? question->answer.bytes : "";
}

static mf_status list_pages(struct hub_listing *out, struct question *question,
                            const struct hub_client *client, const char *what, mf_error *why)
{
    char address[HUB_ADDRESS_CAPACITY];
    mf_status status = MF_OK;

    snprintf(address, sizeof address, "%s/api/models/%s/tree/%s?recursive=true",
             client->settings->endpoint, client->repository, out->commit);
    for (size_t page = 0; status == MF_OK && address[0]; page++) {
        if (page == PAGE_LIMIT) {
            return fail(why, MF_ERR_FORMAT, "the hub's list of files does not end");
        }
        status = ask(question, client, address, what, why);
        if (status != MF_OK) break;
        status = hub_listing_add_page(out, answer_text(question), question->answer.count, why);
        address[0] = '\0';
        if (status == MF_OK && question->transfer.head.next[0])
            status = transfer_next_page(address, sizeof address, &question->transfer, why);
    }
    return status == MF_OK ? hub_listing_finish(out, why) : status;
}

mf_status hub_list(struct hub_listing *out, const struct hub_client *client, mf_error *why)
{
    struct question question = { .answer = { .count = 0 } };
    char address[1024], what[256];

    *out = (struct hub_listing){ .count = 0 };
    snprintf(what, sizeof what, "model %s", client->repository);
    snprintf(address, sizeof address, "%s/api/models/%s/revision/main", client->settings->endpoint,
             client->repository);
    mf_status status = ask(&question, client, address, what, why);
    if (status == MF_OK) {
        status = hub_listing_read_revision(out, answer_text(&question), question.answer.count, why);
    }
    if (status == MF_OK) status = list_pages(out, &question, client, what, why);
    transfer_cancel(&question.transfer);
    byte_list_free(&question.answer);
    if (status != MF_OK) hub_listing_free(out);
    return status;
}

mf_status hub_file_address(char *out, size_t capacity, const struct hub_client *client,
                           const char *commit, const char *path, mf_error *why)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~/";
    size_t used = (size_t)snprintf(out, capacity, "%s/%s/resolve/%s/", client->settings->endpoint,
                                   client->repository, commit);

    for (const char *at = path; *at && used + 4 < capacity; at++) {
        used += (size_t)snprintf(out + used, capacity - used, strchr(plain, *at) ? "%c" : "%%%02X",
                                 (unsigned char)*at);
    }
    if (used + 4 < capacity) return MF_OK;
    return fail(why, MF_ERR_FORMAT, "the address of %.128s is too long", path);
}
