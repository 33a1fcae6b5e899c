#include "batch/batch_file.h"

#include "common/basics.h"
#include "common/clock.h"
#include "cli/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ------------------------------------------------------------------ requests */

static mf_status add_request(struct batch_input *input, const char *line, size_t length,
                             size_t number, mf_error *why)
{
    json_t *ids = input->ids;
    json_error_t problem;
    json_t *request = json_loadb(line, length, JSON_REJECT_DUPLICATES, &problem);
    const char *id = json_string_value(json_object_get(request, "custom_id"));
    mf_status status = MF_OK;

    if (!json_is_object(request))
        status = fail(why, MF_ERR_FORMAT, "line %zu is not a JSON object: %.200s", number,
                      request ? "another value" : problem.text);
    else if (!id || *id == '\0')
        status = fail(why, MF_ERR_FORMAT, "line %zu has no \"custom_id\"", number);
    else if (json_object_get(ids, id))
        status = fail(why, MF_ERR_FORMAT, "line %zu has the custom_id \"%.64s\" of line %lld",
                      number, id, (long long)json_integer_value(json_object_get(ids, id)));
    else if (json_object_set_new(ids, id, json_integer((json_int_t)number)) != 0 ||
             json_array_append(input->lines, request) != 0)
        status = fail_memory(why, length);
    json_decref(request);
    return status;
}

mf_status batch_input_read(struct batch_input *out, const char *path, mf_error *why)
{
    char *text;
    size_t length, number = 0;
    mf_status status = input_read_new(&text, &length, path, why);

    *out = (struct batch_input){ json_array(), json_object() };
    if (status == MF_OK && (!out->ids || !out->lines)) status = fail_memory(why, 1);
    for (size_t at = 0; status == MF_OK && at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t count = end ? (size_t)(end - text) - at : length - at;
        number++;
        if (strspn(text + at, " \t\r\n") < count)
            status = add_request(out, text + at, count, number, why);
        at += count + 1;
    }
    if (status == MF_OK && json_array_size(out->lines) == 0)
        status = fail(why, MF_ERR_FORMAT, "%.256s has no requests", path);
    free(text);
    if (status != MF_OK) batch_input_free(out);
    return status;
}

void batch_input_free(struct batch_input *input)
{
    json_decref(input->lines);
    json_decref(input->ids);
    *input = (struct batch_input){ NULL, NULL };
}

/* ------------------------------------------------------------------- results */

/* Notes the results that are there; *end is where the whole lines end. */
static mf_status read_done(struct batch_output *output, const struct batch_input *input,
                           const char *text, size_t length, size_t *end, mf_error *why)
{
    for (*end = 0; *end < length;) {
        const char *newline = memchr(text + *end, '\n', length - *end);
        if (!newline) break;
        size_t count = (size_t)(newline - text) - *end;
        json_t *result = json_loadb(text + *end, count, 0, NULL);
        const char *id = json_string_value(json_object_get(result, "custom_id"));
        bool known = id && json_object_get(input->ids, id) && json_object_get(result, "response");
        if (known) json_object_set_new(output->done, id, json_true());
        json_decref(result);
        if (!known)
            return fail(why, MF_ERR_MISMATCH,
                        "%.256s has results that are not of these requests: give another file",
                        output->path);
        *end += count + 1;
    }
    return MF_OK;
}

mf_status batch_output_open(struct batch_output *out, const char *path,
                            const struct batch_input *input, mf_error *why)
{
    char *text = NULL;
    size_t length = 0, end = 0;
    struct stat info;
    mf_status status = MF_OK;

    *out = (struct batch_output){ .descriptor = -1, .path = path, .done = json_object() };
    if (!out->done) return fail_memory(why, 1);
    if (stat(path, &info) == 0) status = input_read_new(&text, &length, path, why);
    if (status == MF_OK && text) status = read_done(out, input, text, length, &end, why);
    free(text);
    if (status == MF_OK) {
        out->descriptor = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
        /* An unfinished line is removed. */
        if (out->descriptor < 0 || ftruncate(out->descriptor, (off_t)end) != 0 ||
            lseek(out->descriptor, 0, SEEK_END) < 0)
            status = fail(why, MF_ERR_IO, "%.256s cannot be written: %s", path, strerror(errno));
    }
    if (status != MF_OK) batch_output_close(out, NULL);
    return status;
}

static mf_status sync_output(struct batch_output *output, mf_error *why)
{
    output->synced = clock_seconds();
    if (fdatasync(output->descriptor) == 0 || errno == EINVAL) return MF_OK;
    return fail(why, MF_ERR_IO, "%.256s cannot be synced: %s", output->path, strerror(errno));
}

mf_status batch_output_add(struct batch_output *output, const json_t *result, mf_error *why)
{
    char *text = result ? json_dumps(result, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    size_t length = text ? strlen(text) : 0;
    mf_status status = MF_OK;

    if (!text) return fail_memory(why, 1);
    text[length++] = '\n'; /* in place of the NUL */
    for (size_t at = 0; at < length && status == MF_OK;) {
        ssize_t written = write(output->descriptor, text + at, length - at);
        if (written > 0)
            at += (size_t)written;
        else if (written < 0 && errno != EINTR)
            status =
                fail(why, MF_ERR_IO, "%.256s cannot be written: %s", output->path, strerror(errno));
    }
    free(text);
    if (status == MF_OK && clock_seconds() > output->synced + 1) status = sync_output(output, why);
    return status;
}

mf_status batch_output_close(struct batch_output *output, mf_error *why)
{
    mf_status status = output->descriptor >= 0 ? sync_output(output, why) : MF_OK;

    if (output->descriptor >= 0) close(output->descriptor);
    json_decref(output->done);
    *output = (struct batch_output){ .descriptor = -1 };
    return status;
}
