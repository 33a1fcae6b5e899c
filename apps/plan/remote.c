#include "plan/remote.h"

#include "common/clock.h"
#include "common/lists.h"
#include "hub/pull.h"
#include "moeflux_tools.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { IDLE_SECONDS = 30, AT_A_TIME = 8, TRIES = 4 };

/* A text that describes a model is not larger. */
enum { TEXT_LIMIT = 8 << 20, LENGTH_BYTES = 8 };

/* The first range of a GGUF file; each further one is as long as all before it. */
enum { FIRST_WINDOW = 1 << 20 };

/* ---------------------------------------------------------------- one range */

/* Bytes first … end - 1 of a file, into its copy. */
struct piece {
    const struct hub_file *file;
    uint64_t first, end;
    uint64_t at; /* that arrived */
    int descriptor;
    bool judged, done; /* of the last transfer; of all */
    struct transfer transfer;
    struct hub_retry retry;
};

/* Ranges must be answered with ranges: the rest of a large file is not wanted. */
static bool check_head(struct transfer *transfer)
{
    const struct piece *piece = transfer->user;
    const struct hub_head *head = &transfer->head;
    if (head->status == 206 && head->has_range && head->first == piece->first) return true;
    if (head->status == 200 && piece->first == 0 && piece->end == piece->file->size) return true;
    if (head->status != 200 && head->status != 206) return true; /* explained when it has ended */
    snprintf(transfer->problem, sizeof transfer->problem,
             "the server does not answer with the "
             "range that was asked for");
    return false;
}

static bool take_bytes(struct transfer *transfer, const void *bytes, size_t count)
{
    struct piece *piece = transfer->user;
    if (transfer->head.status != 200 && transfer->head.status != 206) return true;
    if (count > piece->end - piece->first - piece->at) {
        snprintf(transfer->problem, sizeof transfer->problem, "more arrives than was asked for");
        return false;
    }
    ssize_t written = pwrite(piece->descriptor, bytes, count, (off_t)(piece->first + piece->at));
    if (written != (ssize_t)count) {
        snprintf(transfer->problem, sizeof transfer->problem, "the temporary directory is full");
        return false;
    }
    piece->at += count;
    return true;
}

/* In the copy's directory, without the directories of the repository. */
static mf_status copy_path(char out[PATH_CAPACITY], const struct remote *remote,
                           const struct hub_file *file, mf_error *why)
{
    const char *slash = strrchr(file->path, '/');
    int length =
        snprintf(out, PATH_CAPACITY, "%s/%s", remote->directory, slash ? slash + 1 : file->path);
    if (length < PATH_CAPACITY) return MF_OK;
    return fail(why, MF_ERR_ARGUMENT, "the path of the temporary directory is too long");
}

static mf_status open_copy(struct piece *piece, const struct remote *remote, mf_error *why)
{
    char path[PATH_CAPACITY];
    mf_status status = copy_path(path, remote, piece->file, why);
    if (status != MF_OK) return status;
    piece->descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (piece->descriptor >= 0 && ftruncate(piece->descriptor, (off_t)piece->file->size) == 0)
        return MF_OK;
    return fail_errno(why, MF_ERR_IO, errno, "%.256s cannot be written", path);
}

static mf_status begin_piece(struct piece *piece, const struct remote *remote, mf_error *why)
{
    char address[HUB_ADDRESS_CAPACITY];
    mf_status status = hub_file_address(address, sizeof address, &remote->client,
                                        remote->listing.commit, piece->file->path, why);
    if (status != MF_OK) return status;
    piece->at = 0;
    piece->judged = false;
    piece->transfer.on_head = check_head;
    piece->transfer.on_body = take_bytes;
    piece->transfer.user = piece;
    return transfer_begin(&piece->transfer, remote->client.transport, address, piece->first,
                          piece->end, why);
}

