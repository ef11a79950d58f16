// What attention on matrix tiles (attention_amx.h) is given: packed panels of queries and of keys with their values, and the rows that they came from.
#ifndef TRACEA_ATTENTION_AMX_OPERANDS_H
#define TRACEA_ATTENTION_AMX_OPERANDS_H

#include <stdint.h>

#include "tracea/config.h"
#include "tracea/storage.h"
#include "tracea/vec.h"

TRACEA_BEGIN_NAMESPACE

// Rows of queries, keys, values or results as they lie in memory.
struct AmxRows {
    const void* rows;
    int64_t stride_bytes;
    int64_t bytes;
};

// A block of queries in panels that lie `pitch` elements apart; the rest is AttentionQueries'.
struct AmxQueries {
    const bf16* panels;
    int64_t pitch;
    int64_t granules;  // of the depth
    int64_t rows;
    int64_t first;
    int64_t behind;
    int64_t ahead;
    int64_t begin;
    int64_t end;
    AmxRows query_rows;
    AmxRows result_rows;
};

// A block of keys in panels of 32, and their values in panels of 32 columns, which lie so many elements apart. What follows the rows that they were
// packed from is packed next, for this task or another: it is asked for meanwhile.
struct AmxKeys {
    const bf16* keys;
    int64_t key_pitch;
    const bf16* values;
    int64_t value_pitch;
    int64_t count;
    int64_t width;
    int64_t first;
    AmxRows key_rows;
    AmxRows value_rows;
};

// Lines that the next block needs, or the next task: the rows behind keys, values and queries, one after the other, and where the results will go.
class AmxAsking {
public:
    TRACEA_INLINE AmxAsking(const AmxQueries& queries, const AmxKeys& keys) {
        const int64_t rows = queries.rows < keys.count ? queries.rows : keys.count;
        begin(0, keys.key_rows, keys.count, rows);
        begin(1, keys.value_rows, keys.count, rows);
        begin(2, queries.query_rows, queries.rows, rows);
        begin(3, queries.result_rows, 0, rows);
    }
    TRACEA_INLINE void ask() {
        if (which_ == 4) return;
        Range& of = ranges_[which_];
        if (which_ < 3) {
            prefetch_l2(of.row + of.byte);
        } else {
            prefetch_l1_write(of.row + of.byte);
        }
        of.byte += line;
        if (of.byte < of.bytes) return;
        of.byte = 0;
        of.row += of.stride_bytes;
        if (--of.left <= 0) ++which_;
    }

private:
    static constexpr int64_t line = 64;
    struct Range {
        const uint8_t* row;
        int64_t stride_bytes;
        int64_t bytes;
        int64_t byte;
        int64_t left;
    };
    TRACEA_INLINE void begin(int range, const AmxRows& of, int64_t behind, int64_t rows) {
        const auto* first = static_cast<const uint8_t*>(of.rows);
        ranges_[range] = {first + behind * of.stride_bytes, of.stride_bytes, of.bytes, 0, rows};
    }
    Range ranges_[4];
    int which_ = 0;
};

TRACEA_END_NAMESPACE

#endif
