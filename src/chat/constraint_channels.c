/* Harmony: the form of an answer that is a list of messages, behind <|start|>assistant.
 *
 *     { <|channel|>analysis<|message|> reasoning <|end|><|start|>assistant
 *     | <|channel|>commentary<|message|> preamble <|end|><|start|>assistant }
 *       <|channel|>final<|message|> content
 *     | <|channel|>commentary to=functions.NAME <|constrain|>json<|message|> arguments
 *
 * A call ends the answer: what stops the model there is a token of its own (<|call|>). */
#include "chat/constraint_internal.h"

static const struct expression *text(struct answer *a, const char *literal)
{
    return expression_text(a->builder, literal);
}

/* Text without markers up to <|end|>, and what follows that. */
static const struct expression *message_text(struct answer *a, const struct expression *then,
                                             bool may_stop)
{
    enum { MARKERS_MAX = 16 };
    struct text_end ends[MARKERS_MAX];
    const char *end = a->family->reasoning_end;
    size_t count = 0;
    for (const char *const *marker = a->family->markers; *marker && count < MARKERS_MAX; marker++)
        ends[count++] = (struct text_end){ *marker, strcmp(*marker, end) == 0 ? then : NULL };
    return expression_text_until(a->builder, ends, count, may_stop);
}

/* The content that ends the answer. */
static const struct expression *final_message(struct answer *a, const struct expression *given)
{
    struct grammar_builder *b = a->builder;
    const struct expression *type = CHOICE(b, text(a, " <|constrain|>json"), text(a, " json"));
    if (!given)
        return SEQUENCE(b, text(a, "<|channel|>final<|message|>"),
                        message_text(a, expression_empty(b), true));
    return SEQUENCE(b, text(a, "<|channel|>final"),
                    expression_repeat(b, type, 0, a->form->schema ? 1 : 0), text(a, "<|message|>"),
                    given);
}

const struct expression *answer_of_channels(struct answer *a, bool calls,
                                            const struct expression *given)
{
    struct grammar_builder *b = a->builder;
    const struct expression *messages[4];
    size_t count = 0;
    uint32_t rule = builder_add_rule(b, NULL); /* behind a role */
    bool free = answer_is_free(a->form);
    const struct expression *next =
        answer_rule(b, SEQUENCE(b, text(a, "<|start|>assistant"), expression_rule(b, rule)));
    const struct expression *reasoning = answer_rule(b, message_text(a, next, free));
    if (a->form->reasoning != ANSWER_NO_REASONING)
        messages[count++] = SEQUENCE(b, text(a, a->family->reasoning_begin), reasoning);
    if (free)
        messages[count++] =
            SEQUENCE(b, text(a, "<|channel|>commentary<|message|>"), message_text(a, next, true));
    if (a->form->choice != TOOL_CHOICE_REQUIRED) messages[count++] = final_message(a, given);
    if (calls)
        messages[count++] = SEQUENCE(
            b, CHOICE(b, text(a, "<|channel|>commentary to=functions."), text(a, " to=functions.")),
            answer_call_rest(a));
    builder_define(b, rule, builder_failed(b) ? NULL : expression_choice(b, messages, count));
    return a->form->reasoning == ANSWER_OPENS_REASONING ? reasoning : expression_rule(b, rule);
}