/* After its transfer ended: it is whole, or is to be begun again later, or it failed. */
static mf_status judge_piece(struct piece *piece, const struct remote *remote, mf_error *why)
{
    unsigned code = piece->transfer.head.status;
    bool came = piece->transfer.state == TRANSFER_DONE && (code == 200 || code == 206);
    piece->done = came && piece->at == piece->end - piece->first;
    if (piece->done) return MF_OK;
    if (came)
        return fail(why, MF_ERR_IO, "%.200s of %.128s is shorter than the hub lists it",
                    piece->file->path, remote->client.repository);
    if (hub_retry_later(&piece->retry, &piece->transfer)) return MF_OK;
    return hub_explain(&remote->client, &piece->transfer, piece->file->path, why);
}

/* -------------------------------------------------------------- many ranges */

static mf_status step_piece(struct piece *piece, const struct remote *remote, unsigned *running,
                            mf_error *why)
{
    if (piece->done) return MF_OK;
    if (piece->transfer.state == TRANSFER_RUNS) {
        (*running)++;
        return MF_OK;
    }
    if (piece->transfer.state != TRANSFER_IDLE && !piece->judged) {
        piece->judged = true;
        return judge_piece(piece, remote, why);
    }
    if (*running >= AT_A_TIME || piece->retry.not_before > clock_seconds()) return MF_OK;
    (*running)++;
    return begin_piece(piece, remote, why);
}

static mf_status run_pieces(struct remote *remote, struct piece *pieces, size_t count,
                            mf_error *why)
{
    for (;;) {
        unsigned running = 0;
        size_t left = 0;
        for (size_t i = 0; i < count; i++) {
            mf_status status = step_piece(&pieces[i], remote, &running, why);
            if (status != MF_OK) return status;
            left += !pieces[i].done;
        }
        if (left == 0) return MF_OK;
        if (hub_is_stopped(remote->client.observer))
            return fail(why, MF_ERR_CANCELLED, "interrupted");
        mf_status status = transport_step(remote->client.transport, 100, why);
        if (status != MF_OK) return status;
    }
}

static mf_status count_bytes(struct remote *remote, const struct piece *pieces, size_t count,
                             mf_error *why)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = pieces[i].end - pieces[i].first;
        if (bytes > REMOTE_BYTES_MAX - remote->transferred)
            return fail(why, MF_ERR_UNSUPPORTED,
                        "the headers of %.128s have more than %d MB: `moeflux pull` downloads the "
                        "model, and then it can be planned",
                        remote->client.repository, REMOTE_BYTES_MAX / 1000000);
        remote->transferred += bytes;
    }
    return MF_OK;
}

/* Reads the ranges into the copies. */
static mf_status fetch_pieces(struct remote *remote, struct piece *pieces, size_t count,
                              mf_error *why)
{
    mf_status status = count_bytes(remote, pieces, count, why);
    for (size_t i = 0; i < count; i++) {
        pieces[i].descriptor = -1;
        pieces[i].retry.limit = TRIES;
    }
    for (size_t i = 0; i < count && status == MF_OK; i++)
        status = open_copy(&pieces[i], remote, why);
    if (status == MF_OK) status = run_pieces(remote, pieces, count, why);
    for (size_t i = 0; i < count; i++) {
        transfer_cancel(&pieces[i].transfer);
        if (pieces[i].descriptor >= 0) close(pieces[i].descriptor);
    }
    return status;
}

/* ------------------------------------------------------------- safetensors */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

static bool is_text(const char *path)
{
    return strcmp(path, "config.json") == 0 || ends_with(path, ".safetensors.index.json");
}

/* The length of a header, from the copy of its first 8 bytes. */
static mf_status read_length(uint64_t *out, const struct remote *remote,
                             const struct hub_file *file, mf_error *why)
{
    unsigned char bytes[LENGTH_BYTES];
    char path[PATH_CAPACITY];
    mf_status status = copy_path(path, remote, file, why);
    if (status != MF_OK) return status;
    FILE *stream = fopen(path, "rbe");
    bool read = stream && fread(bytes, 1, sizeof bytes, stream) == sizeof bytes;
    if (stream) fclose(stream);
    if (!read) return fail(why, MF_ERR_IO, "%.256s cannot be read", path);
    *out = 0;
    for (int i = LENGTH_BYTES; i-- > 0;) *out = *out << 8 | bytes[i];
    if (*out <= file->size - LENGTH_BYTES) return MF_OK;
    return fail(why, MF_ERR_FORMAT, "%.200s of %.128s is no safetensors file", file->path,
                remote->client.repository);
}

