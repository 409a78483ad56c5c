// recurrent: one work-group walks the steps of one sequence in one direction.
// NDRange: {LANES, batch * directions}; local size {LANES, 1}.
// Layouts: any.   Types: half, float, double; sums and states in float (double for double).
// Needs: LSTM, GRU or RNN (1 for one of them), STEPS, HIDDEN, GATES, PITCH (elements between the gates
// of `sums` and of packed weights), WIDTH and VECTOR (of packed weights), PACKED, SPACE (of the states),
// DIRECTIONS, REVERSE, HAS_LENGTHS, HAS_AFTER, HAS_PEEPHOLES, functions act0 …, for LSTM the positions
// INPUT, OUTPUT, FORGET and CELL of its gates and INPUT_FORGET, for GRU LINEAR.
// Barriers stand in the kernel itself: PoCL 3.1 gets them wrong in functions. All lanes reach them,
// as the length is the group's.
#if LANES > 1
#define SYNC barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
#else
#define SYNC
#endif

#if PACKED
// Neighbouring columns are neighbours; rows and columns are padded with zeros to whole vectors.
#define WEIGHTS(k, column) R_LOADS(((d * PITCH + (k)) * GATES) * PITCH + (column))
#define ADD_ROWS                                                  \
    for (int k = 0; k < PITCH; k += 4) {                          \
        total0 += state[k] * WEIGHTS(k, column);                  \
        total1 += state[k + 1] * WEIGHTS(k + 1, column);          \
        total2 += state[k + 2] * WEIGHTS(k + 2, column);          \
        total3 += state[k + 3] * WEIGHTS(k + 3, column);          \
    }
#else
#define ADD_ROWS \
    for (int k = 0; k < HIDDEN; k++) total0 += state[k] * R_LOAD(R_AT(d, column, k));
#endif

// sums = R * vector, for `count` gates from `first` on.
#define PRODUCT(vector, first, count)                                                   \
    {                                                                                   \
        const SPACE REAL* state = vector;                                               \
        for (int j = lane * WIDTH; j < (count) * PITCH; j += LANES * WIDTH) {           \
            const int column = (first) * PITCH + j;                                     \
            VECTOR total0 = 0, total1 = 0, total2 = 0, total3 = 0;                      \
            ADD_ROWS                                                                    \
            SUMS_STORE((total0 + total1) + (total2 + total3), sums + column);           \
        }                                                                               \
    }

// The inputs' share of a gate, and both shares.
#define PROJECTED(gate) X_LOAD(X_AT(b, t, (d * GATES + (gate)) * HIDDEN + u))
#define GATE(gate) (PROJECTED(gate) + sums[(gate) * PITCH + u])

KERNEL(ENTRY) {
    const int lane = get_local_id(0), sequence = get_global_id(1);
    const int b = sequence / DIRECTIONS, d = sequence % DIRECTIONS;
    SPACE REAL* hidden = states + STATES_START(sequence);
    SPACE REAL* other = hidden + PITCH;  // LSTM: the cell; GRU: the reset state
    SPACE REAL* sums = other + PITCH;
    for (int u = lane; u < PITCH; u += LANES) {
        hidden[u] = u < HIDDEN ? H_LOAD(H_AT(b, d, min(u, HIDDEN - 1))) : 0;
#if LSTM
        other[u] = u < HIDDEN ? C_LOAD(C_AT(b, d, min(u, HIDDEN - 1))) : 0;
#else
        other[u] = 0;
#endif
    }
#if HAS_LENGTHS
    const int length = (int)clamp((long)LENGTHS_LOAD(LENGTHS_AT(b)), (long)0, (long)STEPS);
#else
    const int length = STEPS;
#endif
    SYNC
    for (int step = 0; step < length; step++) {
        const int t = REVERSE || d == 1 ? length - 1 - step : step;
#if LSTM
        PRODUCT(hidden, 0, 4)
        SYNC
        for (int u = lane; u < HIDDEN; u += LANES) {
            REAL forget = GATE(FORGET), output = GATE(OUTPUT), cell = other[u];
#if HAS_PEEPHOLES
            forget += P_LOAD(P_AT(d, 2 * HIDDEN + u)) * cell;
#endif
            forget = act0(forget);
#if INPUT_FORGET
            const REAL input = 1 - forget;
#else
            REAL input = GATE(INPUT);
#if HAS_PEEPHOLES
            input += P_LOAD(P_AT(d, u)) * cell;
#endif
            input = act0(input);
#endif
            cell = forget * cell + input * act1(GATE(CELL));
#if HAS_PEEPHOLES
            output += P_LOAD(P_AT(d, HIDDEN + u)) * cell;
#endif
            const REAL shown = act0(output) * act2(cell);
            other[u] = cell;
            hidden[u] = shown;
            OUT0_STORE(OUT0_AT(b, d, t, u), shown);
        }
#elif GRU
        PRODUCT(hidden, 0, LINEAR ? 3 : 2)
        SYNC
#if !LINEAR
        for (int u = lane; u < HIDDEN; u += LANES) other[u] = act0(GATE(1)) * hidden[u];
        SYNC
        PRODUCT(other, 2, 1)
        SYNC
#endif
        for (int u = lane; u < HIDDEN; u += LANES) {
            const REAL update = act0(GATE(0));
#if LINEAR
            REAL product = sums[2 * PITCH + u];
#if HAS_AFTER
            product += AFTER_LOAD(AFTER_AT(d, u));
#endif
            const REAL fresh = act1(PROJECTED(2) + act0(GATE(1)) * product);
#else
            const REAL fresh = act1(GATE(2));
#endif
            const REAL shown = (1 - update) * fresh + update * hidden[u];
            hidden[u] = shown;
            OUT0_STORE(OUT0_AT(b, d, t, u), shown);
        }
#else
        PRODUCT(hidden, 0, 1)
        SYNC
        for (int u = lane; u < HIDDEN; u += LANES) {
            const REAL shown = act0(GATE(0));
            hidden[u] = shown;
            OUT0_STORE(OUT0_AT(b, d, t, u), shown);
        }
#endif
        SYNC
    }
    for (int i = lane; i < (STEPS - length) * HIDDEN; i += LANES)
        OUT0_STORE(OUT0_AT(b, d, length + i / HIDDEN, i % HIDDEN), (REAL)0);
    for (int u = lane; u < HIDDEN; u += LANES) {
        OUT1_STORE(OUT1_AT(b, d, u), hidden[u]);
#if LSTM
        OUT2_STORE(OUT2_AT(b, d, u), other[u]);
#endif
    }
}
