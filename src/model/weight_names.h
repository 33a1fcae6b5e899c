/* weight_names.h: the places where a family's weights go.
 *
 * A layer recipe names its weights by id; binding fills the weights from the
 * checkpoint's tensors, whatever they are called there. */
#ifndef MODEL_WEIGHT_NAMES_H
#define MODEL_WEIGHT_NAMES_H

#define WEIGHT_LIST(X)                                                                             \
    /* the model as a whole */                                                                     \
    X(EMBEDDING)                                                                                   \
    X(FINAL_NORM)                                                                                  \
    X(HEAD)                                                                                        \
    X(ROPE_DIVISORS) /* GGUF's way to say which pairs stand still */                               \
    /* every layer */                                                                              \
    X(MIXER_NORM)                                                                                  \
    X(FFN_NORM)                                                                                    \
    /* some families: norms of what a mixer or a feed-forward adds, and a factor of the sum */     \
    X(MIXER_POST_NORM)                                                                             \
    X(FFN_POST_NORM)                                                                               \
    X(LAYER_SCALE)                                                                                 \
    /* full attention */                                                                           \
    X(Q)                                                                                           \
    X(K)                                                                                           \
    X(V)                                                                                           \
    X(ATTENTION_OUT)                                                                               \
    X(Q_BIAS)                                                                                      \
    X(K_BIAS)                                                                                      \
    X(V_BIAS)                                                                                      \
    X(ATTENTION_OUT_BIAS)                                                                          \
    X(SINKS)                                                                                       \
    X(Q_NORM)                                                                                      \
    X(K_NORM)                                                                                      \
    /* latent attention (MLA); queries are Q, or Q_A and Q_B */                                    \
    X(Q_A)                                                                                         \
    X(Q_A_NORM)                                                                                    \
    X(Q_B)                                                                                         \
    X(KV_A)                                                                                        \
    X(KV_A_NORM)                                                                                   \
    X(Q_A_BIAS)                                                                                    \
    X(KV_A_BIAS)                                                                                   \
    X(KV_B) /* per head [keys | values] from the latent; or, split by head: */                     \
    X(K_B)  /* [heads][latent][keys] */                                                            \
    X(V_B)  /* [heads][values][latent] */                                                          \
    /* gated delta net */                                                                          \
    X(DELTA_QKV)                                                                                   \
    X(DELTA_Z)                                                                                     \
    X(DELTA_B)                                                                                     \
    X(DELTA_A)                                                                                     \
    X(DELTA_CONV)                                                                                  \
    X(DELTA_DECAY)                                                                                 \
    X(DELTA_DT_BIAS)                                                                               \
    X(DELTA_NORM)                                                                                  \
    X(DELTA_OUT)                                                                                   \
    /* mixture of experts; the experts themselves belong to the expert store */                    \
    X(ROUTER)                                                                                      \
    X(ROUTER_ADDENDS) /* a bias of the product, which ROUTER_BIAS is not */                        \
    X(ROUTER_BIAS)                                                                                 \
    X(ROUTER_NORM)  /* what the router reads, where that is not what experts read */               \
    X(EXPERT_SCALE) /* a factor of each expert's weight */                                         \
    X(EXPERTS_POST_NORM)                                                                           \
    X(SHARED_NORM) /* what the shared expert reads, where that is not what the others read */      \
    X(SHARED_POST_NORM)                                                                            \
    X(SHARED_GATE)                                                                                 \
    X(SHARED_UP)                                                                                   \
    X(SHARED_DOWN)                                                                                 \
    X(SHARED_SCALE)                                                                                \
    /* dense feed-forward layers */                                                                \
    X(DENSE_GATE)                                                                                  \
    X(DENSE_UP)                                                                                    \
    X(DENSE_DOWN)

enum weight_id {
#define WEIGHT_ENUM(name) WEIGHT_##name,
    WEIGHT_LIST(WEIGHT_ENUM)
#undef WEIGHT_ENUM
        WEIGHT_COUNT
};

#endif
