/* handles.h: what the public opaque types are. */
#ifndef API_HANDLES_H
#define API_HANDLES_H

#include "base/machine.h"
#include "sampling/sampler.h"
#include "engine/step.h"
#include "model/families.h"
#include "model/model.h"
#include "state/prefix_disk.h"
#include "state/snapshot.h"

#include <pthread.h>

struct mf_engine {
    mf_allocator allocator;
    mf_files files;
    struct logger logger;
    struct machine machine;
    struct thread_pool *pool;
    struct backend *backend;
    const struct kernels *kernels;
    bool exact;            /* the reference's arithmetic */
    bool cuda;             /* the backend is a device */
    struct tracer *tracer; /* NULL: none was asked for */
    /* Held while sequences compute: pool, backend scratch and expert store have one
     * user at a time.  The reader of experts has a lock of its own
     * (io/async_engine.h), taken after this one. */
    pthread_mutex_t lock;
};

struct mf_template {
    struct chat_template *chat;
    bool bare; /* no checkpoint's: messages are not put into its words */
};

struct mf_text {
    struct model_text parts;
    mf_template chat; /* that of the parts */
};

struct mf_model {
    mf_engine *engine;
    struct model model;
    mf_text text;
    struct expert_store *experts;
    uint64_t memory_bytes; /* for weights, engine room, sequences and experts */
    struct engine_room room;
    enum kv_format kv_format;     /* not KV_DEFAULT */
    uint64_t policy_bytes;        /* tables of the expert cache's policy */
    uint64_t cache_bytes;         /* that the pool has more for the prefix cache */
    struct prefix_tree *prefixes; /* the prefix cache; NULL: none */
    struct prefix_disk disk;      /* and its directory; store NULL: memory only */
    pthread_mutex_t fingerprint_lock;
    char fingerprint[33]; /* of the weights; "": not yet asked for */
    /* Tokens as constraints on answers see them, in the syntax of `vocabulary_family`; NULL: not yet
     * asked for. */
    pthread_mutex_t vocabulary_lock;
    struct grammar_vocabulary *vocabulary;
    const struct output_family *vocabulary_family;
};

struct mf_sequence {
    mf_model *model;
    struct engine_sequence sequence;
    struct observer observer; /* passes routes on to … */
    mf_routes_function watch_routes;
    void *watch_user;
};

/* Zeroed memory for a handle, or NULL. */
void *api_new_handle(const mf_allocator *allocator, size_t bytes);

/* MF_ERR_ARGUMENT: this argument may not be NULL. */
mf_status api_missing(mf_error *why, const char *argument);

/* A caller's options as this version of the library has them: the fields that its struct_size
 * covers, the rest 0.  NULL: all 0.  `initialiser` names the macro that a message recommends. */
mf_status api_options_in(void *out, size_t own_size, const void *options, const char *initialiser,
                         mf_error *why);

/* The other way: fills a caller's statistics as far as its struct_size goes. */
mf_status api_statistics_out(void *out, const void *own, size_t own_size, const char *initialiser,
                             mf_error *why);

/* MF_ERR_UNSUPPORTED: the text has no tokenizer; MF_ERR_ARGUMENT: it is NULL. */
mf_status api_need_tokenizer(const mf_text *text, mf_error *why);

/* The output family of that name. */
struct output_family;
mf_status api_find_family(const struct output_family **out, const char *name, mf_error *why);

/* A JSON array in an argument; NULL text: MF_OK and NULL. */
mf_status api_parse_array_new(json_t **out, const char *text, const char *name, mf_error *why);

/* What the model may take in all, and what that leaves for experts. */
uint64_t api_memory_limit(const mf_engine *engine, uint64_t memory_bytes);
uint64_t api_budget_within(uint64_t limit, uint64_t resident_bytes, uint64_t other_bytes);
uint64_t api_expert_budget(const mf_model *model);

/* What is kept for the sequences that the options asked for, and for the prefix cache. */
uint64_t api_pool_bytes(const mf_model *model);

/* MF_ERR_MEMORY: what every token uses does not fit into the model's memory. */
mf_status api_admit_weights(const mf_model *model, mf_error *why);

/* After the store is opened: its tables are taken from its slots. */
mf_status api_count_tables(mf_model *model, mf_error *why);

/* Says what takes the memory that experts have not got; `why` holds the store's sentence. */
mf_status api_explain_memory(const mf_model *model, mf_error *why);

/* After the store is opened: sequences may have what resident experts leave. */
void api_widen_pool(mf_model *model);

/* The prefix cache of the options, on the pool of the engine room. */
mf_status api_open_cache(mf_model *model, const mf_model_options *options, mf_error *why);
void api_close_cache(mf_model *model);
void api_count_cache(mf_model_statistics *out, const mf_model *model);

/* What must be the same for a state to mean the same. */
mf_status api_identify(struct snapshot_identity *out, mf_model *model, mf_error *why);

/* mf_model_open for any source; the options are as api_options_in gives them. */
mf_status api_model_open(mf_model **out, mf_engine *engine, const char *path,
                         const struct ancestors_paths *ancestors, const mf_model_options *options,
                         mf_error *why);

/* A key/value format by name; NULL: the backend's. */
mf_status api_choose_kv_format(enum kv_format *out, const mf_engine *engine, const char *name,
                               mf_error *why);

/* MF_ERR_ARGUMENT: the model does not go so far. */
mf_status api_check_context(const struct model_config *config, uint32_t context, mf_error *why);

/* Sizes of the engine room, in chunks that leave most of `limit` bytes to the experts.  Of the
 * weights only resident_bytes is read. */
mf_status api_choose_room(struct engine_room_sizes *out, const struct forward_parts *parts,
                          uint64_t limit, const mf_model_options *options, mf_error *why);

/* What a prompt found in the cache `tree`; NULL: there is none. */
mf_resumed api_resumed(const struct prefix_match *match, const struct prefix_tree *tree);

struct mf_sampler {
    const mf_allocator *allocator;
    struct sampler *sampler;
};

#endif
