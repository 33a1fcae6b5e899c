/* constraint.h: the form of a whole answer, as one grammar.
 *
 *     <think> reasoning </think>  text  <tool_call> name, arguments </tool_call> …
 *     ──────────────────────────  ────  ───────────────────────────────────────
 *      if the model may reason     free  a tool of the list, arguments by its schema
 *
 * Reasoning and text are free until markup begins: whatever a model writes without calling a
 * tool is allowed.  Once it begins a call, only a tool of the list and arguments that its
 * schema accepts can follow, in the syntax of its family (chat/output_family.h), and the call
 * closes before the limit of tokens (grammar/matcher.h).  What this grammar allows is read
 * back by the output parser as it was meant.
 *
 * With a schema for the content (`response_format`, `--json-schema`) the text is JSON by it, with a
 * grammar (`--grammar`) a text of that.
 *
 * Of the schema of a tool's parameters, a family that writes a tag per parameter keeps properties,
 * required and additionalProperties, and everything inside of them; the others keep all that
 * grammar/schema.h does.
 *
 * Narrower than what the parser reads, where that costs a model nothing: parameters come in the
 * order of their schema, markup as the family's templates write it, and a value between tags
 * does not contain the tags that would end it.
 *
 * Lifetimes: as grammar.h; a form is used during the call only. */
#ifndef CHAT_CONSTRAINT_H
#define CHAT_CONSTRAINT_H

#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "chat/output_parser.h"

struct grammar_vocabulary;
struct tokenizer;

enum answer_reasoning {
    ANSWER_NO_REASONING,   /* the prompt has closed it, or the model knows none */
    ANSWER_MAY_REASON,     /* the model opens it itself, or not */
    ANSWER_OPENS_REASONING /* the prompt ends inside of it */
};

enum tool_choice {
    TOOL_CHOICE_AUTO,     /* text, or text and then calls */
    TOOL_CHOICE_REQUIRED, /* at least one call, no text */
    TOOL_CHOICE_NONE      /* no call */
};

struct answer_form {
    const struct output_family *family;
    enum answer_reasoning reasoning;
    const json_t *tools; /* array of them, or NULL */
    enum tool_choice choice;
    const char *only_tool; /* NULL: any of the tools */
    bool one_call;         /* at most one */
    const json_t *schema;  /* of the content; NULL: free */
    const char *notation;  /* or a grammar of the content (grammar.h), terminated; NULL: free */
    /* For `schema`: lenient and notes.  Schemas of tools are always taken leniently, because
     * tools are written for models and not for grammars. */
    struct json_schema_options schema_options;
};

/* On failure *out is NULL: no such tool, a name that the family cannot write, parameters that are
 * no object, a schema that cannot be kept (the message names the tool). */
mf_status answer_grammar_new(struct grammar **out, const mf_allocator *allocator,
                             const struct answer_form *form, mf_error *why);

/* The tokens of an answer: all that can be shown, and of the special ones those that are markup
 * of `family` (NULL: none).  Ids from `usable` on are never chosen. */
struct answer_tokens {
    const struct tokenizer *tokenizer;
    const struct output_family *family;
    size_t usable;
    const int32_t *end_tokens;
    size_t end_count;
};
mf_status answer_vocabulary_new(struct grammar_vocabulary **out, const mf_allocator *allocator,
                                const struct answer_tokens *tokens, mf_error *why);

#endif