/* Texts as a whole, and the lengths of the headers. */
static size_t list_beginnings(struct piece *out, const struct remote *remote)
{
    size_t count = 0;
    for (size_t i = 0; i < remote->chosen->file_count; i++) {
        const struct hub_file *file = &remote->listing.files[remote->chosen->files[i]];
        uint64_t end = 0;
        if (ends_with(file->path, ".safetensors") && file->size >= LENGTH_BYTES)
            end = LENGTH_BYTES;
        else if (is_text(file->path) && file->size <= TEXT_LIMIT)
            end = file->size;
        if (end > 0) out[count++] = (struct piece){ .file = file, .end = end };
    }
    return count;
}

/* Those that were read in part go on to the ends of their headers. */
static mf_status list_headers(struct piece *pieces, size_t *count, const struct remote *remote,
                              mf_error *why)
{
    size_t kept = 0;
    mf_status status = MF_OK;
    for (size_t i = 0; i < *count && status == MF_OK; i++) {
        const struct hub_file *file = pieces[i].file;
        uint64_t length;
        if (!ends_with(file->path, ".safetensors")) continue;
        status = read_length(&length, remote, file, why);
        if (status != MF_OK || length == 0) continue;
        pieces[kept++] =
            (struct piece){ .file = file, .first = LENGTH_BYTES, .end = LENGTH_BYTES + length };
    }
    *count = kept;
    return status;
}

static mf_status fetch_safetensors(struct remote *remote, struct piece *pieces, mf_error *why)
{
    size_t count = list_beginnings(pieces, remote);
    mf_status status = fetch_pieces(remote, pieces, count, why);
    if (status == MF_OK) status = list_headers(pieces, &count, remote, why);
    if (status == MF_OK) status = fetch_pieces(remote, pieces, count, why);
    snprintf(remote->path, sizeof remote->path, "%s", remote->directory);
    return status;
}

/* --------------------------------------------------------------------- GGUF */

/* Whether the copy has all of the header.  What is not there yet reads as zeros, of which no model
 * is made, and which ends behind the bytes that were read. */
static bool is_whole(const struct remote *remote, uint64_t read)
{
    mf_description *description;
    mf_description_info info = MF_DESCRIPTION_INFO_INIT;
    if (mf_description_open(&description, remote->path, NULL) != MF_OK) return false;
    mf_description_get(&info, description, NULL);
    bool alone = remote->chosen->file_count == 1;
    bool whole = info.header_bytes > 0 && info.header_bytes <= read && (alone || info.supported);
    mf_description_close(description);
    return whole;
}

/* All parts of a split model have a header; the texts are in the first one. */
static mf_status fetch_gguf(struct remote *remote, struct piece *pieces, mf_error *why)
{
    const struct hub_candidate *chosen = remote->chosen;
    mf_status status =
        copy_path(remote->path, remote, &remote->listing.files[chosen->files[0]], why);
    for (uint64_t at = 0, end = FIRST_WINDOW; status == MF_OK; at = end, end *= 2) {
        size_t count = 0;
        for (size_t i = 0; i < chosen->file_count; i++) {
            const struct hub_file *file = &remote->listing.files[chosen->files[i]];
            uint64_t share = i == 0 ? 1 : 8;
            uint64_t first = at / share, last = min_size(end / share, file->size);
            if (first < last)
                pieces[count++] = (struct piece){ .file = file, .first = first, .end = last };
        }
        if (count == 0) return MF_OK; /* all is here: what it is says the description */
        status = fetch_pieces(remote, pieces, count, why);
        if (status == MF_OK && is_whole(remote, end)) return MF_OK;
    }
    return status;
}

/* --------------------------------------------------------------------- all */

