/* output_family.h: how the models of a family write tool calls, as data: the parser reads by it
 * (output_parser.h), and a grammar for answers is made of it (chat/constraint.h).
 *
 *     section_begin                                    <tool_call>
 *       call_begin NAME name_end                       <function=get_weather>
 *         parameter_begin KEY key_end                  <parameter=city>
 *         value_begin VALUE value_end                  Paris</parameter>
 *       call_end                                       </function>
 *     section_end                                      </tool_call>
 *
 * Two families are not of that form: Harmony writes a list of messages, each in a channel
 * (output_channels.c), Gemma 4 arguments that are nearly JSON (output_pairs.c).
 *
 * Lifetimes: constant tables.  Threads: shared freely. */
#ifndef CHAT_OUTPUT_FAMILY_H
#define CHAT_OUTPUT_FAMILY_H

#include "chat/output_parser.h"

enum output_body {
    BODY_NONE,       /* no calls */
    BODY_CALL,       /* {"name": …, "arguments": {…}} */
    BODY_ARGUMENTS,  /* name, then {…} */
    BODY_PARAMETERS, /* name, then a tag per parameter */
    BODY_PAIRS,      /* name, then {key:<|"|>text<|"|>,other:3}: bare keys, strings in `quote` */
};

/* Markup is literal; NULL: the family has none at this place.  White space is allowed between
 * any two, and where it separates names it is not part of them. */
struct output_family {
    const char *name;
    enum output_body body;
    const char *reasoning_begin, *reasoning_end;
    const char *reasoning_name;              /* a word behind reasoning_begin that is no text */
    const char *section_begin, *section_end; /* around one or more calls */
    const char *call_begin, *call_end;
    const char *name_begin; /* is no part of the name; may be left out */
    const char *name_end;   /* NULL: a line end or the next tag, which stays */
    const char *parameter_begin, *key_end;
    const char *value_begin, *value_end; /* value_begin NULL: the value follows the key at once */
    bool bare_calls;                     /* call_begin may stand without section_begin */
    bool call_ends_reasoning;            /* a well-formed call inside of reasoning ends it */
    bool lines_around_values;            /* one newline at each end of a value is markup */
    bool says_strings;     /* key_end is followed by true"> or false">: is the value a string? */
    bool numbered_names;   /* functions.NAME:7 is the call's id */
    bool fenced_arguments; /* NAME, then the JSON in a fenced block */
    bool channels;         /* an answer is a list of messages with headers, a call ends it */
    const char *quote;     /* around the strings of BODY_PAIRS */
    /* Between these stands what is not the model's to say: results of tools. */
    const char *result_begin, *result_end;
    /* turn_begin, turn_role or another role, newline, text, turn_end */
    const char *turn_begin, *turn_role, *turn_end;
    /* Special tokens of the syntax, NULL behind the last: they are never text, whatever is around
     * them.  A call that turns out to be none becomes text without them.  NULL: markup that means
     * nothing where it stands is text. */
    const char *const *markers;
    /* Tokens that end an answer, whatever a checkpoint lists, NULL behind the last; and one that does
     * not, though checkpoints list it. */
    const char *const *stops;
    const char *no_stop;
};

/* May reasoning stand in an answer, by the text of the chat template? */
bool output_family_reasons(const struct output_family *family, const char *template_source);

/* Is this text one of the family's tags, or a part of one?  For tokens that are marked special:
 * these belong to an answer all the same. */
bool output_family_has_markup(const struct output_family *family, const char *text, size_t length);

/* May a function have this name: will the parser read it back? */
bool output_is_name(const char *name);

/* {"type":"function","function":{…}} or what is in it; {"name":…,"parameters":…} in any case. */
const json_t *output_tool_function(const json_t *tool);

/* The schema of a tool's parameters; NULL: there is no such tool, or it takes none. */
const json_t *output_tool_parameters(const json_t *tools, const char *name, size_t length);

/* Does a parameter's schema name this type, itself or in one of its alternatives?  $ref starts
 * from `parameters`.  What names "string" is read as text, whatever it looks like. */
bool output_schema_declares(const json_t *parameters, const json_t *schema, const char *type);

#endif
