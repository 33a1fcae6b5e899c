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
    /* every layer */                                                                              \
    X(MIXER_NORM)                                                                                  \
    X(FFN_NORM)                                                                                    \
    /* full attention */                                                                           \
    X(Q)                                                                                           \
    X(K)                                                                                           \
    X(V)                                                                                           \
    X(ATTENTION_OUT)                                                                               \
    X(Q_NORM)                                                                                      \
    X(K_NORM)                                                                                      \
    /* latent attention (MLA); queries are Q, or Q_A and Q_B */                                    \
    X(Q_A)                                                                                         \
    X(Q_A_NORM)                                                                                    \
    X(Q_B)                                                                                         \
    X(KV_A)                                                                                        \
    X(KV_A_NORM)                                                                                   \
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
    X(ROUTER_BIAS)                                                                                 \
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