/* What `moeflux pull` would choose; where nothing fits on the disk what would be chosen with room. */
static mf_status choose_best(struct remote *out, const char *repository, uint64_t memory_bytes,
                             mf_error *why)
{
    const char *reason, *cache = out->settings.cache;
    mf_status status = MF_OK;
    if (memory_bytes == 0) memory_bytes = hub_memory_bytes();
    if (cache[0])
        status = hub_count_missing(&out->candidates, &out->listing, cache, repository, why);
    if (status != MF_OK) return status;
    uint64_t room = cache[0] ? hub_room_bytes(cache) : UINT64_MAX;
    if (hub_choose_best(&out->chosen, &reason, &out->candidates, memory_bytes, room, NULL) == MF_OK)
        return MF_OK;
    return hub_choose_best(&out->chosen, &reason, &out->candidates, memory_bytes, UINT64_MAX, why);
}

static mf_status open_parts(struct remote *out, const struct hub_name *name, uint64_t memory_bytes,
                            mf_error *why)
{
    mf_status status = hub_settings_read(&out->settings, why);
    if (status != MF_OK) return status;
    if (out->settings.offline)
        return fail(why, MF_ERR_IO, "%.128s is not here, and HF_HUB_OFFLINE is set",
                    name->repository);
    status = transport_open(&out->client.transport, &out->settings, IDLE_SECONDS, why);
    if (status == MF_OK) status = hub_list(&out->listing, &out->client, why);
    if (status == MF_OK) status = hub_candidates_find(&out->candidates, &out->listing, why);
    if (status != MF_OK) return status;
    status = name->quantisation[0]
                 ? hub_choose_named(&out->chosen, &out->candidates, name->quantisation, why)
                 : choose_best(out, name->repository, memory_bytes, why);
    return status == MF_OK ? hub_candidate_check(out->chosen, why) : status;
}

mf_status remote_open(struct remote *out, const struct hub_name *name,
                      const struct hub_observer *observer, uint64_t memory_bytes, mf_error *why)
{
    *out = (struct remote){ .transferred = 0 };
    out->client = (struct hub_client){ .settings = &out->settings,
                                       .observer = observer,
                                       .repository = name->repository };
    mf_status status = open_parts(out, name, memory_bytes, why);
    if (status != MF_OK) remote_close(out);
    return status;
}

static mf_status make_directory(struct remote *remote, mf_error *why)
{
    const char *base = getenv("TMPDIR");
    int length = snprintf(remote->directory, sizeof remote->directory, "%s/moeflux-plan-XXXXXX",
                          base && *base ? base : "/tmp");
    if (length < PATH_CAPACITY && mkdtemp(remote->directory)) return MF_OK;
    remote->directory[0] = '\0';
    return fail_errno(why, MF_ERR_IO, errno, "a temporary directory cannot be made in %.200s",
                      base && *base ? base : "/tmp");
}

mf_status remote_fetch(struct remote *remote, mf_error *why)
{
    struct piece *pieces = calloc(remote->chosen->file_count, sizeof *pieces);
    if (!pieces) return fail_memory(why, remote->chosen->file_count * sizeof *pieces);
    mf_status status = make_directory(remote, why);
    if (status == MF_OK)
        status = remote->chosen->gguf ? fetch_gguf(remote, pieces, why)
                                      : fetch_safetensors(remote, pieces, why);
    free(pieces);
    return status;
}

void remote_close(struct remote *remote)
{
    char path[PATH_CAPACITY];
    for (size_t i = 0; remote->directory[0] && i < remote->chosen->file_count; i++) {
        const struct hub_file *file = &remote->listing.files[remote->chosen->files[i]];
        if (copy_path(path, remote, file, NULL) == MF_OK) unlink(path);
    }
    if (remote->directory[0]) rmdir(remote->directory);
    hub_candidates_free(&remote->candidates);
    hub_listing_free(&remote->listing);
    transport_close(remote->client.transport);
    remote->client.transport = NULL;
    remote->directory[0] = '\0';
}
