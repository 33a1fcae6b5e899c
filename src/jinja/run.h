/* run.h: one rendering: its heap, its scopes, its budget, its first error.
 *
 *     context ← top level ← for ← with ← …        a scope sees those to its left
 *                         ↖ macro                 of a macro: those around its definition
 *
 * `set` writes the innermost scope.  `if` opens none; `for` opens one per iteration; macros, call
 * blocks, filter blocks and set blocks open one each.
 *
 * Threads: a rendering belongs to one. */
#ifndef JINJA_RUN_H
#define JINJA_RUN_H

#include "jinja/ast.h"
#include "jinja/builtins.h"
#include "jinja/marks.h"

struct jinja_binding {
    const struct jinja_string *name; /* interned */
    struct jinja_value value;
};

struct jinja_scope {
    struct jinja_scope *parent;
    struct jinja_binding *bindings;
    size_t count, capacity;
    bool captured; /* a macro was defined in it: it must not be used again */
};

struct jinja_macro {
    const struct jinja_node *node;
    struct jinja_scope *scope; /* of the definition */
};

/* A loop in progress.  Items are drawn from `source` (a list itself, not a copy of it: the body
 * may change it) one at a time, as the loop's condition may depend on what the body did before; `ahead` holds those drawn early because the body asked for
 * the next item or the length. */
struct jinja_loop {
    const struct jinja_node *node;
    struct jinja_scope *outside;
    struct jinja_scope *condition; /* the scope in which the condition is evaluated */
    struct jinja_sequence *source;
    size_t drawn; /* of source */
    struct jinja_sequence *ahead;
    size_t taken; /* of ahead */
    int64_t index0;
    int64_t depth0;
    struct jinja_value before, current;
};

/* The last few results of a concatenation, each the start of a block with room behind it. */
struct jinja_growing {
    char *start, *end, *limit;
};

enum { JINJA_GROWING_COUNT = 4 };

struct jinja_run {
    const struct jinja_tree *tree;
    const struct jinja_options *options;
    const json_t *context;
    /* heap */
    struct arena arena;
    char *free_space;
    size_t free_bytes;
    size_t memory_left;
    struct jinja_region *regions; /* of the heap, in ascending order; see marks.h */
    size_t region_count, region_capacity;
    const struct arena *literals; /* memory of the template, whose text is markup */
    struct jinja_growing growing[JINJA_GROWING_COUNT];
    unsigned next_growing;
    /* budget */
    uint64_t steps_left;
    unsigned depth_left;
    size_t output_limit;
    /* place */
    struct jinja_scope *scope;
    struct jinja_scope *base; /* variables of the context, as they were first used */
    struct jinja_builder *output;
    struct jinja_value block; /* what a filter of a block is applied to */
    unsigned line, column;
    /* the first error */
    bool failed;
    enum jinja_error_kind error_kind;
    unsigned error_line, error_column;
    const char *error_message; /* in error_text or the heap */
    size_t error_length;
    char error_text[512];
};

/* ------------------------------------------------------------------ evaluate.c */

struct jinja_value jinja_evaluate(struct jinja_run *run, const struct jinja_node *node);
/* Calls whatever can be called. */
struct jinja_value jinja_call(struct jinja_run *run, struct jinja_value callee,
                              struct jinja_arguments *given);
/* The arguments of a CALL, FILTER or TEST node; false after an error. */
bool jinja_evaluate_arguments(struct jinja_run *run, struct jinja_arguments *out,
                              const struct jinja_node *call);
/* value.name and value[key], as Jinja looks for them; undefined when absent. */
struct jinja_value jinja_get_attribute(struct jinja_run *run, struct jinja_value object,
                                       const struct jinja_string *name);
struct jinja_value jinja_get_item(struct jinja_run *run, struct jinja_value object,
                                  struct jinja_value key);
/* "a.b.0" applied to a value, as the attribute parameter of filters means it.  `otherwise`, unless
 * it is absent or none, takes the place of what is undefined on the way. */
struct jinja_value jinja_get_path(struct jinja_run *run, struct jinja_value object,
                                  struct jinja_value path, struct jinja_value otherwise);

/* ------------------------------------------------------------------ operators.c */

struct jinja_value jinja_binary(struct jinja_run *run, enum jinja_operator operator,
                                struct jinja_value a, struct jinja_value b);
struct jinja_value jinja_unary(struct jinja_run *run, enum jinja_operator operator,
                               struct jinja_value a);
bool jinja_compare(struct jinja_run *run, enum jinja_operator operator, struct jinja_value a,
                   struct jinja_value b);
struct jinja_value jinja_slice(struct jinja_run *run, struct jinja_value object,
                               const struct jinja_value bounds[3]);

/* ------------------------------------------------------------------ execute.c */

/* Runs a list of statements in the present scope. */
void jinja_execute(struct jinja_run *run, const struct jinja_node *list);
/* Runs a body in a new scope inside `parent` and returns what it wrote. */
struct jinja_value jinja_call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                                    const struct jinja_arguments *given);
/* loop(items) of a recursive loop. */
struct jinja_value jinja_call_loop(struct jinja_run *run, const struct jinja_loop *loop,
                                   const struct jinja_arguments *given);
struct jinja_value jinja_loop_attribute(struct jinja_run *run, struct jinja_loop *loop,
                                        const struct jinja_string *name);

/* ------------------------------------------------------------------ scope.c */

struct jinja_scope *jinja_scope_new(struct jinja_run *run, struct jinja_scope *parent);
void jinja_scope_set(struct jinja_run *run, struct jinja_scope *scope,
                     const struct jinja_string *name, struct jinja_value value);
/* A variable, looked for in the scopes, the context and the globals. */
struct jinja_value jinja_scope_get(struct jinja_run *run, const struct jinja_string *name);

#endif
